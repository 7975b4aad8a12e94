"""Positional encodings: the formula, offsets, limits, order."""

import math

import pytest
import torch

from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)


def test_sinusoids_by_hand():
    table = sinusoids(3, 4)
    by_hand = [
        [
            math.sin(p),
            math.cos(p),
            math.sin(p / 100),
            math.cos(p / 100),
        ]
        for p in range(3)
    ]
    assert torch.allclose(table, torch.tensor(by_hand), atol=1e-7)


def test_late_positions_stay_exact():
    angle = 100_000 / 10_000 ** (2 / 512)
    assert (
        abs(sinusoids(100_001, 512)[-1, 2] - math.sin(angle)) < 1e-6
    )


def test_wavelengths_are_a_geometric_progression():
    """The share of a turn a position takes is 10000^(-2i/d)."""
    table = sinusoids(2, 16).double()
    turns = torch.atan2(table[1, ::2], table[1, 1::2])
    ratios = turns[1:] / turns[:-1]
    assert torch.allclose(
        ratios, torch.full((7,), 10_000 ** (-2 / 16)).double()
    )
    assert abs(turns[0] - 1) < 1e-6


@pytest.mark.parametrize("k", [1, 5, 40])
def test_an_offset_is_a_linear_map(k):
    table = sinusoids(160, 32).double()
    fit = torch.linalg.lstsq(
        table[:100], table[k : k + 100], driver="gelsd"
    )
    moved = table[100:119] @ fit.solution
    assert torch.allclose(moved, table[100 + k : 119 + k], atol=1e-3)


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="d_model=7 must be even"):
        sinusoids(4, 7)
    with pytest.raises(ValueError, match="even"):
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
    half = SinusoidalPositions(8).half()
    assert half(x.half()).dtype == torch.float16


def test_learnt_positions_end():
    positions = LearnedPositions(8, max_length=4)
    assert positions(torch.zeros(1, 4, 8)).shape == (1, 4, 8)
    with pytest.raises(ValueError, match="position 5 is past the 4"):
        positions(torch.zeros(1, 2, 8), offset=3)


@pytest.mark.parametrize("kind", ["none", "sinusoid", "learned"])
def test_order_matters_with_positions_alone(kind):
    sizes = dict(N=1, d_model=16, d_ff=32, h=2)
    model = Transformer(
        TransformerConfig(12, **sizes, positions=kind)
    )
    model.eval()
    ids, order = torch.arange(4, 10)[None], torch.randperm(6)
    moved = model.encode(ids[:, order])
    same = torch.allclose(
        moved, model.encode(ids)[:, order], atol=1e-5
    )
    assert same == (kind == "none")


@pytest.mark.parametrize("side", ["source", "target"])
def test_encodings_are_added_below_both_stacks(side):
    sizes = dict(N=1, d_model=16, d_ff=32, h=2)
    model = Transformer(TransformerConfig(12, **sizes)).eval()
    embedding = getattr(model, f"{side}_embedding")
    ids = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])
    added = model.embed(ids, embedding) - embedding(ids)
    for sentence in added:
        assert torch.allclose(sentence, sinusoids(4, 16), atol=1e-5)
    mine = embedding(ids) + sinusoids(4, 16)
    if side == "source":
        memory = model.encoder(mine, (ids != 0)[:, None, None])
        assert torch.allclose(memory, model.encode(ids), atol=1e-5)


def test_equal_distances_are_equally_alike():
    table = sinusoids(200, 64).double()
    alike = table @ table.T
    for k in (0, 1, 7, 50):
        at = alike.diagonal(k)
        assert torch.allclose(at, at[:1].expand_as(at), atol=1e-4)


def test_a_head_can_look_a_fixed_distance_back():
    """Section 3.5: attending by relative position is linear."""
    table, k = sinusoids(40, 64).double(), 3
    back = torch.linalg.lstsq(
        table[k:], table[:-k], driver="gelsd"
    ).solution
    scores = table[k:] @ back @ table.T
    assert scores.argmax(-1).tolist() == list(range(40 - k))
