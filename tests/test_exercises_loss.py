"""Typical wrong answers to the exercises of `loss`."""

import math

import torch

from transformer_book.exercises import check


def test_floor(capsys):
    def forgets_the_others(vocab_size, share):
        right = 1 - share + share / vocab_size
        return -right * math.log(right)

    assert not check("loss.floor", forgets_the_others)
    assert "entropy" in capsys.readouterr().out
    assert not check("loss.floor", lambda v, share: 0.5)
    assert (
        "without smoothing it is 0" in capsys.readouterr().out.lower()
    )


def test_smoothed(capsys):
    def counts_padding(logits, labels, share):
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            label_smoothing=share,
        )

    def spreads_over_the_wrong_ones(logits, labels, share):
        log_p = logits.log_softmax(-1)
        right = log_p.gather(-1, labels[..., None])[..., 0]
        every = share / (logits.size(-1) - 1)
        rest = log_p.sum(-1) - right
        return -((1 - share) * right + every * rest)[
            labels != 0
        ].mean()

    for wrong in (counts_padding, spreads_over_the_wrong_ones):
        assert not check("loss.smoothed", wrong)
        assert "padding" in capsys.readouterr().out


def test_epoch(capsys):
    def mean_of_means(losses, tokens):
        return math.exp(sum(losses) / len(losses))

    def mean_of_perplexities(losses, tokens):
        each = [
            math.exp(x) * n
            for x, n in zip(losses, tokens, strict=True)
        ]
        return sum(each) / sum(tokens)

    for wrong in (mean_of_means, mean_of_perplexities):
        assert not check("loss.epoch", wrong)
        assert "Weigh by tokens" in capsys.readouterr().out
