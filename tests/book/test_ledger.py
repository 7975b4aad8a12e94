"""Each row of the fidelity ledger leads to code, a test and a place."""

import ast
import functools
import importlib

import bite
import pytest
import tangle
import yaml

LEDGER = tangle.ROOT / "book" / "fidelity.yml"
ROWS = yaml.safe_load(LEDGER.read_text("utf-8"))
FIELDS = {"id", "section", "says", "status", "chapter"}
MORE = {"symbol", "test", "breaks", "alters"}
BUILT = {"exact", "option"}  # a change to their code must be noticed
STATES = {*BUILT, "scaled", "open", "undecidable"}


@functools.cache
def labels() -> set[str]:
    pages = [tangle.ROOT / "index.md", *tangle.contents()]
    return {label for p in pages for label in tangle.Chapter(p).labels}


@functools.cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((tangle.ROOT / path).read_text("utf-8"))
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef))
    return {function.name for function in functions}


def test_ids_are_unique():
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_leads_somewhere(row):
    assert FIELDS <= set(row) <= FIELDS | MORE
    assert row["status"] in STATES and row["says"].strip()
    assert row["chapter"] in labels()
    package, *path = row.get("symbol", "").split(".")
    if path:
        thing = importlib.import_module(f"{package}.{path[0]}")
        functools.reduce(getattr, path[1:], thing)
    if row.get("test"):
        file, _, name = row["test"].partition("::")
        assert name.split("[")[0] in functions_in(file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_has_what_its_state_asks(row):
    built = row["status"] in BUILT
    if row["status"] in {"open", "undecidable"}:
        assert not row.get("test") and not row.get("symbol")
    else:
        assert row.get("test")
    assert not built or "breaks" in row
    # `make bite` tries each of them
    for change in bite.changes(row):
        assert not change.complaint()


def test_a_kernel_that_does_not_start_bites_nothing(monkeypatch, tmp_path):
    """The change would be said to be noticed, and nothing was tried."""
    page = tmp_path / "page.md"
    page.write_text("text\n")

    def died(*_):
        raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(bite, "execute", died)
    with pytest.raises(RuntimeError, match="kernel_info"):
        bite.fails(page, tmp_path)
