"""Typical wrong answers to the exercises of `training`."""

from transformer_book.exercises import check
from transformer_lib.loss import smoothed_loss


def test_shift(capsys):
    assert not check(
        "training.shift", lambda ids: ([2, *ids], [2, *ids])
    )
    assert "what it is asked for" in capsys.readouterr().out
    assert not check(
        "training.shift", lambda ids: ([2, *ids[:-1]], ids)
    )
    assert (
        "three ids make four places"
        in capsys.readouterr().out.lower()
    )


def backward(model, batches, divide):
    for batch in batches:
        logits = model(batch.source_ids, batch.target_ids)
        (
            smoothed_loss(logits, batch.labels) / divide(batch)
        ).backward()


def test_accumulate(capsys):
    def mean_of_means(model, batches):
        model.zero_grad()
        backward(model, batches, lambda b: b.tokens * len(batches))

    def sums(model, batches):
        model.zero_grad()
        backward(model, batches, lambda b: 1)

    def on_top_of_the_old(model, batches):
        tokens = sum(b.tokens for b in batches)
        backward(model, batches, lambda b: tokens)

    for wrong in (mean_of_means, sums):
        assert not check("training.accumulate", wrong)
        assert "tokens of all batches" in capsys.readouterr().out
    assert not check("training.accumulate", on_top_of_the_old)


def test_patience(capsys):
    def never_stops(steps, losses, patience):
        return steps[losses.index(min(losses))]

    assert not check("training.patience", never_stops)
    assert "never sees step 50" in capsys.readouterr().out.lower()
