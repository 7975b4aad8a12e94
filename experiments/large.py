"""A corpus larger than memory: written as ids once, then trained on.

    python experiments/large.py prepare train.en.gz train.de.gz --out ids
    python experiments/large.py train ids --out run --validation v.en v.de
    python -m transformer_lib average --model run --out mean --last 5

`prepare` goes through the text twice, a line at a time, to learn the
subwords and to write their ids, 16 bits each. `train` maps that file
into memory, where the system keeps as much of it as there is room for.
Under `torchrun`, `--tokens-per-batch` is what each worker takes in a
step. A run that was interrupted goes on.
"""

import argparse
import shlex
import sys
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    checkpoint_files,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import read_parallel
from transformer_lib.experiment import (
    Experiment,
    describe_run,
    locked,
    pick_device,
    write_report,
)
from transformer_lib.model import Transformer
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train, worker

MOST = 2**16  # subwords that 16 bits can number


class StoredPairs(Sequence):
    """Pairs of ids in a folder, read when they are asked for.

    The file `ids` holds all ids in 16 bits; `places`, for each pair,
    where its source begins, its target begins, and its target ends.
    """

    def __init__(self, folder):
        places = np.memmap(Path(folder, "places"), np.int64, "r")
        ids = np.memmap(Path(folder, "ids"), np.uint16, "r")
        if len(places) % 3 or places[-1] != len(ids):
            raise ValueError(
                f"{folder} is cut short: delete it, prepare again"
            )
        self.ids = np.asarray(ids)
        self.places = np.asarray(places).reshape(-1, 3)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, place):
        start, middle, end = self.places[place]
        source, target = self.ids[start:middle], self.ids[middle:end]
        return source.tolist(), target.tolist()


def store_pairs(folder, pairs):
    """Write pairs of ids as they come; named when both files are whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as temporary:
        ids, places = Path(temporary, "ids"), Path(temporary, "places")
        with open(ids, "wb") as id_file, open(places, "wb") as place_file:
            end = 0
            for source, target in pairs:
                start, middle = end, end + len(source)
                end = middle + len(target)
                id_file.write(array("H", [*source, *target]))
                place_file.write(array("q", [start, middle, end]))
        if end == 0:
            raise ValueError("no pairs came: give some, or raise max_length")
        ids.replace(folder / "ids")
        places.replace(folder / "places")
    return StoredPairs(folder)


def stream_pairs(corpus, tokenizer, max_length):
    """The pairs of `encode_pairs`, a thousand at a time."""
    pairs = iter(corpus)
    while block := list(islice(pairs, 1000)):
        for pair in encode_pairs(block, tokenizer):
            if max(map(len, pair)) <= max_length:
                yield pair


def told(pairs, what):
    """The pairs again: a bar on a terminal, plain lines in a pipe."""
    bar = tqdm(pairs, what, unit=" pairs", unit_scale=True, disable=None)
    for done, pair in enumerate(bar, 1):
        yield pair
        if bar.disable and done % 100_000 == 0:
            print(f"{what}: {done:,} pairs", file=sys.stderr)


def prepare(options):
    """Write tokenizer.json, and the ids of `store_pairs`."""
    folder, files = options.out, options.files
    if (folder / "places").exists():
        raise ValueError(f"{folder} is prepared: name another folder")
    if options.vocab_size > MOST:
        raise ValueError(f"--vocab-size: {MOST:,} at most")

    def text(what):
        skip = {"skip_bad_lines": options.skip_bad_lines}
        return told(read_parallel(*files, **skip), what)

    both = (x for pair in text("subwords") for x in pair)
    tokenizer = BPETokenizer.train(both, options.vocab_size)
    tokens = tokenizer.tokenizer.to_str()
    write_atomically(folder / "tokenizer.json", tokens)
    pairs = stream_pairs(text("ids"), tokenizer, options.max_length)
    print(f"{folder}: {len(store_pairs(folder, pairs)):,} pairs")


def train_on(options):
    """Train on prepared pairs; the last weights are saved."""
    out = options.out
    if (out / "report.json").exists():
        raise ValueError(f"{out} is finished: name a new folder")
    tokenizer = BPETokenizer.load(options.ids / "tokenizer.json")
    chosen = getattr(Experiment, options.preset)()
    config = replace(chosen.model, vocab_size=len(tokenizer))
    training = replace(
        chosen.training,
        max_steps=options.max_steps or chosen.training.max_steps,
        precision=options.precision,
        seed=options.seed,
        checkpoint_every=options.checkpoint_every,
        keep_checkpoints=max(5, chosen.average),  # for a mean of them
    )
    pairs = StoredPairs(options.ids)
    batches = TokenBatches(pairs, options.tokens_per_batch, options.seed)
    evaluate = None
    if options.validation:
        checked = encode_pairs(read_parallel(*options.validation), tokenizer)
        evaluate = TokenBatches.in_order(checked)
    torch.manual_seed(options.seed)
    model = Transformer(config).to(pick_device(options.device))
    rank, _ = worker()
    info = {"languages": options.languages}
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        if rank == 0 and not checkpoint_files(out):
            save_config(out, model, tokenizer, info=info)
        history = train(model, batches, training, evaluate, out)
        if rank == 0:
            save_model(out, model, tokenizer, info=info)
            command = shlex.join(["python", "experiments/large.py"])
            command += " " + shlex.join(options.words)
            described = describe_run(model, batches, training, history)
            write_report(out, command, described)


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = made.add_subparsers(required=True)
    one = what.add_parser("prepare")
    one.add_argument("files", nargs="+", help="two, or one with tabs")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--vocab-size", type=int, default=37_000)
    one.add_argument("--max-length", type=int, default=256)
    one.add_argument("--skip-bad-lines", action="store_true")
    one.set_defaults(run=prepare)
    one = what.add_parser("train")
    one.add_argument("ids", type=Path, help="what prepare wrote")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument(
        "--preset", choices=("tiny", "base", "big"), default="base"
    )
    one.add_argument("--languages", nargs=2, default=["", ""])
    one.add_argument("--validation", nargs=2)
    one.add_argument("--tokens-per-batch", type=int, default=25_000)
    one.add_argument("--max-steps", type=int, help="the preset's")
    one.add_argument("--checkpoint-every", type=int, default=1000)
    one.add_argument("--precision", default="fp32", help="or bf16")
    one.add_argument("--device")
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=train_on)
    return made


def main(words):
    options = parser().parse_args(words)
    options.words = words
    try:
        options.run(options)
    except (ValueError, OSError, ArithmeticError) as error:
        raise SystemExit(f"large.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
