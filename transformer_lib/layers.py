# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Feed-forward network, residual and both stacks: 3.1 and 3.3.

Chapter: book/architecture/layers
"""

from collections.abc import Callable

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

    def __init__(self, d_model, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"{norm=}: choose 'post' or 'pre'")
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = norm == "pre"

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
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

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
        self.residuals = nn.ModuleList(
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
        self.residuals = nn.ModuleList(
            Residual(d_model, dropout, norm) for _ in range(3)
        )

    def forward(
        self, x, memory, target_mask, source_mask, caches=(None, None)
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        `memory` is the encoder's output (batch, source_len, d_model);
        `caches` serve self-attention and cross-attention, as `cache`
        does in `MultiHeadAttention.forward`.
        """
        own, cross = caches

        def look_back(x):
            return self.self_attention(x, x, target_mask, own)

        def look_across(x):
            return self.cross_attention(x, memory, source_mask, cross)

        first, second, third = self.residuals
        x = first(x, look_back)
        x = second(x, look_across)
        return third(x, self.feed_forward)


class _Stack(nn.Module):
    """Layers, and with norm="pre" one more LayerNorm after them.

    Chapter: layers-stacks
    """

    def __init__(self, layers, d_model: int, norm: str = "post"):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)

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
        self, x, memory, target_mask, source_mask, cache=None
    ) -> Tensor:
        """(batch, target_len, d_model) to the same shape.

        Layer i takes the two of `cache.layers[i]` when there is a
        cache.
        """
        for i, layer in enumerate(self.layers):
            caches = cache.layers[i] if cache else (None, None)
            x = layer(x, memory, target_mask, source_mask, caches)
        return self.last_norm(x)
