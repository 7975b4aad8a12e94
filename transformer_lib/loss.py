# Collected from book/training/loss.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The loss of section 5.4: smoothed labels, and its gradients."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.batching import Batch, TokenBatches

__all__ = [
    "accumulate_gradients",
    "hidden_states",
    "perplexity",
    "projected_loss",
    "projected_losses",
    "smoothed_loss",
    "smoothing_weights",
    "validation_loss",
]


def smoothing_weights(
    vocab_size: int,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
) -> tuple[float, float, float]:
    """How a smoothed target spreads its mass, section 5.4.

    Every piece gets `every`; the right one gets `label` on top, and
    padding `padding`, which is nothing or takes its share away. The
    target sums to label + vocab_size * every + padding = 1. Returns
    (label, every, padding).
    An unknown kind of smoothing, or a share that is none, is a
    ValueError.

    Chapter: loss-smoothing
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(
            f"{label_smoothing=} is a share: give "
            "0 <= label_smoothing < 1"
        )
    others = {"uniform": 0, "others": 1, "annotated": 2}
    if smoothing not in others:
        raise ValueError(
            f"unknown {smoothing=}; choose one of {', '.join(others)}"
        )
    every = label_smoothing / max(vocab_size - others[smoothing], 1)
    if smoothing == "uniform":
        return 1 - label_smoothing, every, 0.0
    padding = -every if smoothing == "annotated" else 0.0
    return 1 - label_smoothing - every, every, padding


def smoothed_loss(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
    pad_id: int = 0,
) -> Tensor:
    """Cross-entropy with smoothed labels, summed over real tokens.

    Args:
        logits: (batch, target_len, vocab_size), any float type; the
            sum is taken in float32 at least.
        labels: (batch, target_len); those equal to `pad_id` count not
            at all.
        label_smoothing, smoothing: see `smoothing_weights`.

    Returns:
        The sum in nats, a scalar: divide by the number of labels that
        are not padding. Section 5.4.

    Chapter: loss-smoothed
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and labels "
            f"{tuple(labels.shape)} must share all but the last axis"
        )
    label, every, padding = smoothing_weights(
        logits.size(-1), label_smoothing, smoothing
    )
    kept = labels != pad_id
    precise = torch.promote_types(logits.dtype, torch.float32)
    log_p = logits[kept].log_softmax(-1, dtype=precise)
    right = log_p.gather(1, labels[kept][:, None])  # (tokens, 1)
    spread = log_p.sum() * every + log_p[:, pad_id].sum() * padding
    return -(right.sum() * label + spread)


def perplexity(nats_per_token: float) -> float:
    """e to the loss: between how many pieces the model hesitates.

    Per piece of the vocabulary, as in table 3; give it a loss without
    smoothing. Infinite where it would be too large for a float.

    Chapter: loss-perplexity
    """
    return (
        math.exp(nats_per_token) if nats_per_token < 709 else math.inf
    )


class _ProjectedLoss(torch.autograd.Function):
    """Both losses of a batch, and the gradient while at it."""

    @staticmethod
    def forward(
        ctx, hidden, weight, labels, weights, pad_id, chunk, wanted
    ):
        label, every, padding = weights
        rows, matrix = hidden, weight
        if torch.is_autocast_enabled(hidden.device.type):
            half = torch.get_autocast_dtype(hidden.device.type)
            rows, matrix = hidden.to(half), weight.to(half)
        precise = torch.promote_types(hidden.dtype, torch.float32)
        sums = hidden.new_zeros(2, dtype=precise)
        room = rows.new_empty(min(chunk, len(rows)), len(weight))
        if wanted:
            by_hidden = torch.empty_like(rows)
            by_weight = torch.zeros_like(weight)
        for at in range(0, len(rows), chunk):
            here = slice(at, at + chunk)
            h, y = rows[here], labels[here, None]
            z = torch.mm(h, matrix.T, out=room[: len(h)])
            p = z.softmax(1, dtype=precise)  # (chunk, vocab_size)
            log_sum = z.amax(1, True) - p.amax(1, True).log()
            score = z.gather(1, y).to(precise)
            spread = z.sum(1, True, dtype=precise) * every
            spread = spread + z[:, pad_id, None] * padding
            real = (y != pad_id).to(precise)
            sums[0] += (
                (log_sum - score * label - spread) * real
            ).sum()
            sums[1] += ((log_sum - score) * real).sum()
            if wanted:
                p.sub_(every)[:, pad_id] -= padding
                p.scatter_add_(1, y, torch.full_like(score, -label))
                g = p.mul_(real).to(rows.dtype)  # softmax - target
                torch.mm(g, matrix, out=by_hidden[here])
                by_weight += g.T @ h
        if wanted:
            ctx.save_for_backward(
                by_hidden.to(hidden.dtype), by_weight
            )
        smoothed, unsmoothed = sums.unbind()
        ctx.mark_non_differentiable(unsmoothed)
        return smoothed, unsmoothed

    @staticmethod
    def backward(ctx, by_smoothed, _):
        by_hidden, by_weight = ctx.saved_tensors
        rest = (None,) * 5
        return by_hidden * by_smoothed, by_weight * by_smoothed, *rest


def projected_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
    pad_id: int = 0,
) -> tuple[Tensor, Tensor]:
    """Smoothed and plain loss of outputs, projected in chunks.

    Equal to `smoothed_loss(hidden @ weight.T, ...)`, but the logits
    never stand whole in memory. On a CPU the rows of padding are left
    out; elsewhere they count nothing, as picking rows would make the
    processor wait for the device.

    Args:
        hidden: (batch, target_len, d_model).
        weight: (vocab_size, d_model), the pre-softmax matrix.
        labels: (batch, target_len).

    Returns:
        Two sums in nats: the first has a gradient; the second,
        without smoothing, is there to be read.

    Chapter: loss-projected
    """
    weights = smoothing_weights(
        len(weight), label_smoothing, smoothing
    )
    hidden, labels = hidden.flatten(0, -2), labels.flatten()
    chunk = 4096
    if hidden.device.type == "cpu":
        chunk, kept = 512, (labels != pad_id).nonzero()[:, 0]
        hidden, labels = hidden[kept], labels[kept]
    wanted = torch.is_grad_enabled() and (
        hidden.requires_grad or weight.requires_grad
    )
    return _ProjectedLoss.apply(
        hidden, weight, labels, weights, pad_id, chunk, wanted
    )


def projected_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, **settings: Any
) -> Tensor:
    """The first of `projected_losses`: summed, smoothed, in nats.

    Chapter: loss-projected
    """
    return projected_losses(hidden, weight, labels, **settings)[0]


def hidden_states(
    model: nn.Module, source_ids: Tensor, target_ids: Tensor
) -> Tensor:
    """Teacher-forced outputs: (batch, target_len, d_model).

    Chapter: loss-gradients
    """
    memory = model.encode(source_ids)
    return model.decode(target_ids, memory, source_ids)


def accumulate_gradients(
    model: nn.Module,
    batches: list[Batch],
    tokens: Tensor,
    label_smoothing: float = 0.1,
    smoothing: str = "uniform",
    bf16: bool = False,
    forward: Callable = hidden_states,
) -> Tensor:
    """Add the gradients of some batches' loss per token to a model's.

    Each token weighs 1 / tokens, whichever batch it stands in;
    `tokens` is how many labels all batches have, on the model's
    device. Returns the sums of the smoothed and the plain loss, in
    nats: (2,).

    Chapter: loss-gradients
    """
    weight, kind = model.output_weight, tokens.device.type
    sums = torch.zeros_like(tokens.expand(2))
    for batch in batches:
        batch = batch.to(tokens.device)
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            losses = projected_losses(
                forward(model, batch.source_ids, batch.target_ids),
                weight,
                batch.labels,
                label_smoothing,
                smoothing,
                model.config.pad_id,
            )
        (losses[0] / tokens).backward()
        sums += torch.stack(losses).detach()
    return sums


@torch.no_grad()
def validation_loss(
    model: nn.Module, batches: TokenBatches | Iterable[Batch]
) -> float:
    """Nats per token without smoothing, dropout or gradient.

    `perplexity` of it, per piece, is table 3's measure.

    Chapter: loss-validation
    """
    was_training, weight = model.training, model.output_weight
    model.eval()
    if isinstance(batches, TokenBatches):
        batches = batches.epoch(0)  # every batch, in some order
    total, tokens = 0.0, 0
    for batch in batches:
        tokens += batch.tokens
        batch = batch.to(weight.device)
        hidden = hidden_states(
            model, batch.source_ids, batch.target_ids
        )
        pad_id = model.config.pad_id
        total += projected_losses(
            hidden, weight, batch.labels, pad_id=pad_id
        )[1]
    model.train(was_training)
    return float(total) / tokens
