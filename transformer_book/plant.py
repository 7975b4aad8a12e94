"""Faults planted in the library: a line of its source is changed."""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import transformer_conformance
import transformer_lib
from transformer_conformance import Adapter

_FOLDER = Path(transformer_lib.__file__).parent
_PACKAGE = transformer_lib.__name__


class _Finder:
    """Finds the library's modules, and changes the text of some."""

    def __init__(self, changes: list[tuple[str, str, str]]):
        self.changes = changes

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name.partition(".")[0] != _PACKAGE:
            return None
        module = name.partition(".")[2] or "__init__"
        file = _FOLDER / f"{module}.py"
        if not file.is_file():
            return None
        loader = _Loader(name, str(file), self.changes)
        inside = [str(_FOLDER)] if module == "__init__" else None
        return importlib.util.spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=inside
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name, path, changes):
        super().__init__(name, path)
        self.changes = changes

    def get_code(self, fullname):
        text = Path(self.path).read_text("utf-8")
        for file, old, new in self.changes:
            if file == Path(self.path).stem:
                text = text.replace(old, new)
        return compile(text, self.path, "exec")


@contextlib.contextmanager
def planted(*changes: tuple[str, str, str]) -> Iterator[None]:
    """The library with changes: (module, old text, new text).

    Inside, `import transformer_lib` gives the changed library;
    afterwards everything is as it was.

    Raises:
        ValueError: if a module doesn't contain the old text.
    """
    for module, old, _ in changes:
        if old not in (_FOLDER / f"{module}.py").read_text("utf-8"):
            raise ValueError(f"{old!r} is not in the module {module}")
    ours = "transformer_conformance.ours"
    names = [n for n in sys.modules if n.partition(".")[0] == _PACKAGE]
    before = {
        name: sys.modules.pop(name)
        for name in [*names, ours]
        if name in sys.modules
    }
    finder = _Finder(list(changes))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [*sys.modules]:
            if name.partition(".")[0] == _PACKAGE or name == ours:
                del sys.modules[name]
        sys.modules.update(before)
        # `from transformer_conformance import ours` asks the package first
        vars(transformer_conformance).pop("ours", None)
        if ours in before:
            vars(transformer_conformance)["ours"] = before[ours]


def ours() -> Adapter:
    """The adapter of the library as it is now, planted or not."""
    suite = Path(transformer_conformance.__file__)
    return Adapter.load(suite.with_name("ours.py"))
