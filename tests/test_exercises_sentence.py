"""Typical wrong answers to the exercises on the first sentence."""

import torch

from transformer_book.exercises import check


def test_memory_of_the_target(capsys):
    def wrong():
        return {"memory": (8, 15, 128), "logits": (8, 15, 750)}

    assert not check("sentence.shapes", wrong)
    assert "source piece" in capsys.readouterr().out


def test_the_start_symbol_kept(capsys):
    assert not check("sentence.greedy", lambda model, ids: [2, 5, 3])
    assert "start symbol" in capsys.readouterr().out


def test_the_source_repeated(capsys):
    def wrong(model, ids):
        return ids[0].tolist()

    assert not check("sentence.greedy", wrong)
    assert "newest" in capsys.readouterr().out


def test_the_given_beginning_dropped(capsys):
    def wrong(model, ids, start):
        return ids[0].tolist()

    assert not check("sentence.go_on", wrong)
    assert "the given [7, 9]" in capsys.readouterr().out


def test_the_given_beginning_not_read(capsys):
    def wrong(model, source, start):
        ids = [2]
        while ids[-1] != 3 and len(ids) + len(start) <= 50:
            logits = model(source, torch.tensor([ids]))
            ids.append(int(logits[0, -1].argmax()))
        return [*start, *ids[1:]]

    assert not check("sentence.go_on", wrong)
    assert "read bos, the given" in capsys.readouterr().out
