"""Typical wrong answers to the exercises on masks."""

import torch

from transformer_book.exercises import check


def test_a_mask_without_the_future_closed(capsys):
    def wrong(ids):
        keys = (ids != 0)[:, None, None, :]
        return keys.expand(-1, 1, ids.size(1), -1)

    assert not check("masks.decoder", wrong)
    assert "to its right" in capsys.readouterr().out


def test_a_mask_that_means_the_opposite(capsys):
    def wrong(ids):
        closed = (ids == 0)[:, None, None, :]
        future = torch.ones(ids.size(1), ids.size(1)).triu(1).bool()
        return closed | future

    assert not check("masks.decoder", wrong)
    assert "right" in capsys.readouterr().out


def test_one_position_too_far(capsys):
    def wrong(length, width):
        band = torch.ones(length, length).tril().triu(-width)
        return band.bool()[None, None]

    assert not check("masks.recent", wrong)
    assert "not 2" in capsys.readouterr().out


def test_packed_sentences_that_see_each_other(capsys):
    def wrong(sentence, causal):
        n = sentence.size(1)
        mask = torch.ones(len(sentence), 1, n, n, dtype=torch.bool)
        return mask.tril() if causal else mask

    assert not check("masks.packed", wrong)
    assert "look at another" in capsys.readouterr().out


def test_packed_without_the_triangle(capsys):
    def wrong(sentence, causal):
        return (sentence[:, :, None] == sentence[:, None, :])[:, None]

    assert not check("masks.packed", wrong)
    assert "to its right" in capsys.readouterr().out


def test_places_that_do_not_begin_anew(capsys):
    def wrong(sentence):
        return torch.arange(sentence.size(1)).expand_as(sentence)

    assert not check("masks.packed_places", wrong)
    assert "begins at place 0" in capsys.readouterr().out


def test_places_that_do_not_count_on(capsys):
    def wrong(sentence):
        before = sentence[:, :1] - 1
        return (sentence.diff(prepend=before) == 0).long()

    assert not check("masks.packed_places", wrong)
    assert "Wanted [[0, 1, 0, 1, 2]" in capsys.readouterr().out
