"""Typical wrong answers to the exercises on the background."""

from transformer_lib.exercises import check


def test_forgetting_that_windows_overlap(capsys):
    assert not check("background.reach", lambda k, layers: k * layers)
    assert "sees 2 words back" in capsys.readouterr().out


def test_counting_plain_convolutions(capsys):
    def wrong(k, distance):
        return -(-distance // (k - 1))

    assert not check("background.dilated", wrong)
    assert "layers reach" in capsys.readouterr().out
