"""Change the library in small ways; a module's own tests must notice.

    python tools/mutants.py                      30 changes a module
    python tools/mutants.py masks beams --count 60 --seed 4

A change is one of mutmut's or a few more: another operator or number, a
string in XX, a truth turned round, a condition negated, None for an
argument, a value or a result, a call left out. In a module of PyTorch's,
which is trained and used, each change is also made in training alone, and
in use alone. Annotations, docstrings and the words of errors are left
alone. Each is made in a copy, and the module's own test file runs on it in
a fork of this process, which has torch already. Survivors are printed.
`make mutants` runs this; below 90% killed it fails.
"""

import argparse
import ast
import os
import random
import re
import resource
import signal
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from bite import OPTIONS, ROOT, copy_to  # imports torch, for every fork

MODULES = (
    "attention masks positions embeddings layers model loss schedule batching "
    "decoding beams evaluation tokenization checkpoints training translator "
    "corpora experiment"
)
MORE = {  # test files beside a module's own
    "beams": ["translator"],
    "checkpoints": ["own_model"],
    "cli": ["careless"],
    "decoding": ["every_model"],
    "experiment": ["own_model"],
    "layers": ["model", "every_model"],
    "model": ["own_model", "embeddings"],
}
OLD = "<, <=, >, >=, ==, !=, +, -, *, /, //, %, **, @, &, |, and, or"
NEW = "<=, <, >=, >, !=, ==, -, +, /, *, /, /, *, *, |, &, or, and"
WORDS = {"is not": "is", "not in": "in", "is": "is not", "in": "not in"}
SWAPS = WORDS | dict(zip(OLD.split(", "), NEW.split(", "), strict=True))


@dataclass(frozen=True, order=True)
class Mutant:
    """Other bytes for those of a module from `start` to `end`."""

    start: int
    end: int
    new: bytes

    def apply(self, code: bytes) -> bytes:
        return code[: self.start] + self.new + code[self.end :]

    def diff(self, code: bytes) -> str:
        """The first line that differs, before and after."""
        number = code.count(b"\n", 0, self.start)
        before = code.decode().splitlines()[number]
        after = self.apply(code).decode().splitlines()[number]
        return f"  {number + 1:4} - {before}\n       + {after}"


class Finder(ast.NodeVisitor):
    """All mutants of a module."""

    def __init__(self, code: bytes):
        self.code, self.found = code, set()
        self.has_modes = False  # within a method of a module
        lines = code.splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
        self.visit(ast.parse(code))

    def place(self, node: ast.AST) -> tuple[int, int]:
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def replace(self, node: ast.AST, new: str) -> None:
        old, place = self.text(node), self.place(node)
        if new == old:
            return
        self.found.add(Mutant(*place, new.encode()))
        if self.has_modes and not isinstance(node, ast.Starred | ast.Expr):
            for pair in (new, old), (old, new):
                both = "(({}) if self.training else ({}))".format(*pair)
                self.found.add(Mutant(*place, both.encode()))

    def text(self, node: ast.AST) -> str:
        start, end = self.place(node)
        return self.code[start:end].decode()

    def swap(self, node: ast.AST, left: ast.AST, right: ast.AST) -> None:
        """Another operator between two operands."""
        start, end = self.place(left)[1], self.place(right)[0]
        between = self.code[start:end].decode()
        old = re.search(r"is not|not in|\w+|[^\s()\w]+", between)
        change = Mutant(
            start + old.start(), start + old.end(), SWAPS[old[0]].encode()
        )
        first, last = self.place(node)
        longer = len(change.new) - (change.end - change.start)
        changed = change.apply(self.code)[first : last + longer]
        self.replace(node, changed.decode())

    def visit(self, node: ast.AST) -> None:
        outside = self.has_modes
        match node:
            case ast.ClassDef():
                bases = [ast.unparse(base) for base in node.bases]
                self.has_modes = any("Module" in base for base in bases)
            case ast.arguments():  # what they begin with: no self yet
                self.has_modes = False
            case ast.Raise() | ast.JoinedStr() | ast.Expr(ast.Constant()):
                return  # an error's words, a docstring
            case ast.Constant(bool(value)):
                self.replace(node, str(not value))
            case ast.Constant(int(value) | float(value)):
                self.replace(node, repr(value + 1))
            case ast.Constant(str(value)):
                self.replace(node, repr(f"XX{value}XX"))
            case ast.BinOp(left, _, right) | ast.BoolOp(_, [left, right, *_]):
                self.swap(node, left, right)
            case ast.Compare(left, _, values):
                for before, value in pairwise([left, *values]):
                    self.swap(node, before, value)
            case ast.UnaryOp(_, operand):
                self.replace(node, f"({self.text(operand)})")
            case ast.If(test) | ast.IfExp(test):
                self.replace(test, f"(not ({self.text(test)}))")
            case ast.Expr(ast.Call()):
                self.replace(node, "pass")
            case ast.Return(ast.expr() as value) | ast.Assign(_, value):
                self.replace(value, "None")
            case ast.Call(_, [*values]):
                for value in values:
                    self.replace(value, "None")
        for name, child in ast.iter_fields(node):
            parts = child if isinstance(child, list) else [child]
            for part in parts if name not in ("annotation", "returns") else []:
                if isinstance(part, ast.AST):
                    self.visit(part)
        self.has_modes = outside


def passes(module: str, code: bytes, seconds: int) -> bool:
    """Whether a module's tests pass, in a fork, with this code in it."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    with tempfile.TemporaryDirectory() as folder:
        copy_to(Path(folder))
        Path(folder, "transformer_lib", f"{module}.py").write_bytes(code)
        sys.path.insert(0, folder)
        os.environ |= {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
        os.chdir(ROOT)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        for name in (signal.SIGALRM, signal.SIGXCPU):
            signal.signal(name, lambda *_: os._exit(9))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 9))
        signal.alarm(20 * seconds)  # for one that waits for ever
        room = 8 << 30  # bytes, for one that fills the memory
        resource.setrlimit(resource.RLIMIT_DATA, (room, room))
        tests = [
            f"tests/test_{name}.py" for name in (module, *MORE.get(module, ()))
        ]
        result = pytest.main([*OPTIONS, *tests])
    os._exit(int(result))


def survivors(module: str, count: int, seed: int) -> tuple[int, int]:
    """How many mutants of a module were tried, and how many survive."""
    code = (ROOT / "transformer_lib" / f"{module}.py").read_bytes()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if not passes(module, code, 3600):
        raise SystemExit(f"tests/test_{module}.py fails unchanged")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    mutants, alive = sorted(Finder(code).found), 0
    count = min(count, len(mutants))
    for mutant in random.Random(f"{seed} {module}").sample(mutants, count):
        if passes(module, mutant.apply(code), int(5 * used) + 20):
            alive += 1
            print(mutant.diff(code), flush=True)
    print(f"{module}: {count - alive} of {count} killed", flush=True)
    return count, alive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", default=MODULES.split())
    parser.add_argument("--count", type=int, default=30, help="a module")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    tried = alive = 0
    for module in options.modules:
        count, left = survivors(module, options.count, options.seed)
        tried, alive = tried + count, alive + left
    print(f"{tried - alive} of {tried} killed, {1 - alive / tried:.1%}")
    return int(alive > 0.1 * tried)


if __name__ == "__main__":
    raise SystemExit(main())
