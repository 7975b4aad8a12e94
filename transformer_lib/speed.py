# Collected from book/results/speed.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""How fast steps are, in several ways: measured, recorded."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import (
    Batch,
    EncodedPairs,
    TokenBatches,
    encode_pairs,
    padding_share,
)
from transformer_lib.checkpoints import read_log, write_atomically
from transformer_lib.cost import (
    batch_lengths,
    sentence_batches,
    synthetic_pairs,
    training_operations,
)
from transformer_lib.loss import hidden_states
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.replay import SEARCHES, Search, time_search
from transformer_lib.runs import machine, write_report
from transformer_lib.schedule import TrainingConfig, adam, update
from transformer_lib.tasks import (
    Task,
    read_split,
    recipe,
    task_tokenizer,
)
from transformer_lib.training import pick_device

__all__ = [
    "WAYS",
    "Way",
    "matrix_precision",
    "matrix_rate",
    "record_speed",
    "time_way",
]


@dataclass(frozen=True)
class Way:
    """One way to make the same step; what differs is its speed.

    `size` is a preset, or "" for the task's own. On a CPU tf32 does
    not exist, and `compile` traces the model without making kernels.

    Chapter: speed-way
    """

    size: str = ""
    precision: str = "fp32"
    compile: bool = False
    explicit: bool = False
    by_sentence: bool = False

    @property
    def name(self) -> str:
        """In words, such as "base, bf16, compiled"."""
        words = [self.size, self.precision]
        words.append("explicit attention" if self.explicit else "")
        words.append("by sentence" if self.by_sentence else "")
        words.append("compiled" if self.compile else "")
        return ", ".join(word for word in words if word)


WAYS = {
    "throughput": [
        Way(size, precision, compiled)
        for size in ("base", "big")
        for precision in ("fp32", "tf32", "bf16")
        for compiled in (False, True)
    ],
    "naive": [
        Way(explicit=True, by_sentence=True),
        Way(explicit=True),
        Way(),
        Way(precision="tf32"),
        Way(precision="bf16"),
        Way(precision="bf16", compile=True),
    ],  # one step of engineering more on each line
    "decoding": SEARCHES,
}


@contextmanager
def matrix_precision(name: str) -> Iterator[None]:
    """float32 products in full, or in tf32 on cards that have it.

    Chapter: speed-way
    """
    before = torch.get_float32_matmul_precision()
    wanted = "high" if name == "tf32" else "highest"
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _clock(device: torch.device) -> float:
    """The time, once the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def matrix_rate(
    device: torch.device, precision: str = "fp32", size: int = 0
) -> float:
    """FLOPs a second of a product of two large square matrices.

    The best of ten, or of as many as end within a second: what the
    device can do when nothing else is asked of it. `size` is 8192 on
    a card and 512 elsewhere.

    Chapter: speed-way
    """
    size = size or (8192 if device.type == "cuda" else 512)
    bf16 = precision == "bf16"
    kind = torch.bfloat16 if bf16 else torch.float32
    one, other = torch.randn(2, size, size, device=device).to(kind)
    times: list[float] = []
    with matrix_precision(precision):
        while len(times) < 10 and sum(times) < 1:
            began = _clock(device)
            one @ other
            times.append(_clock(device) - began)
    return 2 * size**3 / min(times)


def time_way(
    way: Way,
    config: TransformerConfig,
    batches: list[Batch],
    device: torch.device,
    warm_up: int = 3,
) -> dict[str, Any]:
    """Train on batches in one way: time, speed, memory, share.

    The first `warm_up` batches are not timed: that is where
    compiling falls.

    Chapter: speed-way
    """
    torch.manual_seed(0)
    torch.compiler.reset()  # forget what was compiled for others
    model = Transformer(config).to(device).train()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.explicit = way.explicit
    optimizer, how = adam(model), {"bf16": way.precision == "bf16"}
    if way.compile:
        kind = "inductor" if device.type == "cuda" else "eager"
        how["forward"] = torch.compile(
            hidden_states, dynamic=True, backend=kind
        )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    began = start = _clock(device)
    with matrix_precision(way.precision):
        for step, batch in enumerate(batches, 1):
            told = [batch], step, TrainingConfig()
            update(model, optimizer, *told, **how)
            if step == warm_up:
                start = _clock(device)
        end = _clock(device)
    timed = batches[warm_up:]
    tokens = sum(batch.tokens for batch in timed)
    work = training_operations(config, batch_lengths(timed))
    work /= end - start
    found = {"step_seconds": (end - start) / len(timed)}
    found["target_tokens_per_second"] = tokens / (end - start)
    found["padding_share"] = padding_share(timed)
    found["model_tflops"] = work / 1e12
    found["warm_up_seconds"] = start - began
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        found["peak_memory_gib"] = peak / 2**30
    rate = matrix_rate(device, way.precision) / 1e12
    found["matrix_tflops"] = rate
    found["share"] = found["model_tflops"] / rate
    return found


def _measured_pairs(
    task: Task, ways: str
) -> tuple[EncodedPairs, int]:
    """Pairs of ids to measure on, and their vocabulary's size."""
    if ways == "throughput":
        training = recipe(task, task.vocab_size)[1]
        tokens = training.tokens_per_batch * (training.max_steps + 4)
        count = min(tokens // 25, task.limit or tokens)
        pairs = synthetic_pairs(count, task.vocab_size)
        return pairs, task.vocab_size
    corpus = read_split(task, "train")
    tokenizer = task_tokenizer(task, corpus)
    pairs = encode_pairs(corpus, tokenizer, task.longest)
    return pairs, len(tokenizer)


def _some_batches(
    way: Way | Search, pairs: EncodedPairs, training: TrainingConfig
) -> list[Batch]:
    """As many batches as are timed, and three to warm up."""
    tokens, count = training.tokens_per_batch, training.max_steps + 3
    batches = TokenBatches(pairs, tokens, training.seed)
    if way.by_sentence:
        size = max(len(pairs) // len(batches), 1)
        found = sentence_batches(pairs, size, training.seed)
    else:
        found = list(batches.epoch(0))
    return [found[i % len(found)] for i in range(count)]


def _report_speed(
    task: Task, command: str, lines: list[dict], ways: list
) -> dict:
    """Write log, report and card of the ways measured so far."""
    folder, training = Path(task.out), recipe(task, 8)[1]
    data = {"corpus": task.corpus, "pieces_asked": task.vocab_size}
    data |= {"tokens_per_batch": training.tokens_per_batch}
    data |= {"steps_timed": training.max_steps}
    text = json.dumps({"info": data}) + "\n"
    log = "".join(json.dumps(line) + "\n" for line in lines)
    for name, content in ("config.json", text), ("log.jsonl", log):
        path = folder / name
        write_atomically(path, lambda x, c=content: x.write_text(c))
    last = lines[-1] if lines else {"step": 0, "seconds": 0.0}
    hidden = "step", "seconds"
    report = {
        "name": task.name or folder.name,
        "measures": task.measures,
        "command": command,
        "finished": len(lines) == len(ways),
        "result": {"ways": last["step"], "seconds": last["seconds"]},
        "data": data,
        "speed": [
            {k: line[k] for k in line if k not in hidden}
            for line in lines
        ],
        "machine": machine(),
    }
    write_report(folder, report)
    return report


def record_speed(task: Task, ways: str, command: str = "") -> dict:
    """Measure the speed of all `WAYS` of a kind; leave a record.

    Every way is a line of the log as soon as it is measured. Another
    start goes on behind the last; `max_minutes` ends one early. On a
    CPU the ways in tf32 are left out.

    Raises:
        ValueError: if there are no such ways, or no folder.

    Chapter: speed-record
    """
    if ways not in WAYS or not task.out:
        raise ValueError(
            f"{ways=}, out={task.out!r}: give one of "
            f"{', '.join(WAYS)}, and a folder"
        )
    device = pick_device(task.changes.get("device"))
    card = device.type == "cuda"
    todo = [x for x in WAYS[ways] if card or x.precision != "tf32"]
    pairs, vocab_size = _measured_pairs(task, ways)
    lines, began = read_log(task.out), time.monotonic()
    began -= lines[-1]["seconds"] if lines else 0.0
    report = _report_speed(task, command, lines, todo)
    start = time.monotonic()
    for way in todo[len(lines) :]:
        asked = replace(task, preset=way.size or task.preset)
        config, training = recipe(asked, vocab_size)
        minutes = training.max_minutes or math.inf
        if time.monotonic() - start > 42 * minutes:
            break  # the rest of the time is for the way under way
        batches = _some_batches(way, pairs, training)
        line = {"step": len(lines) + 1, "way": way.name}
        timed = time_search if isinstance(way, Search) else time_way
        line |= timed(way, config, batches, device)
        line["seconds"] = round(time.monotonic() - began, 2)
        lines.append(line)
        report = _report_speed(task, command, lines, todo)
    return report
