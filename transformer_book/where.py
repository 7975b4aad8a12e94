"""From a name of the library to the place that explains it."""

import ast
import os
from importlib import import_module
from importlib.resources import files
from inspect import getmodule
from typing import Any

import transformer_lib


def where(thing: Any) -> str:
    """The address of the place in the book that explains something.

    Args:
        thing: a class, function, method or module of the library, or
            the name of any of its public names or modules.

    Returns:
        A path in the site such as
        "book/architecture/masks.html#masks-causal". It begins with the
        site's own address where the environment variable
        `TRANSFORMER_LIB_BOOK` holds one.

    Raises:
        LookupError: if the book does not explain it.
    """
    module = getmodule(thing)
    if isinstance(thing, str):
        module = _module_of(thing)
        thing = getattr(module, thing, module)
    elif "." in getattr(thing, "__qualname__", ""):  # a method
        thing = getattr(module, thing.__qualname__.split(".")[0])
    page = _place(module)
    if not page or not page.startswith("book/"):
        raise LookupError(f"{thing!r} is not from the library")
    # A docstring names a label; the page's id has no underscore.
    anchor = (_place(thing) or page).rpartition("/")[2]
    book = os.environ.get("TRANSFORMER_LIB_BOOK", "").rstrip("/")
    address = f"{book}/{page}.html#{anchor.replace('_', '-')}"
    return address.lstrip("/")


def _module_of(name: str) -> Any:
    """The module of a name, or that is called so."""
    index = files(transformer_lib) / "__init__.pyi"
    homes = {
        alias.name: node.module or alias.name
        for node in ast.parse(index.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    if name not in homes:
        raise LookupError(
            f"the library has no {name!r}; dir(transformer_lib) "
            "lists its names"
        )
    return import_module(f"transformer_lib.{homes[name]}")


def _place(thing: Any) -> str:
    """What stands behind `Chapter:` at the end of a docstring."""
    last = (getattr(thing, "__doc__", "") or "").strip().splitlines()[-1:]
    found = last and last[0].strip().partition("Chapter: ")[2]
    return found or ""
