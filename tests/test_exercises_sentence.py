"""Typical wrong answers to the exercises on the first sentence."""

from transformer_lib.exercises import check


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
