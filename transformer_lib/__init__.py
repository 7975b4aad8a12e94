# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. The public
names stand in __init__.pyi. Each is imported when it is first used, so
that `import transformer_lib` is quick and loads no torch. (lazy_loader's
`attach_stub` does the same, but hides a module of its function's name.)
"""

import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_FOUND = re.findall(r"\.(\w+) import[\s(]+(\w+)", _STUB)
_HOME = {name: module for module, name in _FOUND}
__all__ = sorted(_HOME)


def __getattr__(name):
    """A module, or a public name of one."""
    if name == "__version__":
        return version("executable-transformer")
    if name in _HOME.values():
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"{__name__} has no {name!r}", name=name)


def __dir__():
    return sorted({*globals(), *_HOME, *_HOME.values()})
