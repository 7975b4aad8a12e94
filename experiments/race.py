"""Does a translator keep the rules of the race, and is it as good?

    python experiments/race.py hour/all-three     its seeds 0, 1 and 2
    python experiments/race.py hour/all-three hour/de-en --out runs/race

The last chapter has the rules. Here the records NAME-0, NAME-1 and NAME-2
are held to what can be seen in a record: how they were trained, that the
minutes are those of their logs and the scores those of their translations,
and that a mean of three seeds is no more than half a point of BLEU below the
shipped model, by 95% of resampled test sets no more than one. NAME-clock has
the paper's steps, timed on the same core; without it they must be from the
core of hour/paper-0. The row of the table is printed, and what is against it;
then the exit status is 1.
"""

import argparse
import json
import math
import shlex
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from hour import cpu_seconds
from sacrebleu.metrics import BLEU

from transformer_book.records import Run, load_run, recorded_runs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import bleu
from transformer_lib.tokenization import normalize

SHIPPED, CLOCK = "tatoeba-de-en", "hour/paper-0"
SEEDS, SAMPLES = 3, 2000
CORE = "processor", "kernels", "threads"
NO_COMMIT = "-dirty", "not recorded"
BELOW, AT_WORST = 0.5, 1.0  # points of BLEU
ALIKE = 0.9  # of the translations of two trainings
TOLD = {"corpus": "tatoeba", "languages": ["de", "en"], "split": "test"}
TOLD |= {"beam_size": 4, "length_penalty": 0.6}


def counts(translations, references):
    """What BLEU adds up, a row for each sentence."""
    rows = []
    for words, reference in zip(translations, references, strict=True):
        one = BLEU(effective_order=True).sentence_score(words, [reference])
        rows.append([*one.counts, *one.totals, one.sys_len, one.ref_len])
    return np.array(rows)


def score(rows):
    """Their BLEU."""
    told = rows.sum(0).tolist()
    return BLEU.compute_bleu(told[:4], told[4:8], *told[8:]).score


def compare(runs, shipped, references):
    """Scores, their mean above the shipped one's, and its 95% interval.

    All are resampled together: the interval is over sentences. References
    are in the form that a model can write, and for older records, whose
    reports have that score, `as_written`.
    """
    normal = [normalize(text) for text in references]
    base, *ours = [
        counts(run.translations, normal) for run in (shipped, *runs)
    ]
    size = len(references)
    ahead = [
        np.mean([score(one[pick]) for one in ours]) - score(base[pick])
        for pick in np.random.default_rng(0).integers(
            size, size=(SAMPLES, size)
        )
    ]
    scores = [score(one) for one in ours]
    return {
        "bleu": scores,
        "as_written": [
            bleu(run.translations, references).value for run in runs
        ],
        "ahead": float(np.mean(scores) - score(base)),
        "interval": np.percentile(ahead, [2.5, 97.5]).tolist(),
    }


def clock_of(runs: list[Run]) -> Run:
    """The run that timed the paper's steps for these."""
    own = runs[0].name.rpartition("-")[0] + "-clock"
    there = recorded_runs(own.partition("/")[0])
    return load_run(own if own in there else CLOCK)


def as_logged(run: Run) -> bool:
    """Whether its processor time is that of its log."""
    spent = run.report["result"].get("cpu_seconds", math.nan)
    return abs(spent - cpu_seconds(run.log)) < 1


def against(runs: list[Run], found) -> list[str]:
    """What breaks the rules."""
    wrong = []
    if len(runs) != SEEDS:
        wrong.append(f"{len(runs)} seeds in place of {SEEDS}")
    timed = clock_of(runs)
    clock = timed.report["machine"]
    if not as_logged(timed):
        wrong.append(f"{timed.name} has other cpu_seconds than its log")
    both = zip(found["bleu"], found["as_written"], strict=True)
    for seed, (run, scores) in enumerate(zip(runs, both, strict=True)):
        report = run.report
        training, test = report["training"], report["test"]
        machine, result = report["machine"], report["result"]
        told = {name: test.get(name) for name in TOLD}
        spent = result.get("cpu_seconds", math.nan)
        commit = machine.get("commit", NO_COMMIT[0])
        for true, words in (
            (training["seed"] == seed, f"is not of seed {seed}"),
            (not commit.endswith(NO_COMMIT), "ran on no commit"),
            (
                all(machine.get(x) == clock.get(x) for x in CORE),
                "is not from the core that was timed",
            ),
            (
                0 < spent <= result["seconds"],
                "took more of the processor than of the clock, or nothing",
            ),
            (training["device"] == "cpu", "was not trained on a CPU"),
            (machine["threads"] == 1, "took more than one thread"),
            (told == TOLD, f"was tested on {told}, not {TOLD}"),
            (
                as_logged(run),
                "has other cpu_seconds in its report than in its log",
            ),
            (run.log[-1]["step"] == result["steps"], "lacks steps"),
            (
                min(abs(test["bleu"] - value) for value in scores) < 1e-6,
                "has another score than its translations",
            ),
        ):
            if not true:
                wrong.append(f"{run.name} {words}")
    for one, other in combinations([load_run(SHIPPED), *runs], 2):
        pairs = zip(one.translations, other.translations, strict=True)
        alike = np.mean([a == b for a, b in pairs])
        if alike > ALIKE:
            wrong.append(f"{one.name} and {other.name} are {alike:.0%} alike")
    if found["ahead"] < -BELOW:
        wrong.append(f"more than {BELOW} points below the shipped model")
    if found["interval"][0] < -AT_WORST:
        wrong.append(f"it may be more than {AT_WORST} point below")
    return wrong


def row(name, runs, found):
    """A line for the table: minutes, share, BLEU."""
    timed = clock_of(runs)
    clock = timed.report["result"]
    paper = clock["cpu_seconds"] / clock["steps"]
    steps = load_run(SHIPPED).report["result"]["steps"] * paper / 60
    spent = sorted(run.report["result"]["cpu_seconds"] / 60 for run in runs)
    shares = [minutes / steps for minutes in spent]
    low, high = found["interval"]
    return (
        f"| {name} | {spent[0]:.0f} to {spent[-1]:.0f} minutes, by "
        f"{timed.name} {shares[0]:.0%} to {shares[-1]:.0%} | "
        f"{', '.join(f'{bleu:.1f}' for bleu in found['bleu'])} | "
        f"{found['ahead']:+.2f} ({low:+.2f} to {high:+.2f}) |"
    )


def main(words):
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("names", nargs="+", metavar="EXPERIMENT/NAME")
    made.add_argument("--out", type=Path)
    options = made.parse_args(words)
    references = load_corpus("tatoeba", "de", "en", "test").targets
    shipped, systems, broken = load_run(SHIPPED), {}, False
    for name in options.names:
        experiment = name.partition("/")[0]
        every = [f"{name}-{seed}" for seed in range(SEEDS)]
        runs = [load_run(n) for n in every if n in recorded_runs(experiment)]
        if not runs:
            raise SystemExit(f"no record {every[0]}; pack.py adds a run")
        systems[name] = compare(runs, shipped, references)
        print(row(name, runs, systems[name]))
        wrong = against(runs, systems[name])
        for each in wrong:
            print(f"  {each}")
        broken = broken or bool(wrong)
    if options.out:
        command = shlex.join(["python", "experiments/race.py", *words])
        told = {"command": command, "samples": SAMPLES, "systems": systems}
        content = json.dumps(told, indent=1) + "\n"
        write_atomically(options.out / f"{options.out.name}.json", content)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
