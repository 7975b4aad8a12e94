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
    """True where a token is no padding, for every query alike.

    Args:
        ids: (batch, len)

    Returns:
        Boolean, (batch, 1, 1, len): axes batch, head, query, key. An
        encoder uses it as it is, section 3.2.3; a decoder uses the
        source's in encoder-decoder attention.

    Chapter: masks-padding
    """
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    length: int, device: torch.device | str | None = None
) -> Tensor:
    """True where the key is not to the right of the query.

    Returns:
        Boolean, (1, 1, length, length): the lower triangle with its
        diagonal, section 3.2.3.

    Chapter: masks-causal
    """
    shape = 1, 1, length, length
    return torch.ones(shape, dtype=torch.bool, device=device).tril()


def decoder_mask(target_ids: Tensor, pad_id: int = 0) -> Tensor:
    """No looking right and no looking at padding, section 3.2.3.

    Args:
        target_ids: (batch, len), the decoder's input.

    Returns:
        Boolean, (batch, 1, len, len).

    Chapter: masks-causal
    """
    causal = causal_mask(target_ids.size(1), target_ids.device)
    return padding_mask(target_ids, pad_id) & causal


def neighbourhood_mask(
    length: int, r: int, device: torch.device | str | None = None
) -> Tensor:
    """True for the r positions around each query, section 4.

    The neighbourhood is centred: the query's own position and
    (r - 1) / 2 on either side, fewer at the ends of the sentence.

    Returns:
        Boolean, (1, 1, length, length).

    Raises:
        ValueError: if `r` is below 1, so that nobody would see
            anything, or even, so that it has no middle.

    Chapter: masks-neighbourhood
    """
    if r < 1:
        raise ValueError(f"a neighbourhood of r={r} is empty: r >= 1")
    if r % 2 == 0:
        raise ValueError(
            f"a neighbourhood of r={r} has no middle: "
            f"take {r - 1} or {r + 1}"
        )
    position = torch.arange(length, device=device)
    distance = (position[:, None] - position).abs()
    return (distance <= r // 2)[None, None]
