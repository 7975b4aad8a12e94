"""Typical wrong answers to the exercises of `schedule`."""

import math

from transformer_book.exercises import check
from transformer_lib.schedule import learning_rate


def test_peak(capsys):
    assert not check("schedule.peak", lambda d, w: (w, w**-0.5))
    assert "do not forget the width" in capsys.readouterr().out
    assert not check(
        "schedule.peak", lambda d, w: (w - 1, (d * w) ** -0.5)
    )
    assert "meet at step 4000" in capsys.readouterr().out


def test_cosine(capsys):
    def from_the_first_step(step, d_model, warmup_steps, max_steps):
        if step <= warmup_steps:
            return learning_rate(step, d_model, warmup_steps)
        top = (d_model * warmup_steps) ** -0.5
        return top * (1 + math.cos(math.pi * step / max_steps)) / 2

    assert not check("schedule.cosine", from_the_first_step)
    assert "Halfway down" in capsys.readouterr().out


def test_adam(capsys):
    def uncorrected(weight, gradient, m, v, t, rate):
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        return weight - rate * m / (v.sqrt() + 1e-9), m, v

    assert not check("schedule.adam", uncorrected)
    said = capsys.readouterr().out
    assert "fter step 1" in said and "corrected for t" in said
