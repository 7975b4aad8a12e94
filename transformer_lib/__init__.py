# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. The public
names stand in __init__.pyi. Each is imported when it is first used, so
that `import transformer_lib` is quick and loads no torch.
"""

import re
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_FOUND = re.findall(r"\.(\w+) import[\s(]+(\w+)", _STUB)
_HOME = {name: module for module, name in _FOUND}
__all__ = sorted(_HOME)


class _Package(ModuleType):
    """Where a module and a function share a name, the function wins."""

    def __getattr__(self, name):
        if name == "__version__":
            return version("executable-transformer")
        if name in _HOME:
            module = import_module(f"{__name__}.{_HOME[name]}")
            return getattr(module, name)
        if name in _HOME.values():
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"{__name__} has no {name!r}", name=name)

    def __setattr__(self, name, value):
        # Importing a module sets its name here: not over a function's.
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*super().__dir__(), *_HOME, *_HOME.values()})


sys.modules[__name__].__class__ = _Package
