"""The exercises' checks: `check("masks.masks", my_function)`.

An answer is tried by the probes of the conformance suite that try the
same function of anybody's: there is one set of checks. Those of `PLAIN`
are asked of plain Python, so the site checks them in the browser, where
this module has the standard library and `transformer_conformance.plain`.
"""

from collections.abc import Callable
from itertools import product
from math import exp, sqrt
from operator import mul
from typing import Any

from transformer_conformance.plain import (
    Verdict,
    judge,
    judge_rate,
    named,
    nearly,
)

# An exercise's name, "chapter.what", and the adapter's function.
EXERCISES = {
    "embeddings.tied": "embeddings",
    "attention.attention": "attention",
    "attention.multi_head": "multi_head",
    "masks.masks": "masks",
    "layers.encoder_layer": "encoder_layer",
    "layers.decoder_layer": "decoder_layer",
    "loss.smoothed": "loss",
    "training.update": "update",
    "decoding.greedy": "greedy",
    "beams.search": "beam",
}


class _Wrong(Exception):
    """What is wrong with an answer, in words."""


def check(name: str, answer: Any) -> bool:
    """Check an answer; print what is right or wrong with it.

    The random numbers that a check draws are the same each time, and
    the reader's own go on as if nothing had been drawn. An error in an
    answer to an exercise in plain Python is raised.

    Args:
        name: as in "attention.attention".
        answer: the function or class that the exercise asks for.

    Returns:
        True if the answer is what the paper says; a deviation that
        works is no answer.

    Raises:
        ValueError: if there is no such check; the names are listed.
    """
    if name not in EXERCISES and name not in PLAIN:
        names = ", ".join(sorted([*EXERCISES, *PLAIN]))
        raise ValueError(f"no check named {name!r}; there are {names}")
    if not callable(answer):
        kind = type(answer).__name__
        print(f"{name}: not yet. {kind} is no function or class")
        return False
    try:
        (PLAIN[name] if name in PLAIN else _by_probes(name))(answer)
    except NotImplementedError:
        print(f"{name}: not yet. It is to be written.")
    except _Wrong as wrong:
        words = str(wrong)
        print(f"{name}: not yet.\n{words[:1].upper()}{words[1:]}")
    else:
        print(f"{name}: right.")
        return True
    return False


def _by_probes(name: str) -> Callable:
    """The suite's probes of the function that an exercise asks for."""
    try:
        from transformer_conformance import PROBES, Adapter, run
    except ImportError as missing:
        said = f"the check of {name} needs PyTorch: the notebook has it"
        raise ImportError(said) from missing

    def tried(answer: Any) -> None:
        function = EXERCISES[name]
        functions = {function: answer}
        if name == "decoding.greedy":  # the model that it decodes with
            from transformer_conformance import ours

            functions |= {"build": ours.build, "logits": ours.logits}
        asked = [
            probe
            for probe in PROBES
            if function in "|".join(probe.needs).split("|")
            and probe.name != "greedy_in_evaluation"  # not asked for
        ]
        shown = False
        for result in run(Adapter(functions), asked):
            shown |= result.verdict.kind == "paper"
            if result.verdict.kind in ("fault", "deviation"):
                raise _Wrong(result.verdict.words)
        if not shown:
            raise NotImplementedError

    return tried


# Plain Python


def _rows(value: Any, count: int, length: int) -> list[list]:
    """What was returned, if it is a table of that many rows and columns."""
    if value is None:
        raise _Wrong("the function returns None: does it end in `return`?")
    rows = getattr(value, "tolist", lambda: value)()  # an array's lists
    if not isinstance(rows, list):
        raise _Wrong(f"it returns a {type(rows).__name__}, not a list of rows")
    if len(rows) != count:
        raise _Wrong(f"it returns {len(rows)} rows, not {count}")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != length:
            raise _Wrong(f"row {i} is no list of {length} numbers: {row}")
        for entry in row:
            if not isinstance(entry, int | float):
                raise _Wrong(f"{entry!r} is no number")
    return rows


def _number(value: Any) -> float:
    value = getattr(value, "tolist", lambda: value)()
    return _rows(value if value is None else [[value]], 1, 1)[0][0]


def _compare(got: Any, wanted: Any, mistakes: dict, call: str) -> None:
    """A number or rows against what is wanted, and what mistakes give."""
    if not isinstance(got, list):
        mistakes = {words: [[float(x)]] for words, x in mistakes.items()}
        got, wanted = [[got]], [[wanted]]
    if not nearly(got, wanted):
        right, yours = (
            " ".join(f"{x:.3f}" for x in rows[0]) for rows in (wanted, got)
        )
        otherwise = f"{call} begins with {right}; yours with {yours}"
        raise _Wrong(named(got, mistakes) or otherwise)


def _judged(verdict: Verdict) -> None:
    if verdict.kind != "paper":
        raise _Wrong(verdict.words)


def _table(answer: Callable) -> None:
    for d_model in 16, 64:
        _judged(judge(_rows(answer(50, d_model), 50, d_model)))


def _rate(answer: Callable) -> None:
    _judged(judge_rate(lambda *numbers: _number(answer(*numbers))))


def _attention(answer: Callable) -> None:
    Q = [[2.0, 0.0, 1.0, 0.0], [-1.0, 1.0, 0.0, 2.0]]
    K = [[1.0, 1.0, 0.0, 1.0], [0.0, 2.0, 0.0, 1.0], [1.0, 1.0, 2.0, 0.0]]
    V = [[8.0, 0.0], [0.0, 8.0], [2.0, 2.0]]

    def turned(rows: list) -> list:
        return [*zip(*rows, strict=True)]

    def times(rows: list, columns: list) -> list:
        return [[sum(map(mul, row, x)) for x in columns] for row in rows]

    def shares(rows: list, root: float = 2, grow: Callable = exp) -> list:
        grown = [[grow(number / root) for number in row] for row in rows]
        return [[number / sum(row) for number in row] for row in grown]

    scores = times(Q, K)
    weights = {
        "": shares(scores),
        "the scores are not divided by the root of d_k": shares(scores, 1),
        "the scores are divided by d_k: take its root": shares(scores, 4),
        "the root is of the number of keys; d_k is the length of one": (
            shares(scores, sqrt(3))
        ),
        "the softmax runs over the queries: the weights of one query have "
        "to add up to 1": turned(shares(turned(scores))),
        "the weights of a query do not add up to 1: divide each by their "
        "sum": [[exp(number / 2) for number in row] for row in scores],
        "the exponential function is missing": shares(scores, 2, float),
    }
    outputs = {words: times(x, turned(V)) for words, x in weights.items()}
    got = answer(Q, K, V)
    if got is not None and got == weights[""]:
        raise _Wrong("these are the weights: multiply the values by them")
    call = f"the output for the query {Q[0]}, the keys {K} and the values {V}"
    _compare(_rows(got, 2, 2), outputs.pop(""), outputs, call)


def _recent(answer: Callable) -> None:
    for length, width in (6, 2), (5, 3), (4, 4):
        rows = _rows(answer(length, width), length, length)
        for entry in sum(rows, []):
            if entry not in (True, False):
                raise _Wrong(f"{entry} is neither True nor False")
        for i, j in product(range(length), repeat=2):
            last = 0 <= i - j < width
            if rows[i][j] == last:
                continue
            may = "may not" if last else "may"
            which = f"position {j}" if i != j else "itself"
            why = f"it is {'' if last else 'not '}one of the last {width}"
            why = "that is its future" if j > i else why
            raise _Wrong(
                f"in recent({length}, {width}) position {i} {may} look at "
                f"{which}: {why}"
            )


def _score(answer: Callable) -> None:
    tokens, total, alpha = "no me gustan los árboles <eos>".split(), -3.0, 0.6
    n = len(tokens)
    lp = ((5 + n) / 6) ** alpha
    mistakes = {
        "the log-probability is not divided": total,
        "the log-probability is multiplied: lp divides it": total * lp,
        "the exponent alpha is missing": total / (5 + n) * 6,
        "the exponent alpha belongs to the whole fraction": (
            total / ((5 + n) ** alpha / 6)
        ),
        "the 5 and the 6 are missing: fairseq divides by |Y|^alpha": (
            total / n**alpha
        ),
        "|Y| counts `<eos>` as well": total / ((4 + n) / 6) ** alpha,
    }
    call = f"the score of {n} tokens with log-probability {total:g}, alpha 0.6"
    got = _number(answer(tokens, total, alpha))
    _compare(got, total / lp, mistakes, call)
    got = _number(answer(tokens, total, 0.0))
    _compare(got, total, {}, "with alpha = 0 the log-probability itself")


def _precision(answer: Callable) -> None:
    words = "the the the dog the cow".split()
    first, last = "the the dog".split(), "the cow and the the".split()
    clipped = {
        "an n-gram counts at most as often as the reference has it: `the` "
        "is written four times, and wanted three times": 5 / 6,
        "divide by the n-grams of the hypothesis, not of the reference": 4 / 5,
    }
    several = {
        "only the first reference counts": 3 / 6,
        "only the last reference counts": 4 / 6,
        "the counts of the references are added up: only the reference that "
        "has an n-gram most often allows it": 1,
        "an n-gram need not be in every reference: `|` takes the larger "
        "count, `&` the smaller one": 2 / 6,
    }
    for references, n, wanted, mistakes in (
        ([last], 1, 4 / 6, clipped),
        ([first, last], 1, 5 / 6, several),
        ([first, last], 2, 3 / 5, {}),
    ):
        got = _number(answer(words, references, n))
        call = f"the precision of {words} for {references} and n = {n}"
        _compare(got, wanted, mistakes, call)
    try:
        _number(answer(["no"], [last], 2))
    except ZeroDivisionError:
        raise _Wrong(
            "one word has no pair of words, so nothing can be divided by "
            "their number: let the precision be 0"
        ) from None


PLAIN = {
    "positions.sinusoids": _table,
    "attention.rows": _attention,
    "masks.recent": _recent,
    "schedule.learning_rate": _rate,
    "beams.score": _score,
    "evaluation.precision": _precision,
}
