# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Feed-forward network, residual and both stacks: 3.1 and 3.3.

Chapter: book/architecture/layers
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from transformer_lib.attention import MultiHeadAttention


class Residual(nn.Module):
    """A path around a sub-layer, with norm and dropout, section 3.1.

    `norm="post"` is the paper's LayerNorm(x + Dropout(Sublayer(x))),
    `norm="pre"` is x + Dropout(Sublayer(LayerNorm(x))).

    Raises:
        ValueError: if `norm` is neither.

    Chapter: layers-norm
    """

    def __init__(self, d_model: int, dropout: float = 0.1, norm: str = "post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"{norm=}: choose 'post' or 'pre'")
        self.norm: nn.LayerNorm = nn.LayerNorm(d_model)
        self.dropout: nn.Dropout = nn.Dropout(dropout)
        self.pre_norm: bool = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        """(batch, len, d_model) to the same shape.

        `sublayer` is any function of such a tensor.
        """
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """The position-wise network of equation 2, section 3.3.

    Args:
        d_model: width of what comes in and goes out.
        d_ff: width of the layer between.
        dropout: on that layer; the paper has none.

    Chapter: layers-feed-forward
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        self.w_1: nn.Linear = nn.Linear(d_model, d_ff)
        self.w_2: nn.Linear = nn.Linear(d_ff, d_model)
        self.dropout: nn.Dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) to (..., d_model), each position alone."""
        inner = self.w_1(x).relu()  # (..., d_ff)
        return self.w_2(self.dropout(inner))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, section 3.1.

    Built from ready sub-layers; dropout and `norm` as in `Residual`.

    Chapter: layers-encoder-layer
    """

    def __init__(
        self,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        d_model: int,
        dropout: float = 0.1,
        norm: str = "post",
    ):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.residuals: nn.ModuleList = nn.ModuleList(
            Residual(d_model, dropout, norm) for _ in range(2)
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, source_len, d_model) to the same shape."""
        first, second = self.residuals
        x = first(x, lambda x: self.self_attention(x, x, mask))
        return second(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention over the memory, feed-forward: 3.1.

    Built from ready sub-layers; dropout and `norm` as in `Residual`.

    Chapter: layers-decoder-layer
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        d_model: int,
        dropout: float = 0.1,
        norm: str = "post",
    ):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residuals: nn.ModuleList = nn.ModuleList(
            Residual(d_model, dropout, norm) for _ in range(3)
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        target_mask: Tensor | None,
        source_mask: Tensor | None,
        cache: "LayerCache | None" = None,
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        `memory` is the encoder's output (batch, source_len, d_model).
        With a `cache`, of `new_cache`, `x` holds the new positions
        alone, and `memory` may be None.
        """
        first, second, third = self.residuals
        x = first(x, lambda x: self.look_back(x, target_mask, cache))

        def across(x: Tensor) -> Tensor:
            if cache is None:
                return self.cross_attention(x, memory, source_mask)
            return self.cross_attention.attend(x, *cache.source, source_mask)

        x = second(x, across)
        return third(x, self.feed_forward)

    def look_back(
        self, x: Tensor, mask: Tensor | None, cache: "LayerCache | None"
    ) -> Tensor:
        """The target's attention to itself, with the cache's positions."""
        if cache is None:
            return self.self_attention(x, x, mask)
        key, value = self.self_attention.keys_values(x)
        keys_values = cache.append(key, value)
        return self.self_attention.attend(x, *keys_values, mask)

    def new_cache(self, memory: Tensor, longest: int) -> "LayerCache":
        """For targets of up to `longest` positions, none there yet."""
        return LayerCache(
            source=self.cross_attention.keys_values(memory),
            target=self.self_attention.keys_values(memory[:, :0]),
            longest=longest,
        )


class _Stack(nn.Module):
    """Layers, and with norm="pre" one more LayerNorm after them.

    Chapter: layers-stacks
    """

    def __init__(
        self, layers: Iterable[nn.Module], d_model: int, norm: str = "post"
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"{norm=}: choose 'post' or 'pre'")
        self.layers: nn.ModuleList = nn.ModuleList(layers)
        if norm == "pre":
            self.norm: nn.LayerNorm = nn.LayerNorm(d_model)

    def last_norm(self, x: Tensor) -> Tensor:
        return self.norm(x) if hasattr(self, "norm") else x


class Encoder(_Stack):
    """The encoder's stack, section 3.1: layers one after the other.

    `Encoder(layers, d_model, norm)`: `norm` says how the layers were
    built; with "pre" one more LayerNorm follows the last of them.

    Chapter: layers-stacks
    """

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, source_len, d_model) to the same shape."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.last_norm(x)


class Decoder(_Stack):
    """The decoder's stack, section 3.1; built like `Encoder`.

    Chapter: layers-stacks
    """

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        target_mask: Tensor | None,
        source_mask: Tensor | None,
        cache: "Sequence[LayerCache] | None" = None,
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        A `cache` holds what each layer keeps, in the layers' order.
        """
        for i, layer in enumerate(self.layers):
            kept = cache[i] if cache else None
            x = layer(x, memory, target_mask, source_mask, kept)
        return self.last_norm(x)


class LayerCache:
    """What one layer of a decoder need not compute again.

    `source` is key and value of the source, each (batch, h,
    source_len, d). Those of the target's first `length` positions are
    in `rooms`, two tensors (longest, batch, h, d). `target` gives
    keys and values without positions, from which h and d are taken.
    It serves searches: no gradient passes through `select`.

    Chapter: layers-cache
    """

    def __init__(
        self,
        source: tuple[Tensor, Tensor],
        target: tuple[Tensor, Tensor],
        longest: int,
    ):
        key, value = [part.contiguous() for part in source]
        self.source: tuple[Tensor, Tensor] = key, value
        self.length: int = 0
        self.longest = longest
        self.rooms: list[Tensor] = [
            part.new_empty(longest, len(part), part.size(1), part.size(3))
            for part in target
        ]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new positions (batch, h, new, d); returns all so far.

        Raises:
            ValueError: if there is no room for them.
        """
        end = self.length + key.size(2)
        if end > self.longest:
            raise ValueError(
                f"position {end} is beyond the cache's longest={self.longest}"
            )
        for room, new in zip(self.rooms, (key, value), strict=True):
            room[self.length : end] = new.permute(2, 0, 1, 3)
        self.length = end
        keys, values = self.rooms
        return keys[:end].permute(1, 2, 0, 3), values[:end].permute(1, 2, 0, 3)

    @torch.no_grad()
    def select(self, rows: Tensor, source: bool = True) -> None:
        """Make row i what row `rows[i]` was: reorder, repeat or drop.

        With `source=False` the source's part stays as it is.
        """
        for i, room in enumerate(self.rooms):
            size = self.longest, len(rows), room.size(2), room.size(3)
            self.rooms[i] = room.new_empty(size)
            torch.index_select(
                room[: self.length], 1, rows, out=self.rooms[i][: self.length]
            )
        if source:
            key, value = self.source
            # key[rows] and value[rows], in half the time
            self.source = (
                key.index_select(0, rows),
                value.index_select(0, rows),
            )
