"""Symbols and terms carry what the glossary says of them, as a title.

`book.js` shows it on hover and focus; the glossary page is the one
source. sphinx-tippy does the like with whole pages, by a script from
another host and without the keyboard.
"""

import re
from functools import cache
from pathlib import Path

from docutils import nodes

BOOK = Path(__file__).resolve().parents[1]
GLOSSARY = "book/appendix/glossary"
AMBIGUOUS = set("k r n m epsilon V b_1 b_2 x_i y_i z_i".split())


def plain(text: str) -> str:
    """Markdown and formulas as words for a small box."""
    text = re.sub(r"\{ref\}`(?:([^`<]*) <)?(\w*)>?`", r"\1", text)
    text = re.sub(r"\{\w+\}`([^`<]*?)(?: <[^`]*>)?`", r"\1", text)
    for tex, sign in [
        ("\\sum", "∑"),
        ("\\sqrt", "√"),
        ("\\log", "log"),
        ("\\alpha", "α"),
        ("\\beta", "β"),
        ("\\epsilon", "ε"),
    ]:
        text = text.replace(tex, sign)
    text = re.sub(r"\\text\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\^\{(-?)(\w+)\}", r"^\1\2", text)
    text = re.sub(r"[$`*{}\\]", "", text)
    return re.sub(r"\s+([.,:])", r"\1", " ".join(text.split()))


def formula_key(text: str) -> str:
    return re.sub(r"\\text|[{}\s\\]", "", text)


@cache
def glossary() -> str:
    """The glossary page."""
    return (BOOK / "appendix" / "glossary.md").read_text("utf-8")


@cache
def terms() -> dict[str, str]:
    """The definition of each term, by the anchor of its entry."""
    entries = glossary().partition(":::{glossary}\n")[2]
    found = re.findall(r"^(\S.*)\n  (.+)$", entries, re.M)
    return {f"term-{nodes.make_id(term)}": plain(says) for term, says in found}


@cache
def symbols() -> dict[str, str]:
    """What each symbol stands for, by its formula or its name in code.

    A formula that the table qualifies by words, and letters that mean
    another thing elsewhere, are left out.
    """
    table = glossary().partition("(glossary-terms)=")[0]
    found = {}
    for row in re.findall(r"^\|(.*)\|$", table, re.M)[2:]:
        symbol, says, base = (cell.strip() for cell in row.split("|"))
        written, _, code = symbol.rpartition("<br>")
        says = plain(says) + (f"; base model: {plain(base)}" if base else "")
        names = []
        if match := re.fullmatch(r"\$([^$]*)\$", written):
            names += re.split(r", (?![^(]*\))", match[1])
        for name in map(formula_key, names):
            if name not in AMBIGUOUS:
                found[f"${name}$"] = says
        for name in re.findall(r"`(\w+)`", code):
            if "_" in name or name in {"N", "h"}:
                found[name] = says
    return found


UNTOUCHED = (
    nodes.reference,
    nodes.title,
    nodes.term,
    nodes.rubric,
    nodes.figure,
)


def is_inside(node: nodes.Node) -> bool:
    """Whether a link would stand in a heading or another link."""
    while (node := node.parent) is not None:
        if isinstance(node, UNTOUCHED):
            return True
        if "sd-summary-title" in getattr(node, "attributes", {}).get(
            "classes", []
        ):
            return True
    return False


def mark_symbols(app, doctree, docname):
    """Explain a symbol where a section first uses it."""
    if docname == GLOSSARY or app.builder.format != "html":
        return
    address = app.builder.get_relative_uri(docname, GLOSSARY)
    seen = set()
    for node in list(doctree.findall()):
        if isinstance(node, nodes.section):
            seen = set()
        if isinstance(node, nodes.math):
            key = f"${formula_key(node.astext())}$"
        elif type(node) is nodes.literal and not node.get("reftype"):
            key = node.astext()
        else:
            continue
        if key not in symbols() or key in seen or is_inside(node):
            continue
        seen.add(key)
        place = f"{address}#glossary-symbols"
        link = nodes.reference(refuri=place, internal=True)
        link["reftitle"] = symbols()[key]
        link["classes"].append("symbol")
        node.replace_self(link)
        link += node


def mark_terms(app, doctree, docname):
    """Give links to the glossary's terms their words."""
    for link in doctree.findall(nodes.reference):
        anchor = link.get("refid") or link.get("refuri", "")
        if says := terms().get(anchor.rpartition("#")[2]):
            link["reftitle"] = says


def setup(app):
    app.add_js_file("book.js")
    app.connect("doctree-resolved", mark_symbols, priority=900)
    app.connect("doctree-resolved", mark_terms, priority=900)
