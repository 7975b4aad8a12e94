# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The loss of section 5.4: smoothed labels, and its gradient.

Chapter: book/training/loss
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.batching import TokenBatches
from transformer_lib.embeddings import PAD
from transformer_lib.model import Transformer, evaluating


def smoothed_loss(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.1
) -> Tensor:
    """Cross-entropy with smoothed labels, summed over real tokens.

    Args:
        logits: (batch, target_len, vocab_size)
        labels: (batch, target_len); padding, or a label below 0, is
            left out.
        label_smoothing: eps_ls, the share of the target that is spread
            over the whole vocabulary.

    Returns:
        The sum in nats, a scalar: divide by the number of labels that
        are not padding. Section 5.4.

    Chapter: loss-smoothed
    """
    share = label_smoothing
    labels = labels.clamp(min=PAD)  # PyTorch marks padding by -100
    real = labels != PAD
    scores = logits[real]  # (tokens, vocab_size)
    log_p = scores.log_softmax(-1, dtype=_at_least_float32(scores))
    right = log_p.gather(1, labels[real][:, None])  # (tokens, 1)
    return -((1 - share) * right.sum() + share * log_p.mean(1).sum())


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def perplexity(nats_per_token: float) -> float:
    """e to the loss: between how many tokens the model hesitates.

    Per token, as in table 3; give it a loss without smoothing.
    Infinite if the exponential is too large for a number.

    Chapter: loss-perplexity
    """
    return math.exp(nats_per_token) if not nats_per_token > 709 else math.inf


class _ProjectedLosses(torch.autograd.Function):
    """Two sums; the forward pass computes the gradient too.

    A row of `hidden` whose label is padding has to be zero: then it adds
    nothing to the gradient of the weight.

    Chapter: loss-projected
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, share: float
    ) -> tuple[Tensor, Tensor]:
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(weight)
        weight = weight.to(hidden.dtype)  # once, not in each chunk
        precision = _at_least_float32(hidden)
        # Sums in nats: of the right tokens, and of the mean over all.
        plain = torch.zeros((), dtype=precision, device=hidden.device)
        uniform = torch.zeros_like(plain)
        chunk = 512 if hidden.is_cpu else 4096  # positions at once
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
    def backward(ctx: Any, by_sum: Tensor, _: Tensor) -> tuple:
        if torch.is_grad_enabled():  # by create_graph=True
            raise RuntimeError("no second derivative: take smoothed_loss")
        by_hidden, by_weight = ctx.saved_tensors
        return by_hidden * by_sum, by_weight * by_sum, None, None


def projected_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
) -> tuple[Tensor, Tensor]:
    """`smoothed_loss` of hidden @ weight.T, without all its logits.

    The positions are projected in chunks, and the gradient of a chunk
    is computed before the next chunk.

    Args:
        hidden: (batch, target_len, d_model), the decoder's output.
        weight: (vocab_size, d_model), the pre-softmax matrix.
        labels: (batch, target_len)

    Returns:
        Two sums in nats, at least in float32: smoothed, with a
        gradient, and plain, without one. A second derivative raises
        RuntimeError.

    Chapter: loss-projected
    """
    hidden, labels = hidden.flatten(0, -2), labels.flatten().clamp(min=PAD)
    if not torch.is_grad_enabled():
        weight = weight.detach()
    real = labels != PAD
    if hidden.is_cpu:
        hidden, labels = hidden[real], labels[real]
    else:
        # To pick rows would be to wait for the GPU. Zeros, and where the
        # gradient comes back through them, keep padding out as well.
        hidden = hidden.where(real[:, None], 0)
        kind = hidden.device.type
        if torch.is_autocast_enabled(kind):
            # Once here, or each product of a chunk would cast again.
            hidden = hidden.to(torch.get_autocast_dtype(kind))
    return _ProjectedLosses.apply(hidden, weight, labels, label_smoothing)


def model_losses(
    model: Transformer,
    hidden: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.1,
) -> tuple[Tensor, Tensor]:
    """Both sums of `projected_losses`, by the model's own `project`.

    In chunks if this is the product with `output_weight` and no more;
    otherwise all logits are there at once.

    Chapter: loss-own-projection
    """
    if _only_multiplies(model):
        return projected_losses(
            hidden, model.output_weight, labels, label_smoothing
        )
    logits = model.project(hidden)
    plain = smoothed_loss(logits.detach(), labels, 0.0)
    return smoothed_loss(logits, labels, label_smoothing), plain


def _only_multiplies(model: Transformer) -> bool:
    """Whether `project` is ours, without a bias, a hook, or another part.

    Chapter: loss-own-projection
    """
    last = getattr(model, "pre_softmax", None)
    return (
        getattr(model.project, "__func__", None) is Transformer.project
        and getattr(last.forward, "__func__", None) is nn.Linear.forward
        and last.bias is None
        and model.output_weight is last.weight
        and not (last._forward_hooks or last._forward_pre_hooks)
        and not (last._backward_hooks or last._backward_pre_hooks)
    )


def validation_loss(model: Transformer, batches: TokenBatches) -> float:
    """Nats per token without smoothing, dropout or gradient.

    `perplexity` of it, per token, is table 3's measure. The model's
    `hidden` is called, and `project` if that does more than multiply by
    `output_weight`, as in training, but not the model itself: a `forward`
    of its own, or a hook on it, has no part in this.

    Chapter: loss-validation
    """
    total, tokens = 0.0, 0
    with evaluating(model):
        for batch in batches.epoch(0):
            tokens += batch.tokens
            batch = batch.to(next(model.parameters()).device)
            hidden = model.hidden(batch.source_ids, batch.target_ids)
            _, plain = model_losses(model, hidden, batch.labels)
            total += plain.item()
    return total / tokens
