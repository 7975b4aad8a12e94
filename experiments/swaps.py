"""The Transformer with its self-attention swapped in one stack.

Chapter `rivals` tells what is swapped and why; `rivals.py` trains these
models. Their weights are drawn by the library's one function.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.layers import DecoderLayer
from transformer_lib.model import Transformer
from transformer_lib.rivals import StateCache, read_both_ways


class ConvolutionInPlace(nn.Module):
    """A gated convolution that stands where self-attention stood.

    It has as many weights, 4 d_model^2 but for rounding. It is called
    as `MultiHeadAttention` is.

    Args:
        d_model: width of what comes in and goes out.
        causal: whether the window ends at the word itself, for a
            decoder, or reaches to either side of it.
        k: words in the window.
    """

    def __init__(self, d_model: int, causal: bool, k: int = 3):
        super().__init__()
        width = round(4 * d_model / (2 * k + 1))
        self.k = k
        self.causal = causal
        self.window = nn.Conv1d(d_model, 2 * width, k, bias=False)
        self.w_o = nn.Linear(width, d_model, bias=False)

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """(batch, n, d_model) to the same shape; `memory` is `x`.

        In an encoder `mask`, (batch, 1, 1, n), hides the padding; in
        a decoder nothing to the right is in the window.
        """
        if self.causal:
            return self.step(x, self.first_state(x))[0]
        if mask is not None:
            x = x * mask[:, 0, 0, :, None]  # zero beyond the end
        return self._gated(F.pad(x, (0, 0, (self.k - 1) // 2, self.k // 2)))

    def first_state(self, x: Tensor) -> Tensor:
        """No words yet: (batch, k - 1, d_model)."""
        return x.new_zeros(len(x), self.k - 1, x.size(2))

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Some further words, and the state after them."""
        seen = torch.cat([state, x], dim=1)
        return self._gated(seen), seen[:, x.size(1) :]

    def _gated(self, seen: Tensor) -> Tensor:
        return self.w_o(F.glu(self.window(seen.mT).mT))


class RecurrenceInPlace(nn.Module):
    """A gated recurrent unit that stands where self-attention stood.

    It has as many weights, 4 d_model^2 but for rounding. It is called
    as `MultiHeadAttention` is.

    Args:
        d_model: width of what comes in and goes out.
        causal: whether it reads from left to right alone, for a
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

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """(batch, n, d_model) to the same shape; `memory` is `x`.

        In an encoder `mask`, (batch, 1, 1, n), says where a sentence
        ends.
        """
        if self.causal or mask is None:
            return self.w_o(self.gru(x)[0])
        return self.w_o(read_both_ways(self.gru, x, mask))

    def first_state(self, x: Tensor) -> Tensor:
        """Nothing read yet: (batch, width)."""
        return x.new_zeros(len(x), self.gru.hidden_size)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Some further words, and the state after them."""
        states, last = self.gru(x, state[None])
        return self.w_o(states), last[0]


class DecoderLayerInState(DecoderLayer):
    """One whose `self_attention` is a module with a state."""

    def look_back(
        self, x: Tensor, mask: Tensor | None, cache: StateCache | None
    ) -> Tensor:
        if cache is None:
            return self.self_attention(x, x, mask)
        mixed, state = self.self_attention.step(x, cache.state)
        cache.advance(state, positions=x.size(1))
        return mixed

    def new_cache(self, memory: Tensor, longest: int) -> StateCache:
        return StateCache(
            source=self.cross_attention.keys_values(memory),
            state=self.self_attention.first_state(memory),
        )


class ConvolutionInEncoder(Transformer):
    """Without self-attention in the encoder: windows instead."""

    def build_encoder_attention(self) -> nn.Module:
        return ConvolutionInPlace(self.config.d_model, causal=False)


class RecurrenceInEncoder(Transformer):
    """Without self-attention in the encoder: recurrence instead."""

    def build_encoder_attention(self) -> nn.Module:
        return RecurrenceInPlace(self.config.d_model, causal=False)


class ConvolutionInDecoder(Transformer):
    """Without self-attention in the decoder: windows instead."""

    decoder_layer = DecoderLayerInState

    def build_decoder_attention(self) -> nn.Module:
        return ConvolutionInPlace(self.config.d_model, causal=True)


class RecurrenceInDecoder(Transformer):
    """Without self-attention in the decoder: recurrence instead."""

    decoder_layer = DecoderLayerInState

    def build_decoder_attention(self) -> nn.Module:
        return RecurrenceInPlace(self.config.d_model, causal=True)
