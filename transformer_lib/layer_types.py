# Collected from book/architecture/layer_types.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The layer types of section 4 and table 1, and the yardsticks."""

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from transformer_lib.attention import attention

__all__ = [
    "ConvolutionalLayer",
    "RecurrentLayer",
    "SelfAttentionLayer",
    "connections",
    "maximum_path_length",
    "restricted_attention",
    "sequential_operations",
    "table_1",
]


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
    `causal` ends at the output's own position. `separable` mixes
    positions within each channel first, channels after. Section 4,
    table 1.

    Chapter: layer_types-convolutional
    """

    def __init__(
        self,
        d: int,
        k: int,
        dilation: int = 1,
        separable: bool = False,
        causal: bool = False,
    ):
        super().__init__()
        reach = (k - 1) * dilation
        left = reach if causal else reach // 2
        self.padding = left, reach - left
        groups = d if separable else 1
        self.mix = nn.Conv1d(
            d, d, k, dilation=dilation, groups=groups
        )
        self.channels = (
            nn.Linear(d, d) if separable else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), self.padding)
        return self.channels(self.mix(padded).transpose(1, 2))


def restricted_attention(
    query: Tensor, key: Tensor, value: Tensor, r: int
) -> Tensor:
    """Attention to the r positions around oneself, r being odd.

    (batch, n, d_k), (batch, n, d_k), (batch, n, d_v) to (batch, n,
    d_v), in O(r n d) steps: blocks of r // 2 queries look at three
    blocks of keys. Section 4.

    Raises:
        ValueError: if `r` is below 1, or even: it has no middle then.

    Chapter: layer_types-restricted
    """
    if r < 1 or r % 2 == 0:
        raise ValueError(
            f"a neighbourhood of {r=} has no middle: take an odd r "
            f"from 1 up, such as {max(r, 0) + 1}"
        )
    n, side = query.size(1), r // 2
    size = max(side, 1)
    blocks = math.ceil(n / size)
    spare = blocks * size - n
    # (batch, blocks, size, d_k)
    q = F.pad(query, (0, 0, 0, spare)).unflatten(1, (blocks, size))
    k, v = (  # (batch, blocks, 3 * size, d)
        F.pad(x, (0, 0, size, size + spare))
        .unfold(1, 3 * size, size)
        .mT
        for x in (key, value)
    )
    first = torch.arange(0, n, size, device=query.device)
    offset = torch.arange(-size, 2 * size, device=query.device)
    at = first[:, None, None] + offset  # (blocks, 1, 3 * size)
    asks = at[..., size : 2 * size].mT  # (blocks, size, 1)
    mask = ((asks - at).abs() <= side) & (at >= 0) & (at < n)
    return attention(q, k, v, mask)[0].flatten(1, 2)[:, :n]


class SelfAttentionLayer(nn.Module):
    """One head of attention: every output sees every input.

    (batch, n, d) to (batch, n, d). Given an odd `r`, an output sees
    the r inputs around it alone. Table 1 counts equation 1;
    `projections=False` leaves out w_q, w_k, w_v and w_o. Section 4.

    Chapter: layer_types-attention
    """

    def __init__(
        self, d: int, projections: bool = True, r: int | None = None
    ):
        super().__init__()
        self.r = r
        for name in ("w_q", "w_k", "w_v", "w_o"):
            linear = nn.Linear(d, d, bias=False)
            self.add_module(
                name, linear if projections else nn.Identity()
            )

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.r is None:
            return self.w_o(attention(*qkv)[0])
        return self.w_o(restricted_attention(*qkv, self.r))


def connections(network: nn.Module, n: int, d: int) -> Tensor:
    """Which outputs feel which inputs, by gradients: boolean (n, n).

    Entry [i, j] is True where output i has a gradient at input j.

    Chapter: layer_types-path
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, d, generator=generator).double()
    exact = deepcopy(network).double()
    slopes = jacobian(lambda x: exact(x)[0].sum(-1), x)
    return slopes.abs().sum((1, 3)) > 0  # of (n, 1, n, d)


def maximum_path_length(
    build: Callable[[int], nn.Module], n: int, d: int = 4
) -> int:
    """Mixing steps between the two positions farthest apart.

    Stacks `build(0)`, `build(1)`, ... until every pair of positions
    is connected, then counts the steps that a gradient passes on its
    way from the last output to the inputs. Section 4, table 1.

    Raises:
        ValueError: if n layers are not enough.

    Chapter: layer_types-path
    """
    network = nn.Sequential()
    joined = torch.eye(n, dtype=torch.bool)
    while not (joined | joined.T).all():
        if len(network) == n:
            raise ValueError(
                f"{n=} positions, {n} layers, still apart"
            )
        network.append(build(len(network)))
        joined = connections(network, n, d)
    passed = []

    def watch(module, inputs, output):
        output.register_hook(lambda g: passed.append(bool(g.any())))

    for layer in network:  # a recurrent one mixes in its cell
        getattr(layer, "cell", layer).register_forward_hook(watch)
    x = torch.ones(1, n, d).double().requires_grad_()
    network.double()(x)[0, -1].sum().backward()
    return sum(passed)


def sequential_operations(output: Tensor) -> int:
    """Operations on the longest chain that leads to `output`.

    Each had to wait for the one before. Counted on autograd's own
    record. Section 4, table 1.

    Raises:
        ValueError: if `output` was computed without gradients.

    Chapter: layer_types-sequential
    """
    if output.grad_fn is None:
        raise ValueError(
            "output has no record of how it was computed: let the "
            "input or the weights require gradients"
        )
    depth, front = 0, {output.grad_fn}
    while front:
        depth += 1
        before = {f for node in front for f, _ in node.next_functions}
        front = before - {None}
    return depth


def table_1(
    n: int, d: int, k: int = 3, r: int = 16
) -> dict[str, tuple[float, float, float]]:
    """What table 1 and section 4 print, without the O's constants.

    For each layer type: operations in a layer, sequential operations,
    maximum path length.

    Chapter: layer_types-table
    """
    dilated = max(1, math.log(n, k))
    return {
        "self-attention": (n * n * d, 1, 1),
        "recurrent": (n * d * d, n, n),
        "convolutional": (k * n * d * d, 1, n / k),
        "dilated": (k * n * d * d, 1, dilated),
        "separable": (k * n * d + n * d * d, 1, n / k),
        "restricted": (r * n * d, 1, n / r),
    }
