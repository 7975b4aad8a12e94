"""Typical wrong answers to the exercises of `attention`."""

import pytest
import torch
from torch import nn

from transformer_lib.attention import MultiHeadAttention, attention
from transformer_book.exercises import check
from transformer_lib.masks import causal_mask


def no_scale(query, key, value):
    scores = query @ key.mT
    scores = scores.masked_fill(~causal_mask(query.size(-2)), -1e9)
    return scores.softmax(-1) @ value


def strictly_before(query, key, value):
    mask = causal_mask(query.size(-2)).tril(-1)
    return attention(query, key, value, mask)[0]


def everything(query, key, value):
    return attention(query, key, value)[0]


def both(query, key, value):
    return attention(query, key, value, causal_mask(query.size(-2)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (no_scale, "scaled as in eq. 1?"),
        (strictly_before, "position 0 sees itself alone"),
        (everything, "position 0 sees itself alone"),
        (both, "the output alone"),
    ],
)
def test_causal(answer, said, capsys):
    assert not check("attention.causal", answer)
    assert said.lower() in capsys.readouterr().out.lower()


class Unchanged(MultiHeadAttention):
    """Has keys for each head."""


class Averaged(MultiHeadAttention):
    """Shares the keys, but forgets to share the values."""

    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.w_k = nn.Linear(d_model, d_model // h, bias=False)
        self.w_v = nn.Linear(d_model, d_model // h, bias=False)

    def keys_values(self, memory):
        key, value = self.w_k(memory)[:, None], self.w_v(memory)
        return key, value[:, None] / self.h


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Unchanged, "w_k maps 12 to d_k = 4, not (12, 12)"),
        (Averaged, "copies of one"),
    ],
)
def test_shared_keys(answer, said, capsys):
    assert not check("attention.shared_keys", answer)
    assert said.lower() in capsys.readouterr().out.lower()


def one_hot(n):
    key = 30 * torch.eye(n)
    return key.flip(0), key


def blunt(n):
    angle = 2 * torch.pi * torch.arange(n) / n
    key = torch.stack([angle.cos(), angle.sin()], -1)
    return key.flip(0), key


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (one_hot, "width of 2 is enough, yours is 16"),
        (blunt, "sharpen it"),
        (lambda n: blunt(n + 1), "both are (16, d_k)"),
    ],
)
def test_mirror(answer, said, capsys):
    assert not check("attention.mirror", answer)
    assert said in capsys.readouterr().out.replace("Both", "both")
