"""The recorded runs: the command of each, in a table.

    make -C experiments                              all names
    make -C experiments models/little-spanish        one run
    make -C experiments variations                   an experiment: its runs
    make -C experiments gpu device=cuda              on a GPU
    make -C experiments gpu steps=3                  does it run? 3 steps each
    python experiments/runs.py variations/h-16-1     only print the command

`make` runs the commands that this file prints, one after the other; Ctrl-C
stops them. A run writes a folder, runs/EXPERIMENT/RUN, and its report
last. An interrupted run goes on when the same command is given again. A
finished one, and one that is in the records, is left out of its experiment;
by its own name it is always made. `make -C experiments pack` adds finished
folders to the records (pack.py). To add a run, add a line to the table.

Each run takes one thread. On a CPU or GPU without instructions for
bf16, precision=fp32 is faster; a warning says so. With steps=, each command
takes so many steps of small batches, into a temporary folder.
"""

import argparse
import shlex
import tempfile
from dataclasses import dataclass

from pack import RESULTS

from transformer_book.records import load_counts, load_files

TRAIN = "-m transformer_lib train"


@dataclass
class Entry:
    """A run: its command without --out, the run and environment it needs."""

    command: str
    after: str = ""
    environment: str = ""


RUNS: dict[str, Entry] = {}
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
RUNS["rivals_seconds"] = Entry("experiments/rivals.py seconds")
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
                after="rivals_seconds",
            )
# Copying by length; seed 1 takes the rate that seed 0 chose.
for kind in KINDS:
    for length in 20, 50, 100, 200:
        for seed in range(2):
            first = f"copying/{kind}-{length}-0"
            more = f" --rate-of {first}" if seed else ""
            RUNS[f"copying/{kind}-{length}-{seed}"] = Entry(
                f"experiments/rivals.py copying {kind} {length}"
                f" --seed {seed}{more} --device {{device}}",
                after=first if seed else "rivals_seconds",
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

# From 2017 to now: seed 0 of all rungs first. Seed 0 of the paper, and of
# another optimizer or schedule, tries learning rates. All other runs take the
# best of a rung's: of their own, or of the paper's.
RATE_OF = {rung: rung for rung in ("paper", "muon", "cool-down", "adamw")}
UNTUNED = (
    "pre-norm rotary gated rms-norm qk-norm grouped no-biases no-smoothing"
    " short-first"
)
RATE_OF |= dict.fromkeys(UNTUNED.split(), "paper")
RATE_OF["together"] = RATE_OF["all-three"] = "muon"
for seed in range(3):
    for rung, source in RATE_OF.items():
        tries = rung == source and seed == 0
        more = "" if tries else f" --rate-of since/{source}-0"
        RUNS[f"since/{rung}-{seed}"] = Entry(
            f"experiments/since.py {rung} --seed {seed}{more} {WHERE}",
            after="" if tries else f"since/{source}-0",
        )
# The paper averages its last checkpoints (6.1): what that brings here, and
# whether the best rungs have any use for it.
for rung, source, seeds in (
    ("paper", "paper", 3),
    ("muon", "muon", 1),
    ("all-three", "muon", 1),
):
    for seed in range(seeds):
        RUNS[f"averaged/{rung}-{seed}"] = Entry(
            f"experiments/since.py {rung} --seed {seed}"
            f" --rate-of since/{source}-0 --average 5 {WHERE}",
            after=f"since/{source}-0",
        )
# What DECLARED.md declares. Every row with its mean, the two cells that are
# left of Muon x rotary x schedule, rates of their own, and budgets.
MEANS = (
    "muon-cool-down rotary-cool-down muon cool-down all-three rotary together"
    " gated pre-norm rms-norm grouped adamw short-first"
)
for seed in range(3):
    for rung in MEANS.split():
        RUNS.setdefault(
            f"averaged/{rung}-{seed}",
            Entry(
                f"experiments/since.py {rung} --seed {seed} --rate 0.7"
                f" --average 5 {WHERE}"
            ),
        )
for rung in "cool-down", "all-three", "paper", "gated", "pre-norm":
    for rate in "1", "1.4":
        RUNS[f"tuned/{rung}-{rate}-0"] = Entry(
            f"experiments/since.py {rung} --seed 0 --rate {rate}"
            f" --average 5 {WHERE}"
        )
for steps, warmup, seeds in (
    (500, 100, 3),
    (1000, 200, 3),
    (4000, 400, 1),
    (8000, 400, 1),
):
    for seed in range(seeds):
        for rung in "paper", "cool-down", "muon", "all-three":
            RUNS[f"budgets/{rung}-{steps}-{seed}"] = Entry(
                f"experiments/since.py {rung} --seed {seed} --rate 0.7"
                f" --max-steps {steps} --warmup-steps {warmup}"
                f" --average 5 {WHERE}"
            )
# The paper and the best single change once more, in full precision and by an
# older processor's instructions, which the report names.
AVX2 = (
    "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2"
    " MKL_ENABLE_INSTRUCTIONS=AVX2 "
)
for rung in "paper", "muon":
    RUNS[f"kernels/{rung}-0"] = Entry(
        f"experiments/since.py {rung} --seed 0 --rate-of since/{rung}-0"
        " --precision fp32 --device cpu",
        after=f"since/{rung}-0",
        environment=AVX2,
    )
RUNS["since_seconds"] = Entry(
    "experiments/since.py seconds --rounds 25 --precision {precision}"
)

# The everyday model's score in an hour, with what the ladder found; in fp32,
# as that model was trained. The first try had the paper's positions.
RUNS["hour/de-en-0"] = Entry("experiments/hour.py --seed 0 --device {device}")
for seed in range(3):
    RUNS[f"hour/all-three-{seed}"] = Entry(
        f"experiments/hour.py --rung all-three --seed {seed} "
        "--device {device}"
    )
for seed in range(3):  # the control: the paper's parts, the rate to zero
    RUNS[f"hour/cool-down-{seed}"] = Entry(
        f"experiments/hour.py --rung cool-down --seed {seed} "
        "--device {device}"
    )
RUNS["hour/paper-0"] = Entry(  # how long its steps take on the same core
    "experiments/hour.py --rung paper --seed 0 --max-steps 300"
    " --device {device}"
)

# Counts, made in minutes of one core.
for name in (
    "coins",  # whether the hour's models score like the shipped one
    "counted",  # what is in corpora that are not ours to ship
    "additive",  # how long additive attention takes beside dot products
    "distance",  # how far apart a stack learns that two symbols agree
    "errors",  # where the translations of Multi30k's test set fail
    "everyday",  # the same of everyday sentences
    "heads",  # what heads look at
    "lengths",  # how long the sentences are
    "longer",  # sequences longer than any in training
    "mistakes",  # how each mistake of the course shows in training
    "smoothing",  # what label smoothing does to accuracy
    "two_heads",  # where two heads look, before and after a word
):
    RUNS[name] = Entry(f"experiments/{name}.py")

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


def is_made(name: str) -> bool:
    """Whether a run is in the records, or its folder has its report."""
    results = {*RESULTS, f"{name}.json"}
    return bool(load_counts(name) or results & load_files(name).keys())


def command(name: str, device="cpu", precision="bf16", out="") -> list[str]:
    """The words of a run's command, for the root of the checkout."""
    entry = RUNS[name]
    words = entry.command.format(device=device, precision=precision).split()
    return [*words, "--out", out or f"runs/{name}"]


def few(words: list[str], steps: int) -> list[str]:
    """The command with so many steps of small batches, if it trains."""
    if words[:3] == TRAIN.split():
        small = f"--max-steps {steps} --tokens-per-batch 512 --limit 40"
        small += f" --validate-every {steps} --vocab-size 300 --average 1"
        words = [*words, *small.split()]
    elif "--seed" in words and "rivals.py" not in words[0]:
        words = [*words, "--max-steps", str(steps)]
    return words


def to_make(name: str) -> list[str]:
    """The runs of an experiment that are not made, or one run.

    Before each of them comes what it needs.
    """
    names = []
    for run in [name] if name in RUNS else runs_of(name):
        if run != name and is_made(run):
            continue
        after = RUNS[run].after
        if after and after not in names and not is_made(after):
            names.append(after)
        names.append(run)
    return names


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("name", nargs="*")
    made.add_argument("--device", default="cpu")
    made.add_argument("--precision", default="bf16")
    made.add_argument("--steps", type=int, default=0)
    options = made.parse_args()
    if not options.name:
        print("\n".join([*GROUPS, *RUNS]))
    for name in [run for given in options.name for run in to_make(given)]:
        if options.steps:
            out = f"{tempfile.mkdtemp()}/{name}"
            words = command(name, options.device, options.precision, out)
            words = few(words, options.steps)
        else:
            words = command(name, options.device, options.precision)
        print(RUNS[name].environment + shlex.join(["python", *words]))


if __name__ == "__main__":
    main()
