"""The book stays small: lines of code, names, words."""

import ast
import io
import tokenize
from pathlib import Path

import jupytext
import pytest
import tangle

import transformer_lib

ROOT = tangle.ROOT
LIBRARY = sorted((ROOT / "transformer_lib").glob("*.py"))
BOOK = sorted((ROOT / "transformer_book").rglob("*.py"))
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def code_lines(path: Path) -> set[int]:
    """The lines that hold code: no docstring, comment or blank one."""
    text = path.read_text("utf-8")
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            said = node.body[0]
            lines -= set(range(said.lineno, said.end_lineno + 1))
    return lines


def test_the_library_is_small():
    lengths = {path.stem: len(code_lines(path)) for path in LIBRARY}
    assert sum(lengths.values()) <= 2300, lengths
    assert len(transformer_lib.__all__) <= 80


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_functions_are_short(path):
    lines = code_lines(path)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            own = range(node.lineno, node.end_lineno + 1)
            most = 110 if node.name == "train" else 45
            assert len(lines & set(own)) <= most, node.name


def test_what_the_pages_share_is_small():
    assert sum(len(code_lines(path)) for path in BOOK) <= 1300


LATER = "export", "rivals", "open_questions", "course"


def test_the_book_is_short():
    pages = [ROOT / "index.md", *(ROOT / "book").rglob("*.md")]
    words = {
        page.stem: len(page.read_text("utf-8").split())
        for page in pages
    }
    later = sum(words[name] for name in LATER)
    assert sum(words.values()) - later <= 90_000
    assert sum(words.values()) <= 105_000


FOLDED = {"check", "hide-input", "remove-cell"}


def test_one_sitting_is_one_sitting():
    """About 4,500 words with its code, of which some 250 lines open."""
    page = ROOT / "book/start/one_sitting.md"
    assert 3_000 < len(page.read_text("utf-8").split()) <= 4_500
    lines = [
        line
        for cell in jupytext.read(page).cells
        if cell.cell_type == "code"
        and not FOLDED & set(cell.metadata.get("tags", []))
        for line in cell.source.splitlines()
        if line.strip()
    ]
    assert 150 < len(lines) <= 300
