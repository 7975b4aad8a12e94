# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The loss of section 5.4: smoothed labels, and its gradient.

Chapter: book/training/loss
"""

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer_lib.batching import TokenBatches
from transformer_lib.embeddings import PAD


def smoothed_loss(
    logits, labels, label_smoothing=0.1, smoothing="uniform"
) -> Tensor:
    """Cross-entropy with smoothed labels, summed over real tokens.

    Args:
        logits: (batch, target_len, vocab_size)
        labels: (batch, target_len); padding counts not at all.
        label_smoothing, smoothing: see `smoothing_share`.

    Returns:
        The sum in nats, a scalar: divide by the number of labels that
        are not padding. Section 5.4.

    Chapter: loss-smoothed
    """
    vocab_size = logits.size(-1)
    share = smoothing_share(vocab_size, label_smoothing, smoothing)
    real = labels != PAD
    log_p = logits[real].log_softmax(-1)  # (tokens, vocab_size)
    right = log_p.gather(1, labels[real][:, None])  # (tokens, 1)
    return -((1 - share) * right.sum() + share * log_p.mean(1).sum())


def smoothing_share(vocab_size, label_smoothing, smoothing) -> float:
    """The share of a target that all pieces get alike, section 5.4.

    "uniform" spreads `label_smoothing` over every piece. "others"
    spreads it over the wrong pieces alone, which is the same as a
    slightly larger share spread over every piece.

    Raises:
        ValueError: for a share outside [0, 1), or another smoothing.

    Chapter: loss-smoothed
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"{label_smoothing=}: give 0 <= share < 1")
    if smoothing == "uniform":
        return label_smoothing
    if smoothing == "others":
        return label_smoothing * vocab_size / (vocab_size - 1)
    raise ValueError(f"unknown {smoothing=}: give uniform or others")


def perplexity(nats_per_token: float) -> float:
    """e to the loss: between how many pieces the model hesitates.

    Per piece of the vocabulary, as in table 3; give it a loss without
    smoothing.

    Chapter: loss-perplexity
    """
    return math.exp(nats_per_token)


class _ProjectedLosses(torch.autograd.Function):
    """Two sums over rows, and the gradient of the first meanwhile.

    Chapter: loss-projected
    """

    @staticmethod
    def forward(ctx, hidden, weight, labels, share):
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(weight)
        plain, even = hidden.new_zeros(2)  # nats
        rows = hidden, labels[:, None], by_hidden
        chunk = 512 if hidden.is_cpu else 4096  # rows at once
        chunks = [x.split(chunk) for x in rows]
        for h, y, g in zip(*chunks, strict=True):
            real = y != PAD  # (chunk, 1)
            log_p = (h @ weight.T).log_softmax(1, dtype=h.dtype)
            right = log_p.gather(1, y)  # (chunk, 1)
            plain -= (right * real).sum()
            even -= (log_p.mean(1, keepdim=True) * real).sum()
            if any(ctx.needs_input_grad):
                # softmax - target, (chunk, vocab_size)
                slope = log_p.exp_().sub_(share / len(weight))
                rest = torch.full_like(right, share - 1)
                slope.scatter_add_(1, y, rest)
                g.copy_(slope @ weight)
                by_weight += slope.T @ h
        ctx.save_for_backward(by_hidden, by_weight)
        ctx.mark_non_differentiable(plain)
        return (1 - share) * plain + share * even, plain

    @staticmethod
    @once_differentiable
    def backward(ctx, by_sum, _):
        by_hidden, by_weight = ctx.saved_tensors
        return by_hidden * by_sum, by_weight * by_sum, None, None


def projected_losses(
    hidden, weight, labels, label_smoothing=0.1, smoothing="uniform"
) -> tuple[Tensor, Tensor]:
    """`smoothed_loss` of hidden @ weight.T, without all its logits.

    The rows are projected in chunks, and each chunk's gradient is
    worked out at once.

    Args:
        hidden: (batch, target_len, d_model), the decoder's output.
        weight: (vocab_size, d_model), the pre-softmax matrix.
        labels: (batch, target_len)

    Returns:
        Two sums in nats: smoothed, with a gradient, and plain, there
        to be read.

    Chapter: loss-projected
    """
    share = smoothing_share(len(weight), label_smoothing, smoothing)
    hidden, labels = hidden.flatten(0, -2), labels.flatten()
    real = labels != PAD
    if hidden.is_cpu:
        hidden, labels = hidden[real], labels[real]
    else:  # to pick rows would be to wait for the device
        hidden = hidden.where(real[:, None], 0)
    return _ProjectedLosses.apply(hidden, weight, labels, share)


@torch.no_grad()
def validation_loss(model: nn.Module, batches: TokenBatches) -> float:
    """Nats per token without smoothing, dropout or gradient.

    `perplexity` of it, per piece, is table 3's measure.

    Chapter: loss-validation
    """
    was_training = model.training
    model.eval()
    weight = model.output_weight.detach()  # asks for no gradient
    total, tokens = 0.0, 0
    for batch in batches.epoch(0):
        tokens += batch.tokens
        batch = batch.to(weight.device)
        ids, memory = batch.source_ids, model.encode(batch.source_ids)
        hidden = model.decode(batch.target_ids, memory, ids)
        losses = projected_losses(hidden, weight, batch.labels)
        total += losses[1].item()
    model.train(was_training)
    return total / tokens
