"""Positional encodings: formula, offsets, limits, order."""

import math

import pytest
import torch
from translators import decode_in_parts

from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)

SIZES = dict(N=2, d_model=16, d_ff=32, h=2, dropout=0.0)
LEARNED = dict(positions="learned", max_length=400)


@pytest.mark.parametrize("d_model", [2, 10, 16, 512])
def test_sinusoids_by_hand(d_model):
    length = 100_000 if d_model < 100 else 1024
    table = sinusoids(length, d_model)
    assert table.shape == (length, d_model) and table.dtype == torch.float32
    some = [0, 1, 2, 3, 7, 100, 255, 256, 257, length - 1]
    by_hand = [
        [
            wave(pos / 10_000 ** (two_i / d_model))
            for two_i in range(0, d_model, 2)
            for wave in (math.sin, math.cos)
        ]
        for pos in some
    ]
    assert torch.allclose(table[some], torch.tensor(by_hand), atol=1e-6)
    # What the module adds is this table.
    added = SinusoidalPositions(d_model)(torch.zeros(2, 1024, d_model))
    assert torch.equal(added, table[:1024].expand_as(added))


def test_learnt_positions_end():
    positions = LearnedPositions(8, max_length=4)
    x, pull = torch.randn(2, 3, 3, 8)
    for offset in (0, 1):
        positions.zero_grad()
        found, rows = positions(x, offset), slice(offset, offset + 3)
        assert torch.equal(found, x + positions.weight[rows])
        (found * pull).sum().backward()
        wanted = torch.zeros(4, 8)
        wanted[rows] = pull.sum(0)
        assert torch.allclose(positions.weight.grad, wanted, atol=1e-6)
    assert list(positions.state_dict()) == ["weight"]
    assert LearnedPositions(8).weight.shape == (1024, 8)
    with pytest.raises(ValueError, match="5 pos.*=4: raise max_length"):
        positions(torch.zeros(1, 2, 8), offset=3)
    model = Transformer(TransformerConfig(12, **SIZES, **LEARNED))
    assert model.positions.weight.shape == (400, 16)
    assert abs(model.positions.weight.std() * 16**0.5 - 1) < 0.05
    with pytest.raises(ValueError, match="401 pos.*=400: raise max_length"):
        model.encode(torch.ones(1, 401, dtype=torch.long))


def added_below_its_stack(model, side, table):
    """What a stack reads: words and a table, in every way in."""
    stack = model.encoder if side == "source" else model.decoder
    seen = []
    hook = stack.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    ids = torch.randint(4, 12, (3, 330))
    ids[0, 3:] = ids[2, 270:] = 0
    words = getattr(model, f"{side}_embedding").weight[ids] * 4
    wanted = words + table[:330]
    for training in (True, False):
        model.train(training)(ids, ids)
        assert torch.allclose(seen.pop(), wanted, atol=1e-5)
        model(ids[:1, :3], ids[:1, :3])
        assert torch.allclose(seen.pop(), wanted[:1, :3], atol=1e-5)
    if side == "target":  # and where a search adds piece by piece
        sizes = [1, 1, 7, 250, 1, 70]
        decode_in_parts(model, ids, model.encode(ids), ids, sizes)
        assert torch.allclose(torch.cat(seen, 1), wanted, atol=1e-5)
    hook.remove()


@pytest.mark.parametrize("kind", ["sinusoid", "learned"])
@pytest.mark.parametrize("tie", ["three-way", "none"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_encodings_are_added_below_both_stacks(side, tie, kind):
    sizes = SIZES | LEARNED | dict(tie=tie, positions=kind)
    model = Transformer(TransformerConfig(12, **sizes))
    table = sinusoids(400, 16)
    if kind == "learned":
        table = model.positions.weight
    added_below_its_stack(model, side, table)


def test_sinusoids_end():
    """With a table that is neither learnt nor saved."""
    positions = SinusoidalPositions(8)
    assert not positions.state_dict() and not list(positions.parameters())
    assert len(positions.table) == 1024
    with pytest.raises(ValueError, match="1025 pos.*=1024: raise max_length"):
        positions(torch.zeros(1, 2, 8), offset=1023)
    for asked, rows in (512, 1024), (1500, 3000):
        config = TransformerConfig(12, **SIZES, max_length=asked)
        assert len(Transformer(config).positions.table) == rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_table_is_exact_in_every_type(dtype):
    """Wherever the model was built, and however it came here."""
    exact = sinusoids(1024, 8, torch.float64)
    with torch.device("meta"):
        elsewhere = SinusoidalPositions(8)
    assert elsewhere.table.is_meta
    for positions in (
        SinusoidalPositions(8).to(dtype),
        SinusoidalPositions(8).bfloat16().to(dtype),
        elsewhere.to(dtype).to_empty(device="cpu"),
    ):
        zeros = torch.zeros(1, 1024, 8, dtype=dtype)
        assert torch.equal(positions(zeros)[0], exact.to(dtype))
        assert not positions.state_dict()
