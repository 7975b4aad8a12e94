# Collected from book/back/checks_translating.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: decoding."""

import torch

from transformer_lib.exercises import exercise
from transformer_lib.model import TransformerConfig

__all__ = [
    "decoding_cache_size",
    "decoding_greedy",
    "decoding_nucleus",
]


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
        f"{right} numbers, yours is {got}"
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
