# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The loss of section 5.4: smoothed labels, and its gradient.

Chapter: book/training/loss
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer_lib.batching import TokenBatches
from transformer_lib.embeddings import PAD


def smoothed_loss(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
) -> Tensor:
    """Cross-entropy with smoothed labels, summed over real tokens.

    Args:
        logits: (batch, target_len, vocab_size)
        labels: (batch, target_len); padding is left out.
        label_smoothing, smoothing: see `smoothing_share`.

    Returns:
        The sum in nats, a scalar: divide by the number of labels that
        are not padding. Section 5.4.

    Chapter: loss-smoothed
    """
    vocab_size = logits.size(-1)
    share = smoothing_share(vocab_size, label_smoothing, smoothing)
    real = labels != PAD
    scores = logits[real]  # (tokens, vocab_size)
    log_p = scores.log_softmax(-1, dtype=_at_least_float32(scores))
    right = log_p.gather(1, labels[real][:, None])  # (tokens, 1)
    return -((1 - share) * right.sum() + share * log_p.mean(1).sum())


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def check_smoothing(label_smoothing: float, smoothing: str) -> None:
    """Refuse a share outside [0, 1) and an unknown smoothing.

    Raises:
        ValueError: naming the setting, its value and what would do.

    Chapter: loss-smoothed
    """
    number = isinstance(label_smoothing, float | int)
    if not number or not 0 <= label_smoothing < 1:
        raise ValueError(f"{label_smoothing=}: give 0 <= share < 1")
    if smoothing not in ("uniform", "others"):
        raise ValueError(f"unknown {smoothing=}: give uniform or others")


def smoothing_share(
    vocab_size: int, label_smoothing: float, smoothing: str
) -> float:
    """The share of a target that all pieces get alike, section 5.4.

    "uniform" spreads `label_smoothing` over every piece. "others"
    spreads it over the wrong pieces alone, which is the same as a
    slightly larger share spread over every piece.

    Raises:
        ValueError: for a share outside [0, 1), or another smoothing.

    Chapter: loss-smoothed
    """
    check_smoothing(label_smoothing, smoothing)
    if smoothing == "others":
        return label_smoothing * vocab_size / (vocab_size - 1)
    return label_smoothing


def perplexity(nats_per_token: float) -> float:
    """e to the loss: between how many pieces the model hesitates.

    Per piece of the vocabulary, as in table 3; give it a loss without
    smoothing. Infinite if the loss is too large for its exponential.

    Chapter: loss-perplexity
    """
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf


class _ProjectedLosses(torch.autograd.Function):
    """Two sums over rows; the forward pass computes the gradient too.

    Chapter: loss-projected
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, share: float
    ) -> tuple[Tensor, Tensor]:
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(weight)
        precision = _at_least_float32(hidden)
        plain, uniform = hidden.new_zeros(2, dtype=precision)  # nats
        chunk = 512 if hidden.is_cpu else 4096  # rows at once
        for start in range(0, len(hidden), chunk):
            x = hidden[start : start + chunk]  # (chunk, d_model)
            y = labels[start : start + chunk, None]  # (chunk, 1)
            real = y != PAD
            log_p = (x @ weight.T).log_softmax(1, dtype=precision)
            right = log_p.gather(1, y)  # (chunk, 1)
            plain -= (right * real).sum()
            uniform -= (log_p.mean(1, keepdim=True) * real).sum()
            if any(ctx.needs_input_grad):
                # softmax - target, (chunk, vocab_size)
                slope = log_p.exp_().sub_(share / len(weight))
                minus_right = torch.full_like(right, share - 1)
                slope = slope.scatter_add_(1, y, minus_right).to(x.dtype)
                by_hidden[start : start + chunk] = slope @ weight
                by_weight += slope.T @ x
        ctx.save_for_backward(by_hidden, by_weight)
        ctx.mark_non_differentiable(plain)
        return (1 - share) * plain + share * uniform, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_sum: Tensor, _: Tensor) -> tuple:
        by_hidden, by_weight = ctx.saved_tensors
        return by_hidden * by_sum, by_weight * by_sum, None, None


def projected_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
) -> tuple[Tensor, Tensor]:
    """`smoothed_loss` of hidden @ weight.T, without all its logits.

    The rows are projected in chunks, and the gradient of a chunk is
    computed before the next.

    Args:
        hidden: (batch, target_len, d_model), the decoder's output.
        weight: (vocab_size, d_model), the pre-softmax matrix.
        labels: (batch, target_len)

    Returns:
        Two sums in nats, at least in float32: smoothed, with a
        gradient, and plain, without one.

    Raises:
        ValueError: for labels of another shape, or as `smoothing_share`.

    Chapter: loss-projected
    """
    if hidden.shape[:-1] != labels.shape:
        raise ValueError(
            f"{hidden.shape=}, {labels.shape=}: give each position one label"
        )
    share = smoothing_share(len(weight), label_smoothing, smoothing)
    hidden, labels = hidden.flatten(0, -2), labels.flatten()
    real = labels != PAD
    if hidden.is_cpu:
        hidden, labels = hidden[real], labels[real]
    else:  # to pick rows would be to wait for the device
        hidden = hidden.where(real[:, None], 0)
    return _ProjectedLosses.apply(hidden, weight, labels, share)


_LOCK = threading.Lock()
# Of each model inside `evaluating`: how often, and its modules' modes.
_INSIDE: dict[nn.Module, tuple[int, dict[nn.Module, bool]]] = {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; afterwards as before.

    Each module gets its own mode back, when the last of several
    threads has left.

    Chapter: loss-validation
    """
    with _LOCK:
        times, modes = _INSIDE.get(model, (0, {}))
        if not times:
            modes = {part: part.training for part in model.modules()}
            model.eval()
        _INSIDE[model] = times + 1, modes
    try:
        with torch.inference_mode():
            yield
    finally:
        with _LOCK:
            times, modes = _INSIDE.pop(model)
            if times > 1:
                _INSIDE[model] = times - 1, modes
            else:
                for part, training in modes.items():
                    part.training = training


def validation_loss(model: nn.Module, batches: TokenBatches) -> float:
    """Nats per token without smoothing, dropout or gradient.

    Of batches that workers share it sees this worker's alone: give
    `TokenBatches` shuffle=False. `perplexity` of what it returns, per
    piece, is table 3's measure.

    Chapter: loss-validation
    """
    total, tokens = 0.0, 0
    with evaluating(model):
        weight = model.output_weight.detach()  # asks for no gradient
        for batch in batches.epoch(0):
            tokens += batch.tokens
            batch = batch.to(weight.device)
            hidden = model.hidden(batch.source_ids, batch.target_ids)
            _, plain = projected_losses(hidden, weight, batch.labels)
            total += plain.item()
    return total / tokens
