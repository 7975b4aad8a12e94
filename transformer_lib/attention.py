# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Scaled dot-product and multi-head attention, section 3.2.

Chapter: book/architecture/attention
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, equation 1 of section 3.2.1.

    From query (..., query_len, d_k), key (..., key_len, d_k) and value
    (..., key_len, d_v) to the output (..., query_len, d_v) and the
    weights (..., query_len, key_len). `mask` is boolean, True = may
    attend, and broadcasts to the weights; `dropout` is the share of
    weights set to zero at random.

    Chapter: attention-scaled
    """
    d_k = query.size(-1)
    scores = query @ key.mT / math.sqrt(d_k)
    if mask is not None:
        # Not -inf: a row with every key forbidden would become NaN.
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, lowest)
    weights = scores.softmax(dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    """Multi-head attention of section 3.2.2.

    `w_q`, `w_k` and `w_v` hold the projections of all heads side by
    side; `w_o` projects the joined outputs of the heads.

    Args:
        d_model: width of what comes in and goes out.
        h: number of heads.
        d_k, d_v: widths of a head's keys and values, d_model / h if
            None.
        dropout: on the attention weights, during training.
        bias: whether the four projections have one.

    Raises:
        ValueError: if `h` does not divide `d_model`, and `d_k` or
            `d_v` is missing.

    Chapter: attention-fast
    """

    # For PyTorch's `sdpa_kernel`: all but cuDNN's kernel, which plans
    # anew for every new shape of a batch.
    kernels = [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]

    def __init__(
        self,
        d_model: int,
        h: int,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
    ):
        super().__init__()
        if d_model % h and (d_k is None or d_v is None):
            raise ValueError(
                f"{h=} does not divide {d_model=}: give d_k and d_v"
            )
        d_k = d_k or d_model // h
        d_v = d_v or d_model // h
        self.h = h
        self.dropout = dropout
        self.w_q = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_k = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_v = nn.Linear(d_model, h * d_v, bias=bias)
        self.w_o = nn.Linear(h * d_v, d_model, bias=bias)
        # Called with the attention weights: `record_attention` sets it.
        self.record: Callable[[Tensor], None] | None = None

    def split(self, x: Tensor) -> Tensor:
        """(batch, len, h * d) to (batch, h, len, d)."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (batch, h, len, d_k), values (batch, h, len, d_v)."""
        key, value = self.w_k(memory), self.w_v(memory)
        return self.split(key), self.split(value)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Queries from `x`, keys and values from `memory`.

        Args:
            x: (batch, query_len, d_model)
            memory: (batch, key_len, d_model), or what `keys_values`
                made of it.
            mask: True = may attend; (batch, h, query_len, key_len) or
                what broadcasts to it.
            causal: the queries are the last of the positions that have
                keys, and each attends to itself and those before it.

        Returns:
            (batch, query_len, d_model)
        """
        query = self.split(self.w_q(x))
        if isinstance(memory, tuple):
            key, value = memory
        else:
            key, value = self.keys_values(memory)
        dropout = self.dropout if self.training else 0.0
        # The fused kernel returns no weights, and in training on a CPU
        # it is slower.
        slower = self.training and query.is_cpu
        explicit = self.record is not None or slower
        new, total = query.size(2), key.size(2)
        causal = causal and new > 1  # a single new one attends to all
        if causal and (explicit or mask is not None or new < total):
            # The kernel is causal only for a square, without a mask.
            every = torch.ones(new, total, device=x.device).bool()
            before = every.tril(total - new)
            mask = before if mask is None else mask & before
            causal = False
        if explicit:
            heads, weights = attention(query, key, value, mask, dropout)
            if self.record is not None:
                self.record(weights.detach())
        else:
            heads = F.scaled_dot_product_attention(
                query, key, value, mask, dropout, is_causal=causal
            )
        # (batch, query_len, h * d_v)
        joined = heads.transpose(1, 2).flatten(2)
        return self.w_o(joined)


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep the attention weights of each `MultiHeadAttention`, section 3.2.

    For one recording of a model at a time.

    Yields:
        A dict from a module's path, such as
        "encoder.layers.0.self_attention", to the weights of its last
        call, detached: (batch, h, query_len, key_len).

    Chapter: attention-record
    """
    maps: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.record = partial(maps.__setitem__, path)
    try:
        yield maps
    finally:
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.record = None
