"""Typical wrong answers to the exercises of `background`."""

from math import ceil

import pytest

from transformer_book.exercises import check


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda distance, k: ceil(distance / k),
            "moves 1 words a layer",
        ),
        (
            lambda distance, k: distance // (k // 2),
            "take 5 layers, not 4",
        ),
    ],
)
def test_layers_needed(answer, said, capsys):
    assert not check("background.layers_needed", answer)
    assert said in capsys.readouterr().out


def doubling(distance):
    found = []
    while sum(found) < distance:
        found.append(2 ** len(found))
    return found


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (doubling, "3 layers for 4 words: 2 suffice"),
        (
            lambda distance: [distance],
            "never reaches the words [1, 2, 3]",
        ),
    ],
)
def test_dilations(answer, said, capsys):
    assert not check("background.dilations", answer)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda bits, size: bits // size,
            "hold 8 whole words, not 3",
        ),
        (lambda bits, size: bits / 3, "hold 8 whole words, not 8.3"),
    ],
)
def test_words_that_fit(answer, said, capsys):
    assert not check("background.words_that_fit", answer)
    assert said in capsys.readouterr().out
