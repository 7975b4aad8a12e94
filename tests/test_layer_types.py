"""Section 4: the layers of table 1, measured."""

import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.attention import attention
from transformer_lib.layer_types import (
    ConvolutionalLayer,
    RecurrentLayer,
    SelfAttentionLayer,
    neighbourhood_mask,
    restricted_attention,
)

LAYERS = {
    "self-attention": lambda d: SelfAttentionLayer(d, False),
    "recurrent": RecurrentLayer,
    "convolutional": lambda d: ConvolutionalLayer(d, 3),
    "restricted": lambda d: SelfAttentionLayer(d, False, r=17),
}


def flops(layer, n, d):
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, n, d))
    return counter.get_total_flops()


def separable(d, k):
    return nn.Sequential(
        ConvolutionalLayer(d, k, groups=d), nn.Linear(d, d)
    )


def connections(layers, n, d=4):
    """Entry [i, j]: output i has a gradient at input j."""
    network = nn.Sequential(*layers).double()
    x = torch.randn(1, n, d).double()
    slopes = jacobian(lambda x: network(x)[0].sum(-1), x)
    return slopes.abs().sum((1, 3)) > 0


def layers_to_join(build, n):
    """Layers until every pair of positions is connected."""
    layers = []
    joined = torch.eye(n).bool()
    while not (joined | joined.T).all():
        assert len(layers) < n, "still apart"
        layers.append(build(len(layers)))
        joined = connections(layers, n)
    return len(layers)


def sequential_operations(output):
    depth, front = 0, {output.grad_fn}
    while front:
        depth += 1
        before = {f for node in front for f, _ in node.next_functions}
        front = before - {None}
    return depth


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_shape_stays(name, n):
    x = torch.randn(2, n, 8)
    assert LAYERS[name](8)(x).shape == x.shape


def test_recurrent_equals_torch():
    ours, theirs = RecurrentLayer(6), nn.RNN(6, 6, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.inputs.weight)
        theirs.bias_ih_l0.copy_(ours.inputs.bias)
        theirs.weight_hh_l0.copy_(ours.cell.weight)
        theirs.bias_hh_l0.zero_()
    x = torch.randn(3, 9, 6)
    torch.testing.assert_close(ours(x), theirs(x)[0])


@pytest.mark.parametrize(
    ("k", "dilation"), [(3, 1), (5, 1), (3, 4), (4, 2)]
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolution_sees_its_window_alone(
    k, dilation, causal, groups
):
    layer = ConvolutionalLayer(4, k, dilation, causal, groups)
    n = 25
    left = (k - 1) * dilation // (1 if causal else 2)
    for i, row in enumerate(connections([layer], n)):
        window = {i - left + dilation * j for j in range(k)}
        seen = set(row.nonzero().flatten().tolist())
        assert seen == {j for j in window if 0 <= j < n}


def test_one_narrow_convolution_leaves_pairs_apart():
    """Section 4: k < n does not connect all pairs, k = 2n - 1 does."""
    for k in (3, 5, 7):
        assert not connections([ConvolutionalLayer(4, k)], 9).all()
    assert connections([ConvolutionalLayer(4, 17)], 9).all()


def test_neighbourhood_mask_is_a_band():
    for r, far in ((1, 0), (3, 1), (7, 3)):
        rows = neighbourhood_mask(6, r)[0, 0].tolist()
        for i, row in enumerate(rows):
            assert row == [abs(i - j) <= far for j in range(6)]


@pytest.mark.parametrize("n", [1, 5, 33])
@pytest.mark.parametrize("r", [1, 3, 17, 65])
def test_restricted_equals_masked_attention(n, r):
    q, k, v = torch.randn(3, 2, n, 8, dtype=torch.double)
    want, _ = attention(q, k, v, neighbourhood_mask(n, r)[0])
    torch.testing.assert_close(restricted_attention(q, k, v, r), want)


@pytest.mark.parametrize("r", [-1, 0, 2, 16])
def test_a_neighbourhood_has_a_middle(r):
    x = torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match=f"r={r}.*odd"):
        restricted_attention(x, x, x, r)
    with pytest.raises(ValueError, match=f"r={r}.*odd"):
        neighbourhood_mask(5, r)


def test_operations_are_those_of_table_1():
    """A product counts two; attention and recurrence have two."""
    for n, d in ((64, 32), (256, 32), (64, 128)):
        found = {
            name: flops(LAYERS[name](d), n, d) for name in LAYERS
        }
        assert found == {
            "self-attention": 4 * n * n * d,
            "recurrent": 4 * n * d * d,
            "convolutional": 2 * 3 * n * d * d,
            "restricted": 4 * 17 * n * d,
        }


def test_operations_of_the_separable_convolution():
    for n, d, k in [(64, 32, 3), (128, 32, 31), (64, 128, 5)]:
        found = flops(separable(d, k), n, d)
        assert found == 2 * (k * n * d + n * d * d)


def test_separable_with_k_n_costs_attention_and_feed_forward():
    """Section 4; of attention's two products the O counts one."""
    n = d = 64
    one_product = flops(SelfAttentionLayer(d, False), n, d) / 2
    point_wise = flops(nn.Linear(d, d), n, d)
    wide = flops(separable(d, n), n, d)
    assert wide == one_product + point_wise


def test_attention_computes_less_than_recurrence_below_d():
    for n in (32, 63, 64, 65, 128):
        attends = flops(SelfAttentionLayer(64, False), n, 64)
        recurs = flops(RecurrentLayer(64), n, 64)
        assert (attends < recurs) == (n < 64), n


@pytest.mark.parametrize("k", [2, 3, 5])
def test_convolution_costs_k_times_one_matrix_a_position(k):
    """Section 4: k times recurrence, whose d x d matrices are two."""
    convolves = flops(ConvolutionalLayer(32, k), 64, 32)
    assert convolves * 2 == k * flops(RecurrentLayer(32), 64, 32)


def test_only_recurrence_waits_for_every_position():
    for name, build in LAYERS.items():
        a, b, c = (
            sequential_operations(
                build(8)(torch.randn(1, n, 8).requires_grad_())
            )
            for n in (20, 40, 80)
        )
        if name == "recurrent":
            assert c - b == 2 * (b - a) >= 40
        else:
            assert a == b == c, name


@pytest.mark.parametrize("n", [9, 27, 28])
def test_path_lengths(n):
    assert layers_to_join(lambda i: SelfAttentionLayer(4), n) == 1
    near = layers_to_join(lambda i: SelfAttentionLayer(4, r=9), n)
    assert near == math.ceil((n - 1) / 4)
    for k in (3, 9):
        plain = layers_to_join(
            lambda i, k=k: ConvolutionalLayer(4, k), n
        )
        assert plain == math.ceil((n - 1) / (k // 2))
    calls, layer = [], RecurrentLayer(4)
    layer.cell.register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(1, n, 4))  # the signal walks through the cell
    assert len(calls) == n


@pytest.mark.parametrize("n", [9, 27, 28, 81])
def test_dilated_path_is_logarithmic(n):
    def build(i):
        return ConvolutionalLayer(4, 3, dilation=3**i, causal=True)

    steps = layers_to_join(build, n)
    assert 3 ** (steps - 1) < n <= 3**steps


def test_a_gradient_fades_along_a_long_path():
    faded = {}
    for kind in (RecurrentLayer, SelfAttentionLayer):
        torch.manual_seed(0)
        x = torch.randn(8, 40, 32).requires_grad_()
        kind(32)(x)[:, -1].sum().backward()
        size = x.grad.norm(dim=-1).mean(0)
        faded[kind] = size[0] / size[-2]
    assert faded[RecurrentLayer] < 1e-4
    assert faded[SelfAttentionLayer] > 0.2
