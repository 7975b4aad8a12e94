"""What are embeddings from another training worth, at a thousand pairs?

    python experiments/frozen.py --out runs/frozen

A small model learns the first 1,000 pairs of Multi30k, English to German.
Its table of embeddings, which is also the matrix before the softmax, begins
in one of three ways: drawn and learnt, as usual; taken from the model of
everyday sentences and left alone ("frozen"); taken from it and learnt on.
All three read the pieces of that model. A thousand pairs are
soon learnt by heart, so each model is judged where its validation loss was
lowest: nats a piece, and BLEU by greedy decoding of 300 validation pairs.
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
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import describe_machine
from transformer_lib.loss import validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train
from transformer_lib.translator import Translator

GIVER = "tatoeba-en-de"
PAIRS, JUDGED = 1000, 300
WAYS = {  # whose numbers, and whether they are learnt
    "drawn, learnt": (False, True),
    "given, frozen": (True, False),
    "given, learnt": (True, True),
}
SEEDS = 0, 1


class Best:
    """Validates, and keeps the weights with the lowest loss."""

    def __init__(self, batches: TokenBatches):
        self.batches = batches
        self.nats, self.step, self.weights = float("inf"), 0, {}

    def __call__(self, model: Transformer, step: int) -> dict[str, float]:
        nats = validation_loss(model, self.batches)
        if nats < self.nats:
            self.nats, self.step = nats, step
            state = model.state_dict()
            self.weights = {name: w.clone() for name, w in state.items()}
        return {"validation_loss": nats}


def build(way: str, table: torch.Tensor) -> Transformer:
    """A small model whose embeddings begin in that way."""
    given, learnt = WAYS[way]
    vocab_size, d_model = table.shape
    sizes = dict(N=2, d_model=d_model, d_ff=256, h=4, dropout=0.2)
    model = Transformer(TransformerConfig(vocab_size, **sizes))
    embeddings = model.source_embedding.weight
    if given:
        embeddings.data.copy_(table)
    embeddings.requires_grad_(learnt)
    return model


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--steps", type=int, default=400)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    torch.set_num_threads(1)
    runs = Path(__file__).resolve().parent.parent / "pretrained"
    giver = Translator.from_pretrained(runs / GIVER, "cpu")
    table = giver.model.source_embedding.weight.detach().float()
    pairs = load_corpus("multi30k", "en", "de")[:PAIRS]
    unseen = load_corpus("multi30k", "en", "de", "validation")[:JUDGED]
    pieces = encode_pairs(pairs, giver.tokenizer)
    held_out = TokenBatches(encode_pairs(unseen, giver.tokenizer), 4000)
    found = []
    for way in WAYS:
        for seed in SEEDS:
            torch.manual_seed(seed)
            model, best = build(way, table), Best(held_out)
            settings = TrainingConfig(
                warmup_steps=200,
                max_steps=given.steps,
                seed=seed,
                validate_every=50,
            )
            train(model, TokenBatches(pieces, 1000, seed), settings, best)
            model.load_state_dict(best.weights)
            score = evaluate(model, giver.tokenizer, unseen, beam_size=1)
            found.append(
                {
                    "way": way,
                    "seed": seed,
                    "best_step": best.step,
                    "nats": round(best.nats, 4),
                    "bleu": round(score["bleu"], 2),
                    "chrf": round(score["chrf"], 2),
                }
            )
            print(found[-1], flush=True)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": describe_machine(),
        "giver": GIVER,
        "pairs": len(pairs),
        "judged": len(unseen),
        "steps": given.steps,
        "runs": found,
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "frozen.json", text)


if __name__ == "__main__":
    main()
