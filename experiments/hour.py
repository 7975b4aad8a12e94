"""The shipped model's score, in less than half of its steps.

    python experiments/again.py hour/all-three-2         a seed of the record
    python experiments/hour.py --rung all-three --out runs/hour/all-three-0
    python experiments/hour.py --max-steps 3 --limit 200 --out /tmp/hour

`tatoeba-de-en` was trained by the paper's recipe: 8,000 steps in fp32, 2,000
of them warm-up, which took 2 hours and 9 minutes of one core. Here are its
data, vocabulary, model, precision and tokens a step, a warm-up of 400 steps,
and what is better than the paper in since.py: Muon for the matrices, a rate
that cools down to zero, and in `all-three` rotary positions, in no more steps
than such a core takes in an hour. The rate was not tuned for this run: it is
the one that was best for Muon there.

    Translator.from_pretrained("runs/hour/all-three-0", model=since.Rotary)

opens such a folder (`since` is importable from experiments/), and without
rotary positions it needs no `model`. The first line of the log comes after
300 steps; `pack.py` adds a finished run to the records.

On a busy machine an hour of a core takes longer than an hour: `cpu_seconds`
in the report are those of the steps alone. `--rung paper --max-steps 300`
says how long the shipped model's steps take on the same core. Interrupted, a
run goes on where it was.
"""

import argparse
import math
import shlex
import statistics
import sys
from dataclasses import replace

import since

from transformer_lib.checkpoints import save_model
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import write_report

TOKENS = 4096  # in a step, as the shipped model had
STEPS = {"paper": 8000, "muon": 3300, "all-three": 3600, "cool-down": 3600}
RATE = 0.7  # times equation 3, at the end of the warm-up
EVERY = 300  # steps between two validations


def cpu_seconds(lines):
    """What the steps of a log took, without the validations between.

    Steps that were not timed count as the others.
    """
    timed = [x for line in lines if (x := line.get("cpu_seconds_a_step"))]
    usual = statistics.median(timed) if timed else math.nan
    spent, before = 0.0, 0
    for line in lines:
        steps, before = line["step"] - before, line["step"]
        spent += steps * line.get("cpu_seconds_a_step", usual)
    return spent


def rung_of(name):
    """A rung; all of the ladder's but the paper cool down."""
    rung = since.RUNGS[name]
    if name == "paper" or rung.schedule is not since.equation_3:
        return rung
    return replace(rung, schedule=since.cool_down)


def train_hour(options):
    rung, text = rung_of(options.rung), since.data(options.limit)
    model, history, described = since.fit(
        rung, options, RATE, text, options.out, TOKENS, EVERY
    )
    *_, test, tokenizer = text
    save_model(options.out, model, tokenizer, half=True)
    spent = round(cpu_seconds(history.lines), 2)
    described["result"]["cpu_seconds"] = spent
    scores = evaluate(model, tokenizer, test)
    report = write_report(options.out, options.command, described, scores)
    result = report["result"]
    print(
        f"{report['test']['bleu']:.1f} BLEU after "
        f"{result['cpu_seconds'] / 60:.0f} minutes of the core for the steps, "
        f"{result['seconds'] / 60:.0f} by the clock in all"
    )


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("--rung", default="muon", choices=STEPS)
    since.add_options(made, None, "fp32")
    return made


def main(words):
    options = parser().parse_args(words)
    if options.max_steps is None:
        options.max_steps = STEPS[options.rung]
    options.command = shlex.join(["python", "experiments/hour.py", *words])
    try:
        train_hour(options)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
