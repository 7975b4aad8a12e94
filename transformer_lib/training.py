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
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
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
    nll: float = 0.0  # negative log-likelihood: nats, unsmoothed
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
    position: int = 0  # batches taken from this epoch
    tokens: int = 0
    seconds: float = 0.0
    rate: float = 0.0  # of the last step
    since: _Sums = field(default_factory=_Sums)  # since the last line
    log: str = ""  # all lines so far


@dataclass
class _Training:
    """A training: what it works with, and how far it has come.

    Making one moves the model to its device and puts the folder's
    newest checkpoint back into model and optimizer; with several
    workers it joins their group.

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
        self.model.to(self.device).zero_grad()
        self.optimizer = adam(self.model, config.betas, config.epsilon)
        self.progress = _starting_point(self)  # fills model, optimizer
        losses = _Losses(self.model, config)
        self.compute_losses = _share_gradients(losses, self.progress.step)
        self.unread: list[Tensor] = []  # (loss, nll) of the last steps
        self.signals: list[int] = []  # not empty: somebody asks to stop
        self.began = time.perf_counter() - self.progress.seconds
        silent = self.rank > 0 or sys.stderr is None
        # With None, tqdm shows its bar in a terminal alone.
        self.bar = tqdm(total=config.max_steps, disable=silent or None)
        self.bar.update(self.progress.step)

    def due(self, every: int) -> bool:
        """Whether this step is the last, or one of every so many."""
        step = self.progress.step
        last = step == self.config.max_steps
        return last or (every > 0 and step % every == 0)


def _take_steps(training: _Training) -> None:
    """Section 5, step by step, until the last one or a signal.

    Chapter: training-loop
    """
    config = training.config
    progress = training.progress
    batches = _stream(training)
    mark = time.perf_counter()
    while progress.step < config.max_steps:
        group = list(islice(batches, config.accumulate))
        tokens, stop = _agree(training, group)
        progress.step += 1
        progress.tokens += tokens
        progress.since.tokens += tokens
        sums = _add_gradients(training, group, tokens)
        training.unread.append(sums)
        _update_weights(training)

        validate = training.due(config.validate_every)
        log = validate or training.due(config.log_every)
        save = stop or training.due(config.checkpoint_every)
        if not (log or save):
            continue
        _read_losses(training)
        progress.since.time += time.perf_counter() - mark
        if log:
            _report(training, validate)
        if save:
            _save(training)
        if stop:
            if training.workers > 1:
                distributed.barrier()  # until the first one has saved
            raise KeyboardInterrupt
        mark = time.perf_counter()


def _stream(training: _Training) -> Iterator[Batch]:
    """Batches without end; `progress` counts those that were taken.

    Chapter: training-step
    """
    progress = training.progress
    while True:
        rest = training.batches.epoch(progress.epoch, progress.position)
        for batch in rest:
            progress.position += 1
            yield batch
        progress.epoch += 1
        progress.position = 0


def _agree(training: _Training, group: list[Batch]) -> tuple[int, bool]:
    """Of all workers: a step's target tokens, and whether to stop.

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
    step = training.progress.step
    # Dropout depends on these three alone, so a resumed training
    # draws what it would have drawn, and each worker its own.
    dice = random.Random(f"{config.seed} {step} {training.rank}")
    torch.manual_seed(dice.getrandbits(32))
    bf16 = config.precision == "bf16"
    total = torch.zeros(2, device=device)
    for number, batch in enumerate(group, 1):
        # Read by DistributedDataParallel: workers share their gradients
        # once, at the last batch.
        last = number == len(group)
        training.compute_losses.require_backward_grad_sync = last
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss, nll = training.compute_losses(batch.to(device))
        # DistributedDataParallel takes the mean over the workers; the
        # loss per token needs their sum.
        (loss * training.workers / tokens).backward()
        total = total + torch.stack([loss.detach(), nll])
    return total


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


def _read_losses(training: _Training) -> None:
    """Add up the losses of the last steps; here the host waits.

    Chapter: training-record
    """
    sums = torch.stack(training.unread)  # (steps, 2)
    training.unread.clear()
    if training.workers > 1:
        distributed.all_reduce(sums)
    since = training.progress.since
    first_step = training.progress.step + 1 - len(sums)
    for step, (loss, nll) in enumerate(sums.tolist(), first_step):
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss of step {step} is {loss}: lower "
                "learning_rate_scale, or give a clip_norm"
            )
        since.loss += loss
        since.nll += nll


_LOGGED = {"step", "epoch", "loss", "nll", "learning_rate"}
_LOGGED |= {"tokens", "tokens_per_second", "seconds"}


def _validate(training: _Training) -> dict[str, Any]:
    """What `evaluate` says of the model, without dropout and gradients.

    Chapter: training-record
    """
    model, evaluate = training.model, training.evaluate
    if not callable(evaluate):
        return {"validation_loss": validation_loss(model, evaluate)}
    # A function may keep what it sees: no inference mode for it.
    with evaluating(model), torch.inference_mode(False), torch.no_grad():
        scores = evaluate(model, training.progress.step)
    if scores is None:
        return {}
    if not isinstance(scores, dict):
        raise TypeError(f"evaluate returns {scores!r}: give a dict")
    scores = dict(scores)  # the caller's own stays as it is
    for name, score in scores.items():
        if name in _LOGGED:
            raise ValueError(f"evaluate returns {name!r}: rename it")
        if hasattr(score, "tolist"):  # a tensor, or numpy's
            scores[name] = score.tolist()
    json.dumps(scores)  # what a log cannot hold fails here
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


# tokens_per_batch too: it is the batches' own, and in their fingerprint.
_MAY_CHANGE = {"tokens_per_batch", "max_steps", "device", "log_every"}
_MAY_CHANGE |= {"validate_every", "checkpoint_every", "keep_checkpoints"}


def fixed_settings(config: TrainingConfig) -> dict[str, Any]:
    """What a training keeps to its end: what changes its weights.

    Chapter: training-resume
    """
    settings = asdict(config)
    for name in _MAY_CHANGE:
        del settings[name]
    return settings


def check_settings(
    begun: dict[str, Any], now: dict[str, Any], where: object
) -> None:
    """Refuse to go on with other settings than a training began with.

    If `begun` lacks a field of `TrainingConfig`, the training is older
    than the field and had its default. What else `begun` lacks is not
    compared.

    Raises:
        ValueError: naming the setting and both values.

    Chapter: training-resume
    """
    begun = asdict(TrainingConfig()) | begun
    for name, value in now.items():
        then = begun.get(name, value)
        # `begun` may come from a JSON file, in which tuples are lists.
        if json.loads(json.dumps(then)) != json.loads(json.dumps(value)):
            remedy = "give that"
            if name in ("data", "batches"):
                remedy = "give the pairs, tokens and seed that it began with"
            raise ValueError(
                f"{where} is of a training with {name}={then}, not "
                f"{value}: {remedy}, or name another folder"
            )


def _settings(training: _Training) -> dict[str, Any]:
    """All that may not change between two starts.

    Chapter: training-resume
    """
    model, batches = training.model, training.batches
    settings = asdict(model.config) | fixed_settings(training.config)
    settings["class"] = type(model).__name__
    settings["workers"] = training.workers
    settings["batches"] = len(batches)
    if hasattr(batches, "fingerprint"):
        settings["data"] = batches.fingerprint()
    return settings


def _starting_point(training: _Training) -> _Progress:
    """Put the folder's newest checkpoint back; returns its progress.

    Nothing is put back from a training that may not go on.

    Chapter: training-resume
    """
    if training.folder is None:
        return _Progress(settings={})
    settings = _settings(training)
    files = checkpoint_files(training.folder)
    if not files:
        return _Progress(settings)
    newest = files[-1]
    state = load_checkpoint(newest)  # only read
    check_settings(state["settings"], settings, newest)
    max_steps = training.config.max_steps
    if state["step"] > max_steps:
        raise ValueError(f"{newest} is beyond {max_steps=}: give more")
    load_checkpoint(newest, training.model, training.optimizer)
    progress = _Progress(**state)
    progress.since = _Sums(**state["since"])
    return progress


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM fill a list, instead of ending the program.

    A second signal of the kind does what it always did.

    Chapter: training-resume
    """
    signals: list[int] = []
    usual_handlers: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(number, usual_handlers[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            # None: whoever handles it is not written in Python.
            if handler not in (signal.SIG_IGN, None):
                usual_handlers[number] = handler
                signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in usual_handlers.items():
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
    wanted = str(name or best or "cpu")
    _, workers = worker()
    try:
        device = torch.device(wanted)
        if device.type == "cuda" and workers > 1:
            wanted = f"cuda:{os.environ['LOCAL_RANK']}"
            device = torch.device(wanted)
            torch.cuda.set_device(device)  # before any card is used
        probe = torch.zeros(1, device=device)
        probe.item()  # fails on "meta", which holds no numbers
    except torch.OutOfMemoryError:
        raise  # there is one, and it is full
    except (RuntimeError, AssertionError):  # no device, or no card
        raise ValueError(
            f"no device {wanted!r} here: give another, such as cpu"
        ) from None
    return probe.device


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    A module, because DistributedDataParallel wraps a `forward`, and
    the model's own makes logits, which training does not need.

    Chapter: training-workers
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
        self.model = model
        self.config = config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return projected_losses(
            self.model.hidden(batch.source_ids, batch.target_ids),
            self.model.output_weight,
            batch.labels,
            self.config.label_smoothing,
            self.config.smoothing,
        )


def _share_gradients(module: nn.Module, step: int) -> nn.Module:
    """A module whose gradients are the mean over all workers.

    All take the weights of the first.

    Raises:
        ValueError: if they do not begin after the same step.

    Chapter: training-workers
    """
    _, workers = worker()
    if workers == 1:
        return module
    if not distributed.is_initialized():
        # Counts are shared by the processors, gradients by the cards:
        # unasked, PyTorch would connect the cards alone.
        cards = next(module.parameters()).is_cuda
        distributed.init_process_group(
            backend="cpu:gloo,cuda:nccl" if cards else "gloo",
            # A day, as the others wait while the first one validates.
            timeout=timedelta(days=1),
        )
        atexit.register(distributed.destroy_process_group)
    least, most = torch.tensor(step), torch.tensor(step)
    distributed.all_reduce(least, distributed.ReduceOp.MIN)
    distributed.all_reduce(most, distributed.ReduceOp.MAX)
    if least != most:
        raise ValueError(
            f"workers at steps {least} and {most}: give one shared folder"
        )
    # Each worker's table of sines is as long as that worker needed, so
    # buffers are not shared. PyTorch calls this option old, but the new
    # one, forward_sync_buffers=False, still shares them at the start.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return DistributedDataParallel(module, broadcast_buffers=False)


def _check_share(batches: TokenBatches) -> None:
    """Raise if there are no batches, or they are another worker's.

    Chapter: training-train
    """
    if len(batches) == 0:
        raise ValueError("there is nothing to train on: no batches")
    if isinstance(batches, TokenBatches):
        share = batches.rank, batches.world_size
        if share != worker():
            raise ValueError(
                f"batches with rank and world_size {share} for worker "
                f"{worker()}: give TokenBatches this one's"
            )


def _check_fit(batches: TokenBatches, model: nn.Module) -> None:
    """Raise if there are no epochs, or a sentence is too long.

    Chapter: training-train
    """
    if not hasattr(batches, "epoch"):
        raise TypeError(f"a {type(batches).__name__} is no TokenBatches")
    limited = model.config.positions == "learned"
    if limited and isinstance(batches, TokenBatches):
        longest, most = batches.lengths.max(), model.config.max_length
        if longest > most:
            raise ValueError(
                f"a sentence has {longest} ids, the model positions for "
                f"{most}: leave it out, encode_pairs(..., {most})"
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
            mode, also when the training is stopped.
        batches: this worker's share, if there are several workers.
        training_config: the settings. The tokens of a batch are those
            of `batches`, whatever `tokens_per_batch` says.
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end;
            the numbers it returns join the log. If it is a
            `TokenBatches`, their `validation_loss` joins it.
        folder: for log.jsonl and checkpoints. A training that was
            stopped there goes on as if it had not been.

    Under `torchrun` every worker calls this with its own batches, and
    the first one validates and writes. Section 5.

    Raises:
        TypeError: for batches that have no epochs, or if `evaluate`
            returns no dict.
        ValueError: without batches, with those of another worker, or
            in the folder of a training of another model, with other
            settings or other data, or of more steps; if a sentence is
            longer than the model's positions allow, if `evaluate`
            returns a name of the log, or for a device that is not here.
        FloatingPointError: if the loss is not finite; names the step.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the step at
            hand is saved.

    Chapter: training-train
    """
    _check_share(batches)
    _check_fit(batches, model)
    if evaluate is not None and not callable(evaluate):
        _check_fit(evaluate, model)
        if getattr(evaluate, "world_size", 1) > 1:
            raise ValueError(
                "the batches to validate on are shared out, but the first "
                "worker validates alone: give shuffle=False"
            )
    training = _Training(
        model=model,
        batches=batches,
        config=training_config,
        evaluate=evaluate,
        folder=None if folder is None else Path(folder),
    )
    progress = training.progress
    if training.writes:
        # Lines after the checkpoint go: their steps are taken again.
        write_atomically(training.folder / "log.jsonl", progress.log)
    cards = [training.device] if training.device.type == "cuda" else []
    with training.bar, torch.random.fork_rng(cards):
        with _asked_to_stop() as signals:
            training.signals = signals
            try:
                _catch_up(training)
                model.train()
                _take_steps(training)
            finally:
                model.eval()
    if training.workers > 1:
        distributed.barrier()  # until all that is due is written
    if training.signals:  # after the last step
        raise KeyboardInterrupt
    lines = progress.log.splitlines()
    return History([json.loads(line) for line in lines])


def _catch_up(training: _Training) -> None:
    """Write the line of a step whose validation failed, if one did.

    Chapter: training-train
    """
    validate = training.due(training.config.validate_every)
    log = validate or training.due(training.config.log_every)
    unlogged = training.progress.since.tokens > 0
    if log and unlogged:
        _report(training, validate)
