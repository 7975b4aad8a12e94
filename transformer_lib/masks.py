# Collected from book/architecture/masks.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Masks of section 3.2.3: who may attend to whom; True = may."""

import torch
from torch import Tensor

__all__ = [
    "causal_mask",
    "decoder_mask",
    "neighbourhood_mask",
    "padding_mask",
]


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """True where a token is real: (batch, 1, 1, len).

    Chapter: masks
    """
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    length: int, device: torch.device | str | None = None
) -> Tensor:
    """True at and left of the diagonal: (1, 1, length, length).

    Chapter: masks
    """
    square = torch.ones(
        1, 1, length, length, dtype=torch.bool, device=device
    )
    return square.tril()


def decoder_mask(target_ids: Tensor, pad_id: int = 0) -> Tensor:
    """Causal and no padding: (batch, 1, len, len), section 3.2.3.

    Chapter: masks
    """
    length = target_ids.size(1)
    real = padding_mask(target_ids, pad_id)
    return real & causal_mask(length, target_ids.device)


def neighbourhood_mask(
    length: int, r: int, device: torch.device | str | None = None
) -> Tensor:
    """True within r positions either side: (1, 1, length, length).

    Chapter: masks
    """
    pos = torch.arange(length, device=device)
    return ((pos[:, None] - pos).abs() <= r)[None, None]
