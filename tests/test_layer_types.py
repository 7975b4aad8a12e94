"""Section 4: the layers of table 1, and the yardsticks."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.attention import attention
from transformer_lib.layer_types import (
    ConvolutionalLayer,
    RecurrentLayer,
    SelfAttentionLayer,
    connections,
    maximum_path_length,
    restricted_attention,
    sequential_operations,
    table_1,
)
from transformer_lib.masks import neighbourhood_mask

LAYERS = {
    "self-attention": lambda d: SelfAttentionLayer(
        d, projections=False
    ),
    "recurrent": RecurrentLayer,
    "convolutional": lambda d: ConvolutionalLayer(d, 3),
    "dilated": lambda d: ConvolutionalLayer(d, 3, dilation=3),
    "separable": lambda d: ConvolutionalLayer(d, 3, separable=True),
    "restricted": lambda d: SelfAttentionLayer(
        d, projections=False, r=17
    ),
}


def flops(layer, n, d):
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, n, d))
    return counter.get_total_flops()


def exponent(a, b, ratio):
    return math.log(b / a, ratio)


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
@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_sees_its_window_alone(
    k, dilation, separable, causal
):
    layer = ConvolutionalLayer(4, k, dilation, separable, causal)
    n = 25
    left = (k - 1) * dilation // (1 if causal else 2)
    for i, row in enumerate(connections(layer, n, 4)):
        window = {i - left + dilation * j for j in range(k)}
        seen = set(row.nonzero().flatten().tolist())
        assert seen == {j for j in window if 0 <= j < n}


@pytest.mark.parametrize("n", [1, 5, 16, 33])
@pytest.mark.parametrize("r", [1, 3, 5, 7, 17, 65])
def test_restricted_equals_masked_attention(n, r):
    q, k, v = torch.randn(3, 2, n, 8, dtype=torch.double).unbind(0)
    mask = neighbourhood_mask(n, r)[0]
    want, _ = attention(q, k, v, mask)
    torch.testing.assert_close(restricted_attention(q, k, v, r), want)


@pytest.mark.parametrize("r", [-1, 0, 2, 16])
def test_a_neighbourhood_has_a_middle(r):
    q, k, v = torch.randn(3, 2, 5, 8).unbind(0)
    with pytest.raises(ValueError, match="take an odd r"):
        restricted_attention(q, k, v, r)


def test_restricted_layer_equals_full_layer_when_wide():
    full, near = SelfAttentionLayer(8), SelfAttentionLayer(8, r=39)
    near.load_state_dict(full.state_dict())
    x = torch.randn(2, 20, 8)
    torch.testing.assert_close(near(x), full(x))


@pytest.mark.parametrize(
    ("name", "by_n", "by_d"),
    [
        ("self-attention", 2, 1),
        ("convolutional", 1, 2),
        ("dilated", 1, 2),
        ("recurrent", 1, 2),
        ("restricted", 1, 1),
    ],
)
def test_operations_grow_as_table_1_says(name, by_n, by_d):
    build = LAYERS[name]
    layer = build(64)
    growth = exponent(
        flops(layer, 256, 64), flops(layer, 1024, 64), 4
    )
    assert growth == pytest.approx(by_n, abs=0.01)
    growth = exponent(
        flops(layer, 256, 64), flops(build(256), 256, 256), 4
    )
    assert growth == pytest.approx(by_d, abs=0.01)


def test_operations_of_the_separable_convolution():
    """k n d + n d^2, counted in multiplications and additions."""
    for n, d, k in [(64, 32, 3), (128, 32, 31), (64, 128, 5)]:
        layer = ConvolutionalLayer(d, k, separable=True)
        assert flops(layer, n, d) == 2 * (k * n * d + n * d * d)
        assert (
            table_1(n, d, k)["separable"][0] == k * n * d + n * d * d
        )


def test_separable_with_k_n_costs_attention_and_feed_forward():
    """Section 4: n^2 d for the attention, n d^2 for a point-wise layer."""
    n = d = 64
    layer = ConvolutionalLayer(d, n, separable=True)
    attend = SelfAttentionLayer(d, projections=False)
    point_wise = nn.Linear(d, d)
    together = flops(attend, n, d) + flops(point_wise, n, d)
    assert flops(layer, n, d) == pytest.approx(together, rel=0.4)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_convolution_costs_k_times_one_matrix_a_position(k):
    """Section 4: k times recurrence, whose d x d matrices are two."""
    n, d = 64, 32
    convolves = flops(ConvolutionalLayer(d, k), n, d)
    assert convolves * 2 == k * flops(RecurrentLayer(d), n, d)


def test_only_recurrence_waits_for_every_position():
    for name, build in LAYERS.items():
        layer = build(8)
        counts = [
            sequential_operations(
                layer(torch.randn(1, n, 8).requires_grad_())
            )
            for n in (20, 40, 80)
        ]
        if name == "recurrent":
            assert counts[2] - counts[1] == 2 * (
                counts[1] - counts[0]
            )
            assert counts[1] - counts[0] >= 20
        else:
            assert len(set(counts)) == 1


def test_sequential_operations_need_a_record():
    with pytest.raises(ValueError, match="require gradients"):
        sequential_operations(torch.ones(3))


@pytest.mark.parametrize("n", [9, 27, 28])
def test_path_lengths(n):
    d = 4
    assert (
        maximum_path_length(lambda i: SelfAttentionLayer(d), n) == 1
    )
    assert maximum_path_length(lambda i: RecurrentLayer(d), n) == n
    plain = maximum_path_length(lambda i: ConvolutionalLayer(d, 3), n)
    assert plain == n - 1  # (k - 1) / 2 further with each layer
    wide = maximum_path_length(lambda i: ConvolutionalLayer(d, 9), n)
    assert wide == math.ceil((n - 1) / 4)
    near = maximum_path_length(
        lambda i: SelfAttentionLayer(d, r=9), n
    )
    assert near == math.ceil((n - 1) / 4)


def test_one_narrow_convolution_leaves_pairs_apart():
    """Section 4: k < n does not connect all pairs, k = 2n - 1 does."""
    n = 9
    for k in (3, 5, 7):
        assert not connections(ConvolutionalLayer(4, k), n, 4).all()
    assert connections(ConvolutionalLayer(4, 2 * n - 1), n, 4).all()


def test_connections_leave_the_network_as_it_was():
    layer = RecurrentLayer(4)
    connections(layer, 5, 4)
    assert layer.cell.weight.dtype == torch.float32


def test_a_gradient_fades_along_a_long_path():
    """Section 4: short paths make distant positions easier to learn."""
    faded = {}
    for name, layer in {
        "recurrent": RecurrentLayer(32),
        "self-attention": SelfAttentionLayer(32),
    }.items():
        x = torch.randn(8, 40, 32).requires_grad_()
        layer(x)[:, -1].sum().backward()
        size = x.grad.norm(dim=-1).mean(0)
        faded[name] = size[0] / size[-2]
    assert faded["recurrent"] < 1e-4
    assert faded["self-attention"] > 0.2


@pytest.mark.parametrize("n", [9, 27, 28, 81])
def test_dilated_path_is_logarithmic(n):
    steps = maximum_path_length(
        lambda i: ConvolutionalLayer(
            4, 3, dilation=3**i, causal=True
        ),
        n,
    )
    assert 3 ** (steps - 1) < n <= 3**steps


def test_centred_dilation_misses_pairs_at_the_edges():
    """Half of the paths leave the sequence and are lost in padding."""
    with pytest.raises(ValueError, match="still apart"):
        maximum_path_length(
            lambda i: ConvolutionalLayer(4, 3, dilation=3**i), 9
        )


def test_path_refuses_a_layer_that_never_connects():
    with pytest.raises(ValueError, match="still apart"):
        maximum_path_length(lambda i: ConvolutionalLayer(4, 1), 5)


def test_table_1_as_printed():
    rows = table_1(n=100, d=512, k=3, r=20)
    assert rows["self-attention"] == (100 * 100 * 512, 1, 1)
    assert rows["recurrent"] == (100 * 512 * 512, 100, 100)
    assert rows["convolutional"][:2] == (3 * 100 * 512 * 512, 1)
    assert rows["dilated"][2] == pytest.approx(math.log(100, 3))
    assert rows["restricted"] == (20 * 100 * 512, 1, 5)
    attention_, recurrent = rows["self-attention"], rows["recurrent"]
    assert attention_[0] < recurrent[0]  # n < d, as the text says
