"""The exercises' checks: `check("masks.causal", my_function)`.

The checks of a chapter are in the module of its name, beside this file.
A check takes the answer and asserts what must hold of it, with messages
that a learner can use::

    @exercise("masks.causal")
    def causal(answer):
        mask = answer(5)
        assert mask[0, 0], "the first position may not look at itself"
"""

import linecache
import sysconfig
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

import transformer_lib

_CHECKS: dict[str, Callable[[Any], None]] = {}
_OURS = (  # where a line of the learner's never stands
    str(Path(__file__).parents[1]),
    str(Path(transformer_lib.__file__).parent),
    *(sysconfig.get_path(p) for p in ("stdlib", "purelib", "platlib")),
    "<frozen",
)


def exercise(name: str) -> Callable:
    """Register a function as the check "chapter.what"."""

    def register(function: Callable[[Any], None]) -> Callable:
        _CHECKS[name] = function
        return function

    return register


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have one shape and, nearly, one content."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    return a.shape == b.shape and torch.allclose(
        a.double(), b.double(), rtol=1e-4, atol=1e-5
    )


def check(name: str, answer: Any) -> bool:
    """Check an answer; print what is right or wrong with it.

    The random numbers that a check draws are the same each time, and
    the reader's own go on as if nothing had been drawn.

    Args:
        name: as in "attention.attention".
        answer: the function or class that the exercise asks for.

    Returns:
        True if everything that the check asserts holds.

    Raises:
        ValueError: if there is no such check; the names are listed.
    """
    if name not in _CHECKS:
        for module in iter_modules(__path__):
            import_module(f"{__name__}.{module.name}")
    if name not in _CHECKS:
        names = ", ".join(sorted(_CHECKS))
        raise ValueError(f"no check named {name!r}; there are {names}")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _CHECKS[name](answer)
    except Exception as error:
        print(f"{name}: not yet. {_explain(error, _CHECKS[name])}")
        return False
    print(f"{name}: right.")
    return True


def _explain(error: Exception, function: Callable) -> str:
    """What went wrong, in a sentence or two for the learner."""
    line = _own_line(error, function)
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    if line:
        return f"Your answer raised {said}\n  at {line}"
    if "NoneType" in said:
        return "Your answer returns None where a value is asked for"
    if isinstance(error, AssertionError):
        text = str(error) or "a property that must hold does not"
        return text[0].upper() + text[1:]
    return (
        f"The check could not use your answer: {said}\n"
        "  Does it take the arguments asked for, and return a value?"
    )


def _own_line(error: Exception, function: Callable) -> str:
    """The last line of the learner's that led to an error, or ''."""
    place, inside = "", False
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if inside and not code.co_filename.startswith(_OURS):
            text = linecache.getline(code.co_filename, number).strip()
            place = f"line {number} of {code.co_name}: {text}"
        inside = inside or code is function.__code__
    return place.removesuffix(": ")
