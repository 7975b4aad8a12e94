"""How long are sentences, in pieces, against the width of the vectors?

    python experiments/lengths.py --out runs/lengths

For each corpus, every sentence of its training set in both languages is
cut into the pieces of the model that was trained on it. Section 4 says
that a sentence is most often shorter than the vectors are wide; here are
the counts. No sentence is kept.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.translator import Translator

MODELS = "little-spanish", "multi30k-en-de", "tatoeba-en-de"
RUNS = Path(__file__).resolve().parent.parent / "runs"


def count(model: str) -> dict:
    """Sentences, pieces, and the share of sentences below a width."""
    translator = Translator.from_pretrained(
        RUNS.parent / "pretrained" / model, "cpu"
    )
    config = json.loads(
        (RUNS.parent / "pretrained" / model / "config.json").read_text("utf-8")
    )
    data = config["info"]
    corpus = load_corpus(data["corpus"], *data["languages"], "train")
    lengths = [
        len(translator.tokenizer.encode(text)) + 1  # its eos
        for text in corpus.sources + corpus.targets
    ]
    d_model = translator.model.config.d_model
    return {
        "corpus": data["corpus"],
        "languages": data["languages"],
        "vocabulary": len(translator.tokenizer),
        "d_model": d_model,
        "sentences": len(lengths),
        "mean": round(sum(lengths) / len(lengths), 2),
        "longest": max(lengths),
        "shorter": sum(n < d_model for n in lengths),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "corpora": [count(model) for model in MODELS],
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "lengths.json", text)
    print(text)


if __name__ == "__main__":
    main()
