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
from contextlib import nullcontext
from pathlib import Path

import torch
from filelock import FileLock
from tqdm import tqdm

from transformer_lib.batching import (
    StoredPairs,
    TokenBatches,
    encode_pairs,
    store_pairs,
    stream_pairs,
    worker,
)
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    save_model,
    write_atomically,
)
from transformer_lib.cli import add_options
from transformer_lib.corpora import read_parallel
from transformer_lib.experiment import recipe
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import pick_device, train

MOST = 2**16  # pieces that 16 bits can number


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
    write_atomically(folder / "tokenizer.json", tokenizer.save)
    pairs = stream_pairs(text("ids"), tokenizer, options.max_length)
    stored = store_pairs(folder, pairs)
    print(f"{folder}: {len(stored):,} pairs")


def train_on(options):
    """Train on prepared pairs, and save the mean of checkpoints."""
    out = options.out
    if (out / "config.json").exists() and not checkpoint_files(out):
        raise ValueError(f"{out} holds a model: name a new folder")
    given = vars(options)
    pairs = StoredPairs(options.ids)
    tokenizer = BPETokenizer.load(options.ids / "tokenizer.json")
    fields = {*TransformerConfig.__dataclass_fields__}
    fields |= {*TrainingConfig.__dataclass_fields__}
    changes = {k: v for k, v in given.items() if k in fields}
    average = 20 if options.preset == "big" else 5
    config, c = recipe(options.preset, len(tokenizer), average, changes)
    rank, _ = worker()
    batches = TokenBatches(pairs, c.tokens_per_batch, seed=c.seed)
    evaluate = None
    if options.validation:
        checked = read_parallel(*options.validation)
        checked = encode_pairs(checked, tokenizer)
        evaluate = TokenBatches.in_order(checked)
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
