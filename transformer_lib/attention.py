# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Scaled dot-product and multi-head attention, section 3.2.

Chapter: book/architecture/attention
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def scaled_dot_product_attention(
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
    weights set to zero at random. A query that may attend to nothing
    gets the mean of all values; of PyTorch's fused kernel, zeros.

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
            raise ValueError(f"{h=} does not divide {d_model=}: give d_k, d_v")
        d_k = d_k or d_model // h
        d_v = d_v or d_model // h
        self.h = h
        self.dropout = dropout
        self.w_q = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_k = nn.Linear(d_model, h * d_k, bias=bias)
        self.w_v = nn.Linear(d_model, h * d_v, bias=bias)
        self.w_o = nn.Linear(h * d_v, d_model, bias=bias)

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
        offset: int = 0,
        need_weights: bool = False,
    ) -> Any:
        """Queries from `x`, keys and values from `memory`.

        Args:
            x: (batch, query_len, d_model)
            memory: (batch, key_len, d_model), or what `keys_values`
                made of it.
            mask: True = may attend; (batch, h, query_len, key_len) or
                what broadcasts to it.
            offset: the position of the first query.
            need_weights: whether to return the weights, too.

        Returns:
            (batch, query_len, d_model), or with `need_weights` a pair
            of this and the weights (batch, h, query_len, key_len).

        Raises:
            ValueError: for a mask that is not boolean, or of three axes,
                whose first might be the batch's or the heads'.
        """
        if mask is not None:
            _check_mask(mask)
        query = self.place(self.split(self.w_q(x)), offset)
        if isinstance(memory, tuple):
            key, value = memory
        else:
            key, value = self.keys_values(memory)
        heads, weights = self.attend(query, key, value, mask, need_weights)
        # (batch, query_len, h * d_v)
        joined = heads.transpose(1, 2).flatten(2)
        output = self.w_o(joined)
        return (output, weights) if need_weights else output

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Equation 1 for every head: (batch, h, query_len, d_v).

        With the weights, which may be None unless they are needed.
        """
        dropout = self.dropout if self.training else 0.0
        slower = self.training and query.is_cpu  # the fused kernel
        if need_weights or slower:
            return scaled_dot_product_attention(
                query, key, value, mask, dropout
            )
        heads = F.scaled_dot_product_attention(
            query, key, value, mask, dropout
        )
        return heads, None


def _check_mask(mask: Tensor) -> None:
    """Refuse a mask that might be taken for another one.

    Chapter: attention-class
    """
    if mask.dtype != torch.bool or mask.dim() == 3:
        raise ValueError(
            f"{mask.dtype=}, {mask.shape=}: give a boolean mask, True = may "
            "attend, (batch, 1, query_len, key_len) or (1, h, query_len, "
            "key_len); three axes could mean either"
        )


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep the attention weights of each `MultiHeadAttention`, section 3.2.

    Only calls of this thread are recorded: others may use the model,
    and record it too, at the same time.

    Yields:
        A dict from a module's path, such as
        "encoder.layers.0.self_attention", to the weights of its last
        call, detached: (batch, h, query_len, key_len). In training they
        are those that dropout left.

    Raises:
        ValueError: for a compiled model, which runs no hooks.

    Chapter: attention-record
    """
    maps: dict[str, Tensor] = {}
    asked: dict[str, bool] = {}  # whether the caller wants the weights
    thread = get_ident()

    # Another thread may call while its hooks are half registered.
    def ask(path: str, module: nn.Module, given: tuple, *rest: Any) -> Any:
        if get_ident() == thread:
            (named,) = rest
            # Past the first four, it may have been given by its place.
            asked[path] = any([*given[4:], named.get("need_weights")])
            return given[:4], named | {"need_weights": True}

    def keep(path: str, module: nn.Module, given: tuple, *rest: Any) -> Any:
        if get_ident() == thread:
            output, weights = rest[-1]
            with torch.inference_mode(False):  # to be computed with later
                maps[path] = weights.detach().clone()
            return rest[-1] if asked[path] else output

    hooks = []
    try:
        for path, module in model.named_modules():
            if hasattr(module, "_orig_mod") or module._compiled_call_impl:
                raise ValueError(
                    "a compiled model keeps no attention weights: record "
                    "the model that torch.compile was given"
                )
            if isinstance(module, MultiHeadAttention):
                # Of two recordings the inner one takes its weights first.
                options = dict(prepend=True, with_kwargs=True)
                hooks += [
                    module.register_forward_hook(
                        partial(keep, path), **options
                    ),
                    module.register_forward_pre_hook(
                        partial(ask, path), with_kwargs=True
                    ),
                ]
        yield maps
    finally:
        for hook in hooks:
            hook.remove()
