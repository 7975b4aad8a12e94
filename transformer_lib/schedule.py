# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Learning rate, optimizer and settings: sections 5.1 to 5.4.

Chapter: book/training/schedule
"""

import math
from dataclasses import dataclass

import torch

from transformer_lib.loss import smoothing_share


def learning_rate(step, d_model, warmup_steps=4000) -> float:
    """Learning rate of one update, equation 3 of section 5.3.

    Steps are updates of the weights and count from 1: at step 0 the
    root divides by zero.

    Chapter: schedule-rate
    """
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(model, betas=(0.9, 0.98), epsilon=1e-9) -> torch.optim.Adam:
    """The paper's Adam over all weights of a model, section 5.3.

    Its rate is 0 until it is told one: set each step's
    `learning_rate` as `lr` of `optimizer.param_groups`. The update of
    all weights runs as one fused kernel.

    Chapter: schedule-adam
    """
    return torch.optim.Adam(
        model.parameters(), lr=0, betas=betas, eps=epsilon, fused=True
    )


_POSITIVE = "learning_rate_scale", "epsilon", "clip_norm"


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of sections 5.1 to 5.4.

    Steps are updates of the weights. What happens every 0 steps
    happens at the end alone.

    Args:
        label_smoothing: eps_ls
        smoothing: over which pieces: uniform or others
        warmup_steps: in which the rate rises
        tokens_per_batch: on one side of a batch, for each worker
        accumulate: batches that make one step
        max_steps: in all
        learning_rate_scale: times equation 3
        betas: of Adam
        epsilon: of Adam
        clip_norm: longest gradient; not clipped if not given
        precision: fp32 or bf16
        seed: of weights, batches and dropout
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
        smoothing_share(4, self.label_smoothing, self.smoothing)
        for name, value in vars(self).items():
            if name in ("label_smoothing", "smoothing", "device"):
                continue
            if name == "precision":
                good = value in ("fp32", "bf16")
                wanted = "fp32 or bf16"
            elif name == "betas":
                good = [0 <= b < 1 for b in value] == [True, True]
                wanted = "two numbers from 0 to below 1"
            elif name in _POSITIVE:
                missing = name == "clip_norm" and value is None
                good = missing or 0 < value < math.inf
                wanted = "a finite number above 0"
            else:
                least = 0 if name.endswith(("seed", "_every")) else 1
                good = type(value) is int and least <= value < 2**63
                wanted = f"a whole number from {least} to 2**63 - 1"
            if not good:
                raise ValueError(f"{name}={value!r}: give {wanted}")
