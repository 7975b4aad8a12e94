"""What label smoothing does to perplexity, accuracy and certainty.

    python experiments/smoothing.py --out runs/smoothing

A small model learns little Spanish with a share of 0, of 0.1 and of 0.3,
from several seeds, the shares of one seed from the same weights and
batches. Measured on the validation sentences: nats a piece without
smoothing, the share of pieces for which the likeliest is right, and the
mean probability of the likeliest.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import torch

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import PAD
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train

SHARES = 0.0, 0.1, 0.3
SEEDS = range(8)


@torch.no_grad()
def measure(model: Transformer, batches: TokenBatches) -> dict[str, float]:
    model.eval()
    nats, right, sure, tokens = 0.0, 0, 0.0, 0
    for batch in batches.epoch(0):
        logits = model(batch.source_ids, batch.target_ids)
        nats += smoothed_loss(logits, batch.labels, 0.0).item()
        most, piece = logits.softmax(-1).max(-1)
        real = batch.labels != PAD
        right += (piece == batch.labels)[real].sum().item()
        sure += most[real].sum().item()
        tokens += batch.tokens
    return {
        "nats": round(nats / tokens, 4),
        "right": round(right / tokens, 4),
        "sure": round(sure / tokens, 4),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--steps", type=int, default=300)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    torch.set_num_threads(1)
    corpus = load_corpus("little_spanish")
    tokenizer = BPETokenizer.train(corpus.sources + corpus.targets, 500)
    pairs = encode_pairs(corpus, tokenizer)
    unseen = load_corpus("little_spanish", split="validation")
    validation = TokenBatches(encode_pairs(unseen, tokenizer), 2000)
    measured: dict[str, list] = {str(share): [] for share in SHARES}
    for seed in SEEDS:
        for share in SHARES:
            torch.manual_seed(seed)
            sizes = dict(N=1, d_model=64, d_ff=128, h=4)
            model = Transformer(TransformerConfig(len(tokenizer), **sizes))
            settings = TrainingConfig(
                label_smoothing=share,
                warmup_steps=100,
                max_steps=given.steps,
                seed=seed,
            )
            train(model, TokenBatches(pairs, 400, seed=seed), settings)
            measured[str(share)].append(measure(model, validation))
            print(seed, share, measured[str(share)][-1], flush=True)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "steps": given.steps,
        "measured": measured,
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "smoothing.json", text)


if __name__ == "__main__":
    main()
