# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Learning rate, optimizer and settings: sections 5.1 to 5.4.

Chapter: book/training/schedule
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from transformer_lib.model import check_fields


def learning_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Learning rate of one update, equation 3 of section 5.3.

    Steps are updates of the weights and count from 1.

    Raises:
        ValueError: for a step or a warm-up below 1.

    Chapter: schedule-rate
    """
    if step < 1 or warmup_steps < 1:
        raise ValueError(f"{step=}, {warmup_steps=}: both count from 1")
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(
    model: nn.Module,
    betas: tuple[float, float] = (0.9, 0.98),
    epsilon: float = 1e-9,
) -> torch.optim.Adam:
    """The paper's Adam over all weights of a model, section 5.3.

    Its rate is 1, of which each step's `learning_rate` is the factor:
    set it as `lr` of `optimizer.param_groups[0]`. One fused kernel
    updates all weights.

    Chapter: schedule-adam
    """
    return torch.optim.Adam(
        model.parameters(), lr=1.0, betas=betas, eps=epsilon, fused=True
    )


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of sections 5.2 to 5.4.

    Steps are updates of the weights. An "every" of 0 means: only
    at the end. The size of a batch is the batches' own.

    Args:
        label_smoothing: eps_ls
        warmup_steps: steps in which the rate rises
        accumulate: batches that make one step
        max_steps: steps in all
        learning_rate_scale: factor of equation 3
        betas: of Adam
        epsilon: of Adam
        clip_norm: longest gradient; not clipped if not given
        precision: fp32, bf16, or auto: bf16 where the device has
            instructions for it
        seed: of dropout
        log_every: steps
        validate_every: steps
        checkpoint_every: steps
        keep_checkpoints: how many

    Raises:
        ValueError: naming a field that cannot be right, and its value.

    Chapter: schedule-settings
    """

    label_smoothing: float = 0.1
    warmup_steps: int = 4000
    accumulate: int = 1
    max_steps: int = 100_000
    learning_rate_scale: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip_norm: float | None = None
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    seed: int = 0
    log_every: int = 100
    validate_every: int = 1000
    checkpoint_every: int = 1000
    keep_checkpoints: int = 5

    def __post_init__(self) -> None:
        some, never = (math.ulp(0), math.inf), (0, math.inf)
        check_fields(
            self,
            label_smoothing=(0, 0.999),
            learning_rate_scale=some,
            clip_norm=some,
            seed=(-math.inf, math.inf),
            log_every=never,
            validate_every=never,
            checkpoint_every=never,
        )
        if len(self.betas) != 2 or not all(0 <= x < 1 for x in self.betas):
            raise ValueError(f"betas={self.betas}: give two, 0 to below 1")
