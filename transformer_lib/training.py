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
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from transformer_lib.batching import Batch, TokenBatches, worker
from transformer_lib.checkpoints import (
    checkpoint_files,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.loss import evaluating, projected_losses, validation_loss
from transformer_lib.schedule import TrainingConfig, adam, learning_rate


@dataclass
class _Sums:
    """What is added up from one line of the log to the next.

    Chapter: training-loop
    """

    loss: float = 0.0  # nats, with smoothing
    nll: float = 0.0  # nats, without
    tokens: int = 0  # target tokens, without padding
    time: float = 0.0  # seconds, without validation


@dataclass
class _Progress:
    """How far a training has come: what it keeps between two steps.

    Chapter: training-loop
    """

    settings: dict[str, Any]  # what may not change on the way
    step: int = 0  # updates of the weights so far
    epoch: int = 0
    position: int = 0  # in the epoch, behind the last batch
    tokens: int = 0
    seconds: float = 0.0
    rate: float = 0.0  # of the last step
    since: _Sums = field(default_factory=_Sums)  # the last line
    log: str = ""  # its lines so far

    def count_step(self, tokens: int) -> None:
        """One step more, on so many target tokens."""
        self.step += 1
        self.tokens += tokens
        self.since.tokens += tokens


@dataclass
class _Training:
    """A training: what it works with, and how far it has come.

    Chapter: training-loop
    """

    model: nn.Module
    batches: TokenBatches
    config: TrainingConfig
    evaluate: Callable[..., Any] | TokenBatches | None
    folder: Path | None

    def __post_init__(self) -> None:
        config = self.config
        self.rank, self.workers = worker()
        self.writes = self.folder is not None and self.rank == 0
        self.device = pick_device(config.device)
        self.model.to(self.device).train().zero_grad()
        self.optimizer = adam(self.model, config.betas, config.epsilon)
        self.progress = _begin(self)
        losses = _Losses(self.model, config)
        self.losses = _together(losses, self.progress.step)
        self.unread: list[Tensor] = []  # nobody has waited for them
        self.signals: list[int] = []  # somebody has asked to stop
        self.began = time.perf_counter() - self.progress.seconds
        # In a terminal alone, and not if stderr is closed.
        silent = self.rank > 0 or sys.stderr is None or None
        self.bar = tqdm(total=config.max_steps, disable=silent)
        self.bar.update(self.progress.step)


def _take_steps(training: _Training) -> None:
    """Section 5, step by step, until the last one or a signal.

    Chapter: training-loop
    """
    config, progress = training.config, training.progress
    batches, last = _stream(training), config.max_steps
    mark = time.perf_counter()
    while progress.step < last:
        group = list(islice(batches, config.accumulate))
        tokens, stop = _count(training, group)
        progress.count_step(tokens)
        training.unread.append(_add_gradients(training, group, tokens))
        _update_weights(training)

        validate = _due(progress.step, config.validate_every, last)
        log = validate or _due(progress.step, config.log_every, last)
        save = stop or _due(progress.step, config.checkpoint_every, last)
        if not (log or save):
            continue
        _read_losses(training)
        progress.since.time += time.perf_counter() - mark
        if log:
            _report(training, validate)
        if save:
            _save(training)
        if stop:
            raise KeyboardInterrupt
        mark = time.perf_counter()


def _stream(training: _Training) -> Iterator[Batch]:
    """Batches without end; `progress` knows the place behind each.

    Chapter: training-step
    """
    progress, epoch = training.progress, training.batches.epoch
    while True:
        for batch in epoch(progress.epoch, progress.position):
            progress.position += 1
            yield batch
        progress.epoch += 1
        progress.position = 0


def _count(training: _Training, group: list[Batch]) -> tuple[int, bool]:
    """Target tokens of a step, and whether to stop: of all workers.

    Chapter: training-step
    """
    tokens = sum(batch.tokens for batch in group)
    total = torch.tensor([tokens, len(training.signals)])
    if training.workers > 1:
        distributed.all_reduce(total)
    tokens, signals = total.tolist()
    return tokens, signals > 0


def _add_gradients(
    training: _Training, group: list[Batch], tokens: int
) -> Tensor:
    """Gradients of the loss per token; returns (loss, nll), summed.

    Chapter: training-step
    """
    config, device = training.config, training.device
    step, rank = training.progress.step, training.rank
    seed = random.Random(f"{config.seed} {step} {rank}")
    torch.manual_seed(seed.getrandbits(32))
    bf16 = config.precision == "bf16"
    sums = []
    for number, batch in enumerate(group, 1):
        # Workers share their gradients once, at the last batch.
        training.losses.require_backward_grad_sync = number == len(group)
        with torch.autocast(device.type, torch.bfloat16, bf16):
            loss, nll = training.losses(batch.to(device))
        # Times workers, since what they share is the mean.
        (loss * training.workers / tokens).backward()
        sums.append(torch.stack([loss.detach(), nll]))
    return reduce(torch.add, sums)


def _update_weights(training: _Training) -> None:
    """Adam's step, at the rate of equation 3 times its scale.

    Chapter: training-step
    """
    config, model = training.config, training.model
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    training.progress.rate = config.learning_rate_scale * learning_rate(
        training.progress.step, model.config.d_model, config.warmup_steps
    )
    training.optimizer.param_groups[0]["lr"] = training.progress.rate
    training.optimizer.step()
    training.optimizer.zero_grad()
    training.bar.update()


@dataclass
class History:
    """What a training logged, a dict for each line.

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


def _read_losses(training: _Training) -> None:
    """Add the losses of the last steps up; here the host waits.

    Raises:
        FloatingPointError: if one is not finite; names its step.

    Chapter: training-record
    """
    losses = torch.stack(training.unread)  # (steps, 2)
    training.unread.clear()
    if training.workers > 1:
        distributed.all_reduce(losses)
    since = training.progress.since
    first = training.progress.step + 1 - len(losses)
    for step, (loss, nll) in enumerate(losses.tolist(), first):
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss of step {step} is {loss}: lower "
                "learning_rate_scale, or give a clip_norm; earlier "
                "checkpoints are whole"
            )
        since.loss += loss
        since.nll += nll


_OWN = "step epoch loss nll learning_rate tokens tokens_per_second seconds"


def _validate(training: _Training) -> dict[str, Any]:
    """What `evaluate` says of the model, without dropout and gradients.

    Raises:
        ValueError: if it returns a field that the log has already.
        TypeError: if it returns no dict, or what JSON cannot hold.

    Chapter: training-record
    """
    model, evaluate = training.model, training.evaluate
    if not callable(evaluate):
        return {"validation_loss": validation_loss(model, evaluate)}
    # A function may keep what it sees: no inference mode for it.
    with evaluating(model), torch.inference_mode(False), torch.no_grad():
        scores = evaluate(model, training.progress.step) or {}
    if not isinstance(scores, dict):
        raise TypeError(f"evaluate returns {scores!r}: give a dict")
    for name, score in scores.items():
        if name in _OWN.split():
            raise ValueError(f"evaluate returns {name!r}: rename it")
        if hasattr(score, "tolist"):  # a tensor, or numpy's
            scores[name] = score.tolist()
    json.dumps(scores)
    return scores


def _report(training: _Training, validate: bool) -> None:
    """Validate, if that is due, and write a line of the log.

    Chapter: training-record
    """
    progress, since = training.progress, training.progress.since
    scores = {}
    if validate and training.evaluate is not None and training.rank == 0:
        try:
            scores = _validate(training)
        except BaseException:
            _save(training)
            raise
    progress.seconds = time.perf_counter() - training.began
    line = {
        "step": progress.step,
        "epoch": progress.epoch,
        "loss": since.loss / since.tokens,
        "nll": since.nll / since.tokens,
        "learning_rate": progress.rate,
        **scores,
        "tokens": progress.tokens,
        "tokens_per_second": round(since.tokens / since.time),
        "seconds": round(progress.seconds, 2),
    }
    text = json.dumps(line) + "\n"
    progress.log += text
    progress.since = _Sums()
    training.bar.set_postfix(nll=f"{line['nll']:.3f}")
    if training.writes:
        with open(training.folder / "log.jsonl", "a") as file:
            file.write(text)


def _save(training: _Training) -> None:
    """Write a checkpoint, if this worker writes at all.

    Chapter: training-record
    """
    training.progress.seconds = time.perf_counter() - training.began
    if training.writes:
        save_checkpoint(
            training.folder,
            training.model,
            training.optimizer,
            asdict(training.progress),
            keep=training.config.keep_checkpoints,
            every=training.config.checkpoint_every,
        )


_FREE = (
    "tokens_per_batch max_steps device log_every validate_every "
    "checkpoint_every keep_checkpoints"
).split()


def fixed_settings(config: TrainingConfig) -> dict[str, Any]:
    """What a training keeps to its end: what changes its weights.

    Chapter: training-resume
    """
    settings = asdict(config)
    for name in _FREE:
        del settings[name]
    return settings


def check_settings(
    begun: dict[str, Any], now: dict[str, Any], where: object
) -> None:
    """Refuse to go on with other settings than a training began with.

    One that `begun` lacks is newer, and had its default then.

    Raises:
        ValueError: naming the setting and both values.

    Chapter: training-resume
    """
    begun = asdict(TrainingConfig()) | begun
    for name, value in now.items():
        then = begun.get(name, value)
        # As JSON keeps them: a tuple is a list, and 1 is 1.0.
        if json.loads(json.dumps(then)) != json.loads(json.dumps(value)):
            raise ValueError(
                f"{where} is of a training with {name}={then}, not "
                f"{value}: give that, or name another folder"
            )


def _settings(training: _Training) -> dict[str, Any]:
    """All that may not change between two starts.

    Chapter: training-resume
    """
    model, batches = training.model, training.batches
    settings = {"workers": training.workers, "batches": len(batches)}
    if hasattr(batches, "fingerprint"):
        settings["data"] = batches.fingerprint()
    settings |= fixed_settings(training.config)
    settings["class"] = type(model).__name__
    return settings | asdict(model.config)


def _begin(training: _Training) -> _Progress:
    """Go on from the folder's newest checkpoint, if there is one.

    Raises:
        ValueError: if it is of another model, has other settings, or
            has taken more than `max_steps` already.

    Chapter: training-resume
    """
    if training.folder is None:
        return _Progress(settings={})
    settings = _settings(training)
    files = checkpoint_files(training.folder)
    if not files:
        return _Progress(settings)
    state = load_checkpoint(files[-1], training.model, training.optimizer)
    check_settings(state["settings"], settings, files[-1])
    progress = _Progress(**state)
    progress.since = _Sums(**state["since"])
    if progress.step > training.config.max_steps:
        raise ValueError(
            f"{files[-1]} is beyond max_steps={training.config.max_steps}: "
            "give more, or name another folder"
        )
    return progress


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that Ctrl-C and SIGTERM fill, instead of ending all.

    A second signal of the kind does what it always did.

    Chapter: training-resume
    """
    asked: list[int] = []
    before: dict[int, Any] = {}

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            # None: whoever handles it is not written in Python.
            if handler not in (signal.SIG_IGN, None):
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
    best = None
    if torch.accelerator.is_available():
        best = torch.accelerator.current_accelerator()
    try:
        device = torch.device(name or best or "cpu")
        if device.type == "cuda" and worker()[1] > 1:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)  # before any card is used
        probe = torch.zeros(1, device=device)
        probe.item()  # "meta" has none
    except (RuntimeError, AssertionError):  # no name, or no card
        raise ValueError(
            f"no device {name!r} here: give another, such as cpu"
        ) from None
    return probe.device


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    Chapter: training-workers
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return projected_losses(
            self.model.hidden(batch.source_ids, batch.target_ids),
            self.model.output_weight,
            batch.labels,
            self.config.label_smoothing,
            self.config.smoothing,
        )


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


def _check_batches(batches: TokenBatches) -> None:
    """Refuse no batches at all, and those of another worker.

    Chapter: training-train
    """
    if len(batches) == 0:
        raise ValueError("there is nothing to train on: no batches")
    if isinstance(batches, TokenBatches):
        share = batches.rank, batches.world_size
        if share != worker():
            raise ValueError(
                f"batches of rank and world_size {share} for worker "
                f"{worker()}: give TokenBatches this one's"
            )


def _check_lengths(model: nn.Module, batches: TokenBatches) -> None:
    """Refuse what has no epochs, and sentences without positions.

    Chapter: training-train
    """
    if not hasattr(batches, "epoch"):
        raise TypeError(f"a {type(batches).__name__} is no TokenBatches")
    if model.config.positions != "learned":
        return
    most = model.config.max_length
    for batch in batches.epoch(0):
        longest = max(batch.source_ids.size(1), batch.target_ids.size(1))
        if longest > most:
            raise ValueError(
                f"a sentence has {longest} ids, positions for {most}: "
                f"leave it out, encode_pairs(..., {most})"
            )


def train(
    model: nn.Module,
    batches: TokenBatches,
    training_config: TrainingConfig,
    evaluate: Callable[..., Any] | TokenBatches | None = None,
    folder: str | Path | None = None,
) -> History:
    """Train a model to `max_steps`, or go on where it was stopped.

    Args:
        model: moved to the device of the settings or, if they name
            none, to the best one here. It stays there, in evaluation
            mode.
        batches: those of this worker, if there are several.
        training_config: the settings. The tokens of a batch are those
            of `batches`, whatever `tokens_per_batch` says.
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end;
            the numbers it returns join the log. Of batches it is
            their `validation_loss`.
        folder: for log.jsonl and checkpoints. A training that was
            stopped there goes on as if it had not been.

    Under `torchrun` every worker calls this with its own batches, and
    the first one validates and writes. Section 5.

    Raises:
        TypeError: for batches that have no epochs.
        ValueError: without batches, with those of another worker, or
            in the folder of a training of another model, with other
            settings or other data, or of more steps.
        FloatingPointError: if the loss is not finite; names the step.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the step at
            hand is saved.

    Chapter: training-train
    """
    _check_batches(batches)
    _check_lengths(model, batches)
    if evaluate is not None and not callable(evaluate):
        _check_lengths(model, evaluate)
        if getattr(evaluate, "world_size", 1) > 1:
            raise ValueError("batches to validate on: give shuffle=False")
    training = _Training(
        model=model,
        batches=batches,
        config=training_config,
        evaluate=evaluate,
        folder=None if folder is None else Path(folder),
    )
    progress = training.progress
    if training.writes:
        write_atomically(training.folder / "log.jsonl", progress.log)
    cards = [training.device] if training.device.type == "cuda" else []
    with training.bar, torch.random.fork_rng(cards):
        with _asked_to_stop() as training.signals:
            _catch_up(training)
            _take_steps(training)
    if training.workers > 1:
        distributed.barrier()  # until all that is due is written
    model.eval()
    return History([json.loads(x) for x in progress.log.splitlines()])


def _catch_up(training: _Training) -> None:
    """Write the line that a failed validation kept from the log.

    Chapter: training-train
    """
    config, progress = training.config, training.progress
    last = config.max_steps
    validate = _due(progress.step, config.validate_every, last)
    log = validate or _due(progress.step, config.log_every, last)
    if log and progress.since.tokens:
        _report(training, validate)
