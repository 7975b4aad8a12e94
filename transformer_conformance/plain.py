"""What two probes know, in the standard library alone.

A table of positions and a learning rate need no PyTorch, so the book's
pages judge a reader's in the browser, by what the suite says of anybody's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Rows = list[list[float]]
HALVES = (
    "sines and cosines concatenated",
    "tensor2tensor, fairseq, Marian models in Hugging Face Transformers",
)


@dataclass(frozen=True)
class Verdict:
    """What a probe found.

    `kind` is "paper", "deviation", "fault" or "not tried"; `words` say
    what was measured, or what is wrong: first what was seen, then what it
    may be, the likeliest first. A deviation has a `name`, and says `who`
    else does it. `line` is the reader's own that raised an error. A fault
    that is a `root` follows from no other.
    """

    kind: str
    words: str
    name: str = ""
    who: str = ""
    line: str = ""
    root: bool = False


def paper(measured: str) -> Verdict:
    """The statement holds."""
    return Verdict("paper", measured)


def deviation(name: str, measured: str, who: str = "") -> Verdict:
    """Something else than the paper, but known and workable."""
    return Verdict("deviation", measured, name, who)


def nearly(got: Rows, wanted: Rows, within: float = 1e-4) -> bool:
    """Whether two tables of one shape have the same numbers.

    Rounding is forgiven: `within` is a share of the largest number.
    """
    pairs = [
        pair
        for rows in zip(got, wanted, strict=True)
        for pair in zip(*rows, strict=True)
    ]
    size = max([1e-3, *(abs(number) for _, number in pairs)])
    return all(abs(a - b) <= within * size for a, b in pairs)


def named(got: Rows, mistakes: Mapping[str, Rows]) -> str:
    """The description of the first mistake that gives just this, or ''."""
    return next((said for said, x in mistakes.items() if nearly(got, x)), "")


# Section 3.5


def waves(
    length: int,
    d_model: int,
    exponent: Callable[[int], float] = lambda j: j // 2,
    cosine: Callable[[int], bool] = lambda j: j % 2 == 1,
    first: int = 0,
    count: float = 0,
) -> Rows:
    """Rows of sines and cosines, one for each position from `first` on.

    Column j has pos / 10000^(exponent(j) / count), where `count` is half
    of d_model unless it is given. By default that is the paper's table.
    """
    count = count or d_model / 2
    columns = [
        ((math.sin, math.cos)[cosine(j)], 10_000 ** (exponent(j) / count))
        for j in range(d_model)
    ]
    places = range(first, first + length)
    return [[wave(pos / n) for wave, n in columns] for pos in places]


def other_tables(length: int, d_model: int) -> dict[str, Rows]:
    """What common mistakes put there, by their descriptions."""
    shape = length, d_model
    shared = "the two of a pair share the angle pos / 10000^(2i / d_model)"
    return {
        "even dimensions are sines and odd ones cosines, not the other "
        "way round": waves(*shape, cosine=lambda j: j % 2 == 0),
        "positions count from 0: the first row is 0, 1, 0, 1, ...": (
            waves(*shape, first=1)
        ),
        "dimension 1 turns slower than dimension 0: " + shared: (
            waves(*shape, lambda j: j / 2)
        ),
        "the exponent is twice the index of the dimension, where 2i is "
        "that index: " + shared: waves(*shape, lambda j: j),
        "the exponent is 2i / d_model; yours is i / d_model": (
            waves(*shape, count=d_model)
        ),
        "the exponents run to 1: divide 2i by d_model, not by d_model - 2": (
            waves(*shape, count=max(d_model / 2 - 1, 1))
        ),
    }


def judge(table: Rows) -> Verdict:
    """A table of positions (length, d_model), against section 3.5."""
    length, d_model = len(table), len(table[0])
    right = waves(length, d_model)
    worst = max(
        abs(a - b)
        for rows in zip(table, right, strict=True)
        for a, b in zip(*rows, strict=True)
    )
    if nearly(table, right, 2e-3):
        return paper(f"all {length} rows, within {worst:.0e}")
    half = d_model // 2
    for count, measured in (
        (half, "all sines stand before all cosines; the "
         "formula puts each cosine beside its sine"),
        (max(half - 1, 1), "all sines stand before all cosines, "
         "and the longest wavelength is exactly 10000 times 2 pi"),
    ):  # fmt: skip
        for first in range(min(3, length - 4)):
            moved = waves(
                length - first,
                d_model,
                lambda j: j % half,
                lambda j: j >= half,
                first,
                count,
            )
            if nearly(table[: len(moved)], moved, 2e-3):
                return deviation(HALVES[0], measured, HALVES[1])
    known = named(table, other_tables(length, d_model))
    otherwise = (
        f"the numbers differ by up to {worst:.2g} from sin and cos of "
        "pos / 10000^(2i / d_model)"
    )
    return Verdict("fault", known or otherwise)


# Equation 3


def judge_rate(rate: Callable[[int, int, int], Any]) -> Verdict:
    """A function of step, d_model and warmup_steps, against equation 3."""
    width, warmup = 512, 400
    steps = (1, 10, 100, 399, 400, 401, 1600, 100_000)

    def right(step: int) -> float:
        return width**-0.5 * min(step**-0.5, step * warmup**-1.5)

    got = [float(rate(s, width, warmup)) for s in steps]
    ratios = [x / right(step) for x, step in zip(got, steps, strict=True)]
    if nearly([ratios], [[1.0] * len(steps)]):
        other = float(rate(7, 64, 9)) / (7 / 64**0.5 / 27)
        if math.isclose(other, 1, rel_tol=1e-4):
            return paper(f"{got[0]:.3g} at step 1, {got[4]:.3g} at its peak")
        words = "right for d_model=512 and warmup_steps=400 alone"
        return Verdict("fault", words)
    ramp = [s * warmup**-1.5 for s in steps]
    root = [s**-0.5 for s in steps]
    low = [*map(min, ramp, root)]
    wrong = {  # without the factor d_model^-0.5
        "the larger of the two terms, where equation 3 takes the lower": map(
            max, ramp, root
        ),
        "the ramp is step * warmup_steps^-1.5, so that it meets step^-0.5 "
        "where the warm-up ends": map(min, root, (s / warmup for s in steps)),
        "the rate rises for ever: after the warm-up it is step^-0.5": ramp,
        "there is no ramp: up to the warm-up's end the rate is "
        "step * warmup_steps^-1.5": root,
        "the factor d_model^-0.5 is missing": (width**0.5 * x for x in low),
        "the rate falls with the width: d_model^-0.5, not d_model^0.5": (
            width * x for x in low
        ),
        "steps count from 1: nothing is added or taken away": (
            right(s + 1) * width**0.5 for s in steps
        ),
    }
    mistakes = {
        words: [[width**-0.5 * x for x in rates]]
        for words, rates in wrong.items()
    }
    if nearly([[got[0]] * len(steps)], [got]):
        return deviation(
            "a constant rate",
            f"{got[0]:.3g} at every step, without warm-up",
            "hkproj, ajhalthor",
        )
    known = named([got], mistakes)
    if not known and nearly([ratios], [[ratios[0]] * len(steps)]):
        return deviation(
            "a factor on equation 3",
            f"the rate is {ratios[0]:.3g} times equation 3's",
            "tensor2tensor: 2",
        )
    slope = (got[4] - got[0]) / (warmup - 1)
    line = [got[0] + slope * (step - 1) for step in steps[:5]]
    rises = slope > 0 and nearly([got[:5]], [line], 1e-3)
    if rises and not known and nearly([ratios[4:]], [[ratios[4]] * 4]):
        return deviation(
            "another warm-up",
            f"a line from {got[0]:.3g} at step 1, and from its end on "
            f"{ratios[4]:.3g} times equation 3",
            "fairseq: from 1e-7 to 0.0005",
        )
    most = max(range(len(steps)), key=lambda i: abs(ratios[i] - 1))
    otherwise = (
        f"at step {steps[most]} yours is {ratios[most]:.3g} times the rate "
        "of equation 3"
    )
    return Verdict("fault", known or otherwise)
