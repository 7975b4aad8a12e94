"""Runs the chapters, and keeps what came of it in `_build/executed`.

A chapter runs again when its code, a package that it imported or a file
that it read when it last ran has changed: `tracing` notes which. Other
packages may come and go, and the checkout may be copied elsewhere. What
failed or wrote to stderr runs again in any case. Two chapters run at a
time, the longest first. MyST-NB's own cache notices neither a changed
library nor changed data, and runs one chapter after the other.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path

import jupytext
import myst_nb.sphinx_
import nbformat
from myst_nb.core.execute import NotebookClientBase
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from sphinx.util.display import status_iterator

ROOT = Path(__file__).resolve().parents[2]
TRACING = str(Path(__file__).parent / "tracing")
SECONDS = 1200  # that a cell may take: after these it hangs
IMPORT = "import "  # begins a line of a trace that names a module
AT_ONCE = 2
THREADS = str(max(1, (os.cpu_count() or 1) // AT_ONCE))  # for each


def is_notebook(path: str | Path) -> bool:
    path = Path(path)
    text = path.read_text("utf-8") if path.suffix == ".md" else ""
    return "format_name: myst" in text[:300] and "{code-cell}" in text


# What a result depends on


@cache
def distributions() -> dict[str, list[str]]:
    """The installed distributions that a module may be of."""
    return importlib.metadata.packages_distributions()


def versions(modules: set[str]) -> dict[str, str]:
    """The distributions that these modules are of, with their versions.

    A module that was asked for in vain is of none.
    """
    names = {n for m in modules for n in distributions().get(m, [])}
    return {name: version_of(name) for name in sorted(names)}


@cache
def version_of(distribution: str) -> str:
    """Its version, or nothing if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


def code_cells(notebook) -> list:
    return [c for c in notebook.cells if c.cell_type == "code"]


def code_key(notebook) -> str:
    """A hash of a chapter's cells, but for captions, and of the Python."""
    cells = [
        [cell.source, cell.metadata.get("tags", [])]
        for cell in code_cells(notebook)
    ]
    data = os.environ.get("TRANSFORMER_LIB_DATA", "")
    text = json.dumps([cells, sys.version, data])
    return hashlib.sha256(text.encode()).hexdigest()


def is_current(result: dict, path: Path) -> bool:
    """Whether a chapter would give today what it gave then."""
    packages = result.get("packages", {"": "of an older form"})
    return (
        result["key"] == code_key(jupytext.read(path))
        and all(version_of(n) == v for n, v in packages.items())
        and all(digest(ROOT / n) == d for n, d in result["depends"].items())
    )


@cache
def folders() -> list[Path]:
    """Where files lie of which only their folder's list is compared.

    Weights are read by code that is not Python's, which is not traced;
    and a corpus that was missing may appear.
    """
    from transformer_lib.corpora import data_folder

    data = Path(os.path.realpath(data_folder()))
    return [ROOT / "pretrained", data]


def dependency(line: str) -> Path | None:
    """What a path in a trace makes a chapter depend on."""
    path = Path(line)
    if any(path.is_relative_to(folder) for folder in folders()):
        return path if path.is_dir() else path.parent
    if path.suffix == ".pyc":
        path = Path(source_from_cache(line))
    return None if path.is_dir() else path  # imports list folders too


def digest(path: Path) -> str:
    """A hash of a file, or of the files that lie in a folder.

    Of corpora, which are large and never change, the sizes are enough.
    """
    if not path.is_dir():
        return content(path, *stamp(path)) if path.exists() else ""
    files = (file for file in path.iterdir() if file.suffix != ".lock")
    whole = path.is_relative_to(ROOT)
    rows = sorted((file.name, size_or_hash(file, whole)) for file in files)
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def size_or_hash(file: Path, whole: bool) -> str:
    """What stands for a file in the digest of its folder."""
    if file.is_dir():
        return "folder"
    size, changed = stamp(file)
    return content(file, size, changed) if whole else str(size)


def stamp(path: Path) -> tuple[int, int]:
    """A file's size, and when it was changed."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


@cache
def content(path: Path, size: int, changed: int) -> str:
    """A file's hash, computed again if it is another size or newer."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def inside(path: Path) -> str:
    """A path from the checkout's root, if it is in the checkout."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


# Running one chapter


def run(path: Path) -> dict:
    """Execute a chapter; how that went, and its outputs.

    On a loaded machine a kernel has run without a note of what it read;
    then nobody could say later whether the result is old, so once more.
    """
    result = run_once(path)
    return result if result["depends"] else run_once(path)


def run_once(path: Path) -> dict:
    notebook, error = jupytext.read(path), None
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        shutdown_kernel="immediate",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    packages = ["transformer_lib", "transformer_conformance"]
    parts = [*packages, "transformer_book", "book", "runs"]
    roots = [*(ROOT / part for part in parts), *folders()]
    paths = filter(None, [TRACING, os.environ.get("PYTHONPATH")])
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        environment = {
            "OMP_NUM_THREADS": THREADS,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "BOOK_TRACE": str(trace),
            "BOOK_ROOTS": os.pathsep.join(map(str, roots)),
        }
        began = time.perf_counter()
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError) as raised:
            error = str(raised)
        seconds = time.perf_counter() - began
        lines = set(trace.read_text("utf-8").splitlines())
    modules = {x.removeprefix(IMPORT) for x in lines if x.startswith(IMPORT)}
    opened = {x for x in lines if not x.startswith(IMPORT)}
    read = {place for line in opened if (place := dependency(line))}
    outputs = [cell.outputs for cell in code_cells(notebook)]
    noise = [o for cell in outputs for o in cell if o.get("name") == "stderr"]
    return {
        "key": code_key(jupytext.read(path)),
        "packages": versions(modules),
        "depends": {inside(path): digest(path) for path in sorted(read)},
        "seconds": seconds,
        "when": time.time(),
        "error": error,
        "keep": not error and not noise,
        "outputs": outputs,
        "language_info": notebook.metadata.get("language_info", {}),
    }


# Running those that changed


def store(app, docname: str) -> Path:
    return Path(app.outdir).parent / "executed" / f"{docname}.json"


def kept(app, docname: str) -> dict:
    path = store(app, docname)
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def to_run(app, docnames) -> list[str]:
    """Those of the pages that compute and whose result is old."""
    found = []
    for docname in docnames:
        path = app.env.doc2path(docname)
        if not is_notebook(path):
            continue
        result = kept(app, docname)
        if not result.get("keep") or not is_current(result, path):
            found.append(docname)
    return found


def stale(app, env, added, changed, removed):
    """Chapters that have to run again though their text is the same."""
    return to_run(app, env.found_docs - added - changed)


def execute_ahead(app, env, docnames):
    """Run the chapters that Sphinx is about to read, where needed."""
    waiting = to_run(app, docnames)
    lasted = {name: kept(app, name).get("seconds", 1e9) for name in waiting}
    waiting.sort(key=lasted.get, reverse=True)

    def execute(docname):
        result = run(Path(env.doc2path(docname)))
        target = store(app, docname)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(result), "utf-8")
        return docname

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(execute, waiting)
        says = "executing chapters... "
        for _ in status_iterator(done, says, length=len(waiting)):
            pass


class Result(NotebookClientBase):
    """Gives MyST-NB the outputs of a chapter that has been run."""

    def start_client(self):
        result = self._kwargs["result"]
        cells = code_cells(self.notebook)
        for cell, outputs in zip(cells, result["outputs"], strict=True):
            cell.outputs = [nbformat.from_dict(o) for o in outputs]
        language = nbformat.from_dict(result["language_info"])
        self.notebook.metadata["language_info"] = language
        self.exec_metadata = {
            "mtime": result["when"],
            "runtime": result["seconds"],
            "method": "run_chapters",
            "succeeded": not result["error"],
            "error": result["error"],
            "traceback": result["error"],
        }
        if result["error"]:
            message = f"a cell failed:\n{result['error']}"
            self.logger.warning(message, subtype="exec")


def give_results(app):
    """Have MyST-NB take the kept outputs in place of executing."""

    def create_client(notebook, source, config, logger, read_fmt=None):
        if not is_notebook(source):
            return NotebookClientBase(notebook, source, config, logger)
        result = kept(app, app.env.path2doc(source))
        return Result(notebook, source, config, logger, result=result)

    myst_nb.sphinx_.create_client = create_client


def setup(app):
    app.connect("builder-inited", give_results)
    app.connect("env-get-outdated", stale)
    app.connect("env-before-read-docs", execute_ahead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
