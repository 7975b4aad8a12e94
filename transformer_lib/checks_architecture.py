# Collected from book/back/checks_architecture.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks of the exercises on sections 1 to 4 of the paper."""

import torch

from transformer_lib.exercises import exercise

__all__ = ["exercises_softmax"]


def _verdict(test, candidate) -> bool:
    """Whether a learner's own test lets a candidate pass."""
    try:
        test(candidate)
    except AssertionError:
        return False
    return True


@exercise("exercises.softmax")
def exercises_softmax(answer):
    """A check that tells a softmax over the last axis from others.

    Chapter: checks-exercises
    """
    assert _verdict(answer, lambda x: torch.softmax(x, -1)), (
        "your check refuses torch's own softmax over the last axis"
    )
    assert not _verdict(answer, torch.exp), (
        "your check lets exp(x) pass: what must each row sum to?"
    )
    assert not _verdict(answer, lambda x: x / x.sum(-1, True)), (
        "your check lets x / x.sum() pass: can a weight be negative?"
    )
    assert not _verdict(answer, lambda x: torch.softmax(x, 0)), (
        "your check lets a softmax over the first axis pass: try it "
        "on a matrix that is not square"
    )
