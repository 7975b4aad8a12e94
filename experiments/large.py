"""A corpus larger than memory: written as ids once, then trained on.

    python experiments/large.py prepare train.en.gz train.de.gz --out ids
    python experiments/large.py train ids --out run --validation v.en v.de

`prepare` goes through the text twice, a line at a time, to learn the
pieces and to write their ids, 16 bits each. `train` maps that file
into memory, where the system keeps as much of it as there is room
for, and takes the sizes and settings of the command line's `train`;
under `torchrun`, as many workers. Interrupted, it goes on where it
was.
"""

import argparse
import sys
from array import array
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    save_model,
    write_atomically,
)
from transformer_lib.cli import add_options
from transformer_lib.corpora import read_parallel
from transformer_lib.embeddings import EOS
from transformer_lib.experiment import recipe
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import pick_device, train, worker

MOST = 2**16  # pieces that 16 bits can number


class StoredPairs(Sequence):
    """Pairs of ids in a folder, read when they are asked for.

    The file `ids` holds all ids in 16 bits; `places`, for each pair,
    where its source begins, its target begins, and its target ends.
    """

    def __init__(self, folder: str | Path):
        ids, places = Path(folder, "ids"), Path(folder, "places")
        if not places.is_file():
            raise FileNotFoundError(f"no {places}: run `prepare`")
        self.ids = np.asarray(np.memmap(ids, np.uint16, "r"))
        places = np.memmap(places, np.int64, "r").reshape(-1, 3)
        self.places = np.asarray(places)
        if self.places[-1, 2] != len(self.ids):
            raise ValueError(f"{ids} is cut short: prepare it again")

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[list[int], list[int]]:
        start, middle, end = self.places[i]
        source, target = self.ids[start:middle], self.ids[middle:end]
        return source.tolist(), target.tolist()


def encoded(pairs, tokenizer, max_length):
    """Pairs as ids, those with a side too long left out."""
    pairs = iter(pairs)
    encode = tokenizer.tokenizer.encode_batch_fast  # on all cores
    while part := [*islice(pairs, 1000)]:
        texts = [text for pair in part for text in pair]
        sides = [[*found.ids, EOS] for found in encode(texts)]
        for pair in zip(sides[::2], sides[1::2], strict=True):
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
    """tokenizer.json, ids and places; `places` is written last."""
    folder, files = options.out, options.files
    if (folder / "places").exists():
        raise ValueError(f"{folder} is prepared: name another folder")
    if not len(files) <= 2:
        raise ValueError("give two files, or one with tabs")
    if not options.vocab_size <= MOST:
        raise ValueError(f"--vocab-size: {MOST:,} at most")

    def text(what):
        skip = {"skip_bad_lines": options.skip_bad_lines}
        return told(read_parallel(*files, **skip), what)

    if options.tokenizer:
        tokenizer = BPETokenizer.load(options.tokenizer)
    else:
        both = (x for pair in text("pieces") for x in pair)
        tokenizer = BPETokenizer.train(both, options.vocab_size)
    if len(tokenizer) > MOST:
        raise ValueError(f"{options.tokenizer}: over {MOST:,} pieces")
    places = array("q")

    def write(part):
        end = 0
        found = encoded(text("ids"), tokenizer, options.max_length)
        with open(part, "wb") as file:
            for source, target in found:
                array("H", source + target).tofile(file)
                middle = end + len(source)
                places.extend((end, middle, middle + len(target)))
                end = middle + len(target)
        if not places:
            raise ValueError("no pair is left: raise --max-length")

    write_atomically(folder / "tokenizer.json", tokenizer.save)
    write_atomically(folder / "ids", write)
    write_atomically(folder / "places", lambda part: part.write_bytes(places))
    print(f"{folder}: {len(places) // 3:,} pairs")


def train_on(options):
    """Train on prepared pairs, and save the mean of checkpoints."""
    given = vars(options)
    pairs = StoredPairs(options.ids)
    tokenizer = BPETokenizer.load(options.ids / "tokenizer.json")
    fields = {*TransformerConfig.__dataclass_fields__}
    fields |= {*TrainingConfig.__dataclass_fields__}
    changes = {k: v for k, v in given.items() if k in fields}
    average = 20 if options.preset == "big" else 5
    config, c = recipe(options.preset, len(tokenizer), average, changes)
    rank, workers = worker()
    how = c.tokens_per_batch, c.seed, True, rank, workers
    batches, evaluate = TokenBatches(pairs, *how), None
    if options.validation:
        checked = read_parallel(*options.validation)
        checked = encode_pairs(checked, tokenizer)
        evaluate = TokenBatches(checked, 4096, shuffle=False)
    torch.manual_seed(c.seed)
    model = Transformer(config).to(pick_device(c.device))
    with nullcontext() if rank else FileLock(options.out / ".lock", 0):
        train(model, batches, c, evaluate, options.out)
    if rank == 0:
        last = checkpoint_files(options.out)[-average:]
        model.load_state_dict(average_checkpoints(last))
        info = {"languages": options.languages}
        save_model(options.out, model, tokenizer, **info)


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = made.add_subparsers(required=True)
    one = what.add_parser("prepare")
    one.add_argument("files", nargs="+", help="two, or one with tabs")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--vocab-size", type=int, default=37_000)
    one.add_argument("--tokenizer", help="an older tokenizer.json")
    one.add_argument("--max-length", type=int, default=256)
    one.add_argument("--skip-bad-lines", action="store_true")
    one.set_defaults(run=prepare)
    one = what.add_parser("train")
    one.add_argument("ids", type=Path, help="what prepare wrote")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--preset", default="base")
    one.add_argument("--languages", nargs=2, default=["", ""])
    one.add_argument("--validation", nargs=2)
    for config in (TransformerConfig, TrainingConfig):
        group = one.add_argument_group(config.__name__)
        add_options(group, config, ("vocab_size",))
    one.set_defaults(run=train_on)
    return made


def main(words):
    options = parser().parse_args(words)
    try:
        options.run(options)
    except (ValueError, OSError, ArithmeticError) as error:
        raise SystemExit(f"large.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None


if __name__ == "__main__":
    main(sys.argv[1:])
