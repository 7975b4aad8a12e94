# Collected from book/architecture/attention.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Scaled dot-product and multi-head attention, section 3.2."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "MultiHeadAttention",
    "attention",
    "fast_attention",
    "record_attention",
]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, written out: equation 1.

    Section 3.2.1. A query whose mask forbids every key has nothing to
    look at: its weights and output are zeros, and so is its gradient.

    Args:
        query: (..., query_len, d_k)
        key: (..., key_len, d_k)
        value: (..., key_len, d_v)
        mask: boolean, True = may attend, (..., query_len, key_len) or
            a shape that broadcasts to it.
        dropout: the share of weights set to zero.

    Returns:
        The output (..., query_len, d_v) and the weights
        (..., query_len, key_len).

    Raises:
        ValueError: if the mask is not boolean.

    Chapter: attention-scaled
    """
    d_k = query.size(-1)
    scores = (query * d_k**-0.5) @ key.mT
    if mask is not None:
        mask, empty = _open_empty_rows(mask)
        # True becomes log 1 = 0, False becomes log 0 = -inf.
        scores += mask.to(scores.dtype).log()
    weights = scores.softmax(dim=-1)
    if mask is not None and empty.any():
        weights = weights.masked_fill(empty, 0.0)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ value, weights


def _open_empty_rows(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Let rows with nothing to attend to see all, and say which."""
    if mask.dtype != torch.bool:
        raise ValueError(
            f"a mask is boolean, True = may attend; not {mask.dtype}:"
            " write mask.bool(), or mask == 0 if it holds -inf and 0"
        )
    empty = ~mask.any(dim=-1, keepdim=True)  # (..., query_len, 1)
    return mask | empty, empty


def fast_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Equation 1 by PyTorch's fused kernel: the output alone.

    Shapes, mask and empty rows as in `attention`, section 3.2.1.

    Raises:
        ValueError: if the mask is not boolean.

    Chapter: attention-fast
    """
    if mask is None:
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout
        )
    mask, empty = _open_empty_rows(mask)
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout
    )
    return output.masked_fill(empty, 0.0)


class MultiHeadAttention(nn.Module):
    """Multi-head attention of section 3.2.2.

    `w_q`, `w_k` and `w_v` hold the projections of all heads side by
    side, `w_o` joins what the heads found. `explicit` chooses between
    `attention` (True) and `fast_attention` (False); None takes the
    first where weights are recorded, and on a CPU where gradients are
    wanted, else the second.

    Args:
        d_model: width of what comes in and goes out.
        h: number of heads.
        d_k: width of a head's queries and keys, d_model / h if None.
        d_v: width of a head's values, d_model / h if None.
        dropout: on the attention weights, during training.
        bias: whether the four projections add one.

    Raises:
        ValueError: if `h` does not divide `d_model`, and `d_k` or
            `d_v` is missing.

    Chapter: attention-multi-head
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if d_model % h and (d_k is None or d_v is None):
            raise ValueError(
                f"{h=} does not divide {d_model=}: choose another h, "
                "or give d_k and d_v"
            )
        d_k, d_v = d_k or d_model // h, d_v or d_model // h
        self.h, self.dropout = h, dropout
        self.explicit: bool | None = None
        self.record: Callable[[Tensor], None] | None = None
        self.w_q = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_k = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_v = nn.Linear(d_model, h * d_v, bias=bias)
        self.w_o = nn.Linear(h * d_v, d_model, bias=bias)

    def split(self, x: Tensor) -> Tensor:
        """(batch, len, h * d) to (batch, h, len, d)."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (batch, h, len, d_k), values (batch, h, len, d_v)."""
        keys, values = self.w_k(memory), self.w_v(memory)
        return self.split(keys), self.split(values)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        """Queries from `x`, keys and values from `memory`.

        Args:
            x: (batch, query_len, d_model)
            memory: (batch, key_len, d_model)
            mask: boolean, True = may attend, broadcast to
                (batch, h, query_len, key_len).
            cache: keeps keys and values between decoding steps; its
                `keys_values(self, memory)` replaces this module's.

        Returns:
            (batch, query_len, d_model)
        """
        query = self.w_q(x)
        if cache is None:
            key, value = self.keys_values(memory)
        else:
            key, value = cache.keys_values(self, memory)
            # Rows with the same keys are so many queries for them.
            query = query.view(len(key), -1, query.size(-1))
        query = self.split(query)  # (batch, h, query_len, d_k)
        dropout = self.dropout if self.training else 0.0
        explicit = self.explicit
        if explicit is None:
            explicit = x.is_cpu and torch.is_grad_enabled()
        if explicit or self.record is not None:
            heads, weights = attention(
                query, key, value, mask, dropout
            )
            if self.record is not None:
                self.record(weights.detach())
        else:
            heads = fast_attention(query, key, value, mask, dropout)
        heads = heads.transpose(1, 2).reshape(*x.shape[:2], -1)
        return self.w_o(heads)


@contextmanager
def record_attention(
    model: nn.Module,
) -> Iterator[dict[str, Tensor]]:
    """Keep the weights of every attention in `model`, section 3.2.

    Yields:
        A dict from a module's path, such as
        "encoder.layers.0.self_attention", to the weights of its last
        call, detached: (batch, h, query_len, key_len).

    Chapter: attention-record
    """
    maps: dict[str, Tensor] = {}
    recorded = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    ]
    before = [module.record for _, module in recorded]
    for name, module in recorded:
        module.record = partial(maps.__setitem__, name)
    try:
        yield maps
    finally:
        for (_, module), record in zip(recorded, before, strict=True):
            module.record = record
