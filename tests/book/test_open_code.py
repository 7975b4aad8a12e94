"""Open code runs from what is open: no name comes from a folded cell."""

import ast
import builtins

import jupytext
import pytest
import tangle

PARTS = "start", "architecture", "training", "translating", "results"
PAGES = [p for part in PARTS for p in tangle.ROOT.glob(f"book/{part}/*.md")]
FOLDED = {"check", "hide-input", "hide-cell", "remove-cell", "remove-input"}
KNOWN = set(dir(builtins))


def given(tree):
    """Every name that a cell defines, imports or binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for one in node.names:
                yield (one.asname or one.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def used(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def borrowed(cells):
    """Names that open cells use and that no open cell gives."""
    known, solution = set(KNOWN), False
    for cell in cells:
        if cell.cell_type != "code":  # a solution is folded as a whole
            began = cell.source.rfind("{solution-start}")
            ended = cell.source.rfind("{solution-end}")
            solution = began > ended or (solution and began == ended)
            continue
        tree = ast.parse(cell.source)
        if solution or FOLDED & set(cell.metadata.get("tags", [])):
            continue
        known |= set(given(tree))
        yield from set(used(tree)) - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_open_code_needs_no_folded_cell(page):
    assert not list(borrowed(jupytext.read(page).cells))
