"""Probes of sections 3.4 and 3.5: embeddings and positions."""

import math

import torch
from torch import Tensor

from .core import Adapter, Verdict, close, deviation, fault, paper, probe

HALVES = (
    "sines and cosines concatenated",
    "tensor2tensor, fairseq, Marian models in Hugging Face Transformers",
)


def sinusoids(length: int, d_model: int) -> Tensor:
    """The table of section 3.5, in double precision."""
    pos = torch.arange(length).double()[:, None]
    angle = pos / 10_000 ** (torch.arange(0, d_model, 2) / d_model).double()
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def other_tables(length: int, d_model: int) -> dict[str, Tensor]:
    """What common mistakes put there, by their descriptions."""
    right = sinusoids(length + 1, d_model)
    sines, cosines = right[:-1, 0::2], right[:-1, 1::2]
    pos = torch.arange(length).double()[:, None]

    def interleaved(exponents: Tensor) -> Tensor:
        angle = pos / 10_000 ** exponents.double()
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

    even = torch.arange(0, d_model, 2)
    single = pos / 10_000 ** (torch.arange(d_model) / d_model).double()
    double = pos / 10_000 ** (2 * torch.arange(d_model) / d_model).double()
    shared = "the two of a pair share the angle pos / 10000^(2i / d_model)"

    def unpaired(angle: Tensor) -> Tensor:
        pairs = [angle[:, 0::2].sin(), angle[:, 1::2].cos()]
        return torch.stack(pairs, dim=-1).flatten(1)

    return {
        "even dimensions are sines and odd ones cosines, not the other "
        "way round": torch.stack([cosines, sines], -1).flatten(1),
        "positions count from 0: the first row is 0, 1, 0, 1, ...": right[1:],
        "dimension 1 turns slower than dimension 0: " + shared: (
            unpaired(single)
        ),
        "the exponent is twice the index of the dimension, where 2i is "
        "that index: " + shared: unpaired(double),
        "the exponent is 2i / d_model; yours is i / d_model": (
            interleaved(even / d_model / 2)
        ),
        "the exponents run to 1: divide 2i by d_model, not by d_model - 2": (
            interleaved(torch.linspace(0, 1, d_model // 2))
        ),
    }


def judge(table: Tensor) -> Verdict:
    """A table of positions (length, d_model), against section 3.5."""
    length, d_model = table.shape
    right = sinusoids(length, d_model)
    if close(table, right, 2e-3):
        worst = (table.double() - right).abs().max().item()
        return paper(f"all {length} rows, within {worst:.0e}")
    sines, cosines = right[:, 0::2], right[:, 1::2]
    pos = torch.arange(length).double()[:, None]
    half = d_model // 2
    least = pos / 10_000 ** (torch.arange(half) / max(half - 1, 1)).double()
    for order, measured in (
        ([sines, cosines], "all sines stand before all cosines; the "
         "formula puts each cosine beside its sine"),
        ([least.sin(), least.cos()], "all sines stand before all cosines, "
         "and the longest wavelength is exactly 10000 times 2 pi"),
    ):  # fmt: skip
        for shift in (0, 1, 2):
            moved = torch.cat(order, dim=1)[shift:]
            if len(moved) > 4 and close(table[: len(moved)], moved, 2e-3):
                return deviation(HALVES[0], measured, HALVES[1])
    worst = (table.double() - right).abs().max().item()
    otherwise = (
        f"the numbers differ by up to {worst:.2g} from sin and cos of "
        "pos / 10000^(2i / d_model)"
    )
    return fault(otherwise, table, other_tables(length, d_model))


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
    return judge(table)


@probe(
    "positions-wavelengths",
    "positions-wavelengths",
    "positions",
    after="formula",
)
def wavelengths(tried: Adapter) -> Verdict:
    """The wavelengths grow geometrically from 2 pi to nearly 10000
    times 2 pi, whatever the width."""
    table = torch.as_tensor(tried.positions(2, 64))
    last = table[1].double().clamp(-1, 1)
    angles = last[last.abs() < 0.9].asin().abs()
    slowest = angles[angles > 0].min().item()
    longest = math.tau / slowest
    expected = 10_000 ** (62 / 64) * math.tau
    measured = f"the longest is {longest:,.0f} positions"
    if abs(longest / expected - 1) < 0.01:
        return paper(measured)
    if abs(longest / (10_000 * math.tau) - 1) < 0.01:
        return deviation(
            "longest wavelength exactly 10000 times 2 pi",
            measured,
            "tensor2tensor, fairseq",
        )
    return fault(f"{measured}; by the formula it is {expected:,.0f}")


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
