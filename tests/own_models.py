"""Models with parts of one's own, as a reader may write them.

Some of them are rungs of the ladder from 2017 to now.
"""

from since import (
    Gated,
    GatedFeedForward,
    Grouped,
    RMSNormalized,
    Rotary,
    RotaryAttention,
)
from torch.nn import functional as F

from transformer_lib.layers import FeedForward
from transformer_lib.model import Transformer


class GELU(FeedForward):
    def forward(self, x):
        return self.w_2(F.gelu(self.w_1(x)))


class WithGELU(Transformer):
    def feed_forward(self):
        return GELU(self.config.d_model, self.config.d_ff)


class RotaryEverywhere(Transformer):
    def attention(self):
        return RotaryAttention(self.config.d_model, self.config.h)


class Swapped(Transformer):
    """An ordinary Transformer, one layer of which has another network."""

    def __init__(self, config):
        super().__init__(config)
        exchanged = GatedFeedForward(config.d_model, config.d_ff)
        self.encoder.layers[0].feed_forward = exchanged


KINDS = [
    WithGELU,
    Gated,
    Rotary,
    RotaryEverywhere,
    RMSNormalized,
    Grouped,
    Swapped,
]
