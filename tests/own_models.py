"""Models with parts of one's own, as a reader may write them."""

import torch
from torch import nn
from torch.nn import functional as F

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import FeedForward
from transformer_lib.model import Transformer


class GELU(FeedForward):
    def forward(self, x):
        return self.w_2(F.gelu(self.w_1(x)))


class WithGELU(Transformer):
    def feed_forward(self):
        return GELU(self.config.d_model, self.config.d_ff)


class SwiGLU(FeedForward):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.w_3 = nn.Linear(d_model, d_ff)

    def forward(self, x):
        return self.w_2(F.silu(self.w_1(x)) * self.w_3(x))


class WithSwiGLU(Transformer):
    def feed_forward(self):
        return SwiGLU(self.config.d_model, self.config.d_ff)


class Rotary(MultiHeadAttention):
    """Each pair of numbers turns by an angle that grows with its place."""

    def place(self, heads, offset):
        positions = offset + torch.arange(heads.size(2), dtype=heads.dtype)
        half = heads.size(3) // 2
        speeds = 10_000.0 ** (-torch.arange(half, dtype=heads.dtype) / half)
        turns = positions[:, None] * speeds
        x, y = heads.chunk(2, dim=-1)
        cos, sin = turns.cos(), turns.sin()
        return torch.cat([x * cos - y * sin, x * sin + y * cos], dim=-1)


class WithRotary(Transformer):
    def self_attention(self):
        return Rotary(self.config.d_model, self.config.h)


class RotaryEverywhere(Transformer):
    def attention(self):
        return Rotary(self.config.d_model, self.config.h)


class WithRMSNorm(Transformer):
    def layer_norm(self, d_model):
        return nn.RMSNorm(d_model)


class Grouped(MultiHeadAttention):
    """Two heads share a key and a value."""

    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_k = nn.Linear(d_model, d_model // 2, bias=False)
        self.w_v = nn.Linear(d_model, d_model // 2, bias=False)

    def keys_values(self, memory, offset=0):
        key, value = self.w_k(memory), self.w_v(memory)
        sizes = (self.h // 2, -1)
        return tuple(
            part.unflatten(-1, sizes).transpose(1, 2) for part in (key, value)
        )

    def attend(self, query, key, value, mask=None, need_weights=False):
        key = key.repeat_interleave(2, dim=1)
        value = value.repeat_interleave(2, dim=1)
        return super().attend(query, key, value, mask, need_weights)


class WithGroups(Transformer):
    def attention(self):
        return Grouped(self.config.d_model, self.config.h)


class Swapped(Transformer):
    """An ordinary Transformer, one layer of which has another network."""

    def __init__(self, config):
        super().__init__(config)
        exchanged = SwiGLU(config.d_model, config.d_ff)
        self.encoder.layers[0].feed_forward = exchanged


KINDS = [
    WithGELU,
    WithSwiGLU,
    WithRotary,
    RotaryEverywhere,
    WithRMSNorm,
    WithGroups,
    Swapped,
]
