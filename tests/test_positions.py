"""Positional encodings: formula, offsets, limits, order."""

import math

import pytest
import torch

from transformer_lib.decoding import DecoderCache
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)


def test_sinusoids_by_hand():
    by_hand = [
        [
            math.sin(p),
            math.cos(p),
            math.sin(p / 100),
            math.cos(p / 100),
        ]
        for p in range(3)
    ]
    wanted = torch.tensor(by_hand)
    assert torch.allclose(sinusoids(3, 4), wanted, atol=1e-7)
    angle = 100_000 / 10_000 ** (2 / 512)
    late = sinusoids(100_001, 512)[-1, 2]
    assert abs(late - math.sin(angle)) < 1e-6


def test_wavelengths_are_a_geometric_progression():
    """The share of a turn a position takes is 10000^(-2i/d)."""
    table = sinusoids(2, 16).double()
    turns = torch.atan2(table[1, ::2], table[1, 1::2])
    ratios = turns[1:] / turns[:-1]
    wanted = torch.full((7,), 10_000 ** (-2 / 16)).double()
    assert torch.allclose(ratios, wanted)
    assert abs(turns[0] - 1) < 1e-6


@pytest.mark.parametrize("k", [1, 5, 40])
def test_an_offset_is_a_linear_map(k):
    table = sinusoids(160, 32).double()
    fit = torch.linalg.lstsq(table[:100], table[k : k + 100], driver="gelsd")
    moved = table[100:119] @ fit.solution
    assert torch.allclose(moved, table[100 + k : 119 + k], atol=1e-3)


def test_a_head_can_look_a_fixed_distance_back():
    """Section 3.5: attending by relative position is linear."""
    table, k = sinusoids(40, 64).double(), 3
    back = torch.linalg.lstsq(table[k:], table[:-k], driver="gelsd").solution
    scores = table[k:] @ back @ table.T
    assert scores.argmax(-1).tolist() == list(range(40 - k))


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="d_model=7 must be even"):
        SinusoidalPositions(7)


@pytest.mark.parametrize(
    "positions", [SinusoidalPositions(8), LearnedPositions(8, 40)]
)
def test_offset_continues(positions):
    x = torch.randn(2, 10, 8)
    whole = positions(x)
    assert torch.equal(positions(x[:, 6:], offset=6), whole[:, 6:])


def test_the_table_grows_and_is_not_saved():
    positions = SinusoidalPositions(8)
    x = torch.zeros(1, 1000, 8)
    assert torch.equal(positions(x)[0], sinusoids(1000, 8))
    assert not positions.state_dict()


def test_learnt_positions_end():
    positions = LearnedPositions(8, max_length=4)
    whole = positions(torch.zeros(1, 4, 8))[0]
    assert torch.equal(whole, positions.weight)
    assert list(positions.state_dict()) == ["weight"]
    with pytest.raises(ValueError, match="5 > 4: raise max_length"):
        positions(torch.zeros(1, 2, 8), offset=3)


@pytest.mark.parametrize("kind", ["none", "sinusoid", "learned"])
def test_order_matters_with_positions_alone(kind):
    torch.manual_seed(0)
    sizes = dict(N=1, d_model=16, d_ff=32, h=2)
    model = Transformer(TransformerConfig(12, **sizes, positions=kind)).eval()
    ids = torch.arange(4, 10)[None]
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved, same = model.encode(ids[:, order]), model.encode(ids)
    unseen = torch.allclose(moved, same[:, order], atol=1e-5)
    assert unseen == (kind == "none")


@pytest.mark.parametrize("side", ["source", "target"])
def test_encodings_are_added_below_both_stacks(side):
    sizes = dict(N=1, d_model=16, d_ff=32, h=2)
    model = Transformer(TransformerConfig(12, **sizes)).eval()
    stack = model.encoder if side == "source" else model.decoder
    seen = []
    stack.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    ids = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])
    model(ids, ids)
    words = getattr(model, f"{side}_embedding")(ids)
    wanted = words + sinusoids(4, 16)
    assert torch.allclose(seen[0], wanted, atol=1e-5)
    if side == "target":  # and where a search adds piece by piece
        cache = DecoderCache(model, model.encode(ids), longest=4)
        for i in range(4):
            model.decode(ids[:, [i]], None, ids, cache)
        assert torch.allclose(torch.cat(seen[1:], 1), wanted, atol=1e-5)


def test_a_long_search_leaves_a_plain_table():
    """One made in inference mode could not be changed outside of it."""
    add = SinusoidalPositions(8)
    with torch.inference_mode():
        add(torch.zeros(1, 300, 8))
    assert len(add.table) == 600 and not add.table.is_inference()
    x = torch.ones(1, 600, 8, requires_grad=True)
    (add(x) * add.table).sum().backward()
    torch.testing.assert_close(add.table, sinusoids(600, 8))


def test_learned_vectors_begin_as_large_as_embeddings():
    """A deviation of one over the root of d_model."""
    weight = LearnedPositions(64, max_length=1000).weight
    assert weight.std().item() == pytest.approx(1 / 8, rel=0.05)
