"""The check of the chapter on the loss."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from transformer_book.exercises import exercise


@exercise("loss.smoothed")
def smoothed(answer: Any) -> None:
    """The smoothed loss per token, padding left out."""
    logits = 3 * torch.randn(3, 4, 11)
    labels = torch.tensor([[4, 9, 3, 0], [7, 3, 0, 0], [5, 6, 8, 3]])
    share, real = 0.2, labels != 0

    def loss(share, skip=0, how="mean", rows=slice(None)) -> float:
        return cross_entropy(
            logits[rows].flatten(0, 1),
            labels[rows].flatten(),
            label_smoothing=share,
            ignore_index=skip,
            reduction=how,
        ).item()

    mine = torch.as_tensor(answer(logits, labels, share)).double()
    assert mine.shape == (), (
        f"the loss is one number, yours has shape {tuple(mine.shape)}"
    )
    log_p = logits.log_softmax(-1)
    right = log_p.gather(-1, labels[..., None])[..., 0][real]
    spread = log_p.mean(-1)[real]
    mistakes = {
        "the sign is wrong: a log-probability is negative, a loss is "
        "positive": -loss(share),
        "this is the sum: divide by the number of real tokens": loss(
            share, how="sum"
        ),
        "padding is counted: leave out where labels are 0": loss(
            share, skip=-1
        ),
        "nothing is smoothed": loss(0.0),
        "the share is spread as a sum over the tokens, not as a mean": (
            -((1 - share) * right + share * 11 * spread).mean().item()
        ),
        "the share goes only to the wrong tokens: uniform smoothing "
        "gives the right one its part too": (
            ((1.1 * share - 1) * right - 1.1 * share * spread).mean().item()
        ),
        "every sentence weighs the same: add up all tokens, and divide "
        "once by their number": sum(
            loss(share, rows=slice(i, i + 1)) / 3 for i in range(3)
        ),
        "the right token keeps all of its 1: it gives away the share": (
            -(right + share * spread).mean().item()
        ),
    }
    good = abs(mine - loss(share)) < 1e-4
    for message, value in mistakes.items():
        assert good or abs(mine - value) > 1e-4, message
    assert good, f"{mine:.4f} where the smoothed loss is {loss(share):.4f}"
