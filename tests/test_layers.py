"""Networks, residuals, dropout, the cache: each statement of 3.1 and 3.3.

That whole layers are PyTorch's is in `test_model.py`.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    Residual,
)

D_MODEL, D_FF, H = 16, 32, 4
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


def layer_of(kind, norm="post", dropout=0.0):
    attentions = [
        MultiHeadAttention(D_MODEL, H, bias=True)
        for _ in range(1 if kind is EncoderLayer else 2)
    ]
    network = FeedForward(D_MODEL, D_FF)
    told = {} if norm == "post" else {"norm": norm}  # post unless told
    return kind(*attentions, network, D_MODEL, dropout=dropout, **told)


def in_both_modes(module):
    """The module in training, then not."""
    yield module.train()
    yield module.eval()


def in_every_way(network, x):
    """Its outputs in training and not, with gradients and without."""
    for module in in_both_modes(network):
        with torch.set_grad_enabled(module.training):
            yield module(x)


def test_feed_forward_is_equation_2():
    network = FeedForward(D_MODEL, D_FF)
    w_1, b_1 = network.w_1.weight.T, network.w_1.bias
    w_2, b_2 = network.w_2.weight.T, network.w_2.bias
    for shape in ((3, 130), (3, 1), (5,)):
        # ten times the numbers, so ten times the usual gap
        x = 10 * torch.randn(*shape, D_MODEL)
        expected = (x @ w_1 + b_1).clamp(min=0) @ w_2 + b_2
        for found in in_every_way(network, x):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1.3e-6)


def test_feed_forward_is_two_convolutions_of_width_1():
    network = FeedForward(D_MODEL, D_FF).double()
    one, two = network.w_1, network.w_2
    for length in (1, 7, 130):
        x = torch.randn(3, length, D_MODEL).double()
        x[1, length // 2] *= 1e4  # one far larger changes no other
        inner = F.conv1d(x.mT, one.weight[..., None], one.bias).relu()
        out = F.conv1d(inner, two.weight[..., None], two.bias).mT
        for found in in_every_way(network, x):
            torch.testing.assert_close(found, out)


def test_feed_forward_drops_if_asked():
    x = torch.randn(2, 3, D_MODEL)
    network = FeedForward(D_MODEL, D_FF, dropout=0.5)
    assert not torch.equal(network(x), network(x))


def test_a_norm_has_two_places():
    with pytest.raises(ValueError, match="norm=.middle.: give"):
        Residual(D_MODEL, norm="middle")


@both_norms
def test_dropout_falls_on_the_sublayers_output_before_the_sum(norm):
    residual = Residual(200, dropout=0.5, norm=norm)
    if norm == "post":
        residual.norm = nn.Identity()  # to see the sum before it
    x = torch.full((4, 70, 200), 7.0)
    out = residual(x, torch.ones_like)
    assert set(out.unique().tolist()) == {7.0, 9.0}
    dropped = (out == 7).float()
    for axis in range(3):  # everywhere, and nowhere twice the same
        others = [i for i in range(3) if i != axis]
        assert (dropped.mean(others) - 0.5).abs().max() < 0.25
        again = dropped == dropped.roll(1, axis)
        assert abs(again.float().mean() - 0.5) < 0.05
    assert (residual.eval()(x, torch.ones_like) == 8).all()
    x = torch.randn(3, 5, D_MODEL)
    for kind, given in (EncoderLayer, [None]), (DecoderLayer, [x, None, None]):
        for rate in (0.1, 0.3):
            residuals = layer_of(kind, norm, rate).residuals
            assert {r.dropout.p for r in residuals} == {rate}
        layer, nothing_but_norms = layer_of(kind, norm, 1.0), x
        if norm == "post":
            for residual in layer.residuals:
                nn.init.normal_(residual.norm.weight)
                nothing_but_norms = residual.norm(nothing_but_norms)
        torch.testing.assert_close(layer(x, *given), nothing_but_norms)


def test_unless_told_layers_are_the_papers():
    """Dropout 0.1 on every sub-layer, post-norm, no last norm, no mask."""
    attention, network = MultiHeadAttention(8, 2), FeedForward(8, 16)
    layers = [
        EncoderLayer(attention, network, 8),
        DecoderLayer(attention, attention, network, 8),
    ]
    residuals = [Residual(8), *layers[0].residuals, *layers[1].residuals]
    assert len(residuals) == 6
    for residual in residuals:
        assert residual.dropout.p == 0.1 and not residual.pre_norm
    for stack in Encoder(layers[:1]), Decoder(layers[1:]):
        assert type(stack.norm) is nn.Identity
    assert network.dropout.p == 0
    layer, x = layer_of(DecoderLayer), torch.randn(2, 5, D_MODEL)
    found = [each(x, x, None, None) for each in in_both_modes(layer)]
    torch.testing.assert_close(*found)
