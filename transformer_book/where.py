"""From a name of the library to the place that explains it."""

import os
from inspect import getmodule
from types import ModuleType
from typing import Any

import transformer_lib


def where(thing: Any) -> str:
    """The address of the place in the book that explains something.

    Args:
        thing: a class, function, method or module of the library, or
            the name of one.

    Returns:
        A path in the site such as
        "book/architecture/masks.html#masks-causal". It begins with the
        site's own address where the environment variable
        `TRANSFORMER_LIB_BOOK` holds one.

    Raises:
        LookupError: if the book does not explain it.
    """
    if isinstance(thing, str):
        thing = getattr(transformer_lib, thing, thing)
    module = thing if isinstance(thing, ModuleType) else getmodule(thing)
    if "." in getattr(thing, "__qualname__", ""):  # a method
        thing = getattr(module, thing.__qualname__.split(".")[0])
    page = _place(module)
    if not page.startswith("book/"):
        raise LookupError(f"{thing!r} is not of the library")
    # A docstring names a label; the page's id has no underscore.
    anchor = (_place(thing) or page).rpartition("/")[2]
    book = os.environ.get("TRANSFORMER_LIB_BOOK", "").rstrip("/")
    address = f"{book}/{page}.html#{anchor.replace('_', '-')}"
    return address.lstrip("/")


def _place(thing: Any) -> str:
    """What stands behind `Chapter:` at the end of a docstring."""
    said = (getattr(thing, "__doc__", "") or "").strip()
    return said.rpartition("Chapter: ")[2] if "Chapter: " in said else ""
