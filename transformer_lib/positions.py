# Collected from book/architecture/positions.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Positional encodings of section 3.5: sinusoids, or learnt vectors."""

import torch
from torch import Tensor, nn

__all__ = ["LearnedPositions", "SinusoidalPositions", "sinusoids"]


def sinusoids(length: int, d_model: int) -> Tensor:
    """The positional encodings of section 3.5: (length, d_model).

    Raises:
        ValueError: if `d_model` is odd: sines and cosines come in pairs.

    Chapter: positions
    """
    if d_model % 2:
        raise ValueError(
            f"sinusoids need an even d_model, got {d_model}: sines "
            "and cosines come in pairs"
        )
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = pos / 10_000 ** (two_i / d_model)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(1).float()


class SinusoidalPositions(nn.Module):
    """Add the sinusoids of section 3.5 to (batch, len, d_model).

    The table grows when a longer sentence comes; it is no weight and is
    not saved.

    Raises:
        ValueError: if `d_model` is odd.

    Chapter: positions
    """

    def __init__(self, d_model: int):
        super().__init__()
        table = sinusoids(128, d_model)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        if end > len(self.table):
            longer = sinusoids(2 * end, x.size(-1))
            self.table = longer.to(self.table)
        return x + self.table[offset:end]


class LearnedPositions(nn.Module):
    """Add a learnt vector for each position, table 3 row (E).

    Raises:
        ValueError: past `max_length`, where nothing was learnt.

    Chapter: positions
    """

    def __init__(self, d_model: int, max_length: int = 512):
        super().__init__()
        table = torch.randn(max_length, d_model) * d_model**-0.5
        self.weight = nn.Parameter(table)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        if end > len(self.weight):
            raise ValueError(
                f"position {end} is past the {len(self.weight)} that "
                "were learnt: raise max_length, or use sinusoids"
            )
        return x + self.weight[offset:end]
