# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Table 2's rivals: recurrence and convolution in the same frame.

Chapter: book/results/rivals
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pad_packed_sequence,
)

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import Decoder, Encoder
from transformer_lib.masks import padding_mask
from transformer_lib.model import Transformer, TransformerConfig


class AdditiveAttention(nn.Module):
    """Attention scored by one hidden layer, section 3.2.1.

    Built from the widths of queries and memory.

    Chapter: rivals-additive
    """

    def __init__(self, d_query: int, d_model: int):
        super().__init__()
        self.w_q = nn.Linear(d_query, d_model)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Linear(d_model, 1, bias=False)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (batch, key_len, d_model)."""
        return self.w_k(memory), memory

    def forward(self, x, memory, mask=None, cache=None) -> Tensor:
        """(batch, query_len, d_query) to (batch, query_len, d_model).

        `mask` is boolean, (batch, 1, 1, key_len), True = may attend.
        """
        if cache is None:
            key, value = self.keys_values(memory)
        else:
            key, value = cache.keys_values(self, memory)
        # (batch, query_len, key_len, d_model)
        pairs = self.w_q(x)[:, :, None] + key[:, None]
        scores = self.v(pairs.tanh())[..., 0]
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask[:, 0], lowest)
        return scores.softmax(-1) @ value


class _RecurrentEncoderLayer(nn.Module):
    """tanh(W [forward state; backward state]).

    Chapter: rivals-recurrent
    """

    def __init__(self, d_model, d_state, dropout):
        super().__init__()
        self.gru = nn.GRU(
            d_model, d_state, batch_first=True, bidirectional=True
        )
        self.join = nn.Linear(2 * d_state, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        lengths = mask[:, 0, 0].sum(-1).clamp(min=1).cpu()
        words = pack_padded_sequence(x, lengths, True, False)
        states, _ = pad_packed_sequence(
            self.gru(words)[0], True, total_length=x.size(1)
        )
        return self.dropout(self.join(states).tanh())


class _RecurrentDecoderLayer(nn.Module):
    """tanh(W [state; what it found]).

    Chapter: rivals-recurrent
    """

    def __init__(self, d_model, d_state, dropout):
        super().__init__()
        self.gru = nn.GRU(d_model, d_state, batch_first=True)
        self.cross_attention = AdditiveAttention(d_state, d_model)
        self.join = nn.Linear(d_state + d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x, memory, target_mask, source_mask, caches=(None, None)
    ) -> Tensor:
        own, across = caches
        before = None
        if own is not None and own.parts:  # (1, batch, d_state)
            before = own.parts[0][:, 0].transpose(0, 1).contiguous()
        states, last = self.gru(x, before)
        if own is not None:  # (batch, 1, 1, d_state), as keys lie
            own.parts = [last.transpose(0, 1)[:, None]]
        found = self.cross_attention(
            states, memory, source_mask, across
        )
        both = torch.cat([states, found], dim=-1)
        return self.dropout(self.join(both).tanh())


class RecurrentTranslator(Transformer):
    """Recurrent, with additive attention, like table 2's GNMT row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings and d_ff, the width of a state. It is called
    and searched as `Transformer` is.

    Chapter: rivals-recurrent
    """

    def __init__(self, config: TransformerConfig):
        super().__init__(replace(config, positions="none"))
        d = config.d_model
        sizes = d, config.d_ff, config.dropout
        layers = range(config.N)
        self.encoder = Encoder(
            [_RecurrentEncoderLayer(*sizes) for _ in layers], d
        )
        self.decoder = Decoder(
            [_RecurrentDecoderLayer(*sizes) for _ in layers], d
        )


_ROOT_HALF = math.sqrt(0.5)


class _GatedConvolution(nn.Module):
    """(batch, n + k - 1, d) to (batch, n, d).

    Chapter: rivals-convolutional
    """

    def __init__(self, d, k, dropout):
        super().__init__()
        self.mix = nn.Conv1d(d, 2 * d, k)
        self.dropout = nn.Dropout(dropout)
        deviation = math.sqrt(4 * (1 - dropout) / (k * d))
        nn.init.normal_(self.mix.weight, std=deviation)
        nn.init.zeros_(self.mix.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.mix(self.dropout(x).mT).mT)


class _ConvolutionalEncoderLayer(nn.Module):
    """A gated window around each word.

    Chapter: rivals-convolutional
    """

    def __init__(self, d, k, dropout):
        super().__init__()
        self.sides = 0, 0, (k - 1) // 2, k // 2
        self.gated = _GatedConvolution(d, k, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        real = x * mask[:, 0, 0, :, None]  # zero beyond the end
        new = self.gated(F.pad(real, self.sides))
        return (x + new) * _ROOT_HALF


class _ConvolutionalDecoderLayer(nn.Module):
    """A gated window up to each word, and attention.

    Chapter: rivals-convolutional
    """

    def __init__(self, d, k, dropout):
        super().__init__()
        self.before = k - 1
        self.gated = _GatedConvolution(d, k, dropout)
        self.cross_attention = MultiHeadAttention(d, 1)

    def keys_values(self, new: Tensor) -> tuple[Tensor]:
        return (new[:, None],)  # what a cache keeps: the inputs

    def forward(
        self, x, memory, target_mask, source_mask, caches=(None, None)
    ) -> Tensor:
        own, across = caches
        seen = x
        if own is not None:
            seen = own.keys_values(self, x)[0][:, 0]
        width = self.before + x.size(1)
        window = seen[:, -width:]
        missing = width - window.size(1)  # before the first word
        new = self.gated(F.pad(window, (0, 0, missing, 0)))
        found = self.cross_attention(new, memory, source_mask, across)
        return (x + (new + found) * _ROOT_HALF) * _ROOT_HALF


class ConvolutionalTranslator(Transformer):
    """Gated convolutions of width k, like table 2's ConvS2S row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings, positions and max_length. It is called and
    searched as `Transformer` is.

    Raises:
        ValueError: if k is below 1.

    Chapter: rivals-convolutional
    """

    def __init__(self, config: TransformerConfig, k: int = 3):
        super().__init__(config)
        if k < 1:
            raise ValueError(f"{k=}: a window holds 1 word or more")
        d, layers = config.d_model, range(config.N)
        sizes = d, k, config.dropout
        self.encoder = Encoder(
            [_ConvolutionalEncoderLayer(*sizes) for _ in layers], d
        )
        self.decoder = Decoder(
            [_ConvolutionalDecoderLayer(*sizes) for _ in layers], d
        )

    def encode(self, source_ids: Tensor) -> Tensor:
        """Stack plus input: (batch, source_len, d_model)."""
        x = self.embed(source_ids, self.source_embedding)
        return x + self.encoder(x, padding_mask(source_ids))
