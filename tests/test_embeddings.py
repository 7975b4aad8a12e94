"""Embeddings: lookup, factor, size, tying."""

import pytest
import torch
from torch.nn import functional as F

from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS, PAD, UNK, Embeddings
from transformer_lib.model import Transformer, TransformerConfig

IDS = torch.tensor([[4, 7, 3], [9, 3, 0]])
SIZES = dict(N=1, d_model=8, d_ff=8, h=2, dropout=0.0)


def test_special_ids():
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


@pytest.mark.parametrize("d_model", [6, 16])
def test_a_lookup_is_a_one_hot_product(d_model):
    """And so is its gradient, from each place where a token stands."""
    embed = Embeddings(5_000, d_model)
    assert [p is embed.weight for p in embed.parameters()] == [True]
    spread = embed.weight.std() * d_model**0.5
    assert abs(spread - 1) < 0.02, "vectors have size one"
    ids = torch.tensor([[4, 7, 3, 4], [1, 4_999, 3, 0], [4_999, 3_000, 4, 2]])
    hot = F.one_hot(ids, 5_000).float()
    for training in (True, False):
        product = hot @ embed.weight * d_model**0.5
        found = embed.train(training)(ids)
        assert found.shape == (3, 4, d_model)
        assert torch.allclose(found, product, atol=1e-6)
        pull = torch.randn(3, 4, d_model)
        grads = [
            torch.autograd.grad((x * pull).sum(), embed.weight)[0]
            for x in (found, product)
        ]
        assert torch.allclose(*grads, atol=1e-5), "learnt"
    bare = Embeddings(10, 16, scale=False)
    assert torch.equal(bare(IDS), bare.weight[IDS])
    model = Transformer(TransformerConfig(10, **SIZES, tie="none"))
    model(IDS, IDS).logsumexp(-1).sum().backward()
    for embed, learns in (
        (model.source_embedding, [3, 4, 7, 9]),  # no padding is seen
        (model.target_embedding, [0, 3, 4, 7, 9]),
    ):
        assert embed.weight.grad.any(-1).nonzero().flatten().tolist() == learns


@pytest.mark.parametrize(
    "tie, tables", [("three-way", 1), ("decoder", 2), ("none", 3)]
)
def test_tying_shares_storage(tie, tables):
    model = Transformer(TransformerConfig(10, **SIZES, tie=tie))
    weights = [
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_weight,
    ]
    assert len({weight.data_ptr() for weight in weights}) == tables
    assert len({id(weight) for weight in weights}) == tables
    trained = [p for p in model.parameters() if p.shape == (10, 8)]
    assert len(trained) == tables
    assert TransformerConfig(10) == TransformerConfig(10, tie="three-way")
    for named in TransformerConfig.base, TransformerConfig.big:
        assert named(10).tie == "three-way"
    # What each of the three does is the product with its matrix.
    hidden = torch.randn(2, 3, 8)
    for embed, weight in zip(
        (model.source_embedding, model.target_embedding),
        weights[:2],
        strict=True,
    ):
        assert torch.equal(embed(IDS), weight[IDS] * 8**0.5)
    by_hand = hidden @ weights[2].T
    assert torch.allclose(model.project(hidden), by_hand, atol=1e-5)


@pytest.mark.parametrize("tie", ["three-way", "none"])
def test_a_linear_map_and_a_softmax_give_probabilities(tie):
    """The pre-softmax map is the product with every token's vector."""
    sizes = SIZES | dict(tie=tie, dropout=0.3)
    model = Transformer(TransformerConfig(10, **sizes))
    matrix = model.output_weight
    pull = torch.randn(3, 4, 10)
    for training in (True, False):
        model.train(training)
        hidden = torch.randn(3, 4, 8, requires_grad=True)
        found, by_hand = model.project(hidden), hidden @ matrix.T
        assert torch.allclose(found, by_hand, atol=1e-6)
        ours = torch.autograd.grad((found * pull).sum(), (hidden, matrix))
        theirs = torch.autograd.grad((by_hand * pull).sum(), (hidden, matrix))
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-5), "learnt"
    source = torch.tensor([[4, 7, 8, 3], [9, 3, 0, 0], [5, 6, 3, 0]])
    found = greedy_decode(model.eval(), source, max_extra=3)
    for row, [(ids, told, _)] in enumerate(found):
        inputs = torch.tensor([[BOS, *ids[:-1]]])
        hidden = model.hidden(source[[row]], inputs)
        logits = model(source[[row]], inputs)
        assert torch.allclose(logits, hidden @ matrix.T, atol=1e-5)
        powers = (hidden @ matrix.T).exp()[0]
        each = (powers / powers.sum(-1, keepdim=True))[range(len(ids)), ids]
        assert abs(each.log().sum().item() - told) < 1e-4
