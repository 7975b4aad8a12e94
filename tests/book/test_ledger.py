"""Each row of the fidelity ledger leads to code, a test and a place."""

import ast
import functools
import importlib

import pytest
import tangle
import yaml

ROWS = yaml.safe_load(
    (tangle.ROOT / "book" / "fidelity.yml").read_text("utf-8")
)
FIELDS = {
    "id",
    "section",
    "says",
    "status",
    "symbol",
    "test",
    "chapter",
}


@functools.cache
def labels() -> set[str]:
    found = set()
    for page in [tangle.ROOT / "index.md", *tangle.contents()]:
        chapter = tangle.read_chapter(page)
        found |= {label for _, label in chapter.labels}
    return found


@functools.cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((tangle.ROOT / path).read_text("utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_ids_are_unique():
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_resolves(row):
    assert set(row) == FIELDS
    assert row["status"] in {"exact", "option", "scaled", "open"}
    assert row["says"].strip()
    assert row["chapter"] in labels()
    if row["symbol"]:
        module, _, rest = row["symbol"].partition(".")
        name, _, rest = rest.partition(".")
        thing = importlib.import_module(f"{module}.{name}")
        for part in filter(None, rest.split(".")):
            thing = getattr(thing, part)
    if row["test"]:
        path, _, name = row["test"].partition("::")
        assert name.split("[")[0] in names_in(path)
    assert row["test"] or row["status"] == "open"
