# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Learning rate, optimizer and settings: sections 5.1 to 5.4.

Chapter: book/training/schedule
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from transformer_lib.loss import check_smoothing


def learning_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Learning rate of one update, equation 3 of section 5.3.

    Steps are updates of the weights and count from 1: at step 0 the
    root divides by zero.

    Chapter: schedule-rate
    """
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(
    model: nn.Module,
    betas: tuple[float, float] = (0.9, 0.98),
    epsilon: float = 1e-9,
) -> torch.optim.Adam:
    """The paper's Adam over all weights of a model, section 5.3.

    It has no rate until it is told one: set each step's
    `learning_rate` as `lr` of `optimizer.param_groups`. A step
    without a rate raises ValueError. The update of all weights runs
    as one fused kernel.

    Chapter: schedule-adam
    """
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0, betas=betas, eps=epsilon, fused=True
    )
    optimizer.register_step_pre_hook(_refuse_rate_0)
    return optimizer


def _refuse_rate_0(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if all(group["lr"] == 0 for group in optimizer.param_groups):
        raise ValueError(
            'the rate is 0: set optimizer.param_groups[0]["lr"] at each step'
        )


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of sections 5.1 to 5.4.

    Steps are updates of the weights. An "every" of 0 means: only
    at the end.

    Args:
        label_smoothing: eps_ls
        smoothing: over which pieces: uniform or others
        warmup_steps: steps in which the rate rises
        tokens_per_batch: on one side of a batch, for each worker;
            whoever makes the batches keeps to it
        accumulate: batches that make one step
        max_steps: steps in all
        learning_rate_scale: factor of equation 3
        betas: of Adam
        epsilon: of Adam
        clip_norm: longest gradient; not clipped if not given
        precision: fp32 or bf16
        seed: of dropout; the command line draws the weights and the
            order of the batches with it too
        device: cpu, cuda or mps; the best one if not given
        log_every: steps
        validate_every: steps
        checkpoint_every: steps
        keep_checkpoints: how many

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
    device: str | None = None
    log_every: int = 100
    validate_every: int = 1000
    checkpoint_every: int = 1000
    keep_checkpoints: int = 5

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing, self.smoothing)
        if self.precision not in ("fp32", "bf16"):
            self._refuse("precision", "fp32 or bf16")
        pair = isinstance(self.betas, tuple | list) and len(self.betas) == 2
        if not pair or not all(
            isinstance(beta, float | int) and 0 <= beta < 1
            for beta in self.betas
        ):
            self._refuse("betas", "two numbers from 0 to below 1")
        if not isinstance(self.device, str | None):
            self._refuse("device", "its name, such as 'cuda:1'")
        for name in ("learning_rate_scale", "epsilon", "clip_norm"):
            value = getattr(self, name)
            if name == "clip_norm" and value is None:
                continue
            number = isinstance(value, float | int)
            if not number or not 0 < value < math.inf:
                self._refuse(name, "a finite number above 0")
        whole = [field.name for field in fields(self) if field.type is int]
        for name in whole:
            least = 0 if name.endswith(("seed", "_every")) else 1
            # A step of more batches than these would never end.
            most = 10**6 if name == "accumulate" else 2**63 - 1
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                self._refuse(name, f"a whole number from {least} to {most}")

    def _refuse(self, name: str, wanted: str) -> None:
        value = getattr(self, name)
        raise ValueError(f"{name}={value!r}: give {wanted}")
