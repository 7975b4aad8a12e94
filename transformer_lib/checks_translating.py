# Collected from book/back/checks_translating.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: schedule, checkpoints, training, decoding."""

from functools import partial

import torch

from transformer_lib.batching import collate
from transformer_lib.exercises import exercise
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig

__all__ = [
    "checkpoints_fading",
    "checkpoints_size",
    "decoding_cache_size",
    "decoding_greedy",
    "decoding_nucleus",
    "schedule_adam",
    "schedule_cosine",
    "schedule_peak",
    "training_accumulate",
    "training_patience",
    "training_shift",
]


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
            "is "
            f"{wanted:.3g}, not {rate:.3g}: put the step into either "
            "term, "
            "and do not forget the width"
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
            "the rate "
            f"is {share} of the top; yours is {got:.3f} of it"
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
            "times as "
            "long. Divide each sum by the tokens of all batches"
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
        "never "
        f"sees step 50; the best until then is step 20, not {got}"
    )
    assert answer(steps, losses, 3) == 50, (
        "with patience 3 it goes on to 50"
    )
    assert answer([1, 2], [2.0, 3.0], 5) == 1, (
        "patience may never run out"
    )


@exercise("decoding.cache_size")
def decoding_cache_size(answer):
    """Count the numbers in a full cache of keys and values.

    Chapter: checks-decoding
    """
    config = TransformerConfig(100, N=3, d_model=16, d_ff=32, h=2)
    got, right = answer(config, 5, 7, 11), 2 * 3 * 16 * 5 * (7 + 11)
    assert got != right // 2, "keys and values: that is two of each"
    assert got != right // 3, "every one of the N layers has its own"
    assert got == right, (
        "3 layers of width 16, 5 sentences, 7 + 11 positions: "
        f"{right} "
        f"numbers, yours is {got}"
    )


@exercise("decoding.greedy")
def decoding_greedy(answer):
    """Take the likeliest piece until eos (3) or the limit.

    Chapter: checks-decoding
    """
    path = [5, 4, 5, 3, 4, 4, 4, 4]

    def model(ids):
        logits = torch.zeros(6)
        logits[path[len(ids)]] = 2.0
        return logits.log_softmax(-1)

    got = answer(model, 8)
    assert 3 in got, (
        "eos (3) was the likeliest, and belongs to the output"
    )
    assert got == path[:4], (
        f"expected {path[:4]}: stop at eos; got {got}"
    )
    got = answer(model, 2)
    assert got == [5, 4], f"the limit is 2 ids, got {got}"


@exercise("decoding.nucleus")
def decoding_nucleus(answer):
    """Keep the fewest pieces that hold a share p, scaled to sum 1.

    Chapter: checks-decoding
    """
    chances = torch.tensor([0.1, 0.5, 0.05, 0.25, 0.1])
    got = answer(chances.clone(), 0.7)
    kept = (got > 0).tolist()
    assert kept[1], (
        "the likeliest piece always belongs to the nucleus"
    )
    assert kept == [False, True, False, True, False], (
        "0.5 is less than 0.7, and 0.5 + 0.25 is enough: two pieces"
    )
    assert abs(got.sum() - 1) < 1e-6, "what is kept must sum to 1"
    assert abs(got[1] - 2 / 3) < 1e-6, "scale all that is kept alike"
    assert (answer(chances, 0.01) > 0).sum() == 1, (
        "never keep nothing"
    )
