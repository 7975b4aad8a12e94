# Collected from book/architecture/layer_types.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The layer types of section 4 and table 1, and the yardsticks."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.attention import attention

__all__ = [
    "ConvolutionalLayer",
    "RecurrentLayer",
    "RestrictedSelfAttentionLayer",
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


class SelfAttentionLayer(nn.Module):
    """One head of attention: every output sees every input.

    (batch, n, d) to (batch, n, d). Table 1 counts equation 1 alone;
    `projections=False` leaves out w_q, w_k, w_v and w_o.

    Chapter: layer_types-attention
    """

    def __init__(self, d: int, projections: bool = True):
        super().__init__()
        for name in ("w_q", "w_k", "w_v", "w_o"):
            linear = nn.Linear(d, d, bias=False)
            self.add_module(
                name, linear if projections else nn.Identity()
            )

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Equation 1; the one step in which positions meet."""
        return attention(query, key, value)[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.w_o(
            self.mix(self.w_q(x), self.w_k(x), self.w_v(x))
        )


def restricted_attention(
    query: Tensor, key: Tensor, value: Tensor, r: int
) -> Tensor:
    """Attention to oneself and r // 2 positions on either side.

    (batch, n, d_k), (batch, n, d_k), (batch, n, d_v) to (batch, n,
    d_v), in O(r n d) steps: blocks of r // 2 queries look at three
    blocks of keys. Section 4.

    Chapter: layer_types-restricted
    """
    n, side = query.size(1), r // 2
    size = max(side, 1)
    blocks = math.ceil(n / size)
    spare = blocks * size - n
    # (batch, blocks, size, d_k)
    q = F.pad(query, (0, 0, 0, spare)).unflatten(1, (blocks, size))
    k, v = (  # (batch, blocks, 3 * size, d)
        F.pad(x, (0, 0, size, size + spare))
        .unfold(1, 3 * size, size)
        .transpose(-1, -2)
        for x in (key, value)
    )
    start = torch.arange(blocks, device=query.device) * size
    asks = start[:, None] + torch.arange(size, device=query.device)
    at = start[:, None] + torch.arange(
        -size, 2 * size, device=query.device
    )
    near = (asks[:, :, None] - at[:, None, :]).abs() <= side
    mask = near & ((at >= 0) & (at < n))[:, None, :]
    return attention(q, k, v, mask)[0].flatten(1, 2)[:, :n]


class RestrictedSelfAttentionLayer(SelfAttentionLayer):
    """Self-attention within a neighbourhood of size r.

    (batch, n, d) to (batch, n, d). Section 4, table 1.

    Chapter: layer_types-restricted
    """

    def __init__(self, d: int, r: int, projections: bool = True):
        super().__init__(d, projections)
        self.r = r

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Equation 1 within the neighbourhood."""
        return restricted_attention(query, key, value, self.r)


def connections(network: nn.Module, n: int, d: int) -> Tensor:
    """Which outputs feel which inputs, by gradients: boolean (n, n).

    Entry [i, j] is True where output i has a gradient at input j.

    Chapter: layer_types-path
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, d, generator=generator).double()
    x.requires_grad_()
    outputs = network.double()(x)[0].sum(-1)  # (n,)
    rows = [
        torch.autograd.grad(output, x, retain_graph=True)[0][0]
        for output in outputs
    ]
    return torch.stack(rows).abs().sum(-1) > 0


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

    for layer in network:
        getattr(layer, "cell", layer).register_forward_hook(watch)
    x = torch.ones(1, n, d).double().requires_grad_()
    network(x)[0, -1].sum().backward()
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
    depth: dict = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [f for f, _ in node.next_functions if f is not None]
        waiting = [f for f in before if f not in depth]
        if waiting:
            stack += waiting
        else:
            depth[node] = 1 + max(
                (depth[f] for f in before), default=0
            )
            stack.pop()
    return depth[output.grad_fn]


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
