"""The book stays small: lines of code, names, words."""

import ast
import io
import tokenize
from pathlib import Path

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


def test_the_totals_are_within_their_limits():
    """2,300 lines of code, 70 names and 105,000 words are the limits."""
    lengths = {path.stem: len(code_lines(path)) for path in LIBRARY}
    assert sum(lengths.values()) <= 2300, lengths
    assert len(transformer_lib.__all__) <= 70
    pages = [ROOT / "index.md", *(ROOT / "book").glob("*/*.md")]
    words = {page.stem: len(page.read_text("utf-8").split()) for page in pages}
    assert sum(words.values()) <= 105_000, words
