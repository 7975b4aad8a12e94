# Collected from book/training/schedule.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Hardware, learning rate, optimizer, one update: 5.2 and 5.3."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, distributed, nn

from transformer_lib.batching import Batch, TokenBatches
from transformer_lib.loss import (
    accumulate_gradients,
    smoothing_weights,
)

__all__ = [
    "TrainingConfig",
    "adam",
    "learning_rate",
    "pick_device",
    "pick_precision",
    "same_weights",
    "start_workers",
    "sum_over_workers",
    "update",
    "updates",
]


def learning_rate(
    step: int, d_model: int, warmup_steps: int = 4000
) -> float:
    """Learning rate of one update, equation 3 of section 5.3.

    Steps are updates of the weights and count from 1: at step 0 the
    formula would divide by zero, and rate 0 would change nothing.

    Raises:
        ValueError: if an argument is below 1.

    Chapter: schedule-rate
    """
    if min(step, d_model, warmup_steps) < 1:
        raise ValueError(
            "steps, widths and warm-ups count from 1, got "
            f"{step=}, {d_model=}, {warmup_steps=}"
        )
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(
    model: nn.Module,
    betas: tuple[float, float] = (0.9, 0.98),
    epsilon: float = 1e-9,
) -> torch.optim.Adam:
    """The paper's Adam over all weights of a model, section 5.3.

    Its rate is 0 until it is told one: set each step's
    `learning_rate` as `lr` of `optimizer.param_groups`. The update of
    all weights runs as one fused kernel.

    Chapter: schedule-adam
    """
    return torch.optim.Adam(
        model.parameters(),
        lr=0.0,
        betas=betas,
        eps=epsilon,
        fused=True,
    )


def pick_device(name: str | None = None) -> torch.device:
    """The device of that name, or the best one here: cuda, mps, cpu.

    Raises:
        ValueError: if this machine or this PyTorch has no such
        device.

    Chapter: schedule-hardware
    """
    here = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    there = [kind for kind in here if here[kind]]
    name = name or there[0]
    if name.split(":")[0] not in there:
        raise ValueError(
            f"no device {name!r} here; "
            f"choose from: {', '.join(there)}"
        )
    return torch.device(name)


def pick_precision(device: torch.device, name: str = "auto") -> str:
    """What was asked for, or what suits the device: "fp32" or "bf16".

    "auto" takes bf16 on NVIDIA cards that multiply it in hardware,
    from Ampere on. A CPU that can has to be asked.

    Raises:
        ValueError: for another name, or a card without bf16.

    Chapter: schedule-hardware
    """
    if name not in ("fp32", "bf16", "auto"):
        raise ValueError(
            f"unknown precision {name!r}; choose fp32, bf16 or auto"
        )
    if device.type != "cuda":
        return "bf16" if name == "bf16" else "fp32"
    able = torch.cuda.get_device_capability(device) >= (8, 0)
    if name == "bf16" and not able:
        raise ValueError(
            "this card has no bf16: use precision='fp32'"
        )
    return "bf16" if name != "fp32" and able else "fp32"


def start_workers(device: str | None = None) -> tuple[int, int, str]:
    """This worker's rank, the number of workers, this one's device.

    Under `torchrun` the workers meet here, over NCCL on NVIDIA cards
    and over Gloo elsewhere; a process on its own is (0, 1, device).

    Chapter: schedule-workers
    """
    count = int(os.environ.get("WORLD_SIZE", 1))
    here = pick_device(device)
    if count == 1:
        return 0, 1, str(here)
    if here.type == "cuda":
        here = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(here)
    if not distributed.is_initialized():
        nccl = here.type == "cuda"
        distributed.init_process_group("nccl" if nccl else "gloo")
    return distributed.get_rank(), count, str(here)


def sum_over_workers(tensors: list[Tensor]) -> None:
    """Sum each tensor over all workers, in place, in one message.

    Chapter: schedule-workers
    """
    if distributed.is_available() and distributed.is_initialized():
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, part in zip(
            tensors, flat.split(sizes), strict=True
        ):
            tensor.copy_(part.view_as(tensor))


@torch.no_grad()
def same_weights(model: nn.Module, rank: int) -> None:
    """Give every worker the first one's weights.

    Chapter: schedule-workers
    """
    weights = list(model.parameters())
    for weight in weights if rank else ():
        weight.zero_()
    sum_over_workers(weights)


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of sections 5.1 to 6.1.

    `precision` is "fp32", "bf16" or "auto"; `average` is the number
    of checkpoints in the final mean. Steps are updates of the
    weights, and what happens every 0 steps happens at the end alone.

    Raises:
        ValueError: naming the field, its value and what would do.

    Chapter: schedule-settings
    """

    label_smoothing: float = 0.1
    smoothing: str = "uniform"
    warmup_steps: int = 4000
    tokens_per_batch: int = 25_000
    accumulate: int = 1
    max_steps: int = 100_000
    learning_rate_scale: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip_norm: float | None = None
    precision: str = "fp32"
    seed: int = 0
    max_minutes: float | None = None
    compile: bool = False
    device: str | None = None
    log_every: int = 100
    validate_every: int = 1000
    checkpoint_every: int = 1000
    keep_checkpoints: int = 5
    average: int = 5

    def __post_init__(self):
        smoothing_weights(8, self.label_smoothing, self.smoothing)
        pick_precision(torch.device("cpu"), self.precision)
        for name in (
            "warmup_steps",
            "tokens_per_batch",
            "accumulate",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at least 1"
                )


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[Batch],
    step: int,
    config: TrainingConfig,
    rank: int = 0,
    **how: Any,
) -> Tensor:
    """One step of Adam on the batches of all workers.

    Random numbers start anew from seed, step and worker, so that a
    resumed run drops out what an unbroken one would have. `how` goes
    to `accumulate_gradients`. Returns the smoothed loss, the plain
    loss and the tokens, summed over batches and workers: (3,).

    Chapter: schedule-update
    """
    dice = random.Random(f"{config.seed} {step} {rank}")
    torch.manual_seed(dice.getrandbits(32))
    optimizer.zero_grad(set_to_none=True)
    count = sum(batch.tokens for batch in batches)
    tokens = model.output_weight.new_full((1,), count)
    sum_over_workers([tokens])
    kind = config.label_smoothing, config.smoothing
    losses = accumulate_gradients(
        model, batches, tokens, *kind, **how
    )
    grads = [w.grad for w in model.parameters() if w.grad is not None]
    sum_over_workers([losses, *grads])
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate_scale * learning_rate(
            step, model.config.d_model, config.warmup_steps
        )
    optimizer.step()
    return torch.cat([losses, tokens])


def updates(
    batches: TokenBatches,
    size: int,
    epoch: int = 0,
    position: int = 0,
) -> Iterator[tuple[list[Batch], dict[str, int]]]:
    """Lists of `size` batches from a place on; where each ends.

    Chapter: schedule-update
    """
    group: list[Batch] = []
    while True:
        for batch in islice(batches.epoch(epoch), position, None):
            position += 1
            group.append(batch)
            if len(group) == size:
                yield group, {"epoch": epoch, "position": position}
                group = []
        epoch, position = epoch + 1, 0
