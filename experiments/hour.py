"""The shipped model's score, in less than half of its steps.

    make -C experiments hour             the seeds that aren't recorded
    make -C experiments hour/all-three-2                   one of them
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
300 steps; `make -C experiments pack` adds a finished run to the records.

On a busy machine an hour of a core takes longer than an hour: `cpu_seconds`
in the report are those of the steps alone. `--rung paper --max-steps 300`
says how long the shipped model's steps take on the same core. Interrupted, a
run goes on where it was.
"""

import argparse
import math
import shlex
import sys
from functools import partial
from pathlib import Path

import since
from variations import claimed

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import save_model
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import describe_run, write_report
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

TOKENS = 4096  # in a step, as the shipped model had
STEPS = {"paper": 8000, "muon": 3300, "all-three": 3600}
RATE = 0.7  # times equation 3, at the end of the warm-up
EVERY = 300  # steps between two validations


def schedule_of(rung, steps):
    """The paper's for the paper, and the cooling one in so many steps."""
    if rung == "paper":
        return since.equation_3
    warmup = min(since.WARMUP, steps // 2)  # in a trial of a few steps
    return partial(since.cool_down, steps=steps, warmup=warmup)


def cpu_seconds(lines):
    """What the steps of a log took, without the validations between."""
    spent, before = 0.0, 0
    for line in lines:
        steps, before = line["step"] - before, line["step"]
        spent += steps * line.get("cpu_seconds_a_step", math.nan)
    return spent


def train_hour(options):
    rung = since.RUNGS[options.rung]
    learnt, held_out, test, tokenizer = since.data(options.limit)
    model = since.build(rung, len(tokenizer), options.seed)
    model = model.to(options.device)
    batches = TokenBatches(learnt, TOKENS, options.seed)
    settings = TrainingConfig(
        warmup_steps=since.WARMUP,
        max_steps=options.max_steps,
        learning_rate_scale=RATE,
        seed=options.seed,
        log_every=EVERY,
        validate_every=EVERY,
        checkpoint_every=100,
        keep_checkpoints=1,
        precision=options.precision,
    )
    history = train(
        model,
        batches,
        settings,
        since.Judge(held_out, since.steps_done(options.out)),
        options.out,
        optimizer=rung.optimizers(
            model, since.highest_rate(RATE, model.config.d_model)
        ),
        schedule=schedule_of(options.rung, options.max_steps),
    )
    save_model(options.out, model, tokenizer, half=True)
    described = describe_run(model, batches, settings, history)
    described["result"] |= {
        "validation_loss": history.lines[-1]["validation_loss"],
        "cpu_seconds": round(cpu_seconds(history.lines), 2),
    }
    scores = evaluate(model, tokenizer, test)
    report = write_report(options.out, options.command, described, scores)
    result = report["result"]
    print(
        f"{report['test']['bleu']:.1f} BLEU after "
        f"{result['cpu_seconds'] / 60:.0f} minutes of the core for the steps, "
        f"{result['seconds'] / 60:.0f} by the clock in all"
    )


def main(words):
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("--rung", default="muon", choices=STEPS)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--max-steps", type=int)
    made.add_argument("--limit", type=int, help="pairs")
    made.add_argument("--precision", default="fp32")
    made.add_argument("--device", default="cpu")
    made.add_argument("--out", type=Path, required=True)
    options = made.parse_args(words)
    if options.max_steps is None:
        options.max_steps = STEPS[options.rung]
    options.command = shlex.join(["python", "experiments/hour.py", *words])
    try:
        with claimed(options.out):
            train_hour(options)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
