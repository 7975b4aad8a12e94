"""What the records of the ladder say: from 2017 to now, rung by rung.

`experiments/since.py` makes them. Each rung, the paper too, counts with the
mean of its last checkpoints, as the paper translates, and is compared with the
paper: row and seed (`judging`) on the test loss, and an older rule, an
unpaired t-test on the validation loss that takes the spread between seeds to
be the same for all rungs. A rung is better or worse if p is below 0.01 in
both.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from transformer_book.judging import SURE, Blocks, Gap, dunnett, judged
from transformer_book.records import Run, load_counts, load_run, recorded_runs

SEEDS = 3  # of a rung

# All combinations of three changes, each on or off.
CHANGES = "muon", "rotary", "cool-down"
CUBE = {
    (False, False, False): "paper",
    (True, False, False): "muon",
    (False, True, False): "rotary",
    (False, False, True): "cool-down",
    (True, True, False): "together",
    (True, False, True): "muon-cool-down",
    (False, True, True): "rotary-cool-down",
    (True, True, True): "all-three",
}


def figures(
    runs: dict[str, list], of: str, last: bool = False
) -> dict[str, dict[int, float]]:
    """{rung: {seed: figure}}: validation loss, test loss or BLEU.

    With `last`, by the last weights also where a run reports its mean.
    """

    def figure(report):
        result, test = report["result"], report["test"]
        if last and "last_validation_loss" in result:
            result = {"validation_loss": result["last_validation_loss"]}
            test = report["last_test"]
        if of == "validation":
            return result["validation_loss"]
        return test[{"test": "nats_per_token"}.get(of, of)]

    return {
        rung: {
            run.report["training"]["seed"]: figure(run.report) for run in seeds
        }
        for rung, seeds in runs.items()
    }


def by_rung(*experiments: str) -> dict[str, list]:
    """The recorded runs of each rung."""
    runs: dict[str, list] = {}
    for experiment in experiments:
        for run in map(load_run, recorded_runs(experiment)):
            runs.setdefault(run.report["rung"], []).append(run)
    return runs


def recorded(first: bool = False, last: bool = False) -> dict[str, list]:
    """The runs of each rung, the paper's first.

    With `first`, three are those that were made first, on another make of
    CPU. With `last`, all report the scores of their last weights: where the
    run that has the mean doesn't, it is the same training's other record.
    """
    places = ["averaged", *["makes"] * (not first), *["since"] * last]
    runs: dict[str, dict[int, Run]] = {"paper": {}}
    for rung, made in by_rung(*places).items():
        there = runs.setdefault(rung, {})
        there |= {run.report["training"]["seed"]: run for run in made}
    return {
        rung: [seeds[seed] for seed in range(SEEDS)]
        for rung, seeds in runs.items()
    }


def rungs(first: bool = False) -> list[dict[str, Any]]:
    """The paper's row, and one for each change beside it, the best first.

    All with their means of checkpoints: `validation`, `test` and `bleu` are
    means over the seeds, and `last` says how far the last weights' test loss
    is above the paper's. A change's `validation_gap`, `test_gap` and
    `bleu_gap` say how far it is above the paper, by row + seed, and `older`
    is the validation loss by the older rule; `verdict` is by it and by the
    test loss. `dunnett` is p by the test loss for all rungs at once. `twins`
    has each seed's test loss above the same seed's paper. `steps` is what
    the last weights needed until they stayed at or below the paper's
    validation loss: NaN if they didn't. `step_time` is a step's seconds, in
    steps of the paper's. `first` is `recorded`'s.
    """
    runs = recorded(first)
    told = {of: figures(runs, of) for of in ("test", "validation", "bleu")}
    rules = {of: Blocks(each) for of, each in told.items()}
    unpaired = Unpaired(told["validation"])
    last = figures(recorded(first, last=True), "test", last=True)
    costs = load_counts("since_seconds")["rungs"]
    paper = told["test"]["paper"]
    rows = []
    for rung, seeds in runs.items():
        row: dict[str, Any] = {"rung": rung}
        row |= {of: statistics.mean(told[of][rung].values()) for of in told}
        rows.append(row)
        row["last"] = statistics.mean(last[rung].values()) - rows[0]["test"]
        if rung == "paper":
            continue
        for of, rule in rules.items():
            row[f"{of}_gap"] = rule.gap(rung, "paper")
        gap = row["test_gap"]
        row["older"] = unpaired.gap(rung, "paper")
        row["verdict"] = verdict(gap, row["older"])
        row["dunnett"] = dunnett(gap.p, len(runs) - 1, rules["test"].freedom)
        row["twins"] = [x - paper[k] for k, x in told["test"][rung].items()]
        curves = [run.series("validation_loss") for run in seeds]
        mean = np.mean([nats for _, nats in curves], axis=0)
        row["steps"] = steps_until(curves[0][0], mean, rows[0]["validation"])
        # the schedule of two that were not timed costs what it costs alone
        parts = [rung] if rung in costs else rung.split("-", 1)
        row["step_time"] = math.prod(
            in_turn(costs[part], costs["paper"]) for part in parts
        )
    return rows[:1] + sorted(rows[1:], key=lambda row: row["test_gap"].size)


def cube(of: str, first: bool = False, last: bool = True) -> dict[str, Any]:
    """What Muon, rotary positions and the schedule owe each other.

    By the last weights, or the means, of all eight combinations, row + seed;
    `first` is `recorded`'s.
    `effects` has each change's effect, the mean over the four settings of the
    others, and each two-way and the three-way interaction, by the names they
    are made of. `beyond` is what all three bring beyond the sum of what each
    brings alone, `share` what they bring of that sum, with the ends of its
    interval, and `levels` has each combination's mean.
    """
    runs = recorded(first, last)
    told = figures({rung: runs[rung] for rung in CUBE.values()}, of, last)
    levels = {rung: statistics.mean(x.values()) for rung, x in told.items()}
    return {"levels": levels, **combined(Blocks(told))}


def combined(blocks: Blocks) -> dict[str, Any]:
    """`cube`, of rows that are there."""
    effects = {}
    for size in range(1, len(CHANGES) + 1):
        for names in combinations(CHANGES, size):
            weights = {
                rung: math.prod(
                    1 if on else -1
                    for change, on in zip(CHANGES, cell, strict=True)
                    if change in names
                )
                / 2 ** (len(CHANGES) - size)
                for cell, rung in CUBE.items()
            }
            effects[names] = blocks.contrast(weights)
    return {"blocks": blocks, "effects": effects, **additive(blocks)}


def additive(blocks: Blocks) -> dict[str, Any]:
    """All three changes beside the sum of the three alone.

    The interval of their ratio holds each share at which what all three
    bring can't be told from that share of the sum (Fieller's).
    """

    def beyond(share: float) -> Gap:
        weights = {"all-three": 1.0, "paper": -1 + len(CHANGES) * share}
        return blocks.contrast(weights | dict.fromkeys(CHANGES, -share))

    total = blocks.gap("all-three", "paper").size
    share = total / (total - beyond(1).size)
    ends = fieller(beyond, share)
    return {"beyond": beyond(1), "share": share, "ends": ends}


def fieller(beyond: Callable[[float], Gap], share: float) -> list[float]:
    """Between which shares a gap that falls with the share may be none.

    Any may be, if what it is a share of may be none itself.
    """
    # |beyond(s)| = within(s): a parabola in s, by three of its points
    points = np.array([share - 1, share, share + 1])
    heights = [beyond(s).size ** 2 - beyond(s).within ** 2 for s in points]
    parabola = np.polyfit(points, heights, 2)
    if parabola[0] <= 0:
        return [-math.inf, math.inf]
    return sorted(np.roots(parabola))


# Rows that have tried rates of their own, with their means of checkpoints.
TUNED = "paper", "pre-norm", "gated", "cool-down", "all-three"


def tuned(of: str) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    """{rung: its rate}, and {rung: {seed: figure}} of its mean at that rate.

    Seed 0 chooses by the validation loss of the mean, and the others judge.
    """
    runs = by_rung("averaged", "tuned")
    rates, judges = {}, {}
    for rung in TUNED:
        firsts, others = [], []
        for run in runs[rung]:
            (others if run.report["training"]["seed"] else firsts).append(run)
        best = min(
            firsts, key=lambda run: run.report["result"]["validation_loss"]
        )
        rate = rates[rung] = best.report["rate"]
        judges[rung] = [run for run in others if run.report["rate"] == rate]
    return rates, figures(judges, of)


# Trainings of several lengths, each with its own end.
BUDGETS = 500, 1000, 2000, 4000, 8000
SHORTER = "cool-down", "muon", "all-three"  # than the paper


class Saving(NamedTuple):
    """The paper's steps over those that a rung needs for the paper's loss.

    `ends` are the 99% interval's. `slope` has, for each row of the linear
    model, what a nat more of it adds to `factor`.
    """

    factor: float
    ends: tuple[float, float]
    slope: dict[str, float]


class Unpaired(Blocks):
    """Rows whose seeds are unpaired, with one spread for all.

    It is that between the seeds of a row, whose level is their mean.
    """

    def __init__(self, figures: dict[str, dict[int, float]]) -> None:
        each = {row: [*told.values()] for row, told in figures.items()}
        self.levels = {row: statistics.mean(x) for row, x in each.items()}
        self.errors, free = {}, {}
        for row, told in each.items():
            group = self.group(row)
            same = [
                x for other, x in each.items() if group == self.group(other)
            ]
            free[group] = sum(len(x) - 1 for x in same)
            squares = sum(len(x) * np.var(x) for x in same)
            self.errors[row] = math.sqrt(squares / free[group] / len(told))
        self.freedom = min(free.values())

    def group(self, row: str) -> int:
        """Of rows that share a spread."""
        return 0

    def contrast(self, weights: Mapping[str, float]) -> Gap:
        """As in `Blocks`."""
        size = sum(self.levels[row] * part for row, part in weights.items())
        parts = (part * self.errors[row] for row, part in weights.items())
        return judged(size, math.hypot(*parts), self.freedom)


class ByLength(Unpaired):
    """Rows "RUNG-STEPS", with a spread for each length.

    Above 2,000 steps, where there is one seed, it is that of 2,000.
    """

    def group(self, row: str) -> int:
        """The steps, to 2,000."""
        return min(int(row.rpartition("-")[2]), BUDGETS[2])


def counted_by_mean(rung: str) -> bool:
    """The paper is; others where it has the lower loss at 2,000 steps."""
    if rung == "paper":
        return True
    result = load_run(f"averaged/{rung}-0").report["result"]
    return result["validation_loss"] < result["last_validation_loss"]


def by_budget(of: str) -> dict[str, dict[int, float]]:
    """{"RUNG-STEPS": {seed: figure}}, of what is recorded.

    Each rung counts with its mean of checkpoints or its last weights, as
    `counted_by_mean` says.
    """
    runs: dict[bool, dict[str, list]] = {True: {}, False: {}}
    others = by_rung("budgets")
    for rung in ("paper", *SHORTER):
        mean = counted_by_mean(rung)
        runs[mean][f"{rung}-{BUDGETS[2]}"] = recorded(last=not mean)[rung]
        for run in others[rung]:
            row = run.name.partition("/")[2].rpartition("-")[0]
            runs[mean].setdefault(row, []).append(run)
    return figures(runs[True], of) | figures(runs[False], of, last=True)


def savings(blocks: Blocks, rung: str) -> dict[int, Saving]:
    """{budget: what a rung saves}, where its own budgets can tell.

    Between two budgets its loss is taken to fall in a straight line with the
    logarithm of the steps. Of a loss that it has after the fewest steps, or
    never has, nothing is said.
    """
    level = blocks.levels
    at = [math.log(steps) for steps in BUDGETS]
    losses = [level[f"{rung}-{steps}"] for steps in BUDGETS]
    found = {}
    for budget in BUDGETS:
        target = level[f"paper-{budget}"]
        needed = steps_until(at, losses, target)
        if math.isnan(needed) or needed == at[0]:
            continue
        i = max(i for i, loss in enumerate(losses) if loss > target)
        share = (needed - at[i]) / (at[i + 1] - at[i])
        fall = (losses[i] - losses[i + 1]) / (at[i + 1] - at[i])
        apart = {
            f"{rung}-{BUDGETS[i]}": 1 - share,
            f"{rung}-{BUDGETS[i + 1]}": share,
            f"paper-{budget}": -1.0,
        }
        factor = budget / math.exp(needed)
        within = blocks.contrast(apart).within / fall
        found[budget] = Saving(
            factor,
            (factor * math.exp(-within), factor * math.exp(within)),
            {row: -factor * part / fall for row, part in apart.items()},
        )
    return found


def lasting(blocks: Blocks, first: Saving, then: Saving) -> dict[str, Any]:
    """A saving beside that of a shorter budget.

    `gap` is what the factor has grown by, and `ends` are those of the
    interval of what is left of what the shorter one had above 1.
    """

    def beyond(share: float) -> Gap:
        weights: dict[str, float] = {}
        for saving, times in (then, 1), (first, -share):
            for row, slope in saving.slope.items():
                weights[row] = weights.get(row, 0) + times * slope
        size = then.factor - 1 - share * (first.factor - 1)
        return Gap(size, blocks.contrast(weights).within, math.nan)

    share = (then.factor - 1) / (first.factor - 1)
    return {"gap": beyond(1), "ends": fieller(beyond, share)}


def in_turn(cost: dict[str, Any], paper: dict[str, Any]) -> float:
    """A step's seconds over the paper's, which it was measured beside."""
    pairs = zip(cost["seconds"], paper["seconds"], strict=False)
    return statistics.median(one / other for one, other in pairs)


def verdict(*gaps: Gap) -> str:
    """What the rules say of a rung, whose gaps are by one rule each."""
    sure = {gap.p < SURE for gap in gaps}
    if len(sure) > 1:
        return "the rules disagree"
    if sure == {False}:
        return "no difference shown"
    return "better" if gaps[0].size < 0 else "worse"


def steps_until(
    steps: Sequence[float], losses: Sequence[float], target: float
) -> float:
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
