"""`{fact}`: what the first page says of the book, counted at each build.

    {fact}`statements`, each with a test that bites

The site has the number, notebooks the word alone.
"""

import ast
import io
import math
import tokenize
from pathlib import Path

import ledger
from docutils import nodes

from transformer_book.records import load_run

ROOT = Path(__file__).resolve().parents[2]
TRAINED = "gpu/base-de-en-0"
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


def statements() -> str:
    """How many rows of the ledger have a test, and how many there are."""
    rows = ledger.read()
    tested = sum(bool(row.get("test")) for row in rows)
    return f"{tested} of the paper's {len(rows)} statements"


def lines() -> str:
    """The library's lines of code, to the next hundred."""
    paths = (ROOT / "transformer_lib").glob("*.py")
    count = sum(len(code_lines(path)) for path in paths)
    return f"{100 * math.ceil(count / 100):,} lines"


def minutes() -> str:
    """What the base model's training took on a GPU."""
    seconds = load_run(TRAINED).report["result"]["seconds"]
    return f"{seconds / 60:.0f} minutes"


FACTS = {"statements": statements, "lines": lines, "minutes": minutes}


def fact(role, raw, text, line, inliner, options=None, content=None):
    if text not in FACTS:
        found = inliner.reporter.error(
            f"{{fact}} knows {', '.join(FACTS)}, not {text!r}", line=line
        )
        return [inliner.problematic(raw, raw, found)], [found]
    return [nodes.inline(raw, FACTS[text](), classes=["fact"])], []


def setup(app):
    app.add_role("fact", fact)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
