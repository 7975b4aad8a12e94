# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The training loop of section 5, with stopping and resuming.

Chapter: book/training/training
"""

import atexit
import copy
import json
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.attention import sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import Batch, TokenBatches
from transformer_lib.checkpoints import (
    checkpoint_files,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.loss import projected_losses, validation_loss
from transformer_lib.model import evaluating
from transformer_lib.schedule import TrainingConfig, adam, learning_rate


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
) -> "History":
    """Train a model to `max_steps`, or go on where it was stopped.

    Args:
        model: trained on the device that it is on; on a GPU, hooks
            of the library's own model run only while a shape of batch
            is new and may not wait for the GPU, and `evaluate` may not
            change what is dropped or trained. Afterwards, also after an
            error, it is in evaluation mode.
        batches: the training data. All workers of `torchrun` give the
            same batches, and each takes its share of every step.
        training_config: the settings.
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end;
            the numbers it returns, in a dict, join the log. If it is
            a `TokenBatches`, their `validation_loss` joins it.
        folder: for log.jsonl and checkpoints. A run that was stopped
            there goes on as if it had not been stopped.

    Section 5.

    Raises:
        ValueError: in the folder of a run with other settings or data
            or with more steps.
        FloatingPointError: if the loss is not finite.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the current
            step is saved.

    Chapter: training-loop
    """
    config = training_config
    rank, workers = worker()
    optimizer = adam(model, config.betas, config.epsilon)
    progress = _Progress({})
    if folder is not None:
        folder = Path(folder)
        progress = _resume(folder, model, optimizer, batches, config)
    if progress.step > config.max_steps:
        raise ValueError(f"{folder} is beyond step {config.max_steps}")
    losses = _shared(_Losses(model, config))
    optimizer.zero_grad()
    add_gradients: Callable[..., Tensor] = partial(_add_gradients, losses)
    if replays := workers == 1 and _can_be_recorded(model):
        add_gradients = _Replays(losses)
    per_step = config.accumulate * workers
    stream = _endless(batches, progress.step * per_step)
    unread: list[Tensor] = []  # (loss, nll) of the last steps
    stop, quiet = False, rank > 0 or None  # None: a bar in a terminal

    def due(every: int) -> bool:
        last = progress.step == config.max_steps
        return last or (every > 0 and progress.step % every == 0)

    bar = tqdm(total=config.max_steps, initial=progress.step, disable=quiet)
    with bar, _prepared(model, config), _asked_to_stop() as signals:
        mark = time.perf_counter()
        began, counted = mark - progress.seconds, progress.tokens
        while progress.step < config.max_steps and not stop:
            group = list(islice(stream, per_step))
            progress.step += 1
            tokens = sum(batch.tokens for batch in group)
            progress.tokens += tokens
            # Dropout depends only on these three: a resumed run drops
            # what it would have dropped, each worker its own.
            chance = random.Random(f"{config.seed} {progress.step} {rank}")
            torch.manual_seed(chance.getrandbits(32))
            for batch in (mine := group[rank::workers]):
                # DistributedDataParallel sends gradients at the last one.
                losses.require_backward_grad_sync = batch is mine[-1]
                unread.append(add_gradients(batch, tokens))
            if config.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            rate = config.learning_rate_scale * learning_rate(
                progress.step, model.config.d_model, config.warmup_steps
            )
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=not replays)
            bar.update()

            stop = _total(torch.tensor(len(signals))).item() > 0
            validate = due(config.validate_every)
            log = validate or due(config.log_every)
            save = stop or due(config.checkpoint_every)
            if not (log or save):
                continue
            _read_losses(unread, progress)
            speed = (progress.tokens - counted) / (time.perf_counter() - mark)
            scores = {
                "epoch": (progress.step * per_step - 1) // len(batches),
                "learning_rate": rate,
                "tokens_per_second": round(speed),
            }
            if validate and evaluate is not None and rank == 0:
                scores |= _validate(model, evaluate, progress.step)
            progress.seconds = time.perf_counter() - began
            if log:
                _log(progress, scores, folder if rank == 0 else None)
                bar.set_postfix(nll=f"{progress.log[-1]['nll']:.3f}")
            if save and folder is not None and rank == 0:
                keep, every = config.keep_checkpoints, config.checkpoint_every
                state = asdict(progress)
                save_checkpoint(folder, model, optimizer, state, keep, every)
            mark, counted = time.perf_counter(), progress.tokens
    optimizer.zero_grad()
    if workers > 1:
        distributed.barrier()  # until the first one has saved
    if stop or signals:  # these came after the last step
        raise KeyboardInterrupt
    return History(progress.log)


def _endless(batches: TokenBatches, taken: int) -> Iterator[Batch]:
    """Epoch after epoch, without the batches that were taken before.

    Chapter: training-step
    """
    first, start = divmod(taken, len(batches))
    for epoch in count(first):
        yield from batches.epoch(epoch, start)
        start = 0


def _add_gradients(
    losses: nn.Module, batch: Batch, tokens: int | Tensor
) -> Tensor:
    """Gradients of the loss per token; returns (loss, nll), summed.

    The batch is one worker's, the tokens are those of all workers.

    Chapter: training-step
    """
    loss, nll = losses(batch)
    # DistributedDataParallel takes the mean over the workers; the loss
    # per token needs their sum.
    (loss * worker()[1] / tokens).backward()
    return torch.stack([loss.detach(), nll])


def _can_be_recorded(model: nn.Module) -> bool:
    """Whether it is on the GPU in use, and of known parts: none waits.

    Chapter: training-step
    """
    device = next(model.parameters()).device
    if device.type != "cuda" or torch.is_anomaly_enabled():
        return False
    here = device.index == torch.cuda.current_device()
    parts = {type(x).__module__.partition(".")[0] for x in model.modules()}
    return here and parts <= {"torch", "transformer_lib"}


class _Replays:
    """`_add_gradients` on a GPU, recorded for each shape of a batch.

    Chapter: training-step
    """

    def __init__(self, losses: nn.Module):
        self.losses = losses
        self.pool = torch.cuda.graph_pool_handle()  # memory of all graphs
        self.seen: dict[Any, Any] = {}
        for weight in losses.parameters():  # a graph adds in place
            if weight.requires_grad:
                weight.grad = torch.zeros_like(weight)

    def __call__(self, batch: Batch, tokens: int) -> Tensor:
        shape = batch.source_ids.shape, batch.labels.shape
        if shape not in self.seen:
            if len(self.seen) < 256:
                self.seen[shape] = None
            return _add_gradients(self.losses, batch, tokens)
        batch = batch.to(next(self.losses.parameters()).device)
        if self.seen[shape] is None:
            graph, own = torch.cuda.CUDAGraph(), copy.deepcopy(batch)
            count = torch.full_like(own.labels[0, 0], tokens)
            with torch.cuda.graph(graph, pool=self.pool):
                sums = _add_gradients(self.losses, own, count)
            self.seen[shape] = graph, own, count, sums
        graph, own, count, sums = self.seen[shape]
        own.source_ids.copy_(batch.source_ids)
        own.target_ids.copy_(batch.target_ids)
        own.labels.copy_(batch.labels)
        count.fill_(tokens)
        graph.replay()
        return sums.clone()


@contextmanager
def _prepared(model: nn.Module, config: TrainingConfig) -> Iterator[None]:
    """Training mode and settings of PyTorch, for one run only.

    Chapter: training-step
    """
    device = next(model.parameters()).device
    gpus = [device] if device.type == "cuda" else []
    before = torch.get_float32_matmul_precision()
    if config.precision == "bf16" and device.type == "cpu":
        # oneDNN keeps a program for each shape that it meets, and PyTorch
        # keeps it too: of the last 1,024, gigabytes. Read at first use.
        for cache in "ONEDNN_PRIMITIVE_CACHE", "LRU_CACHE":
            os.environ.setdefault(f"{cache}_CAPACITY", "8")
    with torch.random.fork_rng(gpus), sdpa_kernel(MultiHeadAttention.kernels):
        if gpus:
            torch.set_float32_matmul_precision("high")  # TF32
        model.train()
        try:
            yield
        finally:
            model.eval()
            torch.set_float32_matmul_precision(before)


@dataclass
class History:
    """What a training run logged, a dict for each line.

    Chapter: training-record
    """

    lines: list[dict[str, Any]]

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        lines = [line for line in self.lines if name in line]
        return [line["step"] for line in lines], [x[name] for x in lines]


def _log(
    progress: _Progress, scores: dict[str, Any], folder: Path | None
) -> None:
    """Add a line to the log and begin new sums.

    Chapter: training-record
    """
    before = progress.log[-1]["tokens"] if progress.log else 0
    line = dict(
        step=progress.step,
        loss=progress.loss / (progress.tokens - before),
        nll=progress.nll / (progress.tokens - before),
        tokens=progress.tokens,
        seconds=round(progress.seconds, 2),
        **scores,  # a score with a name from above is an error
    )
    progress.loss = progress.nll = 0.0
    progress.log.append(line)
    if folder is not None:
        lines = [json.dumps(line) + "\n" for line in progress.log]
        write_atomically(folder / "log.jsonl", "".join(lines))


def _read_losses(unread: list[Tensor], progress: _Progress) -> None:
    """Add up the losses of the last steps; here a GPU is waited for.

    Chapter: training-record
    """
    sums = _total(torch.stack(unread))  # (steps, 2)
    unread.clear()
    for loss, nll in sums.tolist():
        progress.loss += loss
        progress.nll += nll
    if not math.isfinite(progress.loss):
        cure = "lower learning_rate_scale, or give a clip_norm"
        loss, step = progress.loss, progress.step
        raise FloatingPointError(f"the loss is {loss} by step {step}: {cure}")


def _validate(
    model: nn.Module, evaluate: Callable | TokenBatches, step: int
) -> dict[str, Any]:
    """The numbers of a validation, as JSON has them.

    Chapter: training-record
    """
    if not callable(evaluate):
        return {"validation_loss": validation_loss(model, evaluate)}
    with evaluating(model):
        scores = evaluate(model, step) or {}
    # A tensor, or NumPy's number, becomes an ordinary number.
    return json.loads(json.dumps(scores, default=lambda x: x.tolist()))


_MAY_CHANGE = (
    "max_steps log_every validate_every checkpoint_every keep_checkpoints"
).split()


def _resume(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: TokenBatches,
    config: TrainingConfig,
) -> _Progress:
    """Put back the folder's newest checkpoint, if it has one.

    Chapter: training-resume
    """
    settings = asdict(model.config) | asdict(config)
    for name in _MAY_CHANGE:  # the others affect the weights
        del settings[name]
    settings |= {"workers": worker()[1], "data": batches.fingerprint()}
    progress = _Progress(json.loads(json.dumps(settings)))  # as it is read
    if files := checkpoint_files(folder):
        begun = load_checkpoint(files[-1])["settings"]
        for name, value in progress.settings.items():
            if begun.get(name) != value:
                message = f"{name}={begun.get(name)}, not {value}"
                raise ValueError(f"{files[-1]} was trained with {message}")
        progress = _Progress(**load_checkpoint(files[-1], model, optimizer))
    return progress


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM fill a list; a second one has its usual effect.

    Chapter: training-resume
    """
    signals: list[int] = []
    usual: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(number, usual[number])

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
    number, count = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return int(number or 0), int(count or 1)


class _Losses(nn.Module):
    """Batch in, losses out: the smoothed sum and the plain one.

    Chapter: training-workers
    """

    def __init__(self, model: nn.Module, config: TrainingConfig):
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        weight = self.model.output_weight
        batch = batch.to(weight.device)
        bf16 = self.config.precision == "bf16"
        with torch.autocast(weight.device.type, torch.bfloat16, enabled=bf16):
            hidden = self.model.hidden(batch.source_ids, batch.target_ids)
            return projected_losses(
                hidden,
                weight,
                batch.labels,
                label_smoothing=self.config.label_smoothing,
                smoothing=self.config.smoothing,
            )


def _shared(losses: nn.Module) -> nn.Module:
    """A module whose gradients are the mean over all workers.

    Chapter: training-workers
    """
    if worker()[1] == 1:
        return losses
    if not distributed.is_initialized():
        gpu = next(losses.parameters()).is_cuda
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        # A day, as the others wait while the first one validates.
        distributed.init_process_group(backend, timeout=timedelta(days=1))
        atexit.register(distributed.destroy_process_group)
    return DistributedDataParallel(losses)


def _total(tensor: Tensor) -> Tensor:
    """The sum over all workers.

    Chapter: training-workers
    """
    if worker()[1] > 1:
        distributed.all_reduce(tensor)
    return tensor
