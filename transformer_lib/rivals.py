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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.masks import padding_mask
from transformer_lib.model import Transformer, TransformerConfig


class StateCache:
    """What a layer keeps of the source, and its state.

    Args:
        source: keys and values of the attention to the source, each
            with the batch first.
        state: (batch, ...), what the layer needs of the words so far.

    Chapter: rivals-frame
    """

    def __init__(self, source: tuple[Tensor, Tensor], state: Tensor):
        self.source: tuple[Tensor, Tensor] = source
        self.state: Tensor = state
        self.length: int = 0

    def advance(self, state: Tensor, positions: int) -> None:
        """Keep the state after so many further positions."""
        self.state = state
        self.length += positions

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Make row i what row `rows[i]` was."""
        self.state = self.state[rows]
        if source:
            key, value = self.source
            self.source = key[rows], value[rows]


class AdditiveAttention(nn.Module):
    """Attention scored by one hidden layer, section 3.2.1.

    `AdditiveAttention(d_query, d_model)`: the widths of the queries
    and of the memory; the hidden layer is as wide as the memory.

    Chapter: rivals-additive
    """

    def __init__(self, d_query: int, d_model: int):
        super().__init__()
        self.from_query: nn.Linear = nn.Linear(d_query, d_model)
        self.from_key: nn.Linear = nn.Linear(d_model, d_model, bias=False)
        # v scores the hidden layer; it is not the V of the values.
        self.v: nn.Linear = nn.Linear(d_model, 1, bias=False)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (batch, key_len, d_model)."""
        return self.from_key(memory), memory

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Tensor | None = None,
        keys_values: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """(batch, query_len, d_query) to (batch, query_len, d_model).

        `mask` is boolean, (batch, 1, 1, key_len), True = may attend;
        `keys_values` are those of `memory`, where they are known.
        """
        key, value = keys_values or self.keys_values(memory)
        # (batch, query_len, key_len, d_model)
        sums = self.from_query(x)[:, :, None] + key[:, None]
        scores = self.v(sums.tanh()).squeeze(-1)
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask[:, 0], lowest)
        return scores.softmax(-1) @ value


def read_both_ways(gru: nn.GRU, x: Tensor, mask: Tensor) -> Tensor:
    """The states of both directions, side by side for each word.

    (batch, n, d_model) to (batch, n, 2 * d_state). `mask`, (batch, 1,
    1, n), is True where a sentence has words; padding follows them.

    Chapter: rivals-recurrent
    """
    if len(x) == 0:  # packing refuses a batch of no sentences
        return x.new_zeros(0, x.size(1), 2 * gru.hidden_size)
    # Packing refuses a length of 0, which an empty sentence would have.
    lengths = mask[:, 0, 0].sum(-1).clamp(min=1).cpu()
    words = pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = pad_packed_sequence(
        gru(words)[0], batch_first=True, total_length=x.size(1)
    )
    return states


class _RecurrentEncoderLayer(nn.Module):
    """tanh(W [forward state; backward state]), states of width d_ff.

    Chapter: rivals-recurrent
    """

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


class _RecurrentDecoderLayer(nn.Module):
    """tanh(W [state; what attention found]), states of width d_ff.

    Chapter: rivals-recurrent
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, d_state = config.d_model, config.d_ff
        self.gru = nn.GRU(d_model, d_state, batch_first=True)
        self.cross_attention = AdditiveAttention(d_state, d_model)
        self.join = nn.Linear(d_state + d_model, d_model)
        self.dropout = nn.Dropout(config.dropout)

    def new_cache(self, memory: Tensor, longest: int) -> StateCache:
        state = memory.new_zeros(len(memory), self.gru.hidden_size)
        return StateCache(self.cross_attention.keys_values(memory), state)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        target_mask: Tensor | None,
        source_mask: Tensor | None,
        cache: StateCache | None = None,
    ) -> Tensor:
        known = None
        if cache is None:
            states, _ = self.gru(x)
        else:
            known = cache.source
            states, last = self.gru(x, cache.state[None])
            cache.advance(last[0], positions=x.size(1))
        context = self.cross_attention(states, memory, source_mask, known)
        joined = torch.cat([states, context], dim=-1)
        return self.dropout(self.join(joined).tanh())


class RecurrentTranslator(Transformer):
    """Recurrent, with additive attention, like table 2's GNMT row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings and d_ff, the width of a state. It is called
    and searched as `Transformer` is.

    Chapter: rivals-recurrent
    """

    def __init__(self, config: TransformerConfig):
        # "post": no norm after the whole stack
        super().__init__(replace(config, positions="none", norm="post"))

    def build_encoder_layer(self) -> nn.Module:
        return _RecurrentEncoderLayer(self.config)

    def build_decoder_layer(self) -> nn.Module:
        return _RecurrentDecoderLayer(self.config)


# A sum of two vectors varies twice as much as one of them.
_ROOT_HALF = math.sqrt(0.5)


class _GatedConvolution(nn.Module):
    """(batch, n + k - 1, d) to (batch, n, d): a window of k for each.

    Chapter: rivals-convolutional
    """

    def __init__(self, d: int, k: int, dropout: float):
        super().__init__()
        self.mix = nn.Conv1d(d, 2 * d, k)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        # Conv1d takes (batch, d, n).
        mixed = self.mix(self.dropout(x).mT).mT  # (batch, n, 2 * d)
        return F.glu(mixed)  # (batch, n, d)


class _ConvolutionalEncoderLayer(nn.Module):
    """A gated window around each word.

    Chapter: rivals-convolutional
    """

    def __init__(self, config: TransformerConfig, k: int):
        super().__init__()
        self.k = k
        self.gated = _GatedConvolution(config.d_model, k, config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        words = x * mask[:, 0, 0, :, None]  # zero where padding is
        padded = F.pad(words, (0, 0, (self.k - 1) // 2, self.k // 2))
        return (x + self.gated(padded)) * _ROOT_HALF


class _ConvolutionalDecoderLayer(nn.Module):
    """A gated window up to each word, and attention.

    Chapter: rivals-convolutional
    """

    def __init__(self, config: TransformerConfig, k: int):
        super().__init__()
        self.before = k - 1
        self.gated = _GatedConvolution(config.d_model, k, config.dropout)
        self.cross_attention = MultiHeadAttention(config.d_model, h=1)

    def new_cache(self, memory: Tensor, longest: int) -> StateCache:
        state = memory.new_zeros(len(memory), self.before, memory.size(2))
        return StateCache(self.cross_attention.keys_values(memory), state)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        target_mask: Tensor | None,
        source_mask: Tensor | None,
        cache: StateCache | None = None,
    ) -> Tensor:
        known = None
        if cache is None:
            window = F.pad(x, (0, 0, self.before, 0))
        else:
            known = cache.source
            window = torch.cat([cache.state, x], dim=1)
            # The next window begins with the last `before` positions.
            cache.advance(window[:, x.size(1) :], positions=x.size(1))
        states = self.gated(window)
        context = self.cross_attention(states, memory, source_mask, known)
        found = (states + context) * _ROOT_HALF
        return (x + found) * _ROOT_HALF


class ConvolutionalTranslator(Transformer):
    """Gated convolutions of width k, like table 2's ConvS2S row.

    Of `config` it takes vocab_size, N, d_model, dropout, tie,
    scale_embeddings, positions, max_length and, for the attention to
    the source, start. It is called and searched as `Transformer` is.
    A saved model names its class, and `k` is no part of `config`: for
    another width, derive a class.

    Chapter: rivals-convolutional
    """

    k = 3

    def __init__(self, config: TransformerConfig):
        # "post": no norm after the whole stack
        super().__init__(replace(config, norm="post"))

    def build_encoder_layer(self) -> nn.Module:
        return _ConvolutionalEncoderLayer(self.config, self.k)

    def build_decoder_layer(self) -> nn.Module:
        return _ConvolutionalDecoderLayer(self.config, self.k)

    def encode(self, source_ids: Tensor) -> Tensor:
        """The stack's output plus its input: (batch, source_len, d_model).

        In ConvS2S the decoder attends with the output alone as keys
        and this sum as values; here the sum is both.
        """
        x = self.embed(source_ids, self.source_embedding)
        return x + self.encoder(x, padding_mask(source_ids))
