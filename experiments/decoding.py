"""Section 6.1 taken apart, on a finished training.

    python experiments/decoding.py pretrained/multi30k-en-de

Its last checkpoint against the mean of 5, 10 and 20, where so many
were kept; greedy, beams of 4 and 10; alpha 0, 0.6 and 1: one change
at a time from the paper's way, with sacreBLEU's paired bootstrap.
Writes decoding.json into the folder, whose checkpoints must still be
there.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import numpy
import torch
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    write_atomically,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import published_bleu
from transformer_lib.model import Transformer
from transformer_lib.translator import Translator

PAPER = {"checkpoints": 5, "beam_size": 4, "length_penalty": 0.6}
WAYS = {
    "as in 6.1": {},
    "last checkpoint": {"checkpoints": 1},
    "mean of 10": {"checkpoints": 10},
    "mean of 20": {"checkpoints": 20},
    "greedy": {"beam_size": 1},
    "beam of 10": {"beam_size": 10},
    "alpha 0": {"length_penalty": 0.0},
    "alpha 1": {"length_penalty": 1.0},
}


def translations(folder, corpus):
    """What each way says of the corpus, and at what length."""
    config, tokenizer, info = load_config(folder)
    paths, said = checkpoint_files(folder), {}
    model = Transformer(config)
    for name, change in WAYS.items():
        way = PAPER | change
        if len(paths) < way["checkpoints"]:
            continue  # so many were not kept
        some = paths[-way["checkpoints"] :]
        model.load_state_dict(average_checkpoints(some))
        translator = Translator(model, tokenizer)
        how = way["beam_size"], way["length_penalty"]
        said[name] = translator.translate(corpus.sources, *how)
        print(name, flush=True)
    return said


def compare(said, targets, language):
    """BLEU of each, with the chance that the paper's way is no other."""
    metrics, references = {"BLEU": BLEU()}, [list(targets)]
    test = PairedTest(
        list(said.items()), metrics, references, "bs", n_samples=1000
    )
    signature, scores = test()
    rows, first = [], next(iter(said.values()))
    names, results = scores["System"], scores["BLEU"]
    for name, result in zip(names, results, strict=True):
        words = [len(line.split()) for line in said[name]]
        published = published_bleu(said[name], targets, language)
        rows.append(
            {
                "way": name,
                "changed_sentences": sum(
                    a != b for a, b in zip(said[name], first, strict=True)
                ),
                "bleu": result.score,
                "bootstrap_mean": result.mean,
                "bootstrap_half_width": result.ci,
                "p_value": result.p_value,
                "bleu_published": published.value,
                "words_a_sentence": float(numpy.mean(words)),
            }
        )
    return {"signature": str(signature["BLEU"]), "rows": rows}


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("folder", type=Path)
    return made


def main(words):
    folder = parser().parse_args(words).folder
    if not (folder / "report.json").is_file():
        sys.exit(f"{folder} is not finished: it has no report.json")
    if len(checkpoint_files(folder)) < PAPER["checkpoints"]:
        sys.exit(f"{folder} has fewer than five checkpoints left")
    _, _, info = load_config(folder)
    corpus = load_corpus(info["corpus"], *info["languages"], "test")
    torch.set_grad_enabled(False)
    said = translations(folder, corpus)
    found = compare(said, corpus.targets, corpus.target)
    command = shlex.join(["python", "experiments/decoding.py", *words])
    text = json.dumps({"command": command, **found}, indent=1)
    write_atomically(folder / "decoding.json", text + "\n")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
