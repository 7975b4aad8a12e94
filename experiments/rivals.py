r"""Table 2 again, smaller: three translators in equal minutes.

    python experiments/rivals.py race recurrent --out runs/rivals/recurrent-0
    python experiments/rivals.py copying recurrent 50 \
        --out runs/copying/recurrent-50-0

`race` trains one of them on Multi30k, English to German, as often as
there are learning rates to choose from, each time to the end: which
of them is best cannot be known before. It leaves the record of the one
with the lowest validation loss, on the test set, with the nats of
every validation sentence and BLEU by length. `copying` learns to copy
sequences of random symbols and leaves copying.json. Interrupted, each goes
on where it was.

    python experiments/rivals.py race encoder-convolution \
        --out runs/swaps/encoder-convolution-0

`race` and `copying` also take the Transformer with its self-attention
swapped for something else in one stack, all else equal. A swapped model
takes as many steps as the Transformer, not as many minutes.
"""

import argparse
import json
import random
import shlex
import sys
from functools import partial
from pathlib import Path

import torch
from variations import BASE, multi30k, record

from transformer_book.other_layers import (
    ConvolutionInPlace,
    RecurrenceInPlace,
    convolutional_translator,
    recurrent_translator,
    swapped,
)
from transformer_book.records import load_counts, load_files
from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.beams import decode_all
from transformer_lib.checkpoints import save_config, write_atomically
from transformer_lib.embeddings import EOS
from transformer_lib.evaluation import bleu
from transformer_lib.experiment import describe_machine
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

MODELS = {  # 1.9 million weights each, with 4,000 pieces
    "transformer": (Transformer, {}),
    "recurrent": (recurrent_translator, {"N": 2, "d_ff": 192}),
    "convolutional": (
        convolutional_translator,
        {"N": 5, "positions": "learned", "max_length": 256},
    ),
}
SWAPS = {  # the same sizes, and within a percent the same weights
    f"{stack}-{name}": (partial(swapped, stack=stack, kind=kind), {})
    for stack in ("encoder", "decoder")
    for name, kind in (
        ("convolution", ConvolutionInPlace),
        ("recurrence", RecurrenceInPlace),
    )
}
RATES = [0.5, 1.0, 2.0]  # times equation 3
LOWER_RATES = [0.25, 0.5, 1.0]  # long sequences need them
LENGTHS = [20, 50, 100, 200]
SYMBOLS = 32
WORDS = [(1, 9), (10, 12), (13, 16), (17, 99)]
TOKENS, CLIP = 2048, 1.0


def build(name, vocab_size, seed):
    """One of the three, or a swapped one, with fresh weights."""
    torch.manual_seed(seed)
    kind, changes = (MODELS | SWAPS)[name]
    return kind(TransformerConfig(vocab_size, **(BASE | changes)))


def rows_to_copy(length, count, seed):
    """Sequences of random symbols, of half the length to the whole."""
    chance = random.Random(f"{length} {seed}")
    symbols = range(EOS + 1, EOS + 1 + SYMBOLS)
    rows = (
        chance.choices(symbols, k=chance.randint(length // 2, length))
        for _ in range(count)
    )
    return [([*row, EOS], [*row, EOS]) for row in rows]


def settings(options, steps, rate):
    """How all three are trained; only the rate is their own.

    Recurrent and convolutional models want their gradients clipped.
    """
    return TrainingConfig(
        warmup_steps=max(1, steps // 3),
        max_steps=steps,
        learning_rate_scale=rate,
        clip_norm=CLIP,
        seed=options.seed,
        log_every=max(1, steps // 100),
        validate_every=max(1, steps // 8),
        checkpoint_every=max(1, steps // 40),
        keep_checkpoints=1,
    )


def trained(options, task, size, batches, held_out):
    """The model of the best rate, and what its record says of it."""
    measured = load_counts("rivals_seconds")["seconds"][task]
    paced = "transformer" if options.model in SWAPS else options.model
    each = measured[paced]
    steps = options.steps or round(60 * options.minutes / each)
    losses, kept = {}, {}
    for rate in options.rates:
        model = build(options.model, size, options.seed).to(options.device)
        c = settings(options, steps, rate)
        folder = options.out / f"rate-{rate:g}"
        try:
            history = train(model, batches, c, held_out, folder)
        except FloatingPointError as error:
            print(f"rate {rate:g}: {error}")
            continue
        losses[f"{rate:g}"] = history.lines[-1]["validation_loss"]
        kept[f"{rate:g}"] = model, c, history
    if not kept:
        raise SystemExit(f"{options.out}: no rate came to its end")
    best = min(losses, key=losses.get)
    log = options.out / f"rate-{best}" / "log.jsonl"
    write_atomically(options.out / log.name, log.read_text("utf-8"))
    clock = {"paced_by": paced, "seconds_a_step": each}
    clock["minutes"] = steps * each / 60
    return *kept[best], losses, clock


def race(options):
    """Train one model on Multi30k and leave its record."""
    folder = options.out
    corpus, validation, test, tokenizer = multi30k()
    pairs = encode_pairs(corpus, tokenizer)
    batches = TokenBatches(pairs, TOKENS, options.seed)
    checked = encode_pairs(validation, tokenizer)
    held_out = TokenBatches(checked, TOKENS, shuffle=False)
    model, c, history, losses, clock = trained(
        options, "multi30k", len(tokenizer), batches, held_out
    )
    info = {"corpus": "multi30k", "kind": options.model}
    save_config(folder, model, tokenizer, info=info)
    record(
        folder,
        options.command,
        c,
        history,
        model,
        batches,
        tokenizer,
        test,
        checked,
        result=clock,
        rates=losses,
        by_length=by_length(model, tokenizer, test),
    )
    forget_weights(folder)
    print(f"at rate {c.learning_rate_scale:g}")


def forget_weights(folder):
    """They may go when what they were for is written."""
    for weights in folder.glob("rate-*/checkpoint-*.pt"):
        weights.unlink()


def by_length(model, tokenizer, corpus):
    """BLEU of greedy translations, by the words of the source."""
    ids = [tokenizer.encode(x) + [EOS] for x in corpus.sources]
    said = [tokenizer.decode(x.ids) for [x] in decode_all(model, ids, 1)]
    rows = []
    for low, high in WORDS:
        chosen = [
            (text, target)
            for text, (source, target) in zip(said, corpus, strict=True)
            if low <= len(source.split()) <= high
        ]
        if chosen:
            score = bleu(*zip(*chosen, strict=True), samples=1000)
            row = {"words": f"{low} to {high}", "bleu": score.value}
            row["interval"] = score.interval
            rows.append(row | {"sentences": len(chosen)})
    return rows


def copying(options):
    """Learn to copy; how many new sequences come out without an error."""
    folder, task = options.out, f"copying-{options.length}"
    if options.rate_of:
        chosen = load_files(options.rate_of)["copying.json"]
        options.rates = [chosen["rate"]]
    size = EOS + 1 + SYMBOLS
    learnt = rows_to_copy(options.length, 20_000, options.seed)
    batches = TokenBatches(learnt, TOKENS, options.seed)
    new = rows_to_copy(options.length, 200, "new")
    held_out = TokenBatches(new, TOKENS, shuffle=False)
    model, c, history, losses, clock = trained(
        options, task, size, batches, held_out
    )
    said = decode_all(model, [row for row, _ in new], 1, max_extra=5)
    whole = [a.ids == b for [a], (b, _) in zip(said, new, strict=True)]
    found = {
        "model": options.model,
        "length": options.length,
        "init": model.config.init,
        "seed": options.seed,
        "command": options.command,
        "steps": c.max_steps,
        **clock,
        "rate": c.learning_rate_scale,
        "rates": losses,
        "nats": history.lines[-1]["validation_loss"],
        "whole": sum(whole) / len(whole),
        "machine": describe_machine(options.device),
    }
    text = json.dumps(found, ensure_ascii=False)
    write_atomically(folder / "copying.json", text + "\n")
    forget_weights(folder)
    print(f"{folder}: {found['whole']:.1%} whole")


def parser():
    text = __doc__.split("\n")[0]
    made = argparse.ArgumentParser(description=text)
    what = made.add_subparsers(required=True)
    runs = (race, 15, RATES), (copying, 6, LOWER_RATES)
    for run, minutes, rates in runs:
        one = what.add_parser(run.__name__)
        one.add_argument("model", choices=[*MODELS, *SWAPS])
        if run is copying:
            one.add_argument("length", type=int, choices=LENGTHS)
            one.add_argument("--rate-of", help="the run whose rate to take")
        one.add_argument("--steps", type=int, help="not minutes")
        one.add_argument("--rates", type=float, nargs="+", default=rates)
        one.add_argument("--seed", type=int, default=0)
        one.add_argument("--device", default="cpu")
        one.add_argument("--out", type=Path, required=True)
        one.set_defaults(run=run, minutes=minutes)
    return made


def main(words):
    options = parser().parse_args(words)
    options.command = shlex.join(["python", "experiments/rivals.py", *words])
    options.run(options)


if __name__ == "__main__":
    main(sys.argv[1:])
