# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Feed-forward network, residual and both stacks: 3.1 and 3.3.

Chapter: book/architecture/layers
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.masks import causal_mask


class Residual(nn.Module):
    """A residual connection around a sub-layer, section 3.1.

    `norm="post"` is the paper's LayerNorm(x + Dropout(Sublayer(x))),
    `norm="pre"` is x + Dropout(Sublayer(LayerNorm(x))). `layer_norm`
    makes the norm from its width.

    Raises:
        ValueError: for another `norm`.

    Chapter: layers-dropout
    """

    def __init__(
        self,
        d_model: int,
        dropout: float = 0.1,
        norm: str = "post",
        layer_norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"{norm=}: give 'post' or 'pre'")
        self.norm = layer_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        """(batch, len, d_model) to the same shape, which `sublayer` keeps."""
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """The position-wise network of equation 2, section 3.3.

    Args:
        d_model: width of what comes in and goes out.
        d_ff: width of the hidden layer.
        dropout: on that layer; the paper has none.

    Chapter: layers-feed-forward
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) to (..., d_model), each position by itself."""
        inner = self.w_1(x).relu()  # (..., d_ff)
        return self.w_2(self.dropout(inner))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, section 3.1.

    Takes its sub-layers ready-made; `d_model` and the options are those
    of the `Residual` around each.

    Chapter: layers-encoder-layer
    """

    def __init__(
        self,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        d_model: int,
        **options: Any,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.residuals = nn.ModuleList(
            Residual(d_model, **options) for _ in range(2)
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, source_len, d_model) to the same shape.

        `mask` (batch, 1, 1, source_len) is True where a position may
        be attended to.
        """
        first, second = self.residuals
        x = first(x, lambda x: self.self_attention(x, x, mask))
        return second(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention over the memory, feed-forward: 3.1.

    Takes its sub-layers ready-made; `d_model` and the options are those
    of the `Residual` around each.

    Chapter: layers-decoder-layer
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        d_model: int,
        **options: Any,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residuals = nn.ModuleList(
            Residual(d_model, **options) for _ in range(3)
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        source_mask: Tensor | None,
        target_mask: Tensor | None,
        cache: "LayerCache | None" = None,
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        Args:
            x: (batch, target_len, d_model); with a `cache` only the
                new positions.
            memory: the encoder's output (batch, source_len, d_model);
                it may be None with a `cache`.
            source_mask, target_mask: for the attention over the memory
                and for self-attention.
            cache: from `new_cache`; the new positions are added.
        """
        own, across = self.self_attention, self.cross_attention
        first, second, third = self.residuals
        offset = 0 if cache is None else cache.length
        source = memory if cache is None else cache.source

        def so_far(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            if cache is None:
                return x
            return cache.append(*own.keys_values(x, offset))

        x = first(x, lambda x: own(x, so_far(x), target_mask, offset))
        x = second(x, lambda x: across(x, source, source_mask, offset))
        return third(x, self.feed_forward)

    def new_cache(self, memory: Tensor) -> "LayerCache":
        """An empty cache, with the keys and values of `memory`.

        `memory` is (batch, source_len, d_model).
        """
        return LayerCache(self.cross_attention.keys_values(memory))


class _Stack(nn.Module):
    """Layers, and perhaps one more norm after them.

    Chapter: layers-stacks
    """

    def __init__(
        self, layers: Iterable[nn.Module], norm: nn.Module | None = None
    ):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()


class Encoder(_Stack):
    """The encoder's stack, section 3.1: layers one after the other.

    `Encoder(layers, norm)`: `norm` follows the last of the layers; only
    a stack of pre-norm layers needs it.

    Chapter: layers-stacks
    """

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, source_len, d_model) to the same shape."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(_Stack):
    """The decoder's stack, section 3.1; built like `Encoder`.

    Chapter: layers-stacks
    """

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        source_mask: Tensor | None,
        cache: "Sequence[LayerCache] | None" = None,
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        Each position attends to itself and to those before it. A
        `cache` holds what each layer keeps, in the layers' order.
        """
        new = x.size(1)
        kept = 0 if cache is None else cache[0].length
        target_mask = None  # a single new position attends to all
        if new > 1:
            target_mask = causal_mask(kept + new, x.device)[..., kept:, :]
        caches = cache or [None] * len(self.layers)
        for layer, own in zip(self.layers, caches, strict=True):
            x = layer(x, memory, source_mask, target_mask, own)
        return self.norm(x)


class LayerCache:
    """The keys and values that one decoder layer keeps.

    `source` holds those of the source, `target` those of the target's
    first `length` positions, or None while there are none. Each is a
    pair (key, value) of tensors (batch, h, len, d).

    Chapter: layers-cache
    """

    def __init__(self, source: tuple[Tensor, Tensor]):
        # Each head's in one piece: every step reads them again.
        key, value = source
        self.source = key.contiguous(), value.contiguous()
        self.target: tuple[Tensor, Tensor] | None = None

    @property
    def length(self) -> int:
        """How many positions of the target are kept."""
        return 0 if self.target is None else self.target[0].size(2)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new positions (batch, h, new, d); returns all so far."""
        if self.target is not None:
            key = torch.cat([self.target[0], key], dim=2)
            value = torch.cat([self.target[1], value], dim=2)
        self.target = key, value
        return self.target

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Row i becomes the old row `rows[i]`: reorders, repeats or drops.

        With `source=False` the source's part stays as it is.
        """
        if self.target is not None:
            self.target = _rows_of(self.target, rows)
        if source:
            self.source = _rows_of(self.source, rows)


def _rows_of(
    pair: tuple[Tensor, Tensor], rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Some rows of a key and a value; twice as fast as `key[rows]`.

    Chapter: layers-cache
    """
    key, value = pair
    return key.index_select(0, rows), value.index_select(0, rows)
