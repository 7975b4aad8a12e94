"""The exercises' engine: verdicts, explanations, names."""

import re
from pathlib import Path

import pytest
import torch

import transformer_lib.exercises as exercises
from transformer_lib.exercises import check, checks, exercise

BACK = Path(__file__).parent.parent / "book" / "back"


@pytest.fixture(autouse=True)
def own_list(monkeypatch):
    """Checks registered by a test do not outlive it."""
    exercises._load_checks()
    monkeypatch.setattr(exercises, "_CHECKS", dict(exercises._CHECKS))

    @exercise("sums.double")
    def sums_double(answer):
        """Twice a number."""
        got = answer(3)
        assert got == 6, f"twice 3 is 6, your function gives {got}"


def test_right_answer(capsys):
    assert check("sums.double", lambda x: 2 * x) is True
    assert capsys.readouterr().out == "sums.double: right.\n"


def test_wrong_answer_is_told_what_is_wrong(capsys):
    assert check("sums.double", lambda x: x * x) is False
    said = capsys.readouterr().out
    told = "sums.double: not yet. Twice 3 is 6, your function gives 9"
    assert said.startswith(told)  # pytest adds its own lines


def test_an_error_names_the_line_of_the_answer(capsys):
    def answer(x):
        return torch.zeros(x) @ torch.zeros(x, 2, 3)[0, 0, 0, 0]

    assert not check("sums.double", answer)
    said = capsys.readouterr().out
    assert "Your answer raised IndexError: " in said
    line = answer.__code__.co_firstlineno + 1
    assert f"line {line} of answer: return torch.zeros(x)" in said


def test_an_assertion_inside_the_answer_is_its_error(capsys):
    def answer(x):
        assert x == 4, "my own"

    assert not check("sums.double", answer)
    said = capsys.readouterr().out
    assert "Your answer raised AssertionError: my own" in said


@pytest.mark.parametrize("answer", [6, None, lambda: 6])
def test_an_answer_that_cannot_be_called(answer, capsys):
    assert not check("sums.double", answer)
    said = capsys.readouterr().out
    assert "could not use your answer: TypeError" in said


def test_an_assertion_without_words_still_says_something(capsys):
    @exercise("sums.silent")
    def sums_silent(answer):
        raise AssertionError

    assert not check("sums.silent", 0)
    assert "must hold" in capsys.readouterr().out


def test_unknown_name_lists_close_ones():
    with pytest.raises(ValueError, match="'sums.double'"):
        check("sum.doubled", None)


def test_a_name_has_a_chapter():
    for name in ["double", "sums.", ".double"]:
        with pytest.raises(ValueError, match="chapter.what"):
            exercise(name)


def test_a_check_draws_the_same_numbers_and_leaves_the_readers():
    drawn = []

    @exercise("sums.random")
    def sums_random(answer):
        drawn.append(torch.rand(3))

    torch.manual_seed(7)
    check("sums.random", None)
    after = torch.rand(2)
    check("sums.random", None)
    torch.manual_seed(7)
    assert torch.equal(after, torch.rand(2))
    assert torch.equal(*drawn)


def test_only_errors_are_caught():
    @exercise("sums.stopped")
    def sums_stopped(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("sums.stopped", None)


def test_checks_are_listed_by_chapter():
    listed = checks()
    assert listed["sums"] == {"sums.double": "Twice a number."}
    assert "exercises.softmax" in listed["exercises"]


def test_every_check_asks_something_under_its_own_name():
    names = [
        name
        for page in sorted(BACK.glob("checks_*.md"))
        for name in re.findall(
            r'^@exercise\("(.*)"\)', page.read_text(), re.M
        )
    ]
    assert len(names) == len(set(names))
    listed = {n: q for c in checks().values() for n, q in c.items()}
    assert set(names) == set(listed) - {"sums.double"}
    for name, question in listed.items():
        assert question, f"{name}: its docstring says what is asked"


def test_a_check_of_a_softmax_is_checked(capsys):
    def good(softmax):
        x = torch.randn(3, 5)
        weights = softmax(x)
        assert (weights >= 0).all()
        assert torch.allclose(weights.sum(-1), torch.ones(3))

    def sums_alone(softmax):
        weights = softmax(torch.randn(3, 5))
        assert torch.allclose(weights.sum(-1), torch.ones(3))

    assert check("exercises.softmax", good)
    assert not check("exercises.softmax", sums_alone)
    assert "can a weight be negative" in capsys.readouterr().out
    assert not check("exercises.softmax", lambda softmax: None)
    assert "lets exp(x) pass" in capsys.readouterr().out
