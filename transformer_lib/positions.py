# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Positional encodings, section 3.5: sinusoids, or learnt vectors.

Chapter: book/architecture/positions
"""

import torch
from torch import Tensor, nn


def sinusoids(length: int, d_model: int) -> Tensor:
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
    return pairs.flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Add the sinusoids of section 3.5 to (batch, len, d_model).

    `forward(x, offset)` takes x to begin at position `offset`.

    Raises:
        ValueError: if `d_model` is odd; or past `max_length`.

    Chapter: positions-module
    """

    def __init__(self, d_model: int, max_length: int = 1024):
        super().__init__()
        self.table = sinusoids(max_length, d_model)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        if self.table.device != x.device or self.table.dtype != x.dtype:
            # Computed anew: a table from the meta device has no numbers.
            with torch.inference_mode(False):
                self.table = sinusoids(*self.table.shape).to(x)
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
        return x + _rows(self.weight, offset, x.size(1))
