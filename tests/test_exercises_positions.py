"""Typical wrong answers to the exercises on positions."""

import math

import torch

from transformer_book.exercises import check


def test_each_dimension_its_own_frequency(capsys):
    def wrong(pos, dimension, d_model):
        angle = pos / 10_000 ** (dimension / d_model)
        return math.cos(angle) if dimension % 2 else math.sin(angle)

    assert not check("positions.encoding", wrong)
    assert "share one frequency" in capsys.readouterr().out


def test_sines_everywhere(capsys):
    assert not check(
        "positions.encoding", lambda p, j, d: math.sin(p)
    )
    assert "cosines" in capsys.readouterr().out


def test_the_wrong_direction(capsys):
    def wrong(k, d_model):
        two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
        turn = k / 10_000 ** (two_i / d_model)
        blocks = [
            torch.tensor([[c, s], [-s, c]])
            for s, c in zip(turn.sin(), turn.cos(), strict=True)
        ]
        return torch.block_diag(*blocks)

    assert not check("positions.back", wrong)
    assert "forward" in capsys.readouterr().out


def _table(base, d_model, length):
    pos = torch.arange(length)[:, None]
    angle = pos / base ** (torch.arange(0, d_model, 2) / d_model)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def test_a_place_compared_with_itself(capsys):
    def wrong(base, d_model, length):
        table = _table(base, d_model, length)
        return (table @ table.T).max() / (d_model / 2)

    assert not check("positions.closest", wrong)
    assert "leave it out" in capsys.readouterr().out


def test_a_dot_product_for_the_cosine(capsys):
    def wrong(base, d_model, length):
        table = _table(base, d_model, length)
        return (table @ table.T).fill_diagonal_(-9).max()

    assert not check("positions.closest", wrong)
    assert "cosine is at most 1" in capsys.readouterr().out


def test_neighbours_alone_are_compared(capsys):
    def wrong(base, d_model, length):
        table = _table(base, d_model, length)
        return (table[0] @ table[1]) / (d_model / 2)

    assert not check("positions.closest", wrong)
    assert "all pairs" in capsys.readouterr().out
