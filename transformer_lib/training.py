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
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from itertools import chain, count, islice, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer
from tqdm import tqdm

from transformer_lib.batching import Batch, TokenBatches
from transformer_lib.checkpoints import (
    alike,
    as_list,
    check_folder,
    checkpoint_files,
    load_checkpoint,
    probe,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.embeddings import UNK
from transformer_lib.loss import model_losses, validation_loss
from transformer_lib.model import (
    Transformer,
    evaluating,
    in_training,
    uncompiled,
)
from transformer_lib.schedule import TrainingConfig, adam, learning_rate

_logger = logging.getLogger(__name__)


@dataclass
class _Progress:
    """How far a training run has come: what it keeps between two steps.

    Chapter: training-loop
    """

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
            error, its modules are in the modes that they were in. Its
            `hidden` is called, and `project` if that does more than
            multiply by `output_weight`, but not the model itself: a
            hook on the model that only watches sees no step.
        batches: the training data. All workers of `torchrun` give the
            same batches, and each takes its share of every step.
        training_config: the settings.
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end. The
            numbers it returns, in a dict, join the log; a name that the
            log has already, with `validation_` before it; NaN and
            infinity as None. A number alone is `validation`. If it is a
            `TokenBatches`, their `validation_loss` joins the log.
        folder: for log.jsonl and checkpoints. A run that was stopped
            there goes on as if it had not been stopped.
        optimizer: the paper's Adam if not given; or one of your own, or
            several, each for some of the weights. The settings' betas
            and epsilon are then not used, and warm-up and scale of the
            rate only where equation 3 is followed (see `schedule`).
        schedule: schedule(step), a factor of the optimizer's own rates,
            for steps from 1. If not given, the rates are constant,
            except that Adam with a rate of 1, such as `adam` makes,
            follows equation 3.
        gradients: how a batch's gradients are computed, such as
            `Replays`; step by step if not given.

    Raises:
        TypeError: for `batches`, `evaluate` or `schedule` of another
            kind.
        ValueError: in the folder of a run with other settings, data,
            optimizers or rates, or with more steps; if workers differ
            in any of these; if nothing would be learnt, for instance
            because all weights are frozen; if the optimizer's weights
            are not the model's; at a step whose rate is below 0.
        NotADirectoryError: if `folder` is a file, or in one.
        FloatingPointError: if the loss or, where a checkpoint is due, a
            weight is not finite.
        RuntimeError: if other workers do not come.
        KeyboardInterrupt: after Ctrl-C, SIGTERM or a scheduler's signal,
            once the current step is saved.

    Chapter: training-loop
    """
    if not hasattr(batches, "epoch"):
        raise TypeError(f"a {type(batches).__name__} is no TokenBatches")
    for given in evaluate, schedule:
        known = callable(given) or hasattr(given, "epoch")
        if not (given is None or known):
            kind = type(given).__name__
            raise TypeError(f"a {kind} is neither TokenBatches nor a function")
    device = model.output_weight.device
    precision = pick_precision(training_config.precision, device)
    config = replace(training_config, precision=precision)
    updates = _Updates(model, config, optimizer, schedule)
    rest = batches, config, evaluate, folder, updates, gradients
    with (
        _training_mode(model),
        closing(_Run(model, *rest)) as run,
        _asked_to_stop() as signals,
    ):
        progress, stop = run.progress, False
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
        self.model, self.batches, self.config = model, batches, config
        self.evaluate, self.updates = evaluate, updates
        self.folder = None if folder is None else check_folder(folder)
        losses = _Losses(model, config)
        _meet(gpu=model.output_weight.is_cuda)
        self.rank, self.workers = worker()
        self.batches_per_step = config.accumulate * self.workers
        self.progress, self.between = _Progress(), None
        self.settings: dict[str, Any] = {}
        if self.folder is not None or self.workers > 1:
            self.settings = _settings(model, batches, config, updates)
        ours = isinstance(uncompiled(model), Transformer)
        if self.folder is not None or ours:
            probe(model)  # as each checkpoint will
            ids = torch.tensor([[UNK] * getattr(batches, "longest", 1)])
            with evaluating(model):  # does it take the longest pair?
                model.encode(ids.to(model.output_weight.device))
        if self.folder is not None:
            for file in checkpoint_files(self.folder)[-1:]:
                self.resume(file)
        if self.workers > 1:
            planned = self.described(config.max_steps) | asdict(config)
            _agree(planned | {"step": self.progress.step})
        self.losses = _shared(losses)
        self.gradients = (gradients or Gradients)(self.losses)
        self.gradients.clear()
        self.unread: list[Tensor] = []  # (loss, nll) of the last steps
        self.bar = tqdm(
            total=config.max_steps,
            initial=self.progress.step,
            disable=True if self.rank > 0 else None,  # None: in a terminal
        )
        # When the run would have begun, had it never been stopped.
        self.began = time.perf_counter() - self.progress.seconds

    def described(self, step: int) -> dict[str, Any]:
        """The settings, the step, and a few of the rates until then."""
        rates = {
            f"learning rate at step {at}": [
                float(f"{rate:.9g}") for rate in self.updates.rates(at)
            ]
            for at in sorted({1, (step + 1) // 2, step} - {0})
        }
        return self.settings | rates | {"step": step}

    def resume(self, file: Path) -> None:
        """Put back a checkpoint, if it is of a run like this one."""

        def check(state: dict[str, Any]) -> None:
            if "settings" not in state:
                raise ValueError(
                    f"{file} was not written by `train`: name another folder"
                )
            now = self.described(state["step"])
            if found := _differences(state["settings"], now, "was {}, is {}"):
                raise ValueError(f"{file} is of another run: {found}")
            if state["step"] > self.config.max_steps:
                most = self.config.max_steps
                raise ValueError(f"{self.folder} is beyond step {most}")

        optimizers = self.updates.optimizers
        state = load_checkpoint(file, self.model, optimizers, check=check)
        names = [each.name for each in fields(_Progress)]
        self.progress = _Progress(**{name: state[name] for name in names})
        self.between = None if state["regular"] else file
        scores = probe(self.model)[..., :8]
        if not alike(scores, scores.new_tensor(state["probe"])):
            raise ValueError(
                f"with the weights of {file} this model computes other scores "
                "than the one that was trained: was a part exchanged?"
            )
        _logger.info("going on at step %d", self.progress.step)

    def close(self) -> None:
        """What was the caller's is the caller's again."""
        self.bar.close()
        self.updates.set_rates(self.updates.own_rates)
        self.losses.zero_grad()

    def step(self, group: list[Batch]) -> None:
        """Change the weights once, by the batches of all workers."""
        self.progress.step += 1
        tokens = sum(batch.tokens for batch in group)
        self.progress.tokens += tokens
        # Dropout follows from the seed, the step and the worker, so that
        # a resumed run drops what it would have dropped.
        chance = f"{self.config.seed} {self.progress.step} {self.rank}"
        seed = random.Random(chance).getrandbits(32)
        if self.model.output_weight.is_cpu:  # no GPU's dice are touched
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        mine = group[self.rank :: self.workers]
        for batch in mine:
            # Workers send each other their gradients at the last one.
            self.losses.require_backward_grad_sync = batch is mine[-1]
            self.unread.append(self.gradients.add(batch, tokens))
        if self.config.clip_norm is not None:
            weights = self.losses.parameters()
            nn.utils.clip_grad_norm_(weights, self.config.clip_norm)
        self.updates.step(self.progress.step)
        self.gradients.clear()
        self.bar.update()

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
        scores = self.validate() if validate else {}
        progress.seconds = time.perf_counter() - self.began
        tokens = progress.tokens - last["tokens"]
        taken = progress.step * self.batches_per_step
        line = {
            "step": progress.step,
            "loss": progress.loss / tokens,
            "nll": progress.nll / tokens,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 2),
            "epoch": (taken - 1) // len(self.batches),
            "learning_rate": self.updates.rates(progress.step)[0],
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

    def validate(self) -> dict[str, Any]:
        """The numbers of `evaluate`, as JSON has them."""
        if self.evaluate is None or self.rank > 0:
            return {}
        try:
            if callable(self.evaluate):
                with evaluating(self.model):
                    scores = self.evaluate(self.model, self.progress.step)
            else:
                loss = validation_loss(self.model, self.evaluate)
                scores = {"validation_loss": loss}
            if not isinstance(scores, dict | None):
                scores = {"validation": scores}
            # A tensor, or NumPy's number, becomes a number; NaN, null.
            text = json.dumps(scores or {}, default=float)
            return json.loads(text, parse_constant=lambda _: None)
        except BaseException:
            self.save()  # so that what was learnt is not lost
            raise

    def save(self) -> None:
        """A checkpoint, written by the first worker."""
        self.read_losses()
        self.progress.seconds = time.perf_counter() - self.began
        if self.folder is not None and self.rank == 0:
            step, every = self.progress.step, self.config.checkpoint_every
            state = asdict(self.progress) | {
                "settings": self.described(step),
                "probe": probe(self.model)[..., :8].tolist(),
                "regular": every > 0 and step % every == 0,
            }
            keep = self.config.keep_checkpoints + bool(self.between)
            optimizers = self.updates.optimizers
            file = save_checkpoint(
                self.folder, self.model, optimizers, state, keep
            )
            # What a stop left between two is in no mean of the last.
            if self.between not in (None, file):
                self.between.unlink(missing_ok=True)
                self.between = None

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
                "lower learning_rate_scale, give a clip_norm, or train "
                "weights in float32"
            )


def _endless(batches: TokenBatches, taken: int) -> Iterator[Batch]:
    """Epoch after epoch, without the batches that were taken before.

    Chapter: training-loop
    """
    first, start = divmod(taken, len(batches))
    for epoch in count(first):
        yield from batches.epoch(epoch, start)
        start = 0


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    Chapter: training-step
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
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
        self.losses.zero_grad()


def pick_precision(name: str, device: torch.device) -> str:
    """For "auto", "bf16" if the device has instructions for it.

    Chapter: training-step
    """
    if name != "auto":
        return name
    native = False
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu" and hasattr(torch.cpu, "get_capabilities"):
        able = torch.cpu.get_capabilities()  # since torch 2.13
        native = any(able.get(x) for x in ("amx_bf16", "avx512_bf16"))
    return "bf16" if native else "fp32"


@contextmanager
def _training_mode(model: nn.Module) -> Iterator[None]:
    """Training mode inside; the caller's modes and random numbers return.

    Chapter: training-step
    """
    kind = model.output_weight.device.type
    gpus = range(0 if kind == "cpu" else torch.accelerator.device_count())
    with torch.random.fork_rng(gpus, device_type=kind), in_training(model):
        yield


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

        if optimizer is None:
            optimizer = adam(model, config.betas, config.epsilon)
        self.optimizers = as_list(optimizer)
        self.own_rates = [group["lr"] for group in self.groups()]
        if any("initial_lr" in group for group in self.groups()):
            raise ValueError(
                "a scheduler of PyTorch holds this optimizer, and train "
                "would not call it: give schedule=, a function of the step"
            )
        ours = {*map(type, self.optimizers)} == {Adam}
        ours = ours and {*self.own_rates} == {1.0}
        usual = equation_3 if ours else lambda step: 1.0
        self.schedule = schedule or usual
        self.check(model, config.max_steps)

    def groups(self) -> list[dict[str, Any]]:
        """The groups of weights of all optimizers, with their settings."""
        return [group for one in self.optimizers for group in one.param_groups]

    def check(self, model: nn.Module, most_steps: int) -> None:
        """Refuse what would teach a weight nothing, or twice as much."""
        given = [w for group in self.groups() for w in group["params"]]
        moved = [w for w in given if w.requires_grad]
        learning = {w for w in model.parameters() if w.requires_grad}
        frozen = not learning or not torch.is_grad_enabled()
        rates = [*map(self.rates, (1, most_steps // 2 + 1, most_steps))]
        if frozen or not any(rate > 0 for rate in chain(*rates)):
            raise ValueError(
                "nothing would be learnt: all weights are frozen, or train "
                "is inside of torch.no_grad(), or all learning rates are 0"
            )
        if {*moved} != learning or len(moved) > len(learning):
            raise ValueError(
                "each of the model's weights that are to learn has to be in "
                "one optimizer: make it of model.parameters(), or freeze "
                "others with requires_grad_(False)"
            )

    def set_rates(self, rates: list[float]) -> None:
        """A rate for each group of weights."""
        for group, rate in zip(self.groups(), rates, strict=True):
            group["lr"] = rate

    def step(self, step: int) -> None:
        """Change the weights, at the rates of this step."""
        self.set_rates(self.rates(step))
        for optimizer in self.optimizers:
            optimizer.step()

    def rates(self, step: int) -> list[float]:
        """The rate of each group of weights; refuses one below 0."""
        factor = self.schedule(step)
        rates = [float(factor * rate) for rate in self.own_rates]
        if not all(rate >= 0 for rate in rates):
            raise ValueError(f"rates of step {step} aren't 0 or more: {rates}")
        return rates


@dataclass
class History:
    """What a training run logged, a dict for each line.

    A line has "step", "loss" and "nll" (nats per token, with smoothing
    and without), "tokens", "seconds" and "epoch" so far,
    "learning_rate", and what `evaluate` returned.

    Chapter: training-record
    """

    lines: list[dict[str, Any]]

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        lines = [line for line in self.lines if name in line]
        return [line["step"] for line in lines], [line[name] for line in lines]


def _settings(
    model: nn.Module,
    batches: TokenBatches,
    config: TrainingConfig,
    updates: _Updates,
) -> dict[str, Any]:
    """What may not change when a run goes on, nor differ among workers.

    Chapter: training-resume
    """
    settings = asdict(model.config) | {
        name: value
        for name, value in asdict(config).items()
        if name not in ("max_steps", "keep_checkpoints")
        and not name.endswith("_every")
    }
    names = {
        weight: name.replace("_orig_mod.", "")
        for name, weight in model.named_parameters()
    }
    groups = updates.groups()
    settings |= {
        "class": type(uncompiled(model)).__name__,
        "dtype": sorted({str(weight.dtype) for weight in names}),
        "frozen": [names[w] for w in names if not w.requires_grad],
        "optimizers": [type(one).__name__ for one in updates.optimizers],
        "weights": [names.get(w) for group in groups for w in group["params"]],
        "workers": worker()[1],
        "pairs": batches.fingerprint(),
        "tokens_per_batch": batches.tokens_per_batch,
        "batches.seed": batches.seed,
        "batches.shuffle": batches.shuffle,
    }
    # Rates are compared as they come out.
    others = {"params", "lr", "fused", "foreach"}
    for group in groups:
        for name in group.keys() - others:
            settings.setdefault(f"optimizer.{name}", []).append(group[name])
    return json.loads(json.dumps(settings, default=str))  # as they are read


def _differences(
    one: dict[str, Any], other: dict[str, Any], words: str
) -> str:
    """What differs between two runs' settings, in words.

    Chapter: training-resume
    """
    found = []
    for name in [name for name in one if name in other]:
        a, b = one[name], other[name]
        if a == b:
            continue
        if isinstance(a, list) and isinstance(b, list):
            pairs = zip_longest(a, b, fillvalue="nothing")
            a, b = next(pair for pair in pairs if pair[0] != pair[1])
        said = f"{name} {words.format(a, b)}"
        if name == "pairs":
            said = "the pairs are not the same, or in another order"
        found.append(said)
    return "; ".join(found[:4])


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A signal to stop fills a list; a second one has its usual effect.

    Ctrl-C, SIGTERM, SIGHUP when a terminal is closed, and SIGUSR1,
    SIGUSR2 and SIGXCPU, with which schedulers announce the end. A
    handler of the caller's stays, and what `nohup` ignores stays
    ignored. Signals reach the main thread alone: in another the list
    stays empty.

    Chapter: training-resume
    """
    signals: list[int] = []
    usual: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(number, usual[number])

    if threading.current_thread() is threading.main_thread():
        names = "SIGINT SIGTERM SIGHUP SIGUSR1 SIGUSR2 SIGXCPU"
        for name in names.split():
            number = getattr(signal, name, None)  # Windows has two
            defaults = signal.SIG_DFL, signal.default_int_handler
            if number and signal.getsignal(number) in defaults:
                usual[number] = signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def worker() -> tuple[int, int]:
    """The rank of this process among the workers, and how many there are.

    As `torch.distributed` has it, or the environment that `torchrun`
    sets; (0, 1) for a process on its own.

    Chapter: training-workers
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, workers = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return int(rank or 0), int(workers or 1)


def _meet(gpu: bool) -> None:
    """Wait for all workers, but not for ever.

    Chapter: training-workers
    """
    rank, workers = worker()
    if workers == 1 or distributed.is_initialized():
        return
    text = "worker %d waits for the other %d: start them, or unset WORLD_SIZE"
    late = threading.Timer(10, _logger.warning, [text, rank, workers - 1])
    late.start()
    try:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            timeout=timedelta(minutes=30),  # as the first one validates, too
        )
    finally:
        late.cancel()
    atexit.register(distributed.destroy_process_group)


def _agree(mine: dict[str, Any]) -> None:
    """Refuse workers that do not begin with the same.

    Chapter: training-workers
    """
    everybody: list[Any] = [None] * worker()[1]
    distributed.all_gather_object(everybody, mine)
    for rank, other in enumerate(everybody):
        words = f"is {{}} in worker 0, {{}} in worker {rank}"
        if found := _differences(everybody[0], other, words):
            raise ValueError(
                f"workers differ: {found}. Give all of them the same folder, "
                "data and settings"
            )


def _shared(losses: nn.Module) -> nn.Module:
    """A module whose gradients are the mean over all workers.

    Chapter: training-workers
    """
    if worker()[1] > 1:
        losses = DistributedDataParallel(losses)  # sends buffers once
        losses.broadcast_buffers = False  # and not in every step
    return losses


def _total(tensor: Tensor) -> Tensor:
    """The sum over all workers.

    Chapter: training-workers
    """
    if worker()[1] > 1:
        distributed.all_reduce(tensor)
    return tensor
