"""The check of the chapter on embeddings."""

from typing import Any

import torch

from transformer_book.exercises import exercise


@exercise("embeddings.tied")
def tied(answer: Any) -> None:
    """Embeddings and the projection before the softmax, one matrix."""
    model = answer(1000, 64)
    weights = list(model.parameters())
    assert weights, "weight is no nn.Parameter, so nothing would learn"
    assert len(weights) == 1, (
        f"there are {len(weights)} parameters: one matrix does both jobs"
    )
    weight = weights[0].detach()
    assert weight.shape == (1000, 64), (
        f"the matrix is {tuple(weight.shape)}: it has a row for each "
        "token, (vocab_size, d_model)"
    )
    spread = weight.std().item()
    assert 0.11 < spread < 0.14, (
        f"the entries have size {spread:.3f}: for scores of size 1 they "
        "need d_model^-0.5 = 0.125"
    )
    ids = torch.randint(0, 1000, (2, 5))
    vectors = model.embed(ids).detach()
    assert not torch.allclose(vectors, weight[ids]), (
        "the factor is missing: section 3.4 multiplies by sqrt(d_model)"
    )
    assert not torch.allclose(vectors, weight[ids] * 64), (
        "the factor is sqrt(d_model), not d_model"
    )
    assert torch.allclose(vectors, weight[ids] * 8, atol=1e-5), (
        "embed does not give the rows of the ids, times sqrt(d_model)"
    )
    hidden = torch.randn(2, 5, 64)
    scores, wanted = model.project(hidden).detach(), hidden @ weight.T
    assert not torch.allclose(scores, wanted * 8, atol=1e-4), (
        "the factor is for the embedding layers alone, not for the scores"
    )
    for total in scores.sum(-1), scores.exp().sum(-1):
        assert not torch.allclose(total, torch.ones(2, 5)), (
            "these are probabilities, or their logarithms: project "
            "stops before the softmax"
        )
    assert torch.allclose(scores, wanted, atol=1e-4), (
        "a score is the product of the state with the token's row"
    )
