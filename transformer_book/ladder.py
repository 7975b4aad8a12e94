"""What the records of the ladder say: from 2017 to now, rung by rung.

`experiments/since.py` makes them. A rung of at least three seeds counts as
better, or as worse, than the paper's if a t-test over the seeds has p below
0.01. The test takes the spread between seeds to be the same for all rungs.
"""

import math
import statistics
from typing import Any

import numpy as np

from transformer_book.records import load_counts, load_run, recorded_runs

SEEDS = 3  # of a rung, before it is judged
SURE = 0.01  # p, below which a gap is no chance
UNKNOWN = {"seconds": [math.nan], "operations": math.nan, "lines": math.nan}


def rungs() -> list[dict[str, Any]]:
    """A row for each rung that is recorded, the paper's first.

    `nats` and `bleu` are means over the seeds; `gap` is how many nats
    a token the rung is above the paper, 99% within plus or minus
    `within`, and `verdict` what the rule says of it. `rates_tried` is 1
    for a rung that took the paper's rate. `steps`, `seconds` of a
    processor and `operations` are what the rung needed, by the mean
    of its seeds, until it stayed at or below the loss at which the mean
    of the paper's ended: NaN if it didn't; of the paper, all.
    `step_time` is a step's seconds, in steps of the paper's. `lines` is
    the code that the change needs.
    """
    runs: dict[str, list] = {}
    for name in recorded_runs("since"):
        run = load_run(name)
        runs.setdefault(run.report["rung"], []).append(run)
    if "paper" not in runs:
        return []  # nothing to compare with yet
    losses = {
        rung: [run.report["result"]["validation_loss"] for run in seeds]
        for rung, seeds in runs.items()
    }
    costs = load_counts("since_seconds").get("rungs", {})
    paper = costs.get("paper", UNKNOWN)
    target = statistics.mean(losses["paper"])
    rows = []
    for rung, seeds in runs.items():
        first = seeds[0].report
        gap, within, p = compared(losses, rung)
        curves = [run.series("validation_loss") for run in seeds]
        mean = np.mean([nats for _, nats in curves], axis=0)
        at = curves[0][0]
        steps = steps_until(at, [*mean], target)
        if rung == "paper":
            steps = at[-1]  # it may dip so low before
        cost = costs.get(rung, UNKNOWN)
        step_time = in_turn(cost, paper)
        rows.append(
            {
                "rung": rung,
                "seeds": len(seeds),
                "rates_tried": len(first["rates"]),
                "rate": first["rate"],
                "nats": statistics.mean(losses[rung]),
                "gap": gap,
                "within": within,
                "p": p,
                "verdict": verdict(rung, len(seeds), gap, p),
                "steps": steps,
                "seconds": steps
                * step_time
                * statistics.median(paper["seconds"]),
                "operations": steps * cost["operations"],
                "step_time": step_time,
                "lines": cost["lines"],
                "bleu": statistics.mean(
                    run.report["test"]["bleu"] for run in seeds
                ),
            }
        )
    return sorted(rows, key=lambda row: row["rung"] != "paper")


def in_turn(cost: dict[str, Any], paper: dict[str, Any]) -> float:
    """A step's seconds over the paper's, which it was measured beside."""
    pairs = zip(cost["seconds"], paper["seconds"], strict=False)
    return statistics.median(one / other for one, other in pairs)


def verdict(rung: str, seeds: int, gap: float, p: float) -> str:
    """What the rule says of a rung, or how many seeds it has so far."""
    if rung == "paper":
        return ""
    if seeds < SEEDS:
        return "one seed so far" if seeds == 1 else "two seeds so far"
    if p >= SURE:
        return "no difference shown"
    return "better" if gap < 0 else "worse"


def compared(
    losses: dict[str, list[float]], rung: str
) -> tuple[float, float, float]:
    """Nats above the paper, half of the interval, and p.

    The interval leaves out zero where p is below `SURE`.

    A t-test in which the seeds of all rungs are taken to have one
    spread: three seeds alone say little about theirs.
    """
    squares = sum(len(each) * np.var(each) for each in losses.values())
    freedom = sum(len(each) - 1 for each in losses.values())
    gap = statistics.mean(losses[rung]) - statistics.mean(losses["paper"])
    if freedom == 0:
        return gap, math.nan, math.nan
    counts = len(losses[rung]), len(losses["paper"])
    error = math.sqrt(squares / freedom * (1 / counts[0] + 1 / counts[1]))
    p = 2 * (1 - below(abs(gap) / error, freedom))
    return gap, error * quantile(1 - SURE / 2, freedom), p


def below(t: float, freedom: int) -> float:
    """How often Student's t is below `t`, which is not negative."""
    x = np.linspace(0, t, 10_001)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(gammas) / math.sqrt(freedom * math.pi)
    ends = (density[0] + density[-1]) / 2  # by the trapezoidal rule
    return 0.5 + scale * (density.sum() - ends) * x[1]


def quantile(share: float, freedom: int) -> float:
    """The t below which Student's t is so often; by halving."""
    low, high = 0.0, 1000.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if below(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return low


def steps_until(steps: list[int], losses: list[float], target: float) -> float:
    """The step from which a loss stays at or below `target`, or NaN.

    Between two measurements it is taken to fall in a straight line.
    """
    above = [i for i, loss in enumerate(losses) if loss > target]
    if not above:
        return steps[0]
    i = above[-1]
    if i + 1 == len(steps):
        return math.nan
    share = (losses[i] - target) / (losses[i] - losses[i + 1])
    return steps[i] + share * (steps[i + 1] - steps[i])
