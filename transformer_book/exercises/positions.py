"""The check of the chapter on positions."""

from typing import Any

import torch

from transformer_book.exercises import exercise
from transformer_lib.positions import sinusoids


@exercise("positions.sinusoids")
def table(answer: Any) -> None:
    """The positional encodings of section 3.5."""
    length, d_model = 50, 16
    mine = torch.as_tensor(answer(length, d_model)).float()
    assert mine.shape == (length, d_model), (
        f"for 50 positions and d_model = 16 the table is "
        f"{tuple(mine.shape)}, not (50, 16)"
    )
    wanted = sinusoids(length, d_model)
    sines, cosines = wanted[:, 0::2], wanted[:, 1::2]
    halves = torch.cat([sines, cosines], dim=1)
    assert not torch.allclose(mine, halves, atol=1e-5), (
        "all sines stand before all cosines: the formula puts each "
        "cosine beside its sine"
    )
    swapped = torch.stack([cosines, sines], -1).flatten(1)
    assert not torch.allclose(mine, swapped, atol=1e-5), (
        "even dimensions are sines and odd ones cosines, not the other "
        "way round"
    )
    assert not torch.allclose(mine[:-1], wanted[1:], atol=1e-5), (
        "positions count from 0: the first row is 0, 1, 0, 1, ..."
    )
    pos = torch.arange(length)[:, None]
    single = pos / 10_000 ** (torch.arange(d_model) / d_model)
    assert not torch.allclose(
        mine[:, 1::2], single[:, 1::2].cos(), atol=1e-5
    ), (
        "dimension 1 turns slower than dimension 0: the two of a pair "
        "share the angle pos / 10000^(2i / d_model)"
    )
    twice = pos / 10_000 ** (torch.arange(0, d_model, 2) / d_model / 2)
    assert not torch.allclose(mine[:, 0::2], twice.sin(), atol=1e-5), (
        "the exponent is 2i / d_model; yours is i / d_model"
    )
    ends = pos / 10_000 ** torch.linspace(0, 1, d_model // 2)
    assert not torch.allclose(mine[:, 0::2], ends.sin(), atol=1e-4), (
        "the exponents run to 1: divide 2i by d_model, not by d_model - 2"
    )
    assert torch.allclose(mine, wanted, atol=1e-4), (
        "the numbers differ from sin and cos of pos / 10000^(2i / d_model)"
    )
