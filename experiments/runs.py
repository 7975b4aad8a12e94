"""The recorded runs: the command of each, in a table.

    make -C experiments                              all names
    make -C experiments models/little-spanish        one run
    make -C experiments headline jobs=2              an experiment: its runs
    make -C experiments variations/h-16-1 dry=1      only print the command
    make -C experiments gpu device=cuda              on a GPU
    make -C experiments gpu steps=3                  does it run? 3 steps each

A run has the name that its folder has in runs/. Its report is written
last: a run that has one is left alone, and a run that was interrupted
goes on. To make a recorded run again, remove its folder first. To add a
run, add a line to the table.

Each run takes one thread. On a CPU or GPU without instructions for
bf16, precision=fp32 is faster; a warning says so. With steps=, each command
takes so many steps of small batches, into a temporary folder.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parents[1]
TRAIN = "-m transformer_lib train"


@dataclass
class Entry:
    """A run: its command without --out, what it needs, what ends it."""

    command: str
    after: str = ""
    result: str = "report.json"


RUNS: dict[str, Entry] = {}
AT_IT: defaultdict[str, Lock] = defaultdict(Lock)  # one thread a run
WHERE = "--precision {precision} --device {device}"

# The models that ship, and the headline, of which three seeds were trained.
# Multi30k has the recipe of Wu et al. (2021), with 8,192 tokens a step.
MULTI30K = (
    f"{TRAIN} --corpus multi30k --dropout 0.3 --warmup-steps 2000"
    " --learning-rate-scale 2.5 --tokens-per-batch 8192"
    " --checkpoint-every 100 --keep-checkpoints 20 --average 10"
    f" --validation-bleu --test test --half {WHERE}"
)
HEADLINE = (
    f"{MULTI30K} --vocab-size 10000 --max-steps 5000 --validate-every 200"
)
EVERYDAY = (
    f"{TRAIN} --corpus tatoeba --max-steps 8000 --dropout 0.1"
    " --warmup-steps 2000 --checkpoint-every 100 --validate-every 400"
    f" --validation-bleu --test test --half {WHERE}"
)
RUNS["models/little-spanish"] = Entry(
    f"{TRAIN} --N 2 --vocab-size 1000 --tokens-per-batch 1024"
    " --warmup-steps 300 --learning-rate-scale 0.7 --max-steps 800"
    " --log-every 20 --validate-every 100 --checkpoint-every 16"
    " --validation-bleu --test test --half --precision fp32 --device cpu"
)
for way in "en de", "de en":
    name = way.replace(" ", "-")
    RUNS[f"models/tatoeba-{name}"] = Entry(f"{EVERYDAY} --languages {way}")
    RUNS[f"models/multi30k-{name}"] = Entry(
        f"{HEADLINE} --languages {way} --seed 0"
    )
for seed in 1, 2:
    RUNS[f"headline/en-de-{seed}"] = Entry(
        f"{HEADLINE} --languages en de --seed {seed}"
    )
RUNS["own"] = Entry(f"{HEADLINE} --languages en de --seed 3")  # yours

# Nearby recipes: SUBWORDS-D_FF-STEPS-SEED, each made with device=cuda and
# precision=fp32. Those of 4,000 subwords were stopped near step 7,000.
for pieces, d_ff, often in (
    (10000, 512, 200),
    (4000, 512, 1000),
    (4000, 256, 1000),
):
    for seed in range(3):
        RUNS[f"recipes/{pieces}-{d_ff}-8000-{seed}"] = Entry(
            f"{MULTI30K} --vocab-size {pieces} --d-ff {d_ff} --max-steps 8000"
            f" --validate-every {often} --languages en de --seed {seed}"
        )

# On a GPU: the paper's base model on everyday sentences, and the headline.
BASE = (
    f"{TRAIN} --corpus tatoeba --preset base --log-every 100"
    " --checkpoint-every 200 --keep-checkpoints 5 --validation-bleu"
    f" --test test --half {WHERE}"
)
TRIAL = (
    " --dropout 0.2 --warmup-steps 800 --learning-rate-scale 0.6"
    " --tokens-per-batch 8192 --max-steps 1900 --average 3"
    " --validate-every 950"
)
FULL = (
    " --dropout 0.3 --warmup-steps 1000 --learning-rate-scale 0.8"
    " --tokens-per-batch 16384 --max-steps 5000 --average 5"
    " --validate-every 200"
)
RUNS["gpu/base-en-de-trial"] = Entry(f"{BASE}{TRIAL} --languages en de")
for name, way, seed in (
    ("base-de-en-0", "de en", 0),
    ("base-de-en-1", "de en", 1),
    ("base-de-en-2", "de en", 2),
    ("base-en-de-0", "en de", 0),
):
    RUNS[f"gpu/{name}"] = Entry(
        f"{BASE}{FULL} --languages {way} --seed {seed}"
    )
for seed in range(3):
    RUNS[f"gpu/headline-{seed}"] = Entry(
        f"{HEADLINE} --languages en de --seed {seed}"
    )
# Candidates for FULL: DROPOUT-RATE-TOKENS, 1,000 steps each, no test set.
for dropout, rate, tokens in (
    (0.1, 0.6, 8192),
    (0.2, 0.6, 16384),
    (0.3, 0.8, 16384),
    (0.3, 1.2, 16384),
):
    RUNS[f"recipes-gpu/{dropout}-{rate}-{tokens}"] = Entry(
        BASE.replace(" --test test", "")
        + f" --dropout {dropout} --warmup-steps 500"
        f" --learning-rate-scale {rate} --tokens-per-batch {tokens}"
        " --max-steps 1000 --average 3 --validate-every 200"
        " --languages de en"
    )

# Table 3: a row and a seed each; two seeds of all rows but one.
VARIATIONS = (
    "base h-1 h-16 d_k-8 N-1 N-6 d_model-256 d_ff-128 dropout-0 dropout-0.3"
    " label_smoothing-0 label_smoothing-0.2 positions-learned additive"
    " no-feed-forward one-feed-forward no-decoder-self-attention"
    " precision-fp32"
)
for row in VARIATIONS.split():
    for seed in range({"base": 3, "precision-fp32": 1}.get(row, 2)):
        RUNS[f"variations/{row}-{seed}"] = Entry(
            f"experiments/variations.py {row} --seed {seed} {WHERE}"
        )

# Table 2: three translators in equal minutes. A step's seconds are measured
# once. Seed 0 chooses among three rates, another takes what all three chose.
RUNS["rivals/seconds"] = Entry(
    "experiments/rivals.py seconds", result="../seconds.json"
)
KINDS = "transformer", "recurrent", "convolutional"
SWAPS = [
    f"{side}-{kind}"
    for side in ("encoder", "decoder")
    for kind in ("convolution", "recurrence")
]
for folder, kinds in ("rivals", KINDS), ("swaps", SWAPS):
    for kind in kinds:
        for seed in range(2):
            rates = " --rates 1" if seed else ""
            RUNS[f"{folder}/{kind}-{seed}"] = Entry(
                f"experiments/rivals.py race {kind} --seed {seed}{rates}"
                " --device {device}",
                after="rivals/seconds",
            )
# Copying by length; seed 1 takes the rate that seed 0 chose.
for kind in KINDS:
    for length in 20, 50, 100, 200:
        for seed in range(2):
            first = f"copying/{kind}-{length}-0"
            more = f" --rate-of runs/{first}/copying.json" if seed else ""
            RUNS[f"copying/{kind}-{length}-{seed}"] = Entry(
                f"experiments/rivals.py copying {kind} {length}"
                f" --seed {seed}{more} --device {{device}}",
                after=first if seed else "rivals/seconds",
                result="copying.json",
            )

# Initializations: INIT-SEED, TASK-INIT-SEED. The best three twice, with six
# layers, in the race of table 2, and copying at two rates.
INITS = "xavier packed values linear deepnorm packed-linear packed-half"
BEST = "packed-quarter packed-half-quarter packed-linear-half"
for init in f"{INITS} packed-nothing {BEST}".split():
    start = f"experiments/starts.py {init}"
    tasks = {"": ""}
    if init == "xavier" or init in BEST.split():
        tasks["six-"] = " --N 6 --max-steps 1000"
        tasks["race-"] = " --task race"
        tasks["copying-0.5-"] = " --task copying --rate 0.5"
        tasks["copying-1-"] = " --task copying --rate 1"
    for prefix, more in tasks.items():
        for seed in range(2 if init in BEST.split() and not prefix else 1):
            RUNS[f"starts/{prefix}{init}-{seed}"] = Entry(
                f"{start}{more} --seed {seed} --device {{device}}"
            )

# Counts, made in minutes of one core.
for name in (
    "distance",  # how far apart a stack learns that two symbols agree
    "errors",  # where the translations of Multi30k's test set fail
    "everyday",  # the same of everyday sentences
    "heads",  # what heads look at
    "lengths",  # how long the sentences are
    "longer",  # sequences longer than any in training
    "smoothing",  # what label smoothing does to accuracy
):
    RUNS[name] = Entry(f"experiments/{name}.py", result=f"{name}.json")

GROUPS = {  # other experiments are all runs of one folder
    "headline": [
        "models/multi30k-en-de",
        "headline/en-de-1",
        "headline/en-de-2",
    ],
    "gpu": [
        name
        for name in RUNS
        if name.startswith("gpu/") and not name.endswith("trial")
    ],
    "additive-attention": ["variations/additive-0", "variations/additive-1"],
}


def runs_of(name: str) -> list[str]:
    """The runs of an experiment, or one run."""
    if name in RUNS:
        return [name]
    found = GROUPS.get(name) or [x for x in RUNS if x.startswith(f"{name}/")]
    if not found:
        raise SystemExit(f"no run {name!r}: `make -C experiments` lists them")
    return found


def command(name: str, device="cpu", precision="bf16", out="") -> list[str]:
    """The words of a run's command, for the root of the checkout."""
    entry = RUNS[name]
    words = entry.command.format(device=device, precision=precision).split()
    return (
        words
        if name == "rivals/seconds"
        else [*words, "--out", out or f"runs/{name}"]
    )


def few(words: list[str], steps: int) -> list[str]:
    """The command with so many steps of small batches, if it trains."""
    if words[:3] == TRAIN.split():
        small = f"--max-steps {steps} --tokens-per-batch 512 --limit 40"
        small += f" --validate-every {steps} --vocab-size 300 --average 1"
        words = [*words, *small.split()]
    elif "--seed" in words and "rivals.py" not in words[0]:
        words = [*words, "--max-steps", str(steps)]
    return words


def run(name: str, options: argparse.Namespace) -> None:
    """Make one run, unless it is made or only to be printed."""
    entry = RUNS[name]
    where = {"device": options.device, "precision": options.precision}
    with AT_IT[name], tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/{name}" if options.steps else f"runs/{name}"
        if (ROOT / out / entry.result).exists():
            return
        if entry.after and not options.dry:
            run(entry.after, options)
        words = command(name, out=out, **where)
        if options.steps:
            words = few(words, options.steps)
        print(shlex.join(["python", *words]), flush=True)
        if not options.dry:
            subprocess.run([sys.executable, *words], cwd=ROOT, check=True)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("name", nargs="*")
    made.add_argument("--device", default="cpu")
    made.add_argument("--precision", default="bf16")
    made.add_argument("--steps", type=int, default=0)
    made.add_argument("--jobs", type=int, default=1)
    made.add_argument("--dry", action="store_true")
    options = made.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    names = [one for name in options.name for one in runs_of(name)]
    if not names:
        print("\n".join([*GROUPS, *RUNS]))
    for number in signal.SIGINT, signal.SIGTERM:
        # It reaches the run too, which saves its step and ends.
        signal.signal(number, lambda *_: None)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda name: run(name, options), names))


if __name__ == "__main__":
    main()
