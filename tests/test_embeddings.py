"""Embeddings: lookup, factor, size, tying, ids out of range."""

import pytest
import torch
from torch.nn import functional as F

from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS, PAD, UNK, Embeddings
from transformer_lib.model import Transformer, TransformerConfig

IDS = torch.tensor([[4, 7, 3], [9, 3, 0]])


def test_special_ids():
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_a_lookup_is_a_one_hot_product():
    embed = Embeddings(10, 16)
    product = F.one_hot(IDS, 10).float() @ embed.weight
    assert torch.allclose(embed(IDS), product * 4)
    assert embed(IDS).requires_grad, "learnt"
    bare = Embeddings(10, 16, scale=False)
    assert torch.equal(bare(IDS), bare.weight[IDS])


def test_scaled_vectors_have_size_one():
    torch.manual_seed(0)
    embed = Embeddings(5000, 64)
    assert abs(embed.weight.std() - 1 / 8) < 2e-3
    assert abs(embed(torch.arange(5000)[None]).std() - 1) < 0.02


@pytest.mark.parametrize("wrong", [-1, 10])
def test_ids_out_of_range(wrong):
    with pytest.raises(ValueError, match="vocabulary of 10: encode"):
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


def test_a_linear_map_and_a_softmax_give_probabilities():
    """The pre-softmax map is the product with every token's vector."""
    sizes = dict(N=1, d_model=8, d_ff=8, h=2)
    model = Transformer(TransformerConfig(10, **sizes)).eval()
    hidden = torch.randn(2, 3, 8)
    by_hand = hidden @ model.target_embedding.weight.T
    assert torch.allclose(model.project(hidden), by_hand, atol=1e-6)
    assert model.project(hidden).requires_grad, "learnt"
    found = greedy_decode(model, IDS[:1], max_extra=3)
    ids = found.ids[0][0]
    hidden = model.hidden(IDS[:1], torch.tensor([[BOS, *ids[:-1]]]))
    powers = (hidden @ model.target_embedding.weight.T).exp()[0]
    each = (powers / powers.sum(-1, keepdim=True))[range(len(ids)), ids]
    told = found.log_probabilities[0][0]
    assert abs(each.log().sum().item() - told) < 1e-4
