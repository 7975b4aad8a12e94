"""Do sines help with more sentences at once than any row of training has?

    python experiments/longer.py --out runs/longer

A row is a few sentences of little Spanish, one after the other, so a long
row has no new word and no new kind of sentence in it. Nine in ten rows of
three are no longer than the longest of one or two: what is new in them is a
third sentence. A small model with sines and one
with learned positions translate such rows. Each kind is trained twice: on
rows of one or two sentences, and on rows of one to four, which says what a
model can do that has met the length. What comes out, for validation rows of
one to four sentences: nats a piece, and the share of pieces for which the
likeliest is right.
"""

import argparse
import json
import random
import shlex
import sys
from pathlib import Path

import torch
from smoothing import measure

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import EOS
from transformer_lib.experiment import describe_machine
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train

KINDS = "sinusoid", "learned"
TRAINED_ON = {"one or two": (1, 2), "one to four": (1, 2, 3, 4)}
TESTED_ON = 1, 2, 3, 4
SEEDS = 0, 1


def rows(pairs: list, counts: tuple[int, ...], seed: int) -> list:
    """One row for each pair: some drawn sentences, and one end."""
    draw, made = random.Random(seed), []
    for number in range(len(pairs)):
        chosen = draw.choices(pairs, k=counts[number % len(counts)])
        sources, targets = zip(*chosen, strict=True)
        made.append((joined(sources), joined(targets)))
    return made


def joined(sentences: tuple[list[int], ...]) -> list[int]:
    """Their pieces, without the ends between them."""
    pieces = [piece for sentence in sentences for piece in sentence[:-1]]
    return [*pieces, EOS]


def scores(model: Transformer, pairs: list) -> dict[str, float]:
    """Nats a piece, and the share of pieces that the model gets right."""
    measured = measure(model, TokenBatches(pairs, 4000, shuffle=False))
    return {name: measured[name] for name in ("nats", "right")}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--steps", type=int, default=1000)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    torch.set_num_threads(1)
    corpus = load_corpus("little_spanish")
    tokenizer = BPETokenizer.train(corpus.sources + corpus.targets, 500)
    pairs = encode_pairs(corpus, tokenizer)
    unseen = load_corpus("little_spanish", split="validation")
    unseen = encode_pairs(unseen, tokenizer)
    tests = {n: rows(unseen, (n,), seed=0) for n in TESTED_ON}
    longest = {
        what: max(
            len(target)
            for seed in SEEDS
            for _, target in rows(pairs, counts, seed)
        )
        for what, counts in TRAINED_ON.items()
    }
    found = []
    for kind in KINDS:
        for what, counts in TRAINED_ON.items():
            for seed in SEEDS:
                torch.manual_seed(seed)
                sizes = dict(N=2, d_model=64, d_ff=128, h=4)
                config = TransformerConfig(
                    len(tokenizer), **sizes, positions=kind
                )
                model = Transformer(config)
                settings = TrainingConfig(
                    warmup_steps=300,
                    max_steps=given.steps,
                    seed=seed,
                )
                batches = TokenBatches(rows(pairs, counts, seed), 1000, seed)
                train(model, batches, settings)
                tested = {str(n): scores(model, tests[n]) for n in TESTED_ON}
                one = {"positions": kind, "trained_on": what, "seed": seed}
                found.append(one | {"tested_on": tested})
                print(found[-1], flush=True)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": describe_machine(),
        "steps": given.steps,
        "longest_target": longest,
        "pieces": {
            str(n): round(sum(len(y) for _, y in test) / len(test), 1)
            for n, test in tests.items()
        },
        "runs": found,
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "longer.json", text)


if __name__ == "__main__":
    main()
