# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The training loop of section 5: stopped, resumed, shared out.

Chapter: book/training/training
"""

import atexit
import json
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from transformer_lib.batching import Batch, TokenBatches
from transformer_lib.checkpoints import (
    checkpoint_files,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.loss import projected_losses, validation_loss
from transformer_lib.schedule import TrainingConfig, adam, learning_rate


@dataclass
class History:
    """What a training logged, a dict a line.

    Chapter: training-record
    """

    lines: list[dict[str, Any]]

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        lines = [line for line in self.lines if name in line]
        steps = [line["step"] for line in lines]
        return steps, [line[name] for line in lines]


def _due(step: int, every: int, last: int) -> bool:
    """Whether a step is the last, or one of every so many.

    Chapter: training-record
    """
    return step == last or (every > 0 and step % every == 0)


_SINCE = "loss", "nll", "tokens", "time"  # since the last line


def _add_up(rows: list, since: dict[str, float], step: int) -> None:
    """Add the (smoothed, plain) losses of the steps up to `step`.

    Chapter: training-record
    """
    for at, (loss, nll) in enumerate(rows, step + 1 - len(rows)):
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss of step {at} is {loss}: lower "
                "learning_rate_scale, or give a clip_norm; earlier "
                "checkpoints are whole"
            )
        since["loss"] += loss
        since["nll"] += nll


def _judge(model: nn.Module, evaluate: Any, step: int) -> dict:
    """What `evaluate` finds, without dropout and gradients.

    Chapter: training-record
    """
    if not callable(evaluate):
        return {"validation_loss": validation_loss(model, evaluate)}
    model.eval()
    with torch.no_grad():
        found = evaluate(model, step)
    model.train()
    return found


def _stream(batches, epoch, position) -> Iterator[tuple[Batch, dict]]:
    """Batches without end from a place on, and the place behind.

    Chapter: training-resume
    """
    while True:
        for batch in batches.epoch(epoch, position):
            position += 1
            yield batch, {"epoch": epoch, "position": position}
        epoch, position = epoch + 1, 0


_FREE = (
    "tokens_per_batch max_steps device log_every validate_every "
    "checkpoint_every keep_checkpoints"
).split()


def fixed_settings(config: TrainingConfig) -> dict[str, Any]:
    """What a training keeps to its end: what changes its weights.

    Chapter: training-resume
    """
    return {k: v for k, v in asdict(config).items() if k not in _FREE}


def check_settings(begun: dict, now: dict, where: object) -> None:
    """Refuse to go on with other settings than a training began with.

    One that `begun` lacks is newer, and had its default then.

    Raises:
        ValueError: naming the setting and both values.

    Chapter: training-resume
    """
    begun = asdict(TrainingConfig()) | begun
    for name, value in now.items():
        then = begun.get(name, value)
        if json.dumps(then) != json.dumps(value):
            raise ValueError(
                f"{where} is of a training with {name}={then}, not "
                f"{value}: give that, or name another folder"
            )


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that Ctrl-C and SIGTERM fill, instead of ending all.

    A second signal of the kind does what it always did.

    Chapter: training-resume
    """
    asked, before = [], {}

    def ask(number, frame):
        asked.append(number)
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pick_device(name: str | None = None) -> torch.device:
    """The device of that name, or the best one here.

    Each worker of `torchrun` has a card of its own.

    Raises:
        ValueError: if there is no such device.

    Chapter: training-workers
    """
    here = torch.accelerator.is_available()
    best = torch.accelerator.current_accelerator() if here else "cpu"
    try:
        number = torch.zeros(1, device=name or best)
        number.item()  # "meta" has none
    except (RuntimeError, AssertionError):  # no name, or no card
        raise ValueError(
            f"no device {name!r} here: give another, such as cpu"
        ) from None
    if worker()[1] > 1 and number.is_cuda:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return number.device


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    Chapter: training-workers
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        model, source_ids = self.model, batch.source_ids
        memory = model.encode(source_ids)
        hidden = model.decode(batch.target_ids, memory, source_ids)
        smoothing = self.config.label_smoothing, self.config.smoothing
        weight, labels = model.output_weight, batch.labels
        return projected_losses(hidden, weight, labels, *smoothing)


def worker() -> tuple[int, int]:
    """This process's rank among the workers of `torchrun`; how many.

    (0, 1) for a process on its own.

    Chapter: training-workers
    """
    if not distributed.is_torchelastic_launched():
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _together(module: nn.Module, step: int) -> nn.Module:
    """The module that shares its gradients with all other workers.

    All take the weights of the first, and begin after the same step.

    Chapter: training-workers
    """
    if worker()[1] == 1:
        return module
    if not distributed.is_initialized():
        # A day, as the others wait while the first one validates.
        distributed.init_process_group(timeout=timedelta(days=1))
        atexit.register(distributed.destroy_process_group)
    ends = torch.tensor([step, -step])
    distributed.all_reduce(ends, distributed.ReduceOp.MAX)
    if ends.sum():
        raise ValueError(
            f"workers would begin after steps {-ends[1]} to "
            f"{ends[0]}: give a folder that all of them see"
        )
    return DistributedDataParallel(module)


def train(
    model: nn.Module,
    batches: TokenBatches,
    training_config: TrainingConfig,
    evaluate: Callable[..., Any] | TokenBatches | None = None,
    folder: str | Path | None = None,
) -> History:
    """Train a model to `max_steps`, or go on where it was stopped.

    Args:
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end;
            the numbers it returns join the log. Batches stand for
            their `validation_loss`.
        folder: for log.jsonl and checkpoints. A training that was
            stopped there goes on as if it had not been.

    Under `torchrun` every worker calls this with its own batches, and
    the first one validates and writes. The model is left in
    evaluation mode. Section 5.

    Raises:
        ValueError: without batches, or in the folder of a training
            of another model or with other settings.
        FloatingPointError: if the loss is not finite; names the step.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the step at
            hand is saved.

    Chapter: training-loop
    """
    c, folder = training_config, Path(folder) if folder else None
    if len(batches) == 0:
        raise ValueError("there is nothing to train on: no batches")
    (rank, workers), device = worker(), pick_device(c.device)
    cards = [device] if device.type == "cuda" else []
    writes = folder and rank == 0
    how = c.keep_checkpoints, c.checkpoint_every

    # Begin, or go on from the newest checkpoint.
    model.to(device).train()
    optimizer = adam(model, c.betas, c.epsilon)
    settings = {"workers": workers, "batches": len(batches)}
    settings |= fixed_settings(c)
    settings |= {"class": type(model).__name__} | asdict(model.config)
    state = {"step": 0, "epoch": 0, "position": 0, "tokens": 0}
    state |= {"seconds": 0.0, "since": dict.fromkeys(_SINCE, 0)}
    state |= {"log": "", "settings": settings}
    for path in checkpoint_files(folder)[-1:] if folder else []:
        state |= load_checkpoint(path, model, optimizer)
        check_settings(state["settings"], settings, path)
    losses = _together(_Losses(model, c), state["step"])
    stream = _stream(batches, state["epoch"], state["position"])
    history = History([*map(json.loads, state["log"].splitlines())])
    if writes:
        write_atomically(folder / "log.jsonl", state["log"])
    bf16 = c.precision == "bf16"
    half = torch.autocast(device.type, torch.bfloat16, bf16)
    start, end = state["step"], c.max_steps
    # None: shown in a terminal alone
    bar = tqdm(total=end, initial=start, disable=rank > 0 or None)
    mark, rows = time.perf_counter(), []
    began = mark - state["seconds"]

    with bar, _asked_to_stop() as asked, torch.random.fork_rng(cards):
        for step in range(start + 1, end + 1):
            # The batches of this step; its tokens on all workers.
            group = [next(stream) for _ in range(c.accumulate)]
            count = sum(batch.tokens for batch, _ in group)
            total = torch.tensor([count, len(asked)])
            if workers > 1:
                distributed.all_reduce(total)
            tokens, stop = total.tolist()

            # The gradient of the loss per token. Each step draws
            # random numbers of its own, wherever a start began.
            seed = random.Random(f"{c.seed} {step} {rank}")
            torch.manual_seed(seed.getrandbits(32))
            rows.append(0)
            for i, (batch, _) in enumerate(group, 1):
                losses.require_backward_grad_sync = i == len(group)
                with half:
                    loss, nll = losses(batch.to(device))
                # Times workers: a mean over them is on its way.
                (loss * workers / tokens).backward()
                rows[-1] += torch.stack([loss.detach(), nll])
            if c.clip_norm is not None:
                weights = model.parameters()
                nn.utils.clip_grad_norm_(weights, c.clip_norm)

            # Adam, at the rate of equation 3.
            rate = c.learning_rate_scale * learning_rate(
                step, model.config.d_model, c.warmup_steps
            )
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
            state |= {"step": step, **group[-1][1]}
            state["tokens"] += tokens
            state["since"]["tokens"] += tokens
            bar.update()

            log = _due(step, c.log_every, end)
            validate = _due(step, c.validate_every, end)
            save = _due(step, c.checkpoint_every, end)
            if not (log or validate or save or stop):
                continue
            found = torch.stack(rows)  # here the host waits
            if workers > 1:
                distributed.all_reduce(found)
            since, rows = state["since"], []
            _add_up(found.tolist(), since, step)
            since["time"] += time.perf_counter() - mark

            judges = validate and evaluate and rank == 0
            judged = _judge(model, evaluate, step) if judges else {}
            state["seconds"] = time.perf_counter() - began
            if log or validate:
                counted, seconds = since["tokens"], since["time"]
                line = {
                    "step": step,
                    "epoch": state["epoch"],
                    "loss": since["loss"] / counted,
                    "nll": since["nll"] / counted,
                    "learning_rate": rate,
                    **judged,
                    "tokens": state["tokens"],
                    "tokens_per_second": round(counted / seconds),
                    "seconds": round(state["seconds"], 2),
                }
                history.lines.append(line)
                text = json.dumps(line) + "\n"
                state["log"] += text
                bar.set_postfix(nll=f"{line['nll']:.3f}")
                state["since"] = dict.fromkeys(_SINCE, 0)
                if writes:
                    with open(folder / "log.jsonl", "a") as file:
                        file.write(text)
            if writes and (save or stop):
                save_checkpoint(folder, model, optimizer, state, *how)
            if stop:
                raise KeyboardInterrupt
            mark = time.perf_counter()
    if workers > 1:
        distributed.barrier()  # until all that is due is written
    model.eval()
    return history
