# Collected from book/back/checks_training.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: loss, schedule, checkpoints, training."""

from functools import partial

import torch

from transformer_lib.batching import collate
from transformer_lib.exercises import exercise
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig

__all__ = [
    "checkpoints_fading",
    "checkpoints_size",
    "loss_epoch",
    "loss_floor",
    "loss_smoothed",
    "schedule_adam",
    "schedule_cosine",
    "schedule_peak",
    "training_accumulate",
    "training_patience",
    "training_shift",
]


@exercise("loss.floor")
def loss_floor(answer):
    """The lowest smoothed loss of a token, in nats.

    Chapter: checks-loss
    """
    none = answer(100, 0.0)
    assert abs(none) < 1e-9, (
        f"without smoothing it is 0, not {none:.3g}"
    )
    for size, share in ((8, 0.4), (8000, 0.1), (37_000, 0.2)):
        every = share / size
        q = torch.full((size,), every, dtype=torch.float64)
        q[0] += 1 - share
        wanted, got = -(q * q.log()).sum().item(), answer(size, share)
        assert abs(got - wanted) < 1e-6 * wanted, (
            f"for V={size} and a share of {share} you give "
            f"{got:.4f}; the "
            f"target's entropy is {wanted:.4f}. The right piece has "
            "1 - share + share / V"
        )


@exercise("loss.smoothed")
def loss_smoothed(answer):
    """The loss per token with uniform smoothing, without padding.

    Chapter: checks-loss
    """
    logits = 3 * torch.randn(2, 5, 8)
    labels = torch.tensor([[4, 6, 5, 4, 3], [7, 5, 3, 0, 0]])
    for share in (0.0, 0.1, 0.5):
        got = float(answer(logits, labels, share))
        wanted = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=0,
            label_smoothing=share,
        ).item()
        assert abs(got - wanted) < 1e-4 * wanted, (
            f"with a share of {share} it is {wanted:.4f}, not "
            f"{got:.4f}. Is padding left out, of the sum and of the "
            "count? Does every piece get share / V, the right one "
            "too?"
        )


@exercise("loss.epoch")
def loss_epoch(answer):
    """The perplexity of an epoch from its batches' mean losses.

    Chapter: checks-loss
    """
    same = answer([2.0, 2.0], [10, 90])
    assert abs(same - 7.389056) < 1e-4, (
        "two batches at 2 nats are at e^2 = 7.389 together, not "
        f"{same:.3f}"
    )
    got = answer([1.0, 3.0], [300, 100])
    assert abs(got - 4.481689) < 1e-4, (
        "300 tokens at 1 nat and 100 at 3 make 1.5 nats a token, a "
        f"perplexity of 4.482; you give {got:.3f}. Weigh by tokens, "
        "and take the exponential last"
    )


@exercise("schedule.peak")
def schedule_peak(answer):
    """The step and the rate at the top of equation 3.

    Chapter: checks-schedule
    """
    for width, warmup in ((512, 4000), (128, 400), (1024, 7)):
        step, rate = answer(width, warmup)
        assert step == warmup, (
            f"the two terms meet at step {warmup}, not {step}"
        )
        wanted = (width * warmup) ** -0.5
        assert abs(rate - wanted) < 1e-6 * wanted, (
            f"for d_model {width} and a warm-up of {warmup} the top "
            f"is {wanted:.3g}, not {rate:.3g}: put the step into "
            "either term, and do not forget the width"
        )


@exercise("schedule.cosine")
def schedule_cosine(answer):
    """Equation 3's ramp, then half a cosine wave down to 0.

    Chapter: checks-schedule
    """
    top = (512 * 100) ** -0.5
    for step, share, where in (
        (1, 0.01, "at the first step"),
        (50, 0.5, "halfway up"),
        (100, 1.0, "at the end of the warm-up"),
        (600, 0.5, "halfway down"),
        (1100, 0.0, "at the last step"),
    ):
        got = answer(step, 512, 100, 1100) / top
        assert abs(got - share) < 1e-6, (
            f"{where}, step {step} of 1100 with a warm-up of 100, "
            f"the rate is {share} of the top; yours is {got:.3f} of "
            "it"
        )


@exercise("schedule.adam")
def schedule_adam(answer):
    """One step of Adam: the new weight and both running means.

    Chapter: checks-schedule
    """
    weight = torch.ones(4, dtype=torch.float64)
    ours = weight.clone().requires_grad_()
    theirs = torch.optim.Adam([ours], 0.1, (0.9, 0.98), 1e-9)
    m = v = torch.zeros_like(weight)
    for t in (1, 2, 3):
        ours.grad = torch.randn(4, dtype=torch.float64)
        theirs.step()
        weight, m, v = answer(weight, ours.grad, m, v, t, 0.1)
        hint = "are m and v corrected for t, and which do you return?"
        assert torch.allclose(weight, ours.detach(), atol=1e-7), (
            f"after step {t} the weights are {ours.tolist()}, yours "
            f"{weight.tolist()}: {hint}"
        )


@exercise("checkpoints.size")
def checkpoints_size(answer):
    """Bytes of a model's tensors, and of a checkpoint's.

    Chapter: checks-checkpoints
    """
    size, of_checkpoint = answer
    assert size(1000) == 4000, (
        "single precision takes 4 bytes a number"
    )
    assert size(1000, half=True) == 2000, (
        "half precision takes 2 bytes"
    )
    got = of_checkpoint(1000)
    assert got != 4000, "Adam's running means are in a checkpoint too"
    assert got != 8000, "Adam keeps two running means for each weight"
    assert got == 12_000, (
        f"1,000 parameters take 12,000 bytes, not {got}"
    )


@exercise("checkpoints.fading")
def checkpoints_fading(answer):
    """An exponentially fading mean of state dicts, oldest first.

    Chapter: checks-checkpoints
    """
    states = [{"w": torch.tensor([x, 0.0])} for x in (0.0, 4.0, 8.0)]
    got = answer(states, 0.75)["w"][0].item()
    assert states[0]["w"][0] == 0, "the first state has been changed"
    assert abs(got - 6.75) > 1e-6, "`keep` belongs to the mean so far"
    assert abs(got - 2.75) < 1e-6, (
        "0 becomes 0.75 * 0 + 0.25 * 4 = 1, then 2.75; you give "
        f"{got}"
    )
    alone = answer(states[:1], 0.75)["w"]
    assert torch.equal(alone, states[0]["w"]), (
        "of one state: that state"
    )


@exercise("training.shift")
def training_shift(answer):
    """The decoder's input and its labels, shifted by one.

    Chapter: checks-training-loop
    """
    inputs, labels = map(list, answer([7, 8, 9]))
    assert len(inputs) == len(labels) == 4, (
        f"three ids make four places, yours {len(inputs)} and "
        f"{len(labels)}"
    )
    assert inputs != labels, (
        "the decoder would read what it is asked for"
    )
    assert inputs == [2, 7, 8, 9], (
        f"it reads {inputs}: begin goes in front"
    )
    assert labels == [7, 8, 9, 3], (
        f"it is asked for {labels}: end goes last"
    )


@exercise("training.accumulate")
def training_accumulate(answer):
    """Gradients of the loss per token over several batches.

    Chapter: checks-training-loop
    """
    model = Transformer(TransformerConfig.tiny(12, N=1, dropout=0.0))
    pairs = [([5, 6, 3], [7, 8, 9, 8, 7, 3]), ([5, 3], [6, 3])]
    whole = collate(pairs)
    logits = model(whole.source_ids, whole.target_ids)
    (smoothed_loss(logits, whole.labels) / 8).backward()
    wanted = [w.grad.clone() for w in model.parameters()]
    for time in ("", " when old gradients are there"):
        answer(model, [collate(pairs[:1]), collate(pairs[1:])])
        got = [w.grad for w in model.parameters()]
        ratio = got[0].norm() / wanted[0].norm()
        close = all(
            map(partial(torch.allclose, atol=1e-5), got, wanted)
        )
        assert close, (
            f"the gradients differ{time}; yours are {ratio:.2f} "
            "times as long. Divide each sum by the tokens of all "
            "batches"
        )


@exercise("training.patience")
def training_patience(answer):
    """The best step when training stops early.

    Chapter: checks-training-loop
    """
    steps, losses = [10, 20, 30, 40, 50], [3.0, 2.0, 2.5, 2.2, 1.0]
    got = answer(steps, losses, 2)
    assert got == 20, (
        "after two measurements without a new lowest it stops, and "
        "never sees step 50; the best until then is step 20, not "
        f"{got}"
    )
    assert answer(steps, losses, 3) == 50, (
        "with patience 3 it goes on to 50"
    )
    assert answer([1, 2], [2.0, 3.0], 5) == 1, (
        "patience may never run out"
    )
