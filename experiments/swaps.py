"""The Transformer with its self-attention swapped in one stack.

The appendix page `rivals` tells what is swapped and why; `rivals.py`
trains these models.
"""

import math

from torch import Tensor, nn
from torch.nn import functional as F

from transformer_book.rivals import initialize, read_both_ways
from transformer_lib.model import Transformer, TransformerConfig


class InPlace(nn.Module):
    """What is called as `MultiHeadAttention` is, by the decoder too.

    Its keys and values are the inputs themselves, as if of one head;
    so a decoder's cache keeps all inputs so far, and only the outputs
    of the last ones are returned.
    """

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return memory[:, None], memory[:, None]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        mask: Tensor | None = None,
        causal: bool = False,
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
