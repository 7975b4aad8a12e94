"""Break what each row of the ledger says; its test must notice.

    python tools/bite.py                  every row that names a test
    python tools/bite.py masks-causal     these rows

A row's `breaks` is a list of changes to code, [old text, new text]. The
change is made in a copy, in the module of the row's `symbol`, or
without one in the page that is its test; a third entry before the two
names another file. A finding has records behind it, and `alters`
changes these: [file, pattern, new text], where the pattern is a regular
expression. The file may be lines of an experiment's record, with stars:
"runs/variations.jsonl:h-1-*/report.json". Under each change alone the
row's test must fail, and on the unchanged copy it must pass. `make bite`
runs this.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch

import jupytext
import pytest
import torch  # noqa: F401  (every fork finds it imported)
import yaml
from notebooks import execute

ROOT = Path(__file__).resolve().parent.parent
COPIED = [
    "transformer_lib",
    "transformer_book",
    "transformer_conformance",
    "book",
    "experiments",
]
CHAPTER = "tests/book/test_chapters.py::test_chapter_ran["
OPTIONS = "-q -x -p no:cacheprovider -p no:xdist".split()


@dataclass(frozen=True)
class Change:
    """One way in which a row's statement is made false.

    `files` is a path from the root, with stars where several files
    change at once; after a colon the lines of a record that change.
    `old` is a text, or with `pattern` a regular expression.
    """

    files: str
    old: str
    new: str
    pattern: bool = False

    def paths(self, root: Path = ROOT) -> list[Path]:
        return sorted(root.glob(self.files.partition(":")[0]))

    def apply(self, text: str) -> str:
        wanted = self.files.partition(":")[2]
        if not wanted:
            return self.changed(text)
        return "\n".join(
            self.changed(line) if line and is_of(line, wanted) else line
            for line in text.split("\n")
        )

    def changed(self, text: str) -> str:
        if self.pattern:
            return re.sub(self.old, self.new, text, flags=re.MULTILINE)
        return text.replace(self.old, self.new)

    def complaint(self) -> str:
        """What keeps the change from being tried, or nothing."""
        if not self.paths():
            return f"there is no {self.files}"
        for path in self.paths():
            text = path.read_text("utf-8")
            if self.apply(text) == text:
                return f"{path.relative_to(ROOT)} has no text {self.old!r}"
            try:
                for code in programs(self.apply(text), path):
                    compile(code, str(path), "exec")
            except SyntaxError as error:
                return f"{self.new!r} makes no program: {error}"
        return ""


def is_of(line: str, wanted: str) -> bool:
    """Whether a record's line is of a run's file, RUN/FILE with stars."""
    row = json.loads(line)
    return fnmatchcase(f"{row['run']}/{row['file']}", wanted)


def programs(text: str, path: Path) -> list[str]:
    """The Python in a file: the module, or a page's cells."""
    if path.suffix == ".py":
        return [text]
    if path.suffix != ".md":
        return []
    cells = jupytext.reads(text, fmt="md:myst").cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    return [source for source in sources if not re.match("[%!]", source)]


def changes(row: dict) -> list[Change]:
    """Every change under which a row's test has to fail."""
    breaks = [
        Change(*(part if len(part) == 3 else (source_of(row), *part)))
        for part in row.get("breaks", [])
    ]
    alters = [Change(*part, pattern=True) for part in row.get("alters", [])]
    return breaks + alters


def page_of(row: dict) -> str:
    """The page whose cells are a row's test, or nothing."""
    if not row["test"].startswith(CHAPTER):
        return ""
    return row["test"].removeprefix(CHAPTER)[:-1] + ".md"


def source_of(row: dict) -> str:
    """The module or the page in which a row's breaks are made."""
    if not row.get("symbol"):
        return page_of(row)
    return "/".join(row["symbol"].split(".")[:2]) + ".py"


def code_of_test(task: tuple[dict, Change | None]) -> int:
    """The exit code of a row's test on a copy with a change made."""
    row, change = task
    with tempfile.TemporaryDirectory() as folder:
        copy_to(Path(folder))
        for path in change.paths(Path(folder)) if change else []:
            text = change.apply(path.read_text("utf-8"))
            path.unlink()  # a record is a link to the one it copies
            path.write_text(text, "utf-8")
        sys.path.insert(0, folder)
        os.environ |= {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
        os.chdir(ROOT)
        if page := page_of(row):
            return int(fails(Path(folder, page), (ROOT / page).parent))
        with open(os.devnull, "w") as nowhere:
            for stream in sys.stdout, sys.stderr:
                os.dup2(nowhere.fileno(), stream.fileno())
            return int(pytest.main([*OPTIONS, row["test"]]))


def copy_to(folder: Path) -> None:
    """What a test reads: the code as files, the rest as links."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    for name in "runs", "pretrained":
        shutil.copytree(ROOT / name, folder / name, copy_function=os.symlink)


def fails(page: Path, folder: Path) -> bool:
    """Whether a cell of a page, run in a folder, fails."""
    try:
        execute(jupytext.read(page), folder)
    except RuntimeError:  # the kernel's; a cell's is a CellExecutionError
        raise
    except Exception:
        return True
    return False


def ledger() -> list[dict]:
    text = (ROOT / "book" / "fidelity.yml").read_text("utf-8")
    return yaml.safe_load(text)


def rows_to_try(names: list[str]) -> list[dict]:
    """The rows that name a test."""
    rows = ledger()
    if unknown := set(names) - {row["id"] for row in rows}:
        raise SystemExit(f"no row is called {', '.join(unknown)}")
    return [
        row
        for row in rows
        if row.get("test") and (not names or row["id"] in names)
    ]


def verdicts(rows: list[dict]) -> Iterator[tuple[dict, list[str]]]:
    """Each row and what was found under each of its changes."""
    whole = {row["test"]: (row, None) for row in rows}
    tried = [
        (row, change)
        for row in rows
        for change in changes(row)
        if not change.complaint()
    ]
    # one task a process, so that each imports the package afresh
    with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        sound = pool.imap(code_of_test, whole.values(), 1)
        codes = pool.imap(code_of_test, tried, 1)
        fails = dict(zip(whole, sound, strict=True))
        for row in rows:
            said = []
            for change in changes(row):
                if complaint := change.complaint():
                    said.append(complaint)
                    continue
                code = next(codes)
                if fails[row["test"]]:
                    said.append("fails unchanged")
                elif code != 1:
                    said.append(f"{change.new!r} ends with {code}")
                else:
                    said.append("bites")
            yield row, said


def main(names: list[str]) -> int:
    began, rows = time.perf_counter(), rows_to_try(names)
    tried = bit = 0
    for row, said in verdicts(rows):
        print(f"{row['id']}: {'; '.join(said) or 'no break'}", flush=True)
        tried += max(len(said), 1)  # a row without a break is at fault
        bit += said.count("bites")
    seconds = time.perf_counter() - began
    print(
        f"{len(rows)} rows, {tried} breaks tried, {bit} bite; {seconds:.0f} s"
    )
    return int(bit < tried)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
