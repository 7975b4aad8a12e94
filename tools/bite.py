"""Break what each row of the ledger says; its test must notice.

    python tools/bite.py                  every row that names a test
    python tools/bite.py masks-causal     these rows

A row's `breaks` is [old text, new text]. The change is made in a copy,
in the module of the row's `symbol`, or without one in the page that is
its test, and the row's test must fail there; on the unchanged copy it
must pass. `make bite` runs this.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch

import jupytext
import pytest
import torch  # noqa: F401  (every fork finds it imported)
import yaml
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
COPIED = ["transformer_lib", "transformer_book", "book"]
CHAPTER = "tests/book/test_chapters.py::test_chapter_ran["
OPTIONS = "-q -x -p no:cacheprovider -p no:xdist".split()


def in_copy(row: dict, change: Callable[[str], str]) -> int:
    """The exit code of a row's test on a changed copy."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(folder, name))
        os.symlink(ROOT / "runs", Path(folder, "runs"))
        source = Path(folder, source_of(row))
        source.write_text(change(source.read_text("utf-8")), "utf-8")
        sys.path.insert(0, folder)
        os.environ |= {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1"}
        os.chdir(ROOT)
        if page := page_of(row):
            return execute(Path(folder, page), (ROOT / page).parent)
        with open(os.devnull, "w") as nowhere:
            for stream in sys.stdout, sys.stderr:
                os.dup2(nowhere.fileno(), stream.fileno())
            return int(pytest.main([*OPTIONS, row["test"]]))


def page_of(row: dict) -> str:
    """The page whose cells are a row's test, or nothing."""
    if not row["test"].startswith(CHAPTER):
        return ""
    return row["test"].removeprefix(CHAPTER)[:-1] + ".md"


def source_of(row: dict) -> str:
    """The module or the page in which a row's change is made."""
    if not row["symbol"]:
        return page_of(row)
    return "/".join(row["symbol"].split(".")[:2]) + ".py"


def execute(page: Path, folder: Path) -> int:
    """1 if a cell of a page, run in a folder, fails; 0 if none does."""
    client = NotebookClient(
        jupytext.read(page),
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    try:
        client.execute()
    except Exception:
        return 1
    return 0


def broken(row: dict) -> int:
    return in_copy(row, lambda text: text.replace(*row["breaks"]))


def unchanged(row: dict) -> int:
    return in_copy(row, lambda text: text)


def complaint(row: dict) -> str:
    """What keeps a row from being tried, or nothing."""
    if "breaks" not in row:
        return "names no change under which its test fails"
    source = source_of(row)
    if row["breaks"][0] not in (ROOT / source).read_text("utf-8"):
        return f"{source} has no text {row['breaks'][0]!r}"
    return ""


def ledger() -> list[dict]:
    text = (ROOT / "book" / "fidelity.yml").read_text("utf-8")
    return yaml.safe_load(text)


def rows_to_try(names: list[str]) -> list[dict]:
    """Rows that name a test, but for findings, which have records."""
    rows = ledger()
    if unknown := set(names) - {row["id"] for row in rows}:
        raise SystemExit(f"no row is called {', '.join(unknown)}")
    return [
        row
        for row in rows
        if row.get("test")
        and ("breaks" in row or row["status"] != "scaled")
        and (not names or row["id"] in names)
    ]


def main(names: list[str]) -> int:
    began, bit = time.perf_counter(), 0
    rows = rows_to_try(names)
    sound = {row["test"]: row for row in rows if not complaint(row)}
    tried = [row for row in rows if not complaint(row)]
    # one task a process, so that each imports the package afresh
    with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        whole = pool.imap(unchanged, sound.values(), 1)
        codes = pool.imap(broken, tried, 1)
        fails = dict(zip(sound, whole, strict=True))
        for row in rows:
            said = complaint(row)
            code = 0 if said else next(codes)
            if not said and fails[row["test"]]:
                said = "fails unchanged"
            elif not said and code != 1:
                said = (
                    f"does not bite: {row['test']} ended with {code}"
                )
            bit += not said
            print(f"{row['id']}: {said or 'bites'}", flush=True)
    seconds = time.perf_counter() - began
    print(f"{len(rows)} rows tried, {bit} bite; {seconds:.0f} s")
    return int(bit < len(rows))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
