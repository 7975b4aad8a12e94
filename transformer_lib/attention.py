# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Scaled dot-product and multi-head attention, section 3.2.

Chapter: book/architecture/attention
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """The output of `attention`, by a kernel that keeps no weights.

    `is_causal` says that `mask` is the square `causal_mask`, so the
    kernel need not read it. Section 3.2.1.

    Chapter: attention-fast
    """
    mask = None if is_causal else mask
    return F.scaled_dot_product_attention(
        query, key, value, mask, dropout, is_causal=is_causal
    )


def fused_is_faster(query: Tensor, training: bool) -> bool:
    """Whether to leave `attention` to a fused kernel.

    In training on a CPU the kernel takes up to 1.4 times as long as
    the equation written out; on a GPU, and in use, it is the faster.

    Chapter: attention-fast
    """
    return not (training and query.is_cpu)


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

    Chapter: attention-class
    """

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
        # A recording knows a module by this: PyTorch's exporter calls
        # stand-ins, which share the attributes and nothing else.
        self.identity = object()

    def split(self, x: Tensor) -> Tensor:
        """(batch, len, h * d) to (batch, h, len, d)."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def place(self, heads: Tensor, offset: int) -> Tensor:
        """Tell queries or keys (batch, h, len, d_k) their positions.

        The first one is at position `offset`. Here nothing is done,
        because the embeddings' sums have the positions; a subclass may
        rotate the vectors.
        """
        return heads

    def keys_values(
        self, memory: Tensor, offset: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Keys (batch, h, len, d_k), values (batch, h, len, d_v).

        `memory` (batch, len, d_model) begins at position `offset`.
        """
        key, value = self.w_k(memory), self.w_v(memory)
        return self.place(self.split(key), offset), self.split(value)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        mask: Tensor | None = None,
        is_causal: bool = False,
        offset: int = 0,
    ) -> Tensor:
        """Queries from `x`, keys and values from `memory`.

        Args:
            x: (batch, query_len, d_model)
            memory: (batch, key_len, d_model), or what `keys_values`
                made of it.
            mask: True = may attend; (batch, h, query_len, key_len) or
                what broadcasts to it.
            is_causal: that `mask` is the square `causal_mask`, for a
                kernel that makes this mask itself.
            offset: the position of the first query.

        Returns:
            (batch, query_len, d_model)

        Raises:
            TypeError: for a mask that is not boolean.
        """
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(
                f"{mask.dtype=}: give a boolean mask, True = may attend"
            )
        query = self.place(self.split(self.w_q(x)), offset)
        if isinstance(memory, tuple):
            key, value = memory
        else:
            key, value = self.keys_values(memory)
        heads = self.attend(query, key, value, mask, is_causal)
        # (batch, query_len, h * d_v)
        joined = heads.transpose(1, 2).flatten(2)
        return self.w_o(joined)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Equation 1 for every head: (batch, h, query_len, d_v)."""
        dropout = self.dropout if self.training else 0.0
        recordings = [
            recording
            for recording in _this_thread.recordings
            if self.identity in recording.paths
        ]
        if not recordings and fused_is_faster(query, self.training):
            return fused_attention(query, key, value, mask, dropout, is_causal)
        heads, weights = attention(query, key, value, mask, dropout)
        for recording in recordings:
            recording.keep(self.identity, weights)
        return heads


class _Recording:
    """The weights of some modules' last calls, by their paths.

    Chapter: attention-class
    """

    def __init__(self, model: nn.Module):
        self.maps: dict[str, Tensor] = {}
        self.paths = {
            module.identity: path
            for path, module in model.named_modules()
            if isinstance(module, MultiHeadAttention)
        }

    def keep(self, identity: object, weights: Tensor) -> None:
        weights = weights.detach()
        if weights.is_inference():
            # A copy made outside of inference mode can be computed with.
            with torch.inference_mode(False):
                weights = weights.clone()
        self.maps[self.paths[identity]] = weights


class _Thread(local):
    """What each thread has for itself: the recordings going on in it.

    Chapter: attention-class
    """

    recordings: tuple[_Recording, ...] = ()


_this_thread = _Thread()


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep the attention weights of each `MultiHeadAttention`, section 3.2.

    Only calls of this thread are recorded: others may use the model,
    and record it too, at the same time.

    Yields:
        A dict from a module's path, such as
        "encoder.layers.0.self_attention", to the weights of its last
        call, detached: (batch, h, query_len, key_len).

    Chapter: attention-record
    """
    recording = _Recording(model)
    others = _this_thread.recordings
    _this_thread.recordings = (*others, recording)
    try:
        yield recording.maps
    finally:
        _this_thread.recordings = others
