"""Probes of sections 3.4 and 3.5: embeddings and positions."""

import torch

from .core import Adapter, Verdict, close, fault, paper, probe
from .plain import judge


@probe("positions-formula", "positions-sinusoids", "positions")
def formula(tried: Adapter) -> Verdict:
    """PE(pos, 2i) is the sine and PE(pos, 2i+1) the cosine of
    pos / 10000^(2i / d_model)."""
    table = torch.as_tensor(tried.positions(50, 16))
    if table.shape != (50, 16):
        return fault(
            "for 50 positions and d_model = 16 the table is "
            f"{tuple(table.shape)}, not (50, 16)"
        )
    return judge(table.tolist())


@probe("embeddings-tied", "embeddings-tying", "embeddings")
def one_matrix(tried: Adapter) -> Verdict:
    """One matrix makes vectors of words and scores of vectors."""
    model = tried.embeddings(1000, 64)
    weights = list(model.parameters())
    if not weights:
        return fault("weight is no nn.Parameter, so nothing would learn")
    if len(weights) > 1:
        if len({weight.data_ptr() for weight in weights}) == 1:
            return fault(
                f"{len(weights)} parameters share their numbers, but each has "
                "a gradient of its own: tie them as one nn.Parameter"
            )
        return fault(
            f"there are {len(weights)} parameters: one matrix does both jobs"
        )
    weight = weights[0].detach()
    if weight.shape != (1000, 64):
        return fault(
            f"the matrix is {tuple(weight.shape)}: it has a row for each "
            "token, (vocab_size, d_model)"
        )
    return paper("one parameter, (vocab_size, d_model)")


@probe("model-initialisation", "model-initialisation", "embeddings")
def entries(tried: Adapter) -> Verdict:
    """The paper does not give the initial weights; for words and scores
    of size 1 a tied matrix needs entries of size d_model^-0.5."""
    weight = next(tried.embeddings(1000, 64).parameters()).detach()
    spread = weight.std().item()
    # 64,000 random entries are off by less than a hundredth
    if 0.11 < spread < 0.14:
        return paper(f"entries of size {spread:.3f} for a d_model of 64")
    return fault(
        f"the entries have size {spread:.3f}: for scores of size 1 they "
        "need d_model^-0.5 = 0.125"
    )


@probe(
    "embeddings-factor", "embeddings-factor", "embeddings", after="one_matrix"
)
def factor(tried: Adapter) -> Verdict:
    """In the embedding layers the weights are multiplied by the root of
    d_model."""
    model = tried.embeddings(1000, 64)
    weight = next(model.parameters()).detach()
    ids = torch.randint(0, 1000, (2, 5))
    vectors = model.embed(ids).detach()
    if close(vectors, weight[ids] * 8):
        return paper("rows times 8, the root of 64")
    mistakes = {
        "the factor is missing: section 3.4 multiplies by sqrt(d_model)": (
            weight[ids]
        ),
        "the factor is sqrt(d_model), not d_model": weight[ids] * 64,
        "the factor is sqrt(d_model); yours divides by it": weight[ids] / 8,
    }
    otherwise = "embed does not give the rows of the ids, times sqrt(d_model)"
    return fault(otherwise, vectors, mistakes)


@probe(
    "embeddings-softmax", "embeddings-tying", "embeddings", after="one_matrix"
)
def scores(tried: Adapter) -> Verdict:
    """A linear map, without the embedding's factor, makes the scores
    that the softmax takes."""
    model = tried.embeddings(1000, 64)
    weight = next(model.parameters()).detach()
    hidden = torch.randn(2, 5, 64)
    got, right = model.project(hidden).detach(), hidden @ weight.T
    if close(got, right):
        return paper("the products with each row")
    mistakes = {
        "the factor belongs to the embedding layers alone": right * 8,
        "project gives the scores before the softmax, not its result": (
            right.log_softmax(-1)
        ),
        "project gives the scores before the softmax, not probabilities": (
            right.softmax(-1)
        ),
    }
    otherwise = "project does not give the products with each row"
    return fault(otherwise, got, mistakes)
