"""The ladder from 2017 to now: its rungs, and how they are judged."""

import ast
import inspect
import math
import re
from copy import deepcopy

import hour
import jupytext
import numpy as np
import pytest
import race
import since
import tangle
import torch
from scipy import stats

from transformer_book import ladder
from transformer_book.drawings import after as drawings
from transformer_book.judging import Blocks, Gap, dunnett
from transformer_book.records import (
    Run,
    load_counts,
    load_run,
    read_folder,
    recorded_runs,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.translator import Translator

# What somebody relies on who trains a rung

PARTS = {
    "rms-norm": torch.nn.RMSNorm,
    "gated": since.GatedFeedForward,
    "grouped": since.GroupedAttention,
    "rotary": since.RotaryAttention,
    "all-three": since.RotaryAttention,
}


@pytest.mark.parametrize("name", since.RUNGS)
def test_a_rung_has_its_part_and_the_papers_size(name):
    """An override that is misspelt would leave the paper's part."""
    ours, paper = (
        since.build(since.RUNGS[rung], 40, 0) for rung in (name, "paper")
    )
    assert name == "paper" or since.RUNGS[name] != since.RUNGS["paper"]
    if name in PARTS:
        assert PARTS[name] in {type(part) for part in ours.modules()}
    sizes = [sum(w.numel() for w in x.parameters()) for x in (ours, paper)]
    # Grouped heads have fewer weights: that is what they are for.
    assert 0.85 < sizes[0] / sizes[1] < 1.02


def test_schedules_reach_the_whole_rate_after_the_warm_up():
    for schedule in since.equation_3, since.cool_down:
        assert schedule(since.WARMUP) == 1
        assert schedule(since.WARMUP / 2) == 0.5
    assert since.equation_3(4 * since.WARMUP) == 0.5
    for steps, warmup in (6, 400), (500, 100), (since.STEPS, 400):
        for rung in since.RUNGS.values():
            factor = since.schedule_of(rung, steps, warmup)
            cools = rung.schedule is since.cool_down
            assert (factor(steps) == 0) == cools
            assert steps < warmup or factor(warmup) == 1


def test_a_rung_may_have_a_schedule_of_its_own(monkeypatch):
    """It once had equation 3 here and a rate to zero there, in silence."""

    def mine(step):
        return 0.123

    monkeypatch.setitem(since.RUNGS, "mine", since.Rung(schedule=mine))
    assert since.schedule_of(since.RUNGS["mine"], since.STEPS) is mine
    assert hour.rung_of("mine").schedule is mine


def test_steps_that_were_not_timed_count_as_the_others(monkeypatch):
    """A run that goes on has not seen all steps until a validation."""
    lines = [
        {"step": 300, "cpu_seconds_a_step": 0.5},
        {"step": 600},
        {"step": 800, "cpu_seconds_a_step": 0.7},
    ]
    assert hour.cpu_seconds(lines) == pytest.approx(150 + 180 + 140)
    assert math.isnan(hour.cpu_seconds([{"step": 300}]))
    monkeypatch.setattr(since, "validation_loss", lambda *_: 1.0)
    for began, timed in (0, True), (450, True), (451, False), (600, False):
        judge = since.Judge([([3], [3])], began, 300)
        assert ("cpu_seconds_a_step" in judge(None, 600)) == timed


def little_spanish(name, source, target, split):
    """A corpus that is read at once, and needs no download."""
    return load_corpus("little_spanish", split=split)


def test_a_rung_is_tuned_recorded_and_taken_up_again(tmp_path, monkeypatch):
    monkeypatch.setattr(since, "RATES", [0.35, 0.7])
    monkeypatch.setattr(since, "load_corpus", little_spanish)
    first, second = tmp_path / "first", tmp_path / "second"
    small = "--max-steps 6 --limit 20".split()
    calls = iter([since.train])

    def train_but_once(*given, **settings):
        for train in calls:
            return train(*given, **settings)
        raise KeyboardInterrupt

    words = ["cool-down", *small, "--out", str(first)]
    with monkeypatch.context() as patch:
        patch.setattr(since, "train", train_but_once)
        with pytest.raises(SystemExit, match="the same command goes on"):
            since.main(words)
    begun = read_folder(first)
    since.main(words)
    found = read_folder(first)
    assert begun and begun.items() <= found.items()  # nothing made twice
    report = found["report.json"]
    assert [*report["rates"]] == ["0.35", "0.7"]
    best = min(report["rates"].values())
    assert report["rates"][f"{report['rate']:g}"] == best
    assert report["result"]["validation_loss"] == best
    assert found["log.jsonl"][-1]["validation_loss"] == best
    assert report["training"]["learning_rate_scale"] == report["rate"]
    assert report["result"]["cpu_seconds_a_step"] > 0
    assert len(found["translations.txt"]) == report["test"]["sentences"]

    monkeypatch.setattr(since, "EVERY", 2)
    words = ["cool-down", *small, "--rate", "0.7", "--average", "3"]
    words += ["--warmup-steps", "2", "--seed", "1"]
    since.main([*words, "--out", str(second)])
    files = read_folder(second)
    assert {*files} == {"log.jsonl", "report.json", "translations.txt"}
    other = files["report.json"]
    assert other["result"]["averaged_checkpoints"] == 3
    last = other["result"]["last_validation_loss"]
    assert last != other["result"]["validation_loss"]
    tests = other["last_test"], other["test"]
    assert tests[0]["nats_per_token"] != tests[1]["nats_per_token"]
    rates = [line["learning_rate"] for line in files["log.jsonl"]]
    highest = since.highest_rate(0.7, 128)
    assert rates == pytest.approx([highest, highest / 2, 0])
    since.main([*words, "--out", str(second)])  # finished, and asked for again
    with pytest.raises(SystemExit, match="is finished: .* --seed 1 "):
        since.main([*words, "--seed", "2", "--out", str(second)])


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs Muon")
def test_the_hours_recipe_leaves_a_translator(tmp_path, monkeypatch):
    """Also if it was stopped before it was tested."""
    monkeypatch.setattr(since, "load_corpus", little_spanish)
    words = ["--rung", "all-three", "--max-steps", "4", "--limit", "20"]
    words += ["--out", str(tmp_path)]

    def stopped(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hour, "evaluate", stopped)
        with pytest.raises(SystemExit, match="the same command goes on"):
            hour.main(words)
    hour.main(words)
    found = read_folder(tmp_path)
    [line] = found["log.jsonl"]
    assert found["report.json"]["result"]["cpu_seconds"] == pytest.approx(
        4 * line["cpu_seconds_a_step"], abs=0.01
    )
    assert len(found["translations.txt"]) == 20
    translator = Translator.from_pretrained(tmp_path, model=since.Rotary)
    assert isinstance(translator.translate("I like trees"), str)
    for rung, steps in hour.STEPS.items():
        factor = since.schedule_of(hour.rung_of(rung), steps)
        assert (factor(steps) == 0) == (rung != "paper")


# What the pages say is what ran


@pytest.mark.parametrize("part", [since.muon, since.cool_down])
def test_the_page_shows_what_was_recorded(part):
    """A function of the last chapter is the records', line by line."""
    page = jupytext.read(tangle.ROOT / "book/results/after.md")
    starts = f"def {part.__name__}("
    [shown] = [c.source for c in page.cells if c.source.startswith(starts)]
    recorded = ast.parse(inspect.getsource(part)).body[0]
    del recorded.body[0]  # the docstring
    recorded.args.defaults = [  # STEPS and the like, in numbers
        ast.Constant(value) for value in part.__defaults__ or ()
    ]
    assert ast.dump(ast.parse(shown).body[0]) == ast.dump(recorded)


def test_the_readme_has_the_hours_command_minutes_and_score():
    text = (tangle.ROOT / "README.md").read_text("utf-8")
    [name] = re.findall(r"experiments/again\.py (hour/\S+)", text)
    assert name in recorded_runs("hour")
    reports = [load_run(f"hour/all-three-{n}").report for n in range(3)]
    spent = sorted(r["result"]["cpu_seconds"] / 60 for r in reports)
    assert f"{spent[0]:.0f} to {spent[-1]:.0f} minutes of a core" in text
    scores = sorted(report["test"]["bleu"] for report in reports)
    assert f"{scores[0]:.1f} to {scores[-1]:.1f} BLEU" in text


def test_every_rung_of_the_records_is_in_the_table():
    """Under its verdict."""
    paper, *changes = ladder.rungs()
    table = drawings.ladder_table([paper, *changes]).data
    assert {row["rung"] for row in changes} == {
        *drawings.RUNGS.keys() - {"paper", "averaged"}
    }
    for row in changes:
        name = f"| {drawings.RUNGS[row['rung']]} |"
        before, found, _ = table.partition(name)
        assert found
        heading = before.rpartition("| **")[2]
        assert heading.startswith(f"{row['verdict']}** |")


@pytest.fixture(scope="module")
def references():
    try:
        return load_corpus("tatoeba", *since.LANGUAGES, "test").targets
    except OSError as error:
        pytest.skip(f"no references: {error}")


LADDER = [
    name
    for experiment in ("since", "averaged", "makes", "tuned", "budgets")
    for name in recorded_runs(experiment)
]


@pytest.mark.parametrize("name", LADDER)
def test_a_record_is_what_its_name_says(name):
    """And what all rungs share."""
    run = load_run(name)
    report = run.report
    experiment, _, told = name.partition("/")
    rung, *asked, seed = re.split(r"-(?=[\d.]+(?:-|$))", told)
    training = report["training"]
    assert (report["rung"], training["seed"]) == (rung, int(seed))
    if experiment == "tuned":
        assert report["rate"] == float(asked[0])
    else:
        assert report["rate"] == 0.7
    steps = int(asked[0]) if experiment == "budgets" else since.STEPS
    assert report["result"]["steps"] == run.log[-1]["step"] == steps
    if "optimizers" in report:  # else the loop's defaults are told
        assert training["warmup_steps"] == min(since.WARMUP, steps // 5)
    assert training["tokens_per_batch"] == since.TOKENS
    assert training["precision"] == "bf16"
    last = run.log[-1]["validation_loss"]
    if experiment == "since":
        assert report["result"]["validation_loss"] == last
        assert report["rates"][f"{report['rate']:g}"] == last
        assert last == min(report["rates"].values())
    else:
        assert report["result"]["averaged_checkpoints"] == 5
        assert report["result"]["last_validation_loss"] == last


# How they are judged


def test_seeds_are_blocks():
    """With two rows it is the paired t-test."""
    chance = np.random.default_rng(0)
    seeds = chance.normal(size=6)
    paper = seeds + chance.normal(scale=0.01, size=6)
    other = seeds + 0.02 + chance.normal(scale=0.01, size=6)
    figures = {
        row: dict(enumerate(told.tolist()))
        for row, told in (("paper", paper), ("other", other))
    }
    found = Blocks(figures).gap("other", "paper")
    paired = stats.ttest_rel(other, paper)
    low, high = paired.confidence_interval(0.99)
    assert found.p == pytest.approx(paired.pvalue)
    assert found.size == pytest.approx((other - paper).mean())
    assert found.within == pytest.approx((high - low) / 2)


def test_a_seed_that_only_one_row_has_says_nothing_of_others():
    told = {"paper": {0: 2.0, 1: 2.1, 2: 9.0}, "other": {0: 1.0, 1: 1.12}}
    found = Blocks(told).gap("other", "paper")
    assert found.size == pytest.approx(-0.99)


def test_what_three_changes_owe_each_other():
    """Of losses that are made: rotary and the schedule share 0.01 nats."""
    gains = -0.1, -0.06, -0.05
    levels = {
        rung: 1.5 + float(np.dot(cell, gains)) + 0.01 * (cell[1] and cell[2])
        for cell, rung in ladder.CUBE.items()
    }
    chance = np.random.default_rng(0)
    noise = chance.normal(scale=1e-4, size=(len(levels), 3))
    told = {
        rung: dict(enumerate(level + noise[i] + [0, 0.02, 0.01]))
        for i, (rung, level) in enumerate(levels.items())
    }
    found = ladder.combined(Blocks(told))
    assert found["blocks"].freedom == 14
    wanted = {
        ("muon",): -0.1,
        ("rotary",): -0.055,
        ("cool-down",): -0.045,
        ("rotary", "cool-down"): 0.01,
    }
    for names, gap in found["effects"].items():
        assert gap.size == pytest.approx(wanted.get(names, 0), abs=5e-4)
        assert (gap.p < 0.001) == (names in wanted)
    assert found["beyond"].size == pytest.approx(0.01, abs=5e-4)
    low, high = found["ends"]
    assert low < found["share"] < high < 1
    assert found["share"] == pytest.approx(0.20 / 0.21, abs=3e-3)
    assert "Muon, rotary: 1.340" in drawings.ladder_cube(levels).alt


def made_budgets(factor, noise):
    """Of losses that are made: a rung needs `factor` times fewer steps."""
    chance = np.random.default_rng(0)
    told = {}
    for rung in "paper", "all-three":
        for steps in ladder.BUDGETS:
            needed = steps if rung == "paper" else steps * factor(steps)
            loss = 4 - 0.3 * math.log(needed)  # a straight line, so exact
            seeds = range(3 if steps <= 2000 else 1)
            told[f"{rung}-{steps}"] = {
                seed: loss + 0.02 * seed + chance.normal(scale=noise)
                for seed in seeds
            }
    return Blocks(told)


def test_what_a_change_saves_at_each_budget():
    found = ladder.savings(made_budgets(lambda _: 1.5, 1e-5), "all-three")
    assert [*found] == [1000, 2000, 4000, 8000]  # before, it needs too few
    assert {round(saving.factor, 3) for saving in found.values()} == {1.5}

    held = 0
    blocks = made_budgets(lambda _: 1.5, 0.01)
    assert blocks.freedom == 10  # single seeds say nothing of the spread
    found = ladder.savings(blocks, "all-three")
    for saving in found.values():
        low, high = saving.ends
        assert low < saving.factor < high
        held += low < 1.5 < high
    assert held == 4
    wide = [np.diff(np.log(found[steps].ends)) for steps in (1000, 8000)]
    # by hand: a seed of each of two, or three of each; not between budgets
    assert wide[1] / wide[0] == pytest.approx(3**0.5, rel=0.35)

    slower = made_budgets(lambda steps: 0.9, 1e-5)
    found = ladder.savings(slower, "all-three")
    assert 8000 not in found  # it never gets there
    assert found[4000].factor == pytest.approx(0.9, abs=1e-3)


def test_each_length_may_have_a_spread_of_its_own():
    """By hand: variances 0.04 and 0.01; the longest has that of 2,000."""
    told = {
        "paper-1000": {0: 2.0, 1: 2.2, 2: 2.4},
        "paper-2000": {0: 1.4, 1: 1.5, 2: 1.6},
        "all-three-2000": {0: 1.1, 1: 1.2, 2: 1.3},
        "paper-8000": {0: 1.0},
    }
    found = ladder.ByLength(told)
    assert found.freedom == 2
    wide = {"paper-1000": 0.04 / 3, "all-three-2000": 0.01 / 3}
    for row, variance in (wide | {"paper-8000": 0.01}).items():
        gap = found.gap(row, "paper-2000")
        error = (variance + 0.01 / 3) ** 0.5
        assert gap.within == pytest.approx(stats.t.ppf(0.995, 2) * error)
    assert found.gap("paper-1000", "paper-2000").size == pytest.approx(0.7)


@pytest.mark.parametrize("then", [1.6, 1.1])
def test_whether_a_saving_lasts(then):
    """A factor of 1.6 that stays, and one that shrinks to 1.1."""

    def factor(steps):
        return 1.6 if steps <= 2000 else then

    blocks = made_budgets(factor, 1e-4)
    found = ladder.savings(blocks, "all-three")
    left = ladder.lasting(blocks, found[1000], found[8000])
    assert left["gap"].size == pytest.approx(then - 1.6, abs=0.01)
    assert (abs(left["gap"].size) < left["gap"].within) == (then == 1.6)
    low, high = left["ends"]
    assert low < (then - 1) / 0.6 < high
    assert (low > 0.5) == (then == 1.6)


def test_a_share_of_what_may_be_nothing_may_be_any():
    blocks = made_budgets(lambda steps: 1.01 if steps < 4000 else 1.6, 0.01)
    found = ladder.savings(blocks, "all-three")
    left = ladder.lasting(blocks, found[1000], found[8000])
    assert left["ends"] == [-math.inf, math.inf]


def test_many_rows_beside_one_are_judged_as_dunnett_does():
    """Against SciPy's, which knows no blocks."""
    chance = np.random.default_rng(0)
    paper, *rows = chance.normal(size=(6, 4))
    rows[1] += 1.2
    theirs = stats.dunnett(*rows, control=paper, rng=1).pvalue
    spread = np.sqrt(np.var([paper, *rows], axis=1, ddof=1).mean() / 2)
    for row, wanted in zip(rows, theirs, strict=True):
        t = abs(row.mean() - paper.mean()) / spread
        p = 2 * stats.t.sf(t, 18)
        assert dunnett(p, 5, 18) == pytest.approx(wanted, abs=2e-3)
    for p in (0.5, 0.01, 1e-4, 1e-8):  # one row is Student's t
        assert dunnett(p, 1, 8) == pytest.approx(p, rel=1e-6)


def test_the_older_rule_takes_one_spread_of_all_rungs():
    """By hand: spread 0.01 with 4 degrees of freedom."""
    losses = {"paper": [2.0, 2.01, 2.02], "other": [1.9, 1.91, 1.92]}
    told = {row: dict(enumerate(each)) for row, each in losses.items()}
    gap = ladder.Unpaired(told).gap("other", "paper")
    assert gap.size == pytest.approx(-0.1)
    error = 0.01 * math.sqrt(2 / 3)
    assert gap.within == pytest.approx(4.604 * error, rel=1e-3)
    unsure = Gap(-0.1, 0.2, 0.01)
    assert ladder.verdict(gap, gap) == "better"
    assert ladder.verdict(unsure, unsure) == "no difference shown"
    assert ladder.verdict(gap, unsure) == "the rules disagree"


def test_one_seed_chooses_a_rate_and_others_judge(monkeypatch):
    """Of records that are made: seed 1 would have chosen another."""

    def made(rung, rate, seed):
        nats = {0.7: 2.0, 1.0: 1.9, 1.4: 1.95}[rate] + 0.01 * seed
        nats -= 0.2 * (rung == "gated") + 0.5 * (seed == 1 and rate == 1.4)
        nats += 0.5 * (rung == "paper" and rate > 0.7)
        tells = {
            "rung": rung,
            "rate": rate,
            "training": {"seed": seed},
            "result": {"validation_loss": nats},
            "test": {"nats_per_token": nats + 1, "bleu": 40.0},
        }
        return Run("", {"report.json": tells})

    at_paper = [(rung, 0.7, seed) for rung in since.RUNGS for seed in range(3)]
    at_others = [
        (rung, rate, seed)
        for rung in ladder.TUNED
        for rate in (0.7, 1.0, 1.4)
        for seed in range(4)
        if (rung, rate, seed) not in at_paper
    ]
    there = {"averaged": at_paper, "tuned": at_others}
    monkeypatch.setattr(ladder, "recorded_runs", there.get)
    monkeypatch.setattr(ladder, "load_run", lambda name: made(*name))
    rates, told = ladder.tuned("test")
    wanted = dict.fromkeys(ladder.TUNED, 1.0) | {"paper": 0.7}
    assert rates == wanted
    assert {rung: [*seeds] for rung, seeds in told.items()} == dict.fromkeys(
        ladder.TUNED, [1, 2, 3]
    )
    gap = Blocks(told).gap("gated", "paper")
    assert gap.size == pytest.approx(-0.3) and gap.p < 1e-3


def test_each_change_with_its_mean_is_beside_the_paper_with_its(monkeypatch):
    """By the test loss, and by the older rule; also with runs made first."""

    def made(place, rung, seed):
        nats = 2.0 - 0.1 * (rung == "gated") + 0.01 * seed
        nats += 0.3 * (rung == "muon" and place == "averaged")
        nats += 0.05 * ((seed + len(rung)) % 3 == 0)
        falling = [
            {"step": step, "validation_loss": nats + 1 - step / 1000}
            for step in (500, 1000, 2000)
        ]
        tells = {
            "rung": rung,
            "training": {"seed": seed},
            "result": {"validation_loss": nats},
            "test": {"nats_per_token": nats + 0.5, "bleu": 40.0 + seed},
        }
        if place == "since":  # its last weights alone
            tells["test"] = {"nats_per_token": nats + 0.6, "bleu": 40.0}
        else:
            tells["result"]["last_validation_loss"] = nats + 1
        return Run("", {"report.json": tells, "log.jsonl": falling})

    there = {
        place: [(place, rung, seed) for rung in rungs for seed in range(3)]
        for place, rungs in (
            ("averaged", ["gated", "muon", "paper", "adamw"]),
            ("makes", ["muon"]),
            ("since", ["gated", "muon", "paper", "adamw"]),
        )
    }
    monkeypatch.setattr(ladder, "recorded_runs", there.get)
    monkeypatch.setattr(ladder, "load_run", lambda name: made(*name))
    paper, best, *others = ladder.rungs()
    assert paper["rung"] == "paper" and len(others) == 2
    assert (best["rung"], best["verdict"]) == ("gated", "better")
    assert best["twins"] == pytest.approx([-0.1] * 3)
    assert best["last"] == pytest.approx(0.0)
    assert best["validation_gap"].size == pytest.approx(-0.1)
    assert best["bleu_gap"].size == pytest.approx(0.0)
    assert 1e-6 < best["test_gap"].p < best["dunnett"] < 0.01
    assert best["steps"] == pytest.approx(900)
    assert {row["verdict"] for row in others} == {"no difference shown"}
    assert (
        "gated feed-forward, \u22120.100"
        in drawings.ladder_gaps([paper, best]).alt
    )
    first = {row["rung"]: row for row in ladder.rungs(first=True)}
    assert first["muon"]["verdict"] == "worse"
    assert first["muon"]["test_gap"].size == pytest.approx(0.3)
    with pytest.raises(KeyError, match="last_test"):  # the mean's isn't taken
        ladder.figures({"paper": [made("averaged", "paper", 0)]}, "test", True)


def test_steps_until_a_loss():
    log = [50, 100, 150], [4.0, 3.0, 2.0]
    assert ladder.steps_until(*log, 2.5) == 125
    assert ladder.steps_until(*log, 4.5) == 50
    assert math.isnan(ladder.steps_until(*log, 1.0))
    steps = [50, 100, 150, 200]  # a loss that rises again was not there yet
    assert ladder.steps_until(steps, [4.0, 2.0, 3.0, 2.0], 2.5) == 175
    assert math.isnan(ladder.steps_until(steps, [4.0, 2.0, 3.0, 3.0], 2.5))


# The race


def test_who_keeps_the_rules_of_the_race_is_told_by_the_record(references):
    runs = [load_run(f"hour/all-three-{seed}") for seed in range(3)]
    found = race.compare(runs, load_run(race.SHIPPED), references)
    assert race.against(runs, found) == []
    recorded = load_counts("race")["systems"]["hour/all-three"]
    for name, value in found.items():
        assert recorded[name] == pytest.approx(value)


@pytest.mark.parametrize(
    ("of", "name", "value", "says"),
    [
        ("training", "device", "cuda", "CPU"),
        ("training", "seed", 7, "seed 1"),
        ("machine", "commit", "abc-dirty", "commit"),
        ("machine", "processor", "another", "timed"),
        ("machine", "kernels", "AVX2", "timed"),
        ("result", "seconds", 60.0, "clock"),
        ("machine", "commit", "not recorded", "commit"),
        ("test", "split", "validation", "tested"),
        ("test", "beam_size", 8, "tested"),
        ("test", "bleu", 99.0, "score"),
        ("result", "cpu_seconds", 60.0, "cpu_seconds"),
        ("result", "steps", 4000, "steps"),
    ],
)
def test_what_breaks_the_rules_of_the_race_is_named(of, name, value, says):
    runs = [load_run(f"hour/all-three-{seed}") for seed in range(3)]
    found = load_counts("race")["systems"]["hour/all-three"]
    runs[1] = deepcopy(runs[1])
    runs[1].report[of][name] = value
    [wrong] = race.against(runs, found)
    assert wrong.startswith(runs[1].name) and says in wrong


def test_a_clock_of_ones_own_is_held_to_the_same_thread(monkeypatch):
    """And a score is right on references as written or as models write."""
    runs = [deepcopy(load_run(f"hour/all-three-{n}")) for n in range(3)]
    found = load_counts("race")["systems"]["hour/all-three"]
    for run, score in zip(runs, found["bleu"], strict=True):
        assert run.report["test"]["bleu"] != score
        run.report["test"]["bleu"] = score
    assert race.against(runs, found) == []
    clock = deepcopy(load_run(race.CLOCK))
    monkeypatch.setattr(race, "clock_of", lambda _: clock)
    clock.report["machine"]["threads"] = 4
    assert len(race.against(runs, found)) == 3
    for run in runs:
        run.report["machine"]["threads"] = 4
    assert len(race.against(runs, found)) == 3  # more than one thread
    clock.report["result"]["cpu_seconds"] *= 1.6
    assert len(race.against(runs, found)) == 4


def test_one_run_is_not_three_and_a_worse_one_is_told():
    runs = [load_run("hour/de-en-0")]
    found = load_counts("race")["systems"]["hour/de-en"]
    assert len(race.against(runs, found)) == 3
    runs = [load_run("hour/all-three-0")] * 3
    found = load_counts("race")["systems"]["hour/all-three"]
    found = found | {"bleu": [found["bleu"][0]] * 3}
    wrong = race.against(runs, found)
    assert sum("alike" in each for each in wrong) == 3
    assert sum("seed" in each for each in wrong) == 2
