"""Recurrence and convolution in the Transformer's frame.

`recurrent_translator` and `convolutional_translator` put other layers in
both stacks, after the earlier systems of table 2. `swapped` exchanges
self-attention alone, in one stack. What comes out is a `Transformer`, and
is trained and searched as any other.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import Decoder, Encoder, LayerCache
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    initialize_weights,
)


@torch.no_grad()
def initialize(module: nn.Module, init: str) -> None:
    """The library's initialization, for recurrence and windows too.

    A GRU's three gates are initialized one by one, and a convolution
    counts its inputs and outputs once for each place of the window.
    """
    initialize_weights(module, init)  # the linear maps
    for name, part in module.named_modules():
        if not isinstance(part, nn.GRU | nn.Conv1d):
            continue
        gates = 3 if isinstance(part, nn.GRU) else 1
        # This range lets 2/3 of the variance pass, and the gate 1/4.
        factor = math.sqrt(6) if name.endswith("gated.mix") else 1.0
        for weight in part.parameters():
            if weight.dim() == 1:
                nn.init.zeros_(weight)
                continue
            for matrix in weight.chunk(gates):
                nn.init.xavier_uniform_(matrix).mul_(factor)


def inputs_so_far(cache: LayerCache, x: Tensor) -> Tensor:
    """All inputs of a decoder layer, the new ones `x` at the end.

    (batch, new, d_model) to (batch, length, d_model). The cache keeps
    them where it keeps keys and values, as if of a single head.
    """
    return cache.append(x[:, None], x[:, None])[0][:, 0]


class AdditiveAttention(nn.Module):
    """Attention scored by one hidden layer, section 3.2.1.

    `AdditiveAttention(d_query, d_model)`: the widths of the queries
    and of the memory; the hidden layer is as wide as the memory.
    """

    def __init__(self, d_query: int, d_model: int):
        super().__init__()
        self.from_query = nn.Linear(d_query, d_model)
        self.from_key = nn.Linear(d_model, d_model, bias=False)
        # v scores the hidden layer; it is not the V of the values.
        self.v = nn.Linear(d_model, 1, bias=False)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (batch, key_len, d_model)."""
        return self.from_key(memory), memory

    def attend(
        self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """(batch, query_len, d_query) to (batch, query_len, d_model).

        `mask` is boolean, (batch, 1, 1, key_len), True = may attend.
        """
        # (batch, query_len, key_len, d_model)
        sums = self.from_query(x)[:, :, None] + key[:, None]
        scores = self.v(sums.tanh()).squeeze(-1)
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask[:, 0], lowest)
        return scores.softmax(-1) @ value

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Queries from `x`, keys and values from `memory`."""
        return self.attend(x, *self.keys_values(memory), mask)


def read_both_ways(gru: nn.GRU, x: Tensor, mask: Tensor) -> Tensor:
    """The states of both directions, side by side for each word.

    (batch, n, d_model) to (batch, n, 2 * d_state). `mask`, (batch, 1,
    1, n), is True where a sentence has words; padding follows them.
    """
    lengths = mask[:, 0, 0].sum(-1).cpu()
    words = pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = pad_packed_sequence(
        gru(words)[0], batch_first=True, total_length=x.size(1)
    )
    return states


class RecurrentEncoderLayer(nn.Module):
    """tanh(W [forward state; backward state]), states of width d_ff."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, d_state = config.d_model, config.d_ff
        self.gru = nn.GRU(
            d_model, d_state, batch_first=True, bidirectional=True
        )
        self.join = nn.Linear(2 * d_state, d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        states = read_both_ways(self.gru, x, mask)
        return self.dropout(self.join(states).tanh())


class CachedLayer(nn.Module):
    """A layer of a decoder that keeps its inputs in the cache."""

    cross_attention: AdditiveAttention | MultiHeadAttention

    def new_cache(self, memory: Tensor) -> LayerCache:
        return LayerCache(self.cross_attention.keys_values(memory))


class RecurrentDecoderLayer(CachedLayer):
    """tanh(W [state; the attention's output]), states of width d_ff."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, d_state = config.d_model, config.d_ff
        self.gru = nn.GRU(d_model, d_state, batch_first=True)
        self.cross_attention = AdditiveAttention(d_state, d_model)
        self.join = nn.Linear(d_state + d_model, d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        source_mask: Tensor | None,
        target_mask: Tensor | None = None,  # it looks back alone anyway
        cache: LayerCache | None = None,
    ) -> Tensor:
        if cache is None:
            states, _ = self.gru(x)
            key_value = self.cross_attention.keys_values(memory)
        else:  # plain: read again from the beginning
            states, _ = self.gru(inputs_so_far(cache, x))
            states, key_value = states[:, -x.size(1) :], cache.source
        context = self.cross_attention.attend(states, *key_value, source_mask)
        joined = torch.cat([states, context], dim=-1)
        return self.dropout(self.join(joined).tanh())


def recurrent_translator(config: TransformerConfig) -> Transformer:
    """Recurrent, with additive attention, like table 2's GNMT row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings and d_ff, the width of a state. It needs no
    positions, because it reads in order.
    """
    config = replace(config, positions="none", norm="post")
    encoder = [RecurrentEncoderLayer(config) for _ in range(config.N)]
    decoder = [RecurrentDecoderLayer(config) for _ in range(config.N)]
    return with_layers(config, Encoder(encoder), decoder)


def with_layers(
    config: TransformerConfig, encoder: Encoder, decoder: list[nn.Module]
) -> Transformer:
    """A `Transformer` whose stacks are exchanged for these."""
    model = Transformer(config)
    model.encoder = encoder
    model.decoder = Decoder(decoder)
    for stack in model.encoder, model.decoder:
        initialize(stack, config.init)
    return model


# A sum of two vectors varies twice as much as one of them.
ROOT_HALF = math.sqrt(0.5)


class GatedConvolution(nn.Module):
    """(batch, n + k - 1, d) to (batch, n, d): a window of k for each."""

    def __init__(self, d: int, k: int, dropout: float):
        super().__init__()
        self.mix = nn.Conv1d(d, 2 * d, k)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        # Conv1d takes (batch, d, n).
        mixed = self.mix(self.dropout(x).mT).mT  # (batch, n, 2 * d)
        return F.glu(mixed)  # (batch, n, d)


class ConvolutionalEncoderLayer(nn.Module):
    """A gated window around each word."""

    def __init__(self, config: TransformerConfig, k: int):
        super().__init__()
        self.k = k
        self.gated = GatedConvolution(config.d_model, k, config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        words = x * mask[:, 0, 0, :, None]  # zero where padding is
        padded = F.pad(words, (0, 0, (self.k - 1) // 2, self.k // 2))
        return (x + self.gated(padded)) * ROOT_HALF


class ConvolutionalDecoderLayer(CachedLayer):
    """A gated window up to each word, and attention."""

    def __init__(self, config: TransformerConfig, k: int):
        super().__init__()
        self.before = k - 1
        self.gated = GatedConvolution(config.d_model, k, config.dropout)
        self.cross_attention = MultiHeadAttention(config.d_model, h=1)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        source_mask: Tensor | None,
        target_mask: Tensor | None = None,  # it looks back alone anyway
        cache: LayerCache | None = None,
    ) -> Tensor:
        if cache is None:
            window = F.pad(x, (0, 0, self.before, 0))
            key_value = self.cross_attention.keys_values(memory)
        else:  # zeros stand before the first word here, too
            past = F.pad(inputs_so_far(cache, x), (0, 0, self.before, 0))
            window = past[:, -(self.before + x.size(1)) :]
            key_value = cache.source
        states = self.gated(window)
        context = self.cross_attention(states, key_value, source_mask)
        found = (states + context) * ROOT_HALF
        return (x + found) * ROOT_HALF


class SummedEncoder(Encoder):
    """A stack whose output is added to its input.

    In ConvS2S the decoder attends with the output as keys and this sum
    as values; here the sum is both.
    """

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x + super().forward(x, mask)


def convolutional_translator(
    config: TransformerConfig, k: int = 3
) -> Transformer:
    """Gated convolutions of width k, like table 2's ConvS2S row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings, positions, max_length and, for the attention to
    the source, init.
    """
    config = replace(config, norm="post")
    encoder = [ConvolutionalEncoderLayer(config, k) for _ in range(config.N)]
    decoder = [ConvolutionalDecoderLayer(config, k) for _ in range(config.N)]
    stack = SummedEncoder(encoder)
    return with_layers(config, stack, decoder)


class InPlace(nn.Module):
    """What is called as `MultiHeadAttention` is, by the decoder too.

    Its keys and values are the inputs themselves, as if of one head;
    so a decoder's cache keeps all inputs so far, and only the outputs
    of the last ones are returned.
    """

    def keys_values(
        self, memory: Tensor, offset: int = 0
    ) -> tuple[Tensor, Tensor]:
        return memory[:, None], memory[:, None]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        mask: Tensor | None = None,
        offset: int = 0,
    ) -> Tensor:
        """(batch, n, d_model) to the same shape; `memory` is `x`."""
        inputs = memory[0][:, 0] if isinstance(memory, tuple) else x
        return self.mixed(inputs, mask)[:, -x.size(1) :]

    def mixed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """In an encoder `mask`, (batch, 1, 1, n), is False at padding."""
        raise NotImplementedError


class ConvolutionInPlace(InPlace):
    """A gated convolution in the place of self-attention.

    It has as many weights, 4 d_model^2 but for rounding.

    Args:
        d_model: width of what comes in and goes out.
        causal: whether the window ends at the word itself, for a
            decoder, or reaches to either side of it.
        k: words in the window.
    """

    def __init__(self, d_model: int, causal: bool, k: int = 3):
        super().__init__()
        width = round(4 * d_model / (2 * k + 1))
        self.padding = (k - 1, 0) if causal else ((k - 1) // 2, k // 2)
        self.causal = causal
        self.window = nn.Conv1d(d_model, 2 * width, k, bias=False)
        self.w_o = nn.Linear(width, d_model, bias=False)

    def mixed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None and not self.causal:
            x = x * mask[:, 0, 0, :, None]  # zero beyond the end
        seen = F.pad(x, (0, 0, *self.padding))
        return self.w_o(F.glu(self.window(seen.mT).mT))


class RecurrenceInPlace(InPlace):
    """A gated recurrent unit in the place of self-attention.

    It has as many weights, 4 d_model^2 but for rounding.

    Args:
        d_model: width of what comes in and goes out.
        causal: whether it reads only from left to right, for a
            decoder, or in both directions.
    """

    def __init__(self, d_model: int, causal: bool):
        super().__init__()
        share = 2 / 3 if causal else (math.sqrt(10) - 2) / 3
        width = round(share * d_model)
        self.causal = causal
        self.gru = nn.GRU(
            d_model,
            width,
            batch_first=True,
            bidirectional=not causal,
            bias=False,
        )
        directions = 1 if causal else 2
        self.w_o = nn.Linear(directions * width, d_model, bias=False)

    def mixed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.causal or mask is None:
            return self.w_o(self.gru(x)[0])
        return self.w_o(read_both_ways(self.gru, x, mask))


def swapped(
    config: TransformerConfig, stack: str, kind: type[nn.Module]
) -> Transformer:
    """A `Transformer` without self-attention in one of its stacks.

    Args:
        stack: "encoder" or "decoder".
        kind: what comes in its place, in every layer.
    """
    model = Transformer(config)
    for layer in getattr(model, stack).layers:
        layer.self_attention = kind(config.d_model, stack == "decoder")
        initialize(layer.self_attention, config.init)
    return model
