# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Positional encodings, section 3.5: sinusoids, or learnt vectors.

Chapter: book/architecture/positions
"""

from typing import Any, Self

import torch
from torch import Tensor, nn


def sinusoids(
    length: int, d_model: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The positional encodings of section 3.5.

    Returns:
        (length, d_model): sines in the even dimensions, cosines in
        the odd ones, for the positions from 0 on.

    Raises:
        ValueError: if `d_model` is odd: sines and cosines are pairs.

    Chapter: positions-sinusoids
    """
    if d_model % 2:
        raise ValueError(f"{d_model=} must be even, for pairs")
    # float64, as float32 would blur the angles of late positions
    exact = dict(dtype=torch.float64, device="cpu")
    pos = torch.arange(length, **exact)[:, None]
    two_i = torch.arange(0, d_model, 2, **exact)
    angle = pos / 10_000 ** (two_i / d_model)  # (length, d_model / 2)
    pairs = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return pairs.flatten(1).to(dtype)


class SinusoidalPositions(nn.Module):
    """Add the sinusoids of section 3.5 to (batch, len, d_model).

    `forward(x, offset)` takes x to begin at position `offset`.

    Raises:
        ValueError: if `d_model` is odd; or past `max_length`.

    Chapter: positions-module
    """

    def __init__(self, d_model: int, max_length: int = 1024):
        super().__init__()
        table = sinusoids(max_length, d_model, torch.get_default_dtype())
        table = table.to(torch.empty(0).device)
        self.register_buffer("table", table, persistent=False)

    def _apply(self, *change: Any, **options: Any) -> Self:
        """Follow `to`, `double` and the like, with a table made anew.

        Converted, the old one would keep its rounding errors, and from
        the meta device there would be no numbers at all.
        """
        super()._apply(*change, **options)
        exact = sinusoids(*self.table.shape, self.table.dtype)
        self.table = exact.to(self.table.device)
        return self

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Vectors with positions, in the shape of `x`."""
        return x + _rows(self.table, offset, x.size(1))


def _rows(table: Tensor, offset: int, length: int) -> Tensor:
    """The rows of the positions from `offset` on: (length, d_model).

    Chapter: positions-module
    """
    end = offset + length
    if end > len(table):
        raise ValueError(
            f"{end} positions, but max_length={len(table)}: "
            "raise max_length, or shorten the text"
        )
    return table[offset:end]


class LearnedPositions(nn.Module):
    """Add a learnt vector for each position, table 3 row (E).

    `forward(x, offset)` as in `SinusoidalPositions`.

    Raises:
        ValueError: past `max_length`, where no vector was learnt.

    Chapter: positions-learned
    """

    def __init__(self, d_model: int, max_length: int = 1024):
        super().__init__()
        table = torch.randn(max_length, d_model) * d_model**-0.5
        self.weight = nn.Parameter(table)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Vectors with positions, in the shape of `x`."""
        return x + _rows(self.weight, offset, x.size(1))
