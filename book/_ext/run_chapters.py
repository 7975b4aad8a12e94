"""Runs the chapters, and keeps what came of it in `_build/executed`.

A chapter runs again when its code changed, a package, or a file that it
read when it last ran: `tracing` notes them. What failed or wrote to
stderr runs again in any case. Two chapters run at a time, the longest
first.
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
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from sphinx.util.display import status_iterator

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = [".venv", "_build", ".git", "book/_ext"]
SECONDS = 300  # that a cell may take
TRACING = str(Path(__file__).parent / "tracing")
ERRORS = CellExecutionError, CellTimeoutError
AT_ONCE = 2
THREADS = str(max(1, (os.cpu_count() or 1) // AT_ONCE))  # for each


def is_notebook(path: str | Path) -> bool:
    path = Path(path)
    text = path.read_text("utf-8") if path.suffix == ".md" else ""
    return "format_name: myst" in text[:300] and "{code-cell}" in text


# What a result depends on


@cache
def data_folder() -> Path:
    from transformer_lib.corpora import data_folder

    return Path(os.path.realpath(data_folder()))


@cache
def packages() -> str:
    found = importlib.metadata.distributions()
    names = sorted(f"{d.name} {d.version}" for d in found)
    return f"{sys.version}\n{names}"


def code_key(notebook) -> str:
    """A hash of a chapter's cells and of the packages here."""
    cells = [
        [cell.source, cell.metadata.get("tags", [])]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    text = json.dumps([cells, packages()])
    return hashlib.sha256(text.encode()).hexdigest()


def digest(name: str) -> str:
    """A hash of a file, or of the files of a folder; "" if it is gone.

    `data:` stands for the corpora's folder, wherever it is.
    """
    data = name.startswith("data:")
    path = data_folder() / name[5:] if data else ROOT / name
    if path.is_dir():
        files = sorted(
            p for p in path.iterdir() if p.suffix != ".lock"
        )
        parts = [
            f"{p.name} {data and p.stat().st_size}" for p in files
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return (
        file_digest(path, path.stat().st_mtime_ns)
        if path.exists()
        else ""
    )


@cache
def file_digest(path: Path, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names_of(line: str) -> list[str]:
    """What a traced path makes a chapter depend on.

    A model's weights are read by code that is not Python's, so that one
    file of a recorded run stands for all. Of a corpus the names and sizes
    of all files count, so that one that was missing may appear.
    """
    path = Path(line)
    if path.is_relative_to(data_folder()):
        folder = path if path.is_dir() else path.parent
        return [
            f"data:{folder.relative_to(data_folder()).as_posix()}"
        ]
    if path.parent.name == "__pycache__" and path.suffix == ".pyc":
        path = Path(source_from_cache(line))
    name = path.relative_to(ROOT).as_posix()
    if name.startswith(tuple(f"{skipped}/" for skipped in SKIPPED)):
        return []
    if (
        path.is_dir()
    ):  # importing lists folders too: these do not count
        return [name] if name.startswith("runs") else []
    if name.startswith("runs/") and path.exists():
        files = [p for p in path.parent.iterdir() if p.is_file()]
        return [p.relative_to(ROOT).as_posix() for p in files]
    return [name]


# Running one chapter


def run(path: Path, notebook) -> dict:
    """Execute a chapter's cells; how that went, and their outputs."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        paths = [TRACING, os.environ.get("PYTHONPATH", "")]
        roots = [f"{ROOT}{os.sep}", str(data_folder())]
        environment = {
            "OMP_NUM_THREADS": THREADS,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "BOOK_TRACE": str(trace),
            "BOOK_ROOTS": os.pathsep.join(roots),
        }
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            shutdown_kernel="immediate",
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
        )
        error, began = None, time.perf_counter()
        try:
            client.execute(env=environment)
        except ERRORS as raised:
            error = str(raised)
        seconds = time.perf_counter() - began
        lines = set(trace.read_text("utf-8").splitlines())
    names = {name for line in lines for name in names_of(line)}
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    noise = any(
        output.get("name") == "stderr"
        for cell in cells
        for output in cell.outputs
    )
    return {
        "key": code_key(notebook),
        "depends": {name: digest(name) for name in sorted(names)},
        "seconds": seconds,
        "when": time.time(),
        "error": error,
        "keep": error is None and not noise,
        "outputs": [cell.outputs for cell in cells],
        "language_info": notebook.metadata.get("language_info", {}),
    }


# Running those that changed


def store(app, docname: str) -> Path:
    folder = Path(app.outdir).parent / "executed"
    return folder / f"{docname}.json"


def kept(app, docname: str) -> dict:
    path = store(app, docname)
    return (
        json.loads(path.read_text("utf-8")) if path.exists() else {}
    )


def is_fresh(app, docname: str) -> bool:
    result = kept(app, docname)
    notebook = jupytext.read(app.env.doc2path(docname))
    return (
        result.get("keep", False)
        and result["key"] == code_key(notebook)
        and all(digest(n) == d for n, d in result["depends"].items())
    )


def stale(app, env, added, changed, removed):
    """Chapters that have to run again though their text is the same."""
    return [
        docname
        for docname in env.found_docs - added - changed
        if is_notebook(env.doc2path(docname))
        and not is_fresh(app, docname)
    ]


def execute_ahead(app, env, docnames):
    """Run the chapters that are to be read and whose result is old."""
    waiting = [
        docname
        for docname in docnames
        if is_notebook(env.doc2path(docname))
        and not is_fresh(app, docname)
    ]
    lasted = {
        name: kept(app, name).get("seconds", 1e9) for name in waiting
    }
    waiting.sort(key=lasted.get, reverse=True)

    def execute(docname):
        path = Path(env.doc2path(docname))
        result = run(path, jupytext.read(path))
        target = store(app, docname)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(result), "utf-8")
        return docname

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(execute, waiting)
        for _ in status_iterator(
            done, "executing chapters... ", length=len(waiting)
        ):
            pass


class Result(NotebookClientBase):
    """Gives MyST-NB the outputs of a chapter that has been run."""

    def start_client(self):
        result = self._kwargs["result"]
        cells = [
            c for c in self.notebook.cells if c.cell_type == "code"
        ]
        for cell, outputs in zip(
            cells, result["outputs"], strict=True
        ):
            cell.outputs = [nbformat.from_dict(o) for o in outputs]
        language = nbformat.from_dict(result["language_info"])
        self.notebook.metadata["language_info"] = language
        self.exec_metadata = {
            "mtime": result["when"],
            "runtime": result["seconds"],
            "method": "run_chapters",
            "succeeded": result["error"] is None,
            "error": result["error"],
            "traceback": result["error"],
        }
        if result["error"]:
            self.logger.warning(
                f"a cell failed:\n{result['error']}", subtype="exec"
            )


def give_results(app):
    """Have MyST-NB take the kept outputs in place of executing."""

    def create_client(
        notebook, source, config, logger, read_fmt=None
    ):
        if not is_notebook(source):
            return NotebookClientBase(
                notebook, source, config, logger
            )
        docname = app.env.path2doc(source)
        result = kept(app, docname)
        return Result(notebook, source, config, logger, result=result)

    myst_nb.sphinx_.create_client = create_client


def execution(env, docname: str) -> dict:
    """How a chapter ran: runtime, succeeded, traceback, mtime."""
    data = NbMetadataCollector.get_doc_data(env)[docname]
    return data.get("exec_data", {})


def setup(app):
    app.connect("builder-inited", give_results)
    app.connect("env-get-outdated", stale)
    app.connect("env-before-read-docs", execute_ahead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
