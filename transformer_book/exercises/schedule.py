"""The check of the chapter on the learning rate."""

import math
from typing import Any

from transformer_book.exercises import exercise
from transformer_lib.schedule import learning_rate


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4)


@exercise("schedule.learning_rate")
def rate(answer: Any) -> None:
    """Equation 3, the learning rate of one update."""
    width, warmup = 512, 400

    def ratio(step: int) -> float:
        right = learning_rate(step, width, warmup)
        return answer(step, width, warmup) / right

    early, late = ratio(100), ratio(1600)
    assert not (_same(early, 8) and _same(late, 8)), (
        "the larger of the two terms, where equation 3 takes the lower"
    )
    assert not _same(ratio(10), warmup**0.5), (
        "the ramp is step * warmup_steps^-1.5, so that it meets "
        "step^-0.5 where the warm-up ends"
    )
    assert not _same(late, 8), (
        "the rate rises for ever: after the warm-up it is step^-0.5"
    )
    assert not _same(early, 8), (
        "there is no ramp: up to the warm-up's end the rate is "
        "step * warmup_steps^-1.5"
    )
    assert not _same(early, width**0.5), "the factor d_model^-0.5 is missing"
    assert not _same(early, width), (
        "the rate falls with the width: d_model^-0.5, not d_model^0.5"
    )
    for moved in 0.99, 1.01:
        assert not _same(early, moved), (
            "steps count from 1: nothing is added or taken away"
        )
    for step in (1, 100, 400, 401, 1600):
        assert _same(ratio(step), 1), (
            f"at step {step} yours is {ratio(step):.3g} times the rate "
            "of equation 3"
        )
    assert _same(answer(7, 64, 9), learning_rate(7, 64, 9)), (
        "right for d_model=512 and warmup_steps=400 alone"
    )
