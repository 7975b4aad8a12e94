"""Collect the `export` cells of the chapters into `transformer_lib`.

The book is the source: a chapter writes the module of its own name.
What the site folds is marked for JupyterLab to fold, too.

    python tools/tangle.py            write transformer_lib, and marks
    python tools/tangle.py --check    print what differs, exit 1 if any

A module whose chapter has a problem is left as it is; the others are
written all the same. A file of the library that somebody has edited is
named and nothing is written, because its text would be lost.
"""

import argparse
import ast
import difflib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import yaml
from jupytext.myst import dump_yaml_blocks

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "transformer_lib"
CELL = re.compile(
    r"^(`{3,})\{code-cell\}[^\n]*\n"
    r"(---\n.*?^---\n|(?::[^\n]*\n)*)(.*?)^\1 *$",
    re.M | re.S,
)
FOLDED = {"check", "hide-cell", "hide-input", "remove-cell", "remove-input"}
LABEL = re.compile(r"^\(([\w-]+)\)=\s*$", re.M)
WRITTEN = ROOT / "_build" / "tangled.json"  # what was written last, hashed
HEADER = """\
# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""
INIT = '''\
"""The Executable Transformer: the library that the book writes.

Every module is collected from the chapter of the same name. The public
names are those of __init__.pyi, where editors find them too. Each is
imported when it is first used, so that `import transformer_lib` is
quick and loads no torch.
"""

import lazy_loader

__version__ = {version!r}

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
'''
MAIN = '''\
"""`python -m transformer_lib`: the command line of the chapter `cli`."""

from transformer_lib.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
'''
# What modules share, and nobody needs from the package's top.
INNER = set(
    """
    PRESETS alike as_list as_path as_texts check_encoding check_fields
    check_folder check_ids check_options check_pair check_source
    checked_hypothesis checked_text checked_texts decode_line
    describe_machine encode_texts length_limits load_weights padded
    pick_precision plain_weights probe rebuilt uncompiled write_atomically
    """.split()
)


class Chapter:
    """A page of the book and the code that it exports.

    `lines` is as long as the page, and blank where nothing is exported:
    every line number in a problem is the page's own.
    """

    def __init__(self, path: Path):
        text = path.read_text("utf-8")
        self.path, self.name = path.relative_to(ROOT), path.stem
        self.problems: list[str] = []
        self.labels = {
            label[1]: text.count("\n", 0, label.start()) + 1
            for label in LABEL.finditer(text)
        }
        self.lines = [""] * (text.count("\n") + 1)
        for cell in CELL.finditer(text):
            if "export" in metadata_in(cell[2]).get("tags", []):
                at = text.count("\n", 0, cell.start(3))
                code = cell[3].splitlines()
                self.lines[at : at + len(code)] = code
        self.code = "\n".join(self.lines) + "\n"
        self.exports = bool(self.code.strip())
        try:
            self.tree = ast.parse(self.code)
        except SyntaxError as error:
            self.tree = None
            self.complain(error.lineno, f"syntax error: {error.msg}")

    def complain(self, line: int | None, message: str) -> None:
        self.problems.append(f"{self.path}:{line or 1}: {message}")

    def public(self) -> list[str]:
        names = [n for node in self.tree.body for n in names_of(node)]
        return sorted(n for n in names if not n.startswith("_"))

    def anchor(self, line: int) -> str:
        """The last label above a line."""
        above = [name for name, at in self.labels.items() if at < line]
        return above[-1] if above else self.name


def metadata_in(header: str) -> dict:
    """What a cell's header says, in either of its two forms."""
    if header.startswith("---"):
        return yaml.safe_load(header.removesuffix("---\n")[4:])
    lines = (line.removeprefix(":") for line in header.splitlines())
    return yaml.safe_load("\n".join(lines)) or {}


def with_marks(text: str) -> str:
    """A page whose headers say `source_hidden` where the site folds.

    A header is written as jupytext does, so that a page saved from
    JupyterLab is as it was.
    """

    def mark(cell: re.Match) -> str:
        began, ended = (
            text.rfind(f"{{solution-{edge}}}", 0, cell.start())
            for edge in ("start", "end")
        )
        metadata = metadata_in(cell[2])
        jupyter = metadata.pop("jupyter", {})
        jupyter.pop("source_hidden", None)
        if began > ended or FOLDED & set(metadata.get("tags", [])):
            jupyter["source_hidden"] = True
        if jupyter:
            metadata = {"jupyter": jupyter} | metadata
        header = dump_yaml_blocks(metadata) if metadata else ""
        blank = "\n" if cell[2].startswith(":") else ""
        start = cell[0][: cell.start(2) - cell.start()]
        rest = cell[0][cell.start(3) - cell.start() :]
        return start + header + rest.removeprefix(blank)

    return CELL.sub(mark, text)


def names_of(node: ast.stmt) -> list[str]:
    """The names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id]
    if not isinstance(node, ast.Assign):
        return []
    parts = (part for target in node.targets for part in ast.walk(target))
    return [part.id for part in parts if isinstance(part, ast.Name)]


def collect(chapter: Chapter, earlier: list[str]) -> str:
    """The module that a chapter writes, not yet formatted."""
    check_imports(chapter, earlier)
    lines, head, imports = list(chapter.lines), [], []
    defined: dict[str, int] = {}
    for node in chapter.tree.body:
        for name in names_of(node):
            if name in defined:
                first = f"first on line {defined[name]}"
                message = f"{name} is defined twice, {first}"
                chapter.complain(node.lineno, message)
            defined[name] = node.lineno
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node):
                sign(lines, node.body[0], chapter.anchor(node.lineno))
            elif not node.name.startswith("_"):
                message = f"{node.name} has no docstring"
                chapter.complain(node.lineno, message)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(ast.unparse(node))
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                node.end_lineno - node.lineno + 1
            )
    first = chapter.tree.body[0]
    if ast.get_docstring(chapter.tree) is None:
        chapter.complain(first.lineno, "no docstring in the first cell")
    else:
        sign(lines, first, chapter.path.with_suffix("").as_posix())
        head = lines[first.lineno - 1 : first.end_lineno]
        lines[: first.end_lineno] = []
    return HEADER + "\n".join([*head, *imports, *lines])


def sign(lines: list[str], docstring: ast.stmt, place: str) -> None:
    """End a docstring with where the book explains what it is of."""
    last = docstring.end_lineno - 1
    indent = " " * docstring.col_offset
    text = lines[last].rstrip("; ").removesuffix('"""').rstrip()
    text += "\n\n" if text else "\n"
    lines[last] = f'{text}{indent}Chapter: {place}\n{indent}"""'


def check_imports(chapter: Chapter, earlier: list[str]) -> None:
    """Exported cells import only modules of earlier chapters."""
    for node in ast.walk(chapter.tree):
        if isinstance(node, ast.ImportFrom):
            if [name.name for name in node.names] == ["__version__"]:
                continue
            modules = ["." * node.level + (node.module or "")]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            package, _, name = module.partition(".")
            if (
                package in ("transformer_book", "transformer_conformance")
                or not package
                or (package == LIBRARY and name not in earlier)
            ):
                message = f"imports {module}, which no earlier chapter"
                chapter.complain(node.lineno, f"{message} writes")


def ruff(folder: str, *arguments: str) -> str:
    config = ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "ruff", *arguments, *config, "."]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8"
    )
    if done.returncode > 1:
        raise RuntimeError(f"ruff failed: {done.stderr}")
    return done.stdout


def formatted(
    files: dict[str, str], chapters: list[Chapter]
) -> dict[str, str]:
    """The files as ruff formats them; unknown names are complained of."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in "chapters", LIBRARY:
            Path(folder, kind).mkdir()
        named = {chapter.name: chapter for chapter in chapters}
        for name, chapter in named.items():
            Path(folder, "chapters", name).with_suffix(".py").write_text(
                chapter.code, "utf-8"
            )
        for name, text in files.items():
            Path(folder, LIBRARY, name).write_text(text + "\n", "utf-8")
        found = ruff(
            folder,
            *"check --select F,I --ignore F811 --fix --unfixable F".split(),
            *"--output-format json --per-file-ignores".split(),
            f"chapters/*:I,{LIBRARY}/*:F",
        )
        for row in json.loads(found):
            chapter = named[Path(row["filename"]).stem]
            chapter.complain(row["location"]["row"], row["message"])
        ruff(folder, "format")
        library = Path(folder, LIBRARY)
        return {n: (library / n).read_text("utf-8") for n in files}


def package(chapters: list[Chapter]) -> dict[str, str]:
    """The files that no chapter writes: an index and the command.

    The index of names is a stub, which editors read as well. A function
    with a module's name is not in it: the name is the module's.
    INNER names are for the modules among themselves.
    """
    home: dict[str, str] = {}
    modules = {chapter.name: [] for chapter in chapters}
    for chapter in chapters:
        for name in chapter.public():
            if name in home:
                message = f"{home[name]} defines {name} already"
                chapter.complain(1, message)
            home[name] = chapter.name
            if name not in modules and name not in INNER:
                modules[chapter.name].append(name)
    stubs = [f"from . import {name} as {name}" for name in modules]
    stubs += [
        f"from .{module} import {name} as {name}"
        for module, names in modules.items()
        for name in names
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    version = project["project"]["version"]
    return {
        "__init__.py": HEADER + INIT.format(version=version),
        "__init__.pyi": HEADER + "\n".join([*stubs, "__version__: str"]),
        "__main__.py": HEADER + MAIN,
    }


def contents() -> list[Path]:
    """The pages of the book in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    pages = [page for part in toc["parts"] for page in part["chapters"]]
    return [ROOT / f"{page['file']}.md" for page in pages]


def tangle() -> tuple[dict[str, str], list[str]]:
    """The library's files by name, and what is wrong with the chapters."""
    pages = [Chapter(path) for path in contents() if path.exists()]
    chapters = [page for page in pages if page.exports]
    whole = [chapter for chapter in chapters if chapter.tree]
    order = [chapter.name for chapter in chapters]
    files = {
        f"{chapter.name}.py": collect(
            chapter, order[: order.index(chapter.name)]
        )
        for chapter in whole
    }
    if whole == chapters:
        files |= package(chapters)
    files = formatted(files, whole)
    for chapter in chapters:
        if chapter.problems:
            files.pop(f"{chapter.name}.py", None)
    return files, [p for chapter in chapters for p in chapter.problems]


def is_kept(text: str) -> bool:
    """Whether a text of the library can be replaced without a loss.

    It can if it was written here, or if git has it: as a file of some
    commit, or as one side of the conflict that it shows.
    """
    if WRITTEN.exists():
        if digest(text) in json.loads(WRITTEN.read_text("utf-8")):
            return True
    command = ["git", "hash-object", "--stdin"]
    asked = {"cwd": ROOT, "input": text.encode(), "capture_output": True}
    try:
        name = subprocess.run(command, **asked, check=True).stdout.strip()
        command = ["git", "cat-file", "-e", name]
        found = subprocess.run(command, cwd=ROOT, capture_output=True)
    except (OSError, subprocess.CalledProcessError):  # not a repository
        return not WRITTEN.exists()
    return found.returncode == 0 or "\n<<<<<<< " in text


def digest(data: bytes | str) -> str:
    """What stands for a file's content, or a text."""
    data = data.encode() if isinstance(data, str) else data
    return hashlib.sha256(data).hexdigest()


def edited(wanted: dict[Path, str]) -> list[str]:
    """What to do about each file that would lose an edit by hand."""
    pages = {path.stem: path.relative_to(ROOT) for path in contents()}
    found = []
    for path, new in sorted(wanted.items()):
        if path.suffix == ".md" or not path.exists():
            continue
        text, name = path.read_text("utf-8"), path.relative_to(ROOT)
        if text != new and not is_kept(text):
            page = pages.get(path.stem, "tools/tangle.py")
            found.append(
                f"{name} was edited by hand. The book is the source: make "
                f"the change in {page}, then remove {name} and run `make "
                "tangle`"
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare, write nothing"
    )
    check = parser.parse_args().check
    files, problems = tangle()
    wanted = {ROOT / LIBRARY / name: text for name, text in files.items()}
    if not problems:  # a module that no chapter writes goes
        for path in (ROOT / LIBRARY).glob("*.py*"):
            wanted.setdefault(path, "")
    for path in filter(Path.exists, [ROOT / "index.md", *contents()]):
        wanted[path] = with_marks(path.read_text("utf-8"))
    lost = edited(wanted)
    for problem in [*problems, *lost]:
        print(problem, file=sys.stderr)
    if check:
        differing = compare(wanted)
        if differing and not lost:
            print(f"{differing} files differ: run `make tangle`")
        return int(bool(problems or differing))
    if not lost:
        write(wanted)
    return int(bool(problems or lost))


def compare(wanted: dict[Path, str]) -> int:
    """Print how the files differ from what is wanted; how many do."""
    differing = 0
    for path, new in sorted(wanted.items()):
        old = path.read_text("utf-8") if path.exists() else ""
        differing += old != new
        lines = (text.splitlines(True) for text in (old, new))
        name = str(path.relative_to(ROOT))
        sys.stdout.writelines(difflib.unified_diff(*lines, name, name))
    return differing


def write(wanted: dict[Path, str]) -> None:
    """Write the files, and down what was written of the library."""
    for path, new in wanted.items():
        old = path.read_text("utf-8") if path.exists() else ""
        if not new:
            path.unlink()
        elif old != new:
            path.write_text(new, "utf-8")
    ours = [new for path, new in wanted.items() if path.suffix != ".md"]
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps([digest(text) for text in ours]), "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
