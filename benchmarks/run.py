"""Our speed beside that of PyTorch, Hugging Face and CTranslate2.

    python benchmarks/run.py                      everything, five minutes
    python benchmarks/run.py --only greedy        rows with this word
    python benchmarks/run.py --quick              does it all run?
    python benchmarks/run.py --threads 1 --clock cpu

All contestants have the same weights, take the same sentences and run
in turn, so that whatever else the machine does slows all of them alike.
Speeds are relative to Hugging Face's Marian model with the faster of its
two attentions, which is 1: the median over the rounds of the quotient of
two times of one round. On a busy machine take one thread and the
processor's clock. On a GPU, `gpu/bench.py` has other rows and peers.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Threads that wait without sleeping are what small steps need; this has
# to be settled before torch is imported.
os.environ.pop("OMP_WAIT_POLICY", None)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
from searches import CTranslate2Search, searches  # noqa: E402
from steps import training_steps  # noqa: E402

from transformer_lib.batching import Batch, collate  # noqa: E402
from transformer_lib.embeddings import EOS  # noqa: E402
from transformer_lib.model import TransformerConfig  # noqa: E402
from transformer_lib.training import pick_precision  # noqa: E402

# Of Multi30k with 8,000 subwords: the batch in the middle of an epoch, sorted,
# and the first 64 test sentences. So no machine needs the corpus.
LENGTHS = json.loads(Path(__file__).with_name("lengths.json").read_text())
warnings.filterwarnings("ignore", message=".*nested tensors")
# Without instructions for it oneDNN only imitates bf16, slower.
BF16 = pick_precision("auto", torch.device("cpu")) == "bf16"
COLUMNS = (
    "nn.Transformer",
    "HF eager",
    "HF sdpa",
    "CTranslate2",
    "ours",
)


@dataclass
class Row:
    """One line of the table: what is run.

    `work` is the tokens of a training batch or the sentences of a batch
    to decode; `times` is how often one measurement repeats it.
    """

    name: str
    size: str
    work: int
    beam_size: int = 0  # 0: a training step
    bf16: bool = False
    times: int = 1


ROWS = [
    Row("training step, tiny, 4,096 tokens", "tiny", 4096),
    Row("training step, tiny, bf16", "tiny", 4096, bf16=True),
    Row("training step, base, 2,048 tokens", "base", 2048),
    Row("training step, base, bf16", "base", 2048, bf16=True),
    Row("greedy, tiny, batch 64", "tiny", 64, 1, times=2),
    Row("greedy, base, batch 64", "base", 64, 1),
    Row("greedy, tiny, one sentence", "tiny", 1, 1, times=8),
    Row("beam 4, tiny, batch 64", "tiny", 64, 4),
]


def config(size: str) -> TransformerConfig:
    """Equal sizes: the others' projections have biases, so ours too."""
    return getattr(TransformerConfig, size)(8000, bias=True)


def training_batch(tokens: int) -> Batch:
    """Random pieces with the lengths of a batch from Multi30k."""
    chance = torch.Generator().manual_seed(1)

    def sentence(length: int) -> list[int]:
        ids = torch.randint(4, 8000, (length - 1,), generator=chance)
        return [*ids.tolist(), EOS]

    lengths = LENGTHS[f"training, {tokens} tokens"]
    return collate([(sentence(s), sentence(t)) for s, t in lengths])


def sentences(number: int) -> torch.Tensor:
    """The first test sentences' lengths; alone, one of middle length."""
    lengths = LENGTHS["decoding"]
    if number == 1:
        lengths = [statistics.median_low(lengths)]
    chance = torch.Generator().manual_seed(2)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[: length - 1] = torch.randint(
            4, 8000, (length - 1,), generator=chance
        )
        row[length - 1] = EOS
    return ids


def seconds(run: Callable, clock: Callable, times: int) -> float:
    """How long one run takes, on average over a few."""
    if isinstance(run, CTranslate2Search):
        return run.seconds(clock, times)
    began = clock()
    for _ in range(times):
        run()
    return (clock() - began) / times


def measure(
    row: Row, clock: Callable, rounds: int, threads: int
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round."""
    with tempfile.TemporaryDirectory() as folder:
        if row.beam_size:
            runs = searches(
                config(row.size),
                sentences(row.work),
                row.beam_size,
                Path(folder),
                threads,
            )
        else:
            batch = training_batch(row.work)
            runs = training_steps(config(row.size), batch, row.bf16)
            for run in runs.values():  # a search is warm by now
                run()
        spent: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                spent[name].append(seconds(run, clock, row.times))
        for run in runs.values():
            if isinstance(run, CTranslate2Search):
                run.close()
    return spent


def speeds(spent: dict[str, list[float]]) -> dict[str, float]:
    """How many times as fast as the faster of Hugging Face's two."""
    kinds = "HF eager", "HF sdpa"
    one = min(kinds, key=lambda kind: statistics.median(spent[kind]))
    return {
        name: statistics.median(
            reference / own
            for reference, own in zip(spent[one], times, strict=True)
        )
        for name, times in spent.items()
    }


def show(row: Row, spent: dict[str, list[float]]) -> None:
    """A line of the table; Hugging Face's bf16 has its own lines."""
    speed = speeds(spent)
    cells = [
        f"{speed[name]:.2f}" if name in speed else "n/a" for name in COLUMNS
    ]
    milliseconds = 1e3 * statistics.median(spent["ours"])
    line = [row.name, *cells, f"{milliseconds:.0f}"]
    print("| " + " | ".join(line) + " |", flush=True)
    for name in speed:
        if name.endswith("bf16"):
            print(f"| – {name} | {speed[name]:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    rounds = 1 if options.quick else 3
    print(
        f"{options.threads} threads, {options.clock} time, {rounds} "
        f"rounds, torch {torch.__version__}; Hugging Face = 1"
    )
    kernels = torch.backends.cpu.get_cpu_capability()
    print(f"kernels for {kernels}; bf16 {'yes' if BF16 else 'no'}\n")
    head = ["", *COLUMNS, "ours, ms"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in ROWS:
        if options.only not in row.name:
            continue
        if row.bf16 and not BF16:
            print(f"| {row.name} | (no bf16 in this processor) |")
        else:
            spent = measure(
                row, clocks[options.clock], rounds, options.threads
            )
            show(row, spent)


if __name__ == "__main__":
    main()
