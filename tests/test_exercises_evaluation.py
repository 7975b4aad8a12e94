"""Typical wrong answers to the exercises on evaluation."""

import math
from collections import Counter

from transformer_book.exercises import check


def ngrams(words, n):
    return Counter(
        tuple(words[i : i + n]) for i in range(len(words) - n + 1)
    )


def test_brevity_that_rewards_length(capsys):
    assert not check(
        "evaluation.brevity", lambda c, r: math.exp(1 - r / c)
    )
    assert "Longer is not punished" in capsys.readouterr().out


def test_brevity_as_a_ratio(capsys):
    assert not check("evaluation.brevity", lambda c, r: min(1, c / r))
    assert "e^(1 - 10/5)" in capsys.readouterr().out


def test_precision_without_clipping(capsys):
    def answer(hypothesis, references, n):
        known = set()
        for reference in references:
            known |= set(ngrams(reference, n))
        said = ngrams(hypothesis, n)
        hits = sum(said[x] for x in said if x in known)
        return hits / max(said.total(), 1)

    assert not check("evaluation.precision", answer)
    assert "may count twice" in capsys.readouterr().out


def test_precision_that_adds_references(capsys):
    def answer(hypothesis, references, n):
        allowed = Counter()
        for reference in references:
            allowed += ngrams(reference, n)
        said = ngrams(hypothesis, n)
        return (said & allowed).total() / max(said.total(), 1)

    assert not check("evaluation.precision", answer)
    assert "take the largest" in capsys.readouterr().out


def test_perplexities_shared_out(capsys):
    assert not check(
        "evaluation.per_word",
        lambda ppl, pieces, words: ppl * pieces / words,
    )
    assert "losses do" in capsys.readouterr().out
