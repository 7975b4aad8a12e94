
"""The exercises' self-checks: register one, run one, list all."""

import difflib
import importlib
import importlib.util
import linecache
import pkgutil
import sysconfig
import traceback
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["check", "checks", "exercise"]


_CHECKS: dict[str, Callable[[Any], None]] = {}


def exercise(name: str) -> Callable:
    """Put a function on the list of checks, as "chapter.what".

    The function takes the answer, asserts what must hold of it with
    messages a learner can use, and returns nothing. The first line of
    its docstring says what the exercise asks. A second function under
    the same name takes the place of the first.

    Raises:
        ValueError: if the name is not of the form "chapter.what".

    """
    chapter, dot, what = name.partition(".")
    if not (chapter and dot and what):
        raise ValueError(
            f"a check is named 'chapter.what', as in "
            f"'attention.causal'; got {name!r}"
        )

    def register(function: Callable[[Any], None]) -> Callable:
        _CHECKS[name] = function
        return function

    return register


def _load_checks() -> None:
    """Import every module of this package, once."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def checks() -> dict[str, dict[str, str]]:
    """Every check by chapter: {chapter: {name: what it asks}}.

    """
    _load_checks()
    found: dict[str, dict[str, str]] = {}
    for name, function in _CHECKS.items():
        lines = (function.__doc__ or "").strip().splitlines()
        chapter = found.setdefault(name.partition(".")[0], {})
        chapter[name] = lines[0] if lines else ""
    return found


def _own_line(error: BaseException, function: Callable) -> str:
    """The last line of the learner's that led to an error, or ''."""
    paths = sysconfig.get_paths()
    library = importlib.util.find_spec("transformer_lib")
    others = [paths["stdlib"], paths["purelib"], paths["platlib"]]
    others += library.submodule_search_locations if library else []
    place, inside = "", False
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        theirs = not code.co_filename.startswith((*others, "<frozen"))
        if inside and theirs:
            text = linecache.getline(code.co_filename, number).strip()
            place = f"line {number} of {code.co_name}: {text}"
        inside = inside or code is function.__code__
    return place.removesuffix(": ")


def check(name: str, answer: Any) -> bool:
    """Check an answer, print what is right or wrong with it.

    Args:
        name: as in "attention.causal"; `checks()` lists all.
        answer: the function, class or value that is asked for.

    Returns:
        True if everything the check asks holds.

    Raises:
        ValueError: if there is no such check; close names are listed.

    """
    _load_checks()
    if name not in _CHECKS:
        close = difflib.get_close_matches(name, _CHECKS, cutoff=0.4)
        hint = ", ".join(map(repr, close)) or "one of checks()"
        raise ValueError(
            f"no check named {name!r}; did you mean {hint}?"
        )
    function = _CHECKS[name]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            function(answer)
    except Exception as error:
        print(f"{name}: not yet. {_explain(error, function)}")
        return False
    print(f"{name}: right.")
    return True


def _explain(error: Exception, function: Callable) -> str:
    """What went wrong, in a sentence or two for the learner."""
    line = _own_line(error, function)
    if isinstance(error, AssertionError) and not line:
        text = str(error) or "a property that must hold does not"
        return text[0].upper() + text[1:]
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    if line:
        return f"Your answer raised {said}\n  at {line}"
    return (
        f"The check could not use your answer: {said}\n"
        "  Does it take the arguments asked for, and return a value?"
    )
