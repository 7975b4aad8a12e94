"""Collect the `export` cells of the chapters into `transformer_lib`.

The book is the source: every module of the library is written by the
chapter of the same name. A chapter is read as a file of the same length
in which only the exported lines are left, so that every line number in
an error is the chapter's own.

    python tools/tangle.py            write transformer_lib
    python tools/tangle.py --check    print what differs, exit 1 if any
"""

import argparse
import ast
import difflib
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "transformer_lib"
FENCE = re.compile(r"^(`{3,})\{code-cell\}")
LABEL = re.compile(r"^\(([a-z0-9-_]+)\)=\s*$")
HEADER = """\
# Collected from {file} by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.
"""
INIT = '''
"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. Public names
are imported when they are first used, so that `import transformer_lib`
costs next to nothing.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    {imports}

# name: module and anchor of its chapter
_HOME = {home}

# module: title and page of its chapter
_CHAPTERS = {chapters}

__all__ = [name for name in _HOME if name not in _CHAPTERS]


class Chapter(NamedTuple):
    """Where something public is explained."""

    title: str
    source: str
    address: str

    def __str__(self) -> str:
        return f"{{self.title}}: {{self.address}}"


def where(thing: Any) -> Chapter:
    """The chapter that explains a public name, class, function or module.

    The address starts with the environment variable
    `TRANSFORMER_LIB_BOOK`, the site's own address, if it is set.

    Raises:
        LookupError: if no chapter of the book defines `thing`.
    """
    name = thing if isinstance(thing, str) else None
    if name is None:
        named = hasattr(thing, "__qualname__") or hasattr(thing, "__name__")
        of = thing if named else type(thing)
        module = getattr(of, "__module__", of.__name__)
        if not str(module).startswith(__name__):
            raise LookupError(f"{{thing!r}} is not from {{__name__}}")
        name = getattr(of, "__qualname__", of.__name__).split(".")[0]
    name = name.removeprefix(__name__ + ".").split(".")[-1]
    module, anchor = _HOME.get(name, f"{{name}} {{name}}").split()
    if module not in _CHAPTERS:
        raise LookupError(
            f"no chapter defines {{name!r}}; dir({{__name__}}) lists names"
        )
    page, title = _CHAPTERS[module].split(" ", 1)
    book = os.environ.get("TRANSFORMER_LIB_BOOK", "").rstrip("/")
    address = f"{{book}}/{{page}}.html#{{anchor}}".lstrip("/")
    return Chapter(title, f"{{page}}.md", address)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in __all__:
        module = _HOME[name].split()[0]
        return getattr(import_module(f"{{__name__}}.{{module}}"), name)
    if name in _CHAPTERS:
        return import_module(f"{{__name__}}.{{name}}")
    raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_CHAPTERS])
'''
MAIN = '''
"""`python -m transformer_lib`: the command line of the chapter `cli`."""

from transformer_lib.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
'''


@dataclass
class Chapter:
    """A chapter's exported code, with the chapter's line numbers."""

    path: Path  # relative to the root
    title: str = ""
    lines: list[str] = field(default_factory=list)
    labels: list[tuple[int, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    public: dict[str, str] = field(
        default_factory=dict
    )  # name: anchor

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def exports(self) -> bool:
        return any(line.strip() for line in self.lines)

    def complain(self, line: int, message: str) -> None:
        self.problems.append(f"{self.path}:{line}: {message}")

    def anchor(self, line: int) -> str:
        above = [label for at, label in self.labels if at < line]
        return above[-1] if above else self.name


def read_chapter(path: Path) -> Chapter:
    """Keep a chapter's exported lines, blank all others."""
    chapter = Chapter(path.relative_to(ROOT))
    fence, tags, options = "", "", False
    for number, line in enumerate(
        path.read_text("utf-8").splitlines(), 1
    ):
        kept = ""
        if not fence:
            if opened := FENCE.match(line):
                fence, tags, options = opened[1], "", True
            elif label := LABEL.match(line):
                chapter.labels.append((number, label[1]))
            elif line.startswith("# ") and not chapter.title:
                chapter.title = line[2:].strip()
        elif line.rstrip() == fence:
            fence = ""
        elif options and (option := re.match(r":(\w+): (.*)", line)):
            tags = option[2] if option[1] == "tags" else tags
        else:
            options = False
            if "export" in re.findall(r"[\w-]+", tags):
                kept = line
        chapter.lines.append(kept)
    return chapter


def collect(chapter: Chapter, earlier: list[str]) -> str:
    """The module that a chapter writes, not yet formatted."""
    try:
        tree = ast.parse("\n".join(chapter.lines))
    except SyntaxError as error:
        chapter.complain(
            error.lineno or 1, f"syntax error: {error.msg}"
        )
        return ""
    lines = list(chapter.lines)
    check_imports(chapter, tree, earlier)
    docstring = ast.get_docstring(tree)
    if docstring is None:
        first = tree.body[0].lineno
        chapter.complain(
            first, "the first exported cell is no docstring"
        )
    imports, defined, names = [], {}, []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            node is tree.body[0] and docstring is not None
        ):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.unparse(node))
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                node.end_lineno - node.lineno + 1
            )
        for name in names_of(node):
            if name in defined:
                chapter.complain(
                    node.lineno,
                    f"{name} is defined twice, first on line {defined[name]}",
                )
            defined[name] = node.lineno
            if not name.startswith("_"):
                names.append(name)
                chapter.public[name] = chapter.anchor(node.lineno)
    for node in reversed(tree.body):
        sign_docstring(chapter, node, lines)
    return "\n".join(
        [
            HEADER.format(file=chapter.path.as_posix()),
            f'"""{docstring}"""',
            *imports,
            f"__all__ = {sorted(names)!r}",
            *lines,
        ]
    )


def names_of(node: ast.stmt) -> list[str]:
    """The names a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(
        node.target, ast.Name
    ):
        return [node.target.id]
    return []


def sign_docstring(
    chapter: Chapter, node: ast.stmt, lines: list[str]
):
    """End a public docstring with the anchor of its chapter."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return
    if node.name.startswith("_"):
        return
    if ast.get_docstring(node) is None:
        chapter.complain(node.lineno, f"{node.name} has no docstring")
        return
    text = node.body[0]
    last = text.end_lineno - 1
    indent = " " * text.col_offset
    before = lines[last].rstrip().removesuffix('"""').rstrip()
    lines[last] = (before + "\n\n" if before else "\n") + (
        f'{indent}Chapter: {chapter.anchor(node.lineno)}\n{indent}"""'
    )


def check_imports(
    chapter: Chapter, tree: ast.AST, earlier: list[str]
):
    """Exported cells import modules of earlier chapters alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            if node.level:
                chapter.complain(
                    node.lineno, "write the import absolute"
                )
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            package, _, name = module.partition(".")
            if package != LIBRARY:
                continue
            if package == "transformer_book" or name == "figures":
                chapter.complain(
                    node.lineno, "the library draws no figures"
                )
            elif name not in earlier:
                chapter.complain(
                    node.lineno,
                    f"imports {module}, which no earlier chapter writes",
                )


def lint(chapter: Chapter) -> None:
    """Let ruff find undefined and unused names."""
    command = [
        "check",
        "--select",
        "F",
        "--output-format",
        "json",
        "-",
    ]
    found = ruff(*command, text="\n".join(chapter.lines) + "\n")
    for row in json.loads(found or "[]"):
        if (
            row["code"] != "F811"
        ):  # a name defined twice: said already
            chapter.complain(row["location"]["row"], row["message"])


def ruff(*arguments: str, text: str | None = None) -> str:
    config = ["--config", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "ruff", *arguments[:1], *config]
    done = subprocess.run(
        [*command, *arguments[1:]],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode > 1:
        raise RuntimeError(f"ruff failed: {done.stderr}")
    return done.stdout


def formatted(files: dict[str, str]) -> dict[str, str]:
    """Sort the imports and format, as `ruff format` would."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text + "\n", "utf-8")
        ruff("check", "--select", "I", "--fix", "--no-cache", folder)
        ruff("format", "--no-cache", folder)
        return {n: Path(folder, n).read_text("utf-8") for n in files}


def package(chapters: list[Chapter]) -> str:
    """`__init__.py`: where each public name lives, loaded when used.

    The functions of the chapters `checks_...` are found by `check`.
    """
    home, first = {}, {}
    listed = [c for c in chapters if not c.name.startswith("checks_")]
    for chapter in listed:
        for name, anchor in chapter.public.items():
            if name in home:
                chapter.complain(
                    1, f"{first[name]} defines {name} already"
                )
            home[name] = f"{chapter.name} {anchor}"
            first[name] = chapter.path
    return HEADER.format(file="the chapters") + INIT.format(
        imports="\n    ".join(
            f"from {LIBRARY}.{c.name} import *  # noqa: F403"
            for c in listed
        ),
        home=dict(sorted(home.items())),
        chapters={
            c.name: f"{c.path.with_suffix('').as_posix()} {c.title}"
            for c in chapters
        },
    )


def contents() -> list[Path]:
    """The pages of the book in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    pages = [
        page for part in toc["parts"] for page in part["chapters"]
    ]
    return [ROOT / f"{page['file']}.md" for page in pages]


def tangle() -> tuple[dict[str, str], list[str]]:
    """The library's files by name, and what is wrong with the chapters."""
    chapters, earlier, files, problems = [], [], {}, []
    for path in contents():
        if not path.exists():
            continue
        chapter = read_chapter(path)
        if not chapter.exports:
            continue
        text = collect(chapter, earlier)
        if text:
            lint(chapter)
        earlier.append(chapter.name)
        chapters.append(chapter)
        if not chapter.problems:
            files[f"{chapter.name}.py"] = text
    files["__init__.py"] = package(chapters)
    files["__main__.py"] = HEADER.format(file="the chapters") + MAIN
    for chapter in chapters:
        problems += chapter.problems
    return formatted(files), problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="compare, write nothing"
    )
    options = parser.parse_args()
    files, problems = tangle()
    if problems:
        print("\n".join(problems), file=sys.stderr)
    library = ROOT / LIBRARY
    library.mkdir(exist_ok=True)
    present = {
        path.name: path.read_text("utf-8")
        for path in library.glob("*.py")
    }
    differing = sorted(
        name
        for name in files.keys() | present.keys()
        if files.get(name) != present.get(name)
    )
    for name in differing:
        if options.check:
            lines = difflib.unified_diff(
                present.get(name, "").splitlines(keepends=True),
                files.get(name, "").splitlines(keepends=True),
                f"{LIBRARY}/{name}",
                f"{LIBRARY}/{name} as the chapters write it",
            )
            sys.stdout.writelines(lines)
        elif name in files:
            (library / name).write_text(files[name], "utf-8")
        elif not problems:
            (library / name).unlink()
    if options.check and differing:
        print(f"{len(differing)} files differ: run `make tangle`")
        return 1
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
