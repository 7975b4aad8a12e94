r"""From 2017 to now, one change at a time, on the paper's own task.

    python experiments/again.py averaged         runs that have no record yet
    python experiments/since.py paper --out runs/since/paper-0
    python experiments/since.py rotary --rate-of since/paper-0 \
        --out runs/since/rotary-0
    python experiments/since.py gated --rate 1.4 --average 5 \
        --out runs/tuned/gated-1.4-0

A ladder: the first rung is the paper as printed, and each other rung changes
one thing in it. Data, vocabulary, tokens in a step, depth, width and number of
steps are the same for all: Tatoeba, German to English, the `tiny` model, a run
of ten minutes on one idle core. Interrupted, a run goes on where it was.

The rates are multiples of equation 3's. The first seed of the paper, and of
every rung with another optimizer or schedule, is trained at three of them; its
other seeds take the best. A rung that changes the model or the
batches takes the paper's rate for all its seeds; `together` and `all-three`
take Muon's. What a better one would add is not known, and the table says how
many were tried. With --rate a run has this one; those runs, and what they are
to decide, are declared in DECLARED.md.

What the records say, and when a rung counts as better than the paper, is in
transformer_book/ladder.py. In reports that don't name their optimizers, the
rate, warm-up and betas under `training` are the loop's defaults, which no rung
used: it had the report's `rate`, and WARMUP steps.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from transformer_book.records import load_run
from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    write_atomically,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import describe_run, write_report
from transformer_lib.loss import validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig, learning_rate
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train

LANGUAGES = "de", "en"
VOCAB_SIZE = 8000
TOKENS = 2048  # in a step, on either side
STEPS = 2000
WARMUP = 400
RATES = [0.35, 0.7, 1.4]  # times equation 3
EVERY = 50  # steps between two validations
KERNELS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
)


# The changes. Each is what a reader would write.


class RMSNormalized(Transformer):
    def layer_norm(self, d_model):
        return nn.RMSNorm(d_model)


class GatedFeedForward(nn.Module):
    """w_2 (SiLU(w_gate x) * w_1 x), with as many weights as equation 2."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        width = round(2 / 3 * d_ff)
        self.w_gate = nn.Linear(d_model, width)
        self.w_1 = nn.Linear(d_model, width)
        self.w_2 = nn.Linear(width, d_model)

    def forward(self, x):
        gate = nn.functional.silu(self.w_gate(x))
        return self.w_2(gate * self.w_1(x))


class Gated(Transformer):
    def feed_forward(self):
        return GatedFeedForward(self.config.d_model, self.config.d_ff)


class RotaryAttention(MultiHeadAttention):
    """Queries and keys are turned by their positions, pair by pair."""

    def place(self, heads, offset):
        pairs = heads.unflatten(-1, (2, -1))  # (..., len, 2, d_k / 2)
        x, y = pairs.unbind(-2)
        position = torch.arange(offset, offset + heads.size(-2))
        speed = 10_000 ** -torch.linspace(0, 1, x.size(-1) + 1)[:-1]
        angle = torch.outer(position, speed).to(heads.device)
        cos, sin = angle.cos(), angle.sin()
        turned = torch.cat([x * cos - y * sin, x * sin + y * cos], dim=-1)
        return turned.type_as(heads)


class Rotary(Transformer):
    """Within a sentence; source and target share no positions."""

    def self_attention(self):
        return RotaryAttention(self.config.d_model, self.config.h)


class GroupedAttention(MultiHeadAttention):
    """Two heads share each key and value: half of the cache."""

    def __init__(self, d_model, h):
        super().__init__(d_model, h)
        self.d_k = d_model // h
        self.w_k = nn.Linear(d_model, d_model // 2, bias=False)
        self.w_v = nn.Linear(d_model, d_model // 2, bias=False)

    def split(self, x):
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def attend(self, query, key, value, *mask):
        key, value = (x.repeat_interleave(2, dim=1) for x in (key, value))
        return super().attend(query, key, value, *mask)


class Grouped(Transformer):
    def attention(self):
        return GroupedAttention(self.config.d_model, self.config.h)


# Optimizers and schedules. A schedule is a factor of the optimizer's rate,
# which is the highest that equation 3 reaches.


def equation_3(step, warmup=WARMUP):
    """The paper's: up in a straight line, then down with the root."""
    return min(step / warmup, (warmup / step) ** 0.5)


def cool_down(step, steps=STEPS, warmup=WARMUP):
    """Up in a straight line, then down to zero in another."""
    return min(step / warmup, (steps - step) / (steps - warmup))


def adam(model, rate):
    """The paper's."""
    return [
        torch.optim.Adam(
            model.parameters(), rate, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
    ]


def adamw(model, rate):
    """Today's: a shorter memory, and matrices decay."""
    matrices = [w for w in model.parameters() if w.dim() > 1]
    vectors = [w for w in model.parameters() if w.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [
        torch.optim.AdamW(
            groups, rate, betas=(0.9, 0.95), eps=1e-8, fused=True
        )
    ]


def muon(model, rate):
    """Muon for the matrices of both stacks, the paper's Adam for the rest.

    An update is scaled to be about as large as Adam's, so that one rate
    serves both.
    """
    stacks = nn.ModuleList([model.encoder, model.decoder])
    hidden = [w for w in stacks.parameters() if w.dim() == 2]
    inside = set(hidden)
    rest = [w for w in model.parameters() if w not in inside]
    return [
        torch.optim.Muon(
            hidden,
            rate,
            weight_decay=0.0,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.Adam(rest, rate, betas=(0.9, 0.98), eps=1e-9, fused=True),
    ]


class ShortFirst(TokenBatches):
    """The first epoch goes from short sentences to long ones."""

    def epoch(self, number, start=0):
        if number > 0:
            return super().epoch(number, start)
        ordered = TokenBatches(
            self.pairs, self.tokens_per_batch, shuffle=False
        )
        return ordered.epoch(0, start)


@dataclass
class Rung:
    """What is not as in the paper."""

    model: type[nn.Module] = Transformer
    sizes: dict = field(default_factory=dict)
    optimizers: Callable = adam
    schedule: Callable = equation_3
    batches: type[TokenBatches] = TokenBatches


RUNGS = {
    "paper": Rung(),
    "muon": Rung(optimizers=muon),
    "pre-norm": Rung(sizes={"norm": "pre"}),
    "cool-down": Rung(schedule=cool_down),
    "rotary": Rung(Rotary, sizes={"positions": "none"}),
    "gated": Rung(Gated),
    "rms-norm": Rung(RMSNormalized),
    "grouped": Rung(Grouped),
    "adamw": Rung(optimizers=adamw),
    "short-first": Rung(batches=ShortFirst),
}
# Of the first seeds of Muon, pre-norm, rotary and gated, those below all
# three of the paper's in validation loss.
RUNGS["together"] = replace(RUNGS["rotary"], optimizers=muon)
# And with the schedule, whose first seed was below them, too.
RUNGS["all-three"] = replace(RUNGS["together"], schedule=cool_down)
# The cells that are left of Muon x rotary x schedule.
for rung in "muon", "rotary":
    RUNGS[f"{rung}-cool-down"] = replace(RUNGS[rung], schedule=cool_down)


# Training


def data(limit=None):
    """Pairs of ids to train on, to validate on, the test, the tokenizer."""
    parts = [
        load_corpus("tatoeba", *LANGUAGES, split)[:limit]
        for split in ("train", "validation", "test")
    ]
    texts = parts[0].sources + parts[0].targets
    tokenizer = BPETokenizer.train(texts, VOCAB_SIZE)
    learnt, held_out = (encode_pairs(part, tokenizer) for part in parts[:2])
    return learnt, held_out, parts[2], tokenizer


def build(rung, vocab_size, seed):
    torch.manual_seed(seed)
    config = TransformerConfig.tiny(vocab_size, **rung.sizes)
    return rung.model(config)


def highest_rate(rate, d_model):
    """The rate at the end of the warm-up: so many times equation 3's."""
    return rate * learning_rate(WARMUP, d_model, WARMUP)


class Judge:
    """Validates `every` so many steps, and notes their processor time."""

    def __init__(self, pairs, step, every):
        self.batches = TokenBatches.in_order(pairs)
        self.step, self.every = step, every
        self.began = time.process_time()

    def __call__(self, model, step):
        spent = time.process_time() - self.began
        found = {"validation_loss": validation_loss(model, self.batches)}
        steps = step - self.step
        # not of a few, or none, in a run that goes on
        if 2 * steps > (step - 1) % self.every:
            each = spent / steps
            found["cpu_seconds_a_step"] = round(each, 4)
        self.step, self.began = step, time.process_time()
        return found


def steps_done(folder):
    """Where a run in this folder goes on: the step of its checkpoint."""
    begun = checkpoint_files(folder)
    return int(begun[-1].stem.split("-")[1]) if begun else 0


def schedule_of(rung, steps, warmup=WARMUP):
    """A rung's schedule; the ladder's have to know the warm-up."""
    if rung.schedule is equation_3:
        return partial(equation_3, warmup=warmup)
    if rung.schedule is not cool_down:
        return rung.schedule
    warmup = min(warmup, steps // 2)  # in a trial of a few steps
    return partial(cool_down, steps=steps, warmup=warmup)


def fit(rung, options, rate, text, folder, tokens, every):
    """Train a rung in a folder: the model, its log, what a report says."""
    learnt, held_out, test, tokenizer = text
    settings = TrainingConfig(
        warmup_steps=options.warmup_steps,
        max_steps=options.max_steps,
        learning_rate_scale=rate,  # at a warm-up of WARMUP steps
        seed=options.seed,
        log_every=every,
        validate_every=every,
        checkpoint_every=min(every, 100),
        keep_checkpoints=options.average,
        precision=options.precision,
    )
    model = build(rung, len(tokenizer), options.seed).to(options.device)
    batches = rung.batches(learnt, tokens, options.seed)
    optimizers = rung.optimizers(
        model, highest_rate(rate, model.config.d_model)
    )
    history = train(
        model,
        batches,
        settings,
        Judge(held_out, steps_done(folder), every),
        folder,
        optimizer=optimizers,
        schedule=schedule_of(rung, options.max_steps, options.warmup_steps),
    )
    described = describe_run(model, batches, settings, history)
    for name in "betas", "epsilon":  # the optimizers have their own
        del described["training"][name]
    described["optimizers"] = [
        {"name": type(each).__name__, **each.defaults} for each in optimizers
    ]
    told = {name: os.environ[name] for name in KERNELS if name in os.environ}
    described["machine"] |= told
    loss = history.lines[-1]["validation_loss"]
    if options.average > 1:
        described["last_test"] = evaluate(model, tokenizer, test)
        del described["last_test"]["translations"]
        paths = checkpoint_files(folder)[-options.average :]
        model.load_state_dict(average_checkpoints(paths))
        described["result"] |= {
            "averaged_checkpoints": len(paths),
            "last_validation_loss": loss,
        }
        loss = validation_loss(model, TokenBatches.in_order(held_out))
    described["result"]["validation_loss"] = loss
    return model, history, described


def asked_of(command):
    """What a command says, but for the folder."""
    asked = vars(parser().parse_args(shlex.split(command)[2:]))
    return {name: told for name, told in asked.items() if name != "out"}


def train_at(options, rate, text, folder):
    """The report of a rung at one rate: a finished one, or trained now."""
    if (folder / "report.json").exists():
        report = json.loads((folder / "report.json").read_text("utf-8"))
        if asked_of(report["command"]) == asked_of(options.command):
            return report
        raise SystemExit(f"{folder} is finished: {report['command']}")
    model, history, described = fit(
        RUNGS[options.rung], options, rate, text, folder, TOKENS, EVERY
    )
    _, seconds = history.series("cpu_seconds_a_step")
    described["result"]["cpu_seconds_a_step"] = statistics.median(seconds)
    described |= {"rung": options.rung, "rate": rate}
    described["sizes"] = asdict(model.config)
    *_, test, tokenizer = text
    scores = evaluate(model, tokenizer, test)
    report = write_report(folder, options.command, described, scores)
    for weights in checkpoint_files(folder):
        weights.unlink()  # what they were for is written
    loss = report["result"]["validation_loss"]
    print(f"{folder}: {loss:.4f} nats per token", flush=True)
    return report


def climb(options):
    """Train a rung at its rates and leave the record of the best."""
    text = data(options.limit)
    if options.rate:
        return train_at(options, options.rate, text, options.out)
    rates = RATES
    if options.rate_of:
        rates = [load_run(options.rate_of).report["rate"]]
    losses = {}
    for rate in rates:
        report = train_at(options, rate, text, options.out / f"rate-{rate:g}")
        losses[rate] = report["result"]["validation_loss"]
    best = options.out / f"rate-{min(losses, key=losses.get):g}"
    for name in "log.jsonl", "translations.txt":
        shutil.copyfile(best / name, options.out / name)
    report = json.loads((best / "report.json").read_text("utf-8"))
    report["name"] = options.out.name
    report["rates"] = {f"{rate:g}": loss for rate, loss in losses.items()}
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(options.out / "report.json", text)


def add_options(one, steps, precision):
    """Those of a script that trains a rung."""
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--max-steps", type=int, default=steps)
    one.add_argument("--warmup-steps", type=int, default=WARMUP)
    one.add_argument("--average", type=int, default=1, help="checkpoints")
    one.add_argument("--limit", type=int, help="pairs")
    one.add_argument("--precision", default=precision)
    one.add_argument("--device", default="cpu")
    one.add_argument("--out", type=Path, required=True)


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = made.add_subparsers(required=True)
    for rung in RUNGS:
        one = what.add_parser(rung)
        one.add_argument("--rate-of", help="the run whose rate to take")
        one.add_argument("--rate", type=float, help="the only one to try")
        add_options(one, STEPS, "bf16")
        one.set_defaults(rung=rung)
    return made


def main(words):
    options = parser().parse_args(words)
    options.command = shlex.join(["python", "experiments/since.py", *words])
    try:
        climb(options)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
