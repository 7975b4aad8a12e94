# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Masks of section 3.2.3: who may attend to whom; True = may.

Chapter: book/architecture/masks
"""

import torch
from torch import Tensor

from transformer_lib.embeddings import PAD


def padding_mask(ids: Tensor) -> Tensor:
    """True where the token is not padding; the same for every query.

    Args:
        ids: (batch, len)

    Returns:
        Boolean, (batch, 1, 1, len): axes batch, head, query, key. An
        encoder's self-attention and the decoder's attention to the
        source use it as it is, section 3.2.3.

    Chapter: masks-padding
    """
    return (ids != PAD)[:, None, None, :]


def causal_mask(
    length: int, device: torch.device | str | None = None
) -> Tensor:
    """True where the key is not to the right of the query.

    Returns:
        Boolean, (1, 1, length, length): the lower triangle with its
        diagonal, section 3.2.3.

    Chapter: masks-causal
    """
    every = torch.ones(length, length, dtype=torch.bool, device=device)
    return every.tril()[None, None]
