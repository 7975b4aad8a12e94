"""Embeddings: lookup, factor, size, tying, ids out of range."""

import pytest
import torch
from torch.nn import functional as F

from transformer_lib.embeddings import Embeddings
from transformer_lib.model import Transformer, TransformerConfig

IDS = torch.tensor([[4, 7, 3], [9, 3, 0]])


def test_a_lookup_is_a_one_hot_product():
    embed = Embeddings(10, 16)
    product = F.one_hot(IDS, 10).float() @ embed.weight
    assert torch.allclose(embed(IDS), product * 4)


def test_the_factor_is_an_option():
    embed = Embeddings(10, 16, scale=False)
    assert torch.equal(embed(IDS), embed.weight[IDS])


def test_scaled_vectors_have_size_one():
    embed = Embeddings(5000, 64)
    assert abs(embed.weight.std() - 1 / 8) < 2e-3
    assert abs(embed(torch.arange(5000)[None]).std() - 1) < 0.02


@pytest.mark.parametrize("wrong", [-1, 10, 99])
def test_ids_out_of_range(wrong):
    with pytest.raises(
        ValueError, match=f"token id {wrong} is outside"
    ):
        Embeddings(10, 4)(torch.tensor([[1, wrong]]))


@pytest.mark.parametrize(
    "tie, tables", [("three-way", 1), ("decoder", 2), ("none", 3)]
)
def test_tying_shares_storage(tie, tables):
    sizes = dict(N=1, d_model=8, d_ff=8, h=2)
    model = Transformer(TransformerConfig(10, **sizes, tie=tie))
    weights = [
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_weight,
    ]
    assert len({weight.data_ptr() for weight in weights}) == tables


def test_gradients_arrive_from_both_ends():
    sizes = dict(N=1, d_model=8, d_ff=8, h=2, dropout=0.0)
    model = Transformer(TransformerConfig(10, **sizes))
    logits = model(torch.tensor([[4, 3]]), torch.tensor([[2, 5]]))
    F.cross_entropy(logits[0], torch.tensor([5, 3])).backward()
    assert (model.output_weight.grad.abs().sum(1) > 0).all()


def test_a_linear_map_and_a_softmax_give_probabilities():
    """The pre-softmax map is the product with every token's vector."""
    sizes = dict(N=1, d_model=8, d_ff=8, h=2)
    model = Transformer(TransformerConfig(10, **sizes)).eval()
    hidden = torch.randn(2, 3, 8)
    logits = model.project(hidden)
    by_hand = hidden @ model.target_embedding.weight.T
    assert torch.allclose(logits, by_hand, atol=1e-6)
    chances = model(IDS, IDS).softmax(-1)
    assert chances.shape == (2, 3, 10)
    assert torch.allclose(chances.sum(-1), torch.ones(2, 3))
