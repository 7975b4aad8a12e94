"""Right and wrong answers to the exercises of `layer_types`."""

import math

import pytest
import torch

from transformer_lib.attention import attention
from transformer_book.exercises import check
from transformer_lib.layer_types import restricted_attention, table_1


def test_cheapest(capsys):
    assert not check(
        "layer_types.cheapest", lambda *a: "self-attention"
    )
    assert "operations" in capsys.readouterr().out
    assert not check("layer_types.cheapest", lambda *a: "attention")
    assert "no row" in capsys.readouterr().out

    def shortest_path(*sizes):
        rows = table_1(*sizes)
        return min(rows, key=lambda name: rows[name][2])

    assert not check("layer_types.cheapest", shortest_path)


def off_by_one(query, key, value, r):
    n = query.size(1)
    far = torch.arange(n)[:, None] - torch.arange(n)
    mask = (far >= 0) & (far <= r)
    return attention(query, key, value, mask)[0]


@pytest.mark.parametrize("wrong", [restricted_attention, off_by_one])
def test_look_back(wrong, capsys):
    assert not check("layer_types.look_back", wrong)
    assert "too much or too little" in capsys.readouterr().out


def test_layers_needed(capsys):
    assert not check(
        "layer_types.layers_needed",
        lambda n, k: math.ceil(math.log(n) / math.log(k)) + 1,
    )
    assert "layers, not" in capsys.readouterr().out
