"""Typical wrong answers to the exercises on beam search."""

import torch

from transformer_book.exercises import check


def test_rank_without_the_penalty(capsys):
    def answer(hypotheses, alpha):
        return sorted(hypotheses, key=lambda pair: -pair[1])

    assert not check("beams.rank", answer)
    assert "do you divide by the penalty" in capsys.readouterr().out


def test_rank_without_counting_eos(capsys):
    def answer(hypotheses, alpha):
        def score(pair):
            return pair[1] / ((5 + len(pair[0]) - 1) / 6) ** alpha

        return sorted(hypotheses, key=score, reverse=True)

    assert not check("beams.rank", answer)
    assert "eos counts" in capsys.readouterr().out


def test_extend_each_row_for_itself(capsys):
    def answer(totals, gains):
        best, pieces = (totals[:, None] + gains).max(1)
        return torch.arange(len(totals)), pieces, best

    assert not check("beams.extend", answer)
    assert "not one a row" in capsys.readouterr().out


def test_extend_with_rows_and_pieces_swapped(capsys):
    def answer(totals, gains):
        best, place = (totals[:, None] + gains).flatten().topk(3)
        return place % 5, place // 5, best

    assert not check("beams.extend", answer)
    assert capsys.readouterr().out.startswith("beams.extend: not yet")
