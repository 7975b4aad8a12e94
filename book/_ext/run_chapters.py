"""Runs the chapters, and keeps what came of it in `_build/executed`.

A chapter runs again when its code, a package or module that it imported, a
record that it read, or the data have changed. What failed or wrote to
stderr runs again in any case. Two chapters run at a time, the longest
first. MyST-NB's own cache notices neither a changed library nor changed
data, and runs one chapter after the other.
"""

import json
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path

import jupytext
import myst_nb.sphinx_
import nbformat
from myst_nb.core.execute import NotebookClientBase
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from sphinx.util.display import status_iterator

from transformer_lib.corpora import data_folder

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

from notebooks import (  # noqa: E402
    code_cells,
    execute,
    expressions,
    is_notebook,
    named,
)
from tangle import digest  # noqa: E402

PACKAGES = "transformer_lib", "transformer_book", "transformer_conformance"
OURS = [ROOT / name for name in (*PACKAGES, "runs")]
CORPORA = "corpora"  # wherever they are
AT_ONCE = 2
THREADS = str(max(1, (os.cpu_count() or 1) // AT_ONCE))  # for each
IMPORTED = """\
import json, sys
records = sys.modules.get("transformer_book.records")
print(json.dumps([{name: getattr(module, "__file__", None)
                   for name, module in [*sys.modules.items()]},
                  [str(path) for path in getattr(records, "READ", ())]]))"""


# What a result depends on


def key_of(notebook) -> str:
    """A hash of a chapter's code, and of the Python that runs it."""
    cells = [
        [cell.metadata.get("tags", []), cell.source]
        for cell in code_cells(notebook)
    ]
    asked = [expressions(cell) for cell in notebook.cells]
    data = os.environ.get("TRANSFORMER_LIB_DATA", "")
    return digest(json.dumps([cells, asked, sys.version, data]))


@cache
def version_of(distribution: str) -> str:
    """Its version, or nothing if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def file_digest(path: Path) -> str:
    return digest(path.read_bytes()) if path.exists() else ""


def library() -> dict[str, str]:
    """The library's modules, for a chapter that starts it as a program."""
    paths = ROOT.glob("transformer_lib/*.py")
    return {f"transformer_lib.{path.stem}": str(path) for path in paths}


def packages_of(modules) -> dict[str, str]:
    """The distributions that modules are of, with their versions."""
    known = metadata.packages_distributions()
    tops = {name.partition(".")[0] for name in modules}
    found = {each for top in tops for each in known.get(top, [])}
    return {name: version_of(name) for name in sorted(found)}


def digests_of(modules: dict[str, str | None], records) -> dict[str, str]:
    """Our own modules, the records, and the data that they read."""
    files = [*filter(None, modules.values()), *records]
    paths = [Path(os.path.realpath(file)) for file in files]
    read = {path for path in paths if any(map(path.is_relative_to, OURS))}
    read |= {ROOT / "transformer_lib/data", ROOT / "pretrained"}
    names = sorted(str(path.relative_to(ROOT)) for path in read)
    if "transformer_lib.corpora" in modules:
        names.append(CORPORA)
    return {name: digest_of(name) for name in names}


def digest_of(name: str) -> str:
    """A hash of a file, or of all files in a folder.

    Of the corpora, which are large and never change, the sizes are enough.
    """
    folder = data_folder() if name == CORPORA else ROOT / name
    if not folder.is_dir():
        return file_digest(folder)
    files = sorted(path for path in folder.rglob("*.*") if path.is_file())
    files = [path for path in files if path.suffix != ".lock"]
    if name == CORPORA:
        each = [path.stat().st_size for path in files]
    else:
        each = [file_digest(path) for path in files]
    names = [str(path.relative_to(folder)) for path in files]
    return digest(repr([names, each]))


def is_current(result: dict, path: Path) -> bool:
    """Whether a chapter would give today what it gave then."""
    return (
        result.get("key") == key_of(jupytext.read(path))
        and all(version_of(n) == v for n, v in result["packages"].items())
        and all(digest_of(n) == d for n, d in result["depends"].items())
    )


# Running one chapter


def run(path: Path) -> dict:
    """Execute a chapter; how that went, and its outputs."""
    notebook, error = jupytext.read(path), None
    modules, records = {}, []
    key, began, values = key_of(notebook), time.perf_counter(), []
    last = nbformat.v4.new_code_cell(IMPORTED)
    notebook.cells.append(last)
    env = {"OMP_NUM_THREADS": THREADS, **os.environ, "BOOK_BUILD": "1"}
    try:
        values = execute(notebook, path.parent, env)
        modules, records = json.loads(last.outputs[0].text)
    except (CellExecutionError, CellTimeoutError, ValueError) as raised:
        error = str(raised)
    seconds = time.perf_counter() - began
    notebook.cells.pop()
    if "subprocess" in path.read_text("utf-8"):
        modules |= library()
    cells = code_cells(notebook)
    outputs = [cell.outputs for cell in cells]
    noise = [
        output
        for cell in cells
        for output in cell.outputs
        if output.get("name") == "stderr"
        and "remove-stderr" not in cell.metadata.get("tags", ())
    ]
    return {
        "key": key,
        "packages": packages_of(modules),
        "depends": digests_of(modules, records),
        "seconds": seconds,
        "error": error,
        "keep": not error and not noise,
        "outputs": outputs,
        "values": values,
        "language_info": notebook.metadata.get("language_info", {}),
    }


# Running those that changed


def kept_at(app, docname: str) -> Path:
    return Path(app.outdir).parent / "executed" / f"{docname}.json"


def kept(app, docname: str) -> dict:
    path = kept_at(app, docname)
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
        target = kept_at(app, docname)
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
        self.values = defaultdict(list)
        for expression, value in result["values"]:
            self.values[named(expression)].append(nbformat.from_dict(value))
        if result["error"]:
            message = f"a cell failed:\n{result['error']}"
            self.logger.warning(message, subtype="exec")

    def eval_variable(self, name: str) -> list:
        """What `{eval}` shows; the same again where it stands again."""
        values = self.values[named(name)]
        return [values.pop(0) if len(values) > 1 else values[0]]


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
