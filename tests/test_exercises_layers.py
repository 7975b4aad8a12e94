"""Typical wrong answers to the exercises of `layers`."""

import pytest
from torch import nn

from transformer_book.exercises import check
from transformer_lib.layers import Residual


def unbiased(x, gain, offset, eps):
    x = x - x.mean(-1, keepdim=True)
    return gain * x / (x.var(-1, keepdim=True) + eps).sqrt() + offset


def eps_outside(x, gain, offset, eps):
    x = x - x.mean(-1, keepdim=True)
    deviation = x.std(-1, keepdim=True, correction=0)
    return gain * x / (deviation + eps) + offset


def over_positions(x, gain, offset, eps):
    x = x - x.mean(1, keepdim=True)
    variance = x.var(1, keepdim=True, correction=0)
    return gain * x / (variance + eps).sqrt() + offset


@pytest.mark.parametrize(
    "answer", [unbiased, eps_outside, over_positions]
)
def test_layer_norm(answer, capsys):
    assert not check("layers.layer_norm", answer)
    assert "does the variance divide by d" in capsys.readouterr().out


class OnThePath(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm_in = nn.LayerNorm(d_model)
        self.norm_out = nn.LayerNorm(d_model)

    def forward(self, x, sublayer):
        return self.norm_out(x + sublayer(self.norm_in(x)))


class OneNorm(OnThePath):
    def forward(self, x, sublayer):
        return x + self.norm_in(sublayer(self.norm_in(x)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (OnThePath, "keep norms off the path"),
        (OneNorm, "norm_out sees its answer"),
        (lambda d: Residual(d, 0.0, "pre"), "norm_in"),
    ],
)
def test_both(answer, said, capsys):
    assert not check("layers.both", answer)
    assert said in capsys.readouterr().out


def merged(weight, bias):
    linear = nn.Linear(6, 6)
    linear.weight, linear.bias = (
        nn.Parameter(t.detach().clone()) for t in (weight, bias)
    )
    return linear


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda n: merged(
                (n.w_2.weight @ n.w_1.weight).T, n.w_2(n.w_1.bias)
            ),
            "the matrix is wrong",
        ),
        (
            lambda n: merged(n.w_2.weight @ n.w_1.weight, n.w_2.bias),
            "the offset is wrong",
        ),
        (lambda n: n.w_1, "not (10, 6)"),
    ],
)
def test_merge(answer, said, capsys):
    assert not check("layers.merge", answer)
    assert said.lower() in capsys.readouterr().out.lower()
