# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The layer types that section 4 and table 1 compare.

Chapter: book/architecture/layer_types
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.attention import attention


class RecurrentLayer(nn.Module):
    """h_t = tanh(W x_t + U h_(t-1)): each step waits for the last.

    (batch, n, d) to (batch, n, d). Section 4, table 1.

    Chapter: layer_types-recurrent
    """

    def __init__(self, d: int):
        super().__init__()
        self.inputs = nn.Linear(d, d)  # W
        self.cell = nn.Linear(d, d, bias=False)  # U, once a step

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])  # (batch, d)
        states = []
        for step in self.inputs(x).unbind(1):
            state = torch.tanh(step + self.cell(state))
            states.append(state)
        return torch.stack(states, 1)


class ConvolutionalLayer(nn.Module):
    """Each output sees k inputs, `dilation` apart.

    (batch, n, d) to (batch, n, d). The window is centred, or with
    `causal` ends at the output's own position. `groups=d` keeps the
    channels apart, as the first half of a separable convolution
    does. Section 4, table 1.

    Chapter: layer_types-convolutional
    """

    def __init__(self, d, k, dilation=1, causal=False, groups=1):
        super().__init__()
        reach = (k - 1) * dilation
        left = reach if causal else reach // 2
        self.padding = left, reach - left
        self.mix = nn.Conv1d(
            d, d, k, dilation=dilation, groups=groups
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(F.pad(x.mT, self.padding)).mT


def _side(r: int) -> int:
    """How far a neighbourhood of r reaches to either side.

    Chapter: layer_types-restricted
    """
    if r < 1 or r % 2 == 0:
        raise ValueError(f"{r=} has no middle: take an odd r")
    return r // 2


def neighbourhood_mask(length, r, device=None) -> Tensor:
    """True for the r positions around each query, section 4.

    Returns:
        Boolean, (1, 1, length, length); at the ends of the sentence
        fewer than r keys are there.

    Raises:
        ValueError: if `r` is below 1 or even.

    Chapter: layer_types-restricted
    """
    at = torch.arange(length, device=device)
    return ((at[:, None] - at).abs() <= _side(r))[None, None]


def restricted_attention(query, key, value, r: int) -> Tensor:
    """Attention to the r positions around oneself, in O(r n d).

    (batch, n, d_k), (batch, n, d_k) and (batch, n, d_v) to
    (batch, n, d_v). Section 4.

    Raises:
        ValueError: if `r` is below 1 or even.

    Chapter: layer_types-restricted
    """
    side = _side(r)

    def windows(x):  # (batch, n, d) to (batch, n, d, r)
        return F.pad(x, (0, 0, side, side)).unfold(1, r, 1)

    k, v = windows(key).mT, windows(value).mT  # (batch, n, r, d)
    inside = windows(torch.ones_like(key[..., :1])).bool()
    one_query_each = query[:, :, None]  # (batch, n, 1, d_k)
    output, _ = attention(one_query_each, k, v, inside)
    return output[:, :, 0]


class SelfAttentionLayer(nn.Module):
    """One head of attention: every output sees every input.

    (batch, n, d) to (batch, n, d). Given an odd `r`, an output sees
    the r inputs around it alone. Table 1 counts equation 1;
    `projections=False` leaves out w_q, w_k, w_v and w_o. Section 4.

    Chapter: layer_types-attention
    """

    def __init__(self, d: int, projections=True, r=None):
        super().__init__()
        self.r = r
        kind = nn.Linear if projections else nn.Identity
        self.w_q = kind(d, d, bias=False)
        self.w_k = kind(d, d, bias=False)
        self.w_v = kind(d, d, bias=False)
        self.w_o = kind(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.r is None:
            return self.w_o(attention(q, k, v)[0])
        return self.w_o(restricted_attention(q, k, v, self.r))
