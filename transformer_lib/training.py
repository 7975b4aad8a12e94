# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The training loop of section 5, with stopping and resuming.

Chapter: book/training/training
"""

import atexit
import json
import logging
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from tqdm import tqdm

from transformer_lib.batching import Batch, TokenBatches
from transformer_lib.checkpoints import (
    _as_list,
    _check_folder,
    checkpoint_files,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.loss import model_losses, validation_loss
from transformer_lib.model import evaluating, foreign_parts, in_training
from transformer_lib.schedule import TrainingConfig, adam, learning_rate

_logger = logging.getLogger(__name__)


@dataclass
class _Progress:
    """How far a training run has come: what it keeps between two steps.

    Chapter: training-loop
    """

    settings: dict[str, Any]  # may not change when the run is resumed
    step: int = 0  # updates of the weights so far
    tokens: int = 0  # target tokens, without padding
    seconds: float = 0.0
    loss: float = 0.0  # summed since the last line of the log
    nll: float = 0.0
    log: list[dict[str, Any]] = field(default_factory=list)


def train(
    model: nn.Module,
    batches: TokenBatches,
    training_config: TrainingConfig,
    evaluate: Callable[..., Any] | TokenBatches | None = None,
    folder: str | Path | None = None,
    *,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    schedule: Callable[[int], float] | None = None,
    gradients: type["Gradients"] | None = None,
) -> "History":
    """Train a model to `max_steps`, or go on where it was stopped.

    Section 5.

    Args:
        model: trained on the device that it is on, and compiled if
            `torch.compile` returned it. Afterwards, also after an
            error, its modules are in the modes that they were in.
        batches: the training data. All workers of `torchrun` give the
            same batches, and each takes its share of every step.
        training_config: the settings.
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end. The
            numbers it returns, in a dict, join the log; a single number
            is logged as "validation", and a name that the log has
            already with `validation_` before it. If `evaluate` is a
            `TokenBatches`, their `validation_loss` joins the log.
        folder: for log.jsonl and checkpoints. A run that was stopped
            there goes on as if it had not been stopped.
        optimizer: the paper's Adam if not given; or one of your own, or
            several, each for some of the weights. The settings' betas,
            epsilon, warm-up and scale of the rate are then not used.
        schedule: schedule(step), a factor of the optimizer's own rates,
            for steps from 1. If not given, the rates are constant. The
            paper's Adam has the rate 1 and, if not given, equation 3.
        gradients: how a batch's gradients are computed, such as
            `Replays`; step by step if not given.

    Raises:
        TypeError: for a model, batches or `evaluate` of another kind.
        ValueError: in the folder of a run with other settings, data or
            frozen weights, or with more steps; if the optimizer's
            weights are not the model's.
        NotADirectoryError: if `folder` is a file, or in one.
        FloatingPointError: if the loss or, where a checkpoint is due, a
            weight is not finite.
        torch.OutOfMemoryError: says which batch was too large.
        RuntimeError: if another training runs in this process.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the current
            step is saved.

    Chapter: training-loop
    """
    config = training_config
    _check_kinds(model, batches, evaluate)
    updates = _Updates(model, config, optimizer, schedule)
    run = _Run(model, batches, config, evaluate, folder, updates, gradients)
    progress = run.progress
    stop = False
    with _training_mode(model), closing(run), _asked_to_stop() as signals:
        run.log_if_due()  # if a validation failed when it was due
        stream = _endless(batches, progress.step * run.batches_per_step)
        while progress.step < config.max_steps and not stop:
            run.step(list(islice(stream, run.batches_per_step)))
            # If one worker was asked to stop, all of them stop here.
            stop = _total(torch.tensor(len(signals))).item() > 0
            run.log_if_due()
            if stop or run.due(config.checkpoint_every):
                run.save()
    if run.workers > 1:
        distributed.barrier()  # until the first one has saved
    if stop or signals:  # a signal may come after the last step, too
        raise KeyboardInterrupt(f"stopped at step {progress.step}")
    return History(progress.log)


class _Run:
    """A training run: what it works with, and how far it has come.

    Chapter: training-loop
    """

    def __init__(
        self,
        model: nn.Module,
        batches: TokenBatches,
        config: TrainingConfig,
        evaluate: Callable[..., Any] | TokenBatches | None,
        folder: str | Path | None,
        updates: "_Updates",
        gradients: type["Gradients"] | None,
    ):
        self.rank, self.workers = worker()
        self.batches_per_step = config.accumulate * self.workers
        self.model, self.batches, self.config = model, batches, config
        self.evaluate, self.updates = evaluate, updates
        self.folder = None if folder is None else Path(folder)
        self.progress = _Progress({})
        if self.folder is not None:
            _check_folder(self.folder)
            self.progress = _resume(
                self.folder, model, updates, batches, config
            )
        if self.progress.step > config.max_steps:
            raise ValueError(f"{folder} is beyond step {config.max_steps}")
        self.losses = _shared(_Losses(model, config))
        self.gradients = (gradients or Gradients)(self.losses)
        self.gradients.clear()
        self.unread: list[Tensor] = []  # (loss, nll) of the last steps
        self.bar = tqdm(
            total=config.max_steps,
            initial=self.progress.step,
            disable=True if self.rank > 0 else None,  # None: in a terminal
        )
        self.restart_clock()
        # When the run would have begun, had it never been stopped.
        self.began = self.mark - self.progress.seconds

    def close(self) -> None:
        """What was the caller's is the caller's again."""
        self.bar.close()
        self.updates.set_rates(1.0)
        self.losses.zero_grad()

    def step(self, group: list[Batch]) -> None:
        """Change the weights once, by the batches of all workers."""
        self.progress.step += 1
        tokens = sum(batch.tokens for batch in group)
        self.progress.tokens += tokens
        self.seed_dropout()
        mine = group[self.rank :: self.workers]
        for batch in mine:
            if self.workers > 1:  # gradients are sent at the last one
                self.losses.require_backward_grad_sync = batch is mine[-1]
            with _memory_explained(batch):
                self.unread.append(self.gradients.add(batch, tokens))
        if self.config.clip_norm is not None:
            weights = self.losses.parameters()
            nn.utils.clip_grad_norm_(weights, self.config.clip_norm)
        self.updates.step(self.progress.step)
        self.gradients.clear()
        self.bar.update()

    def seed_dropout(self) -> None:
        """Dropout follows from the seed, the step and the worker.

        So a resumed run drops what it would have dropped.
        """
        seed, step = self.config.seed, self.progress.step
        chance = random.Random(f"{seed} {step} {self.rank}")
        if self.model.output_weight.is_cpu:  # no GPU's dice are touched
            torch.default_generator.manual_seed(chance.getrandbits(32))
        else:
            torch.manual_seed(chance.getrandbits(32))

    def due(self, every: int) -> bool:
        """Whether this step is one of "every so many", or the last."""
        step = self.progress.step
        last = step == self.config.max_steps
        return last or (every > 0 and step % every == 0)

    def log_if_due(self) -> None:
        """A line of the log, after a validation if that is due."""
        progress = self.progress
        last = progress.log[-1] if progress.log else {"step": 0, "tokens": 0}
        validate = self.due(self.config.validate_every)
        due = validate or self.due(self.config.log_every)
        if not due or progress.step == last["step"]:
            return  # a resumed run may have its line already
        self.read_losses()
        seconds = time.perf_counter() - self.mark
        speed = (progress.tokens - self.counted) / seconds
        scores = self.validate() if validate else {}
        progress.seconds = time.perf_counter() - self.began
        per_step = self.batches_per_step
        tokens = progress.tokens - last["tokens"]
        line = {
            "step": progress.step,
            "loss": progress.loss / tokens,
            "nll": progress.nll / tokens,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 2),
            "epoch": (progress.step * per_step - 1) // len(self.batches),
            "learning_rate": self.updates.rate(progress.step),
            "tokens_per_second": round(speed),
        }
        for name, score in scores.items():
            while name in line:
                name = f"validation_{name}"
            line[name] = score
        progress.loss = progress.nll = 0.0
        progress.log.append(line)
        if self.folder is not None and self.rank == 0:
            lines = [json.dumps(line) + "\n" for line in progress.log]
            write_atomically(self.folder / "log.jsonl", "".join(lines))
        self.bar.set_postfix(nll=f"{line['nll']:.3f}")
        _logger.info("step %d: nll %.3f", line["step"], line["nll"])
        self.restart_clock()

    def validate(self) -> dict[str, Any]:
        """The numbers of `evaluate`, as JSON has them."""
        if self.evaluate is None or self.rank > 0:
            return {}
        try:
            if not callable(self.evaluate):
                loss = validation_loss(self.model, self.evaluate)
                return {"validation_loss": loss}
            with evaluating(self.model):
                scores = self.evaluate(self.model, self.progress.step)
        except BaseException:
            self.save()  # so that what was learnt is not lost
            raise
        # A tensor, or NumPy's number, becomes an ordinary number.
        text = json.dumps(scores, default=lambda number: number.tolist())
        scores = json.loads(text)
        if scores is None:
            return {}
        return scores if isinstance(scores, dict) else {"validation": scores}

    def save(self) -> None:
        """A checkpoint, written by the first worker."""
        self.read_losses()
        self.progress.seconds = time.perf_counter() - self.began
        if self.folder is not None and self.rank == 0:
            save_checkpoint(
                self.folder,
                self.model,
                self.updates.optimizers,
                asdict(self.progress),
                self.config.keep_checkpoints,
                self.config.checkpoint_every,
            )
        self.restart_clock()

    def read_losses(self) -> None:
        """Add up the losses of the last steps; a GPU is waited for."""
        if not self.unread:
            return
        progress, sums = self.progress, _total(torch.stack(self.unread))
        self.unread.clear()
        for loss, nll in sums.tolist():  # (steps, 2)
            progress.loss += loss
            progress.nll += nll
        if not math.isfinite(progress.loss):
            raise FloatingPointError(
                f"the loss is {progress.loss} by step {progress.step}: "
                "lower learning_rate_scale, or give a clip_norm"
            )

    def restart_clock(self) -> None:
        """The speed is that of the steps from here on."""
        self.mark, self.counted = time.perf_counter(), self.progress.tokens


def _endless(batches: TokenBatches, taken: int) -> Iterator[Batch]:
    """Epoch after epoch, without the batches that were taken before.

    Chapter: training-loop
    """
    first, start = divmod(taken, len(batches))
    for epoch in count(first):
        yield from batches.epoch(epoch, start)
        start = 0


def _check_kinds(model: Any, batches: Any, evaluate: Any) -> None:
    """Raise TypeError for what cannot be trained or trained on.

    Chapter: training-loop
    """
    needed = [
        (model, "hidden", "a Transformer, or a model with its methods"),
        (batches, "epoch", "TokenBatches(pairs, tokens_per_batch)"),
    ]
    if evaluate is not None and not callable(evaluate):
        wanted = "a function of model and step, or TokenBatches(pairs)"
        needed.append((evaluate, "epoch", wanted))
    for given, name, wanted in needed:
        if not hasattr(given, name):
            kind = type(given).__name__
            raise TypeError(f"a {kind} has no {name}: give {wanted}")


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    Chapter: training-step
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
        if getattr(model, "_compiled_call_impl", None) is not None:
            raise ValueError(
                "model.compile() compiles model(...), which training does "
                "not call: give train(torch.compile(model), ...)"
            )
        self.model, self.config = model, config
        self.hidden = model.hidden
        if hasattr(model, "_orig_mod"):  # as `torch.compile` was told to
            self.hidden = model.dynamo_ctx(model.hidden)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        weight = self.model.output_weight
        batch = batch.to(weight.device)
        bf16 = self.config.precision == "bf16"
        with torch.autocast(weight.device.type, torch.bfloat16, enabled=bf16):
            hidden = self.hidden(batch.source_ids, batch.target_ids)
            return model_losses(
                self.model,
                hidden,
                batch.labels,
                label_smoothing=self.config.label_smoothing,
                smoothing=self.config.smoothing,
            )


class Gradients:
    """Adds the gradients of batches to those of a model's weights.

    Args:
        losses: a module that turns a `Batch` into two sums in nats, of
            the loss with smoothing, and of the loss without

    Chapter: training-step
    """

    def __init__(self, losses: nn.Module):
        self.losses = losses
        self.weights = [*losses.parameters()]

    def add(self, batch: Batch, tokens: int | Tensor) -> Tensor:
        """Adds those of the loss per token; returns both sums, (2,).

        The batch is one worker's, the tokens are those of all workers.
        """
        loss, nll = self.losses(batch)
        # DistributedDataParallel takes the mean over the workers; the
        # loss per token needs their sum.
        (loss * worker()[1] / tokens).backward()
        return torch.stack([loss.detach(), nll])

    def clear(self) -> None:
        """Forget all gradients, before the next step."""
        for weight in self.weights:
            weight.grad = None


@contextmanager
def _memory_explained(batch: Batch) -> Iterator[None]:
    """If the memory is too small for a batch, say what helps.

    Chapter: training-step
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        short = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not (short or "can't allocate memory" in str(error)):
            raise
        (rows, source), target = batch.source_ids.shape, batch.labels.size(1)
        raise torch.OutOfMemoryError(
            f"out of memory for a batch of {rows} pairs, {source} source and "
            f"{target} target ids long: give fewer tokens_per_batch, and "
            "accumulate=2 or more to have as many tokens in a step"
        ) from error


_one_at_a_time = threading.Lock()


@contextmanager
def _training_mode(model: nn.Module) -> Iterator[None]:
    """Training mode and settings of PyTorch, for one run only.

    Chapter: training-step
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise RuntimeError(
            "another training runs in this process, and both would use the "
            "same random numbers: train in another process"
        )
    device = model.output_weight.device
    if device.type == "cpu":
        dice = torch.random.fork_rng([])
    else:
        every = range(torch.accelerator.device_count())
        dice = torch.random.fork_rng(every, device_type=device.type)
    try:
        with (
            dice,
            in_training(model),
            _with_tf32(device),
            _with_small_caches(),
        ):
            yield
    finally:
        _one_at_a_time.release()


@contextmanager
def _with_tf32(device: torch.device) -> Iterator[None]:
    """On a GPU products are in TF32, unless the caller has chosen.

    Chapter: training-step
    """
    before = None
    if device.type == "cuda":
        # An error says that PyTorch's newer interface was used.
        with suppress(RuntimeError):
            before = torch.get_float32_matmul_precision()
    if before is not None:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)


@contextmanager
def _with_small_caches() -> Iterator[None]:
    """Keep few of the programs that bf16 on a CPU needs.

    oneDNN keeps one for each shape that it meets, and PyTorch keeps it
    too: of the last 1,024, gigabytes. Both read these at their first use.

    Chapter: training-step
    """
    caches = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"
    ours = [name for name in caches if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "8"))
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


class _Updates:
    """What changes the weights: the optimizers, and their rates.

    Chapter: training-optimizers
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        optimizer: Optimizer | Sequence[Optimizer] | None,
        schedule: Callable[[int], float] | None,
    ):
        def equation_3(step: int) -> float:
            return config.learning_rate_scale * learning_rate(
                step, model.config.d_model, config.warmup_steps
            )

        def constant(step: int) -> float:
            return 1.0

        self.is_papers = optimizer is None
        if optimizer is None:
            optimizer = adam(model, config.betas, config.epsilon)
            optimizer.param_groups[0]["lr"] = 1.0
        self.optimizers = _as_list(optimizer)
        usual = equation_3 if self.is_papers else constant
        self.schedule = schedule or usual
        self.own_rates = [group["lr"] for group in self.groups()]
        weights = set(model.parameters())
        for group in self.groups():
            if not weights.issuperset(group["params"]):
                raise ValueError(
                    "the optimizer has a weight that is not the model's: "
                    "make it of model.parameters()"
                )

    def groups(self) -> list[dict[str, Any]]:
        """The groups of weights of all optimizers, with their settings."""
        return [
            group
            for optimizer in self.optimizers
            for group in optimizer.param_groups
        ]

    def set_rates(self, factor: float) -> None:
        """The optimizers' own rates, times a factor."""
        for group, rate in zip(self.groups(), self.own_rates, strict=True):
            group["lr"] = factor * rate

    def step(self, step: int) -> None:
        """Change the weights, at the rates of this step."""
        self.set_rates(self.schedule(step))
        for optimizer in self.optimizers:
            optimizer.step()

    def rate(self, step: int) -> float:
        """The rate of the first weights, for the log."""
        return float(self.schedule(step) * self.own_rates[0])


@dataclass
class History:
    """What a training run logged, a dict for each line.

    Chapter: training-record
    """

    lines: list[dict[str, Any]]

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        lines = [line for line in self.lines if name in line]
        steps = [line["step"] for line in lines]
        return steps, [line[name] for line in lines]


_MAY_CHANGE = (
    "max_steps",
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_checkpoints",
)


def _resume(
    folder: Path,
    model: nn.Module,
    updates: _Updates,
    batches: TokenBatches,
    config: TrainingConfig,
) -> _Progress:
    """Put back the folder's newest checkpoint, if it has one.

    Chapter: training-resume
    """
    settings = asdict(model.config) | asdict(config)
    for name in _MAY_CHANGE:  # the others affect the weights
        del settings[name]
    frozen = [n for n, w in model.named_parameters() if not w.requires_grad]
    kinds = [type(optimizer).__name__ for optimizer in updates.optimizers]
    settings |= {
        "model": ", ".join(foreign_parts(model)) or "Transformer",
        "frozen": frozen,
        "optimizer": None if updates.is_papers else kinds,
        "workers": worker()[1],
        "data": batches.fingerprint(),
    }
    settings = json.loads(json.dumps(settings))  # as they are read
    files = checkpoint_files(folder)
    if not files:
        return _Progress(settings)
    before = load_checkpoint(files[-1])["settings"]
    for name in sorted({*before, *settings}):
        if before.get(name) != settings.get(name):
            raise ValueError(
                f"{files[-1]} was trained with {name}={before.get(name)}, "
                f"not {settings.get(name)}"
            )
    state = load_checkpoint(files[-1], model, updates.optimizers)
    _logger.info("going on at step %d", state["step"])
    return _Progress(**state)


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM fill a list; a second one has its usual effect.

    Signals reach the main thread alone: in another the list stays empty.

    Chapter: training-resume
    """
    signals: list[int] = []
    usual: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(number, usual[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            usual[number] = signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def worker() -> tuple[int, int]:
    """The rank of this process under `torchrun`, and how many there are.

    (0, 1) for a process on its own.

    Chapter: training-workers
    """
    rank, workers = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return int(rank or 0), int(workers or 1)


def _shared(losses: nn.Module) -> nn.Module:
    """A module whose gradients are the mean over all workers.

    Chapter: training-workers
    """
    if worker()[1] == 1:
        return losses
    if not distributed.is_initialized():
        gpu = next(losses.parameters()).is_cuda
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        # A day, as the others wait while the first one validates. If one
        # of them dies, torchrun ends the others at once.
        distributed.init_process_group(backend, timeout=timedelta(days=1))
        atexit.register(distributed.destroy_process_group)
    for buffer in losses.buffers():  # once, and not in every step
        distributed.broadcast(buffer, src=0)
    return DistributedDataParallel(losses, broadcast_buffers=False)


def _total(tensor: Tensor) -> Tensor:
    """The sum over all workers.

    Chapter: training-workers
    """
    if worker()[1] > 1:
        distributed.all_reduce(tensor)
    return tensor
