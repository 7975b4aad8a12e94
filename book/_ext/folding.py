"""Sections "In depth" and cells tagged `check` are folded.

In HTML they are `details`, which open without a script. A link to what
is inside opens them, and so does print: `book.js` and `book.css` see to
that. A page's last paragraph, "To remember.", is never inside. Other
builders show them as they are. sphinx-togglebutton, which the
book's tools bring, folds boxes and cells, but no section under its title,
and needs a script to open them.
"""

import html
import itertools
import re

from docutils import nodes

TITLE = "In depth"
REMEMBER = "To remember."


def raw(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def fold_section(section: nodes.section) -> None:
    """Leave a section's title to see, and its id on the outside."""
    section.insert(0, raw('<details class="in-depth"><summary>'))
    section.insert(2, raw("</summary>"))
    last = section[-1]
    while isinstance(last, nodes.section):
        last = last[-1]
    section += raw("</details>")
    if last.astext().startswith(REMEMBER):  # the page's end, not its own
        last.parent.remove(last)
        section.parent.insert(section.parent.index(section) + 1, last)


def first_comment(code: str) -> str:
    """What the comment says that code begins with, on however many lines."""
    lines = code.splitlines()
    said = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("#").strip() for line in said)


def title_of(comment: str) -> str:
    """A comment as a fold's title: names are code, apostrophes curly."""
    words = re.sub(r"(?<=\w)'(?=s\b)", "\u2019", comment)
    words = html.escape(words, quote=False)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", words)


def fold_cell(cell: nodes.container) -> None:
    """Leave a line that says what is checked: the code's first comment."""
    code = next(cell.findall(nodes.literal_block), None)
    says = title_of(first_comment(code.astext())) if code else ""
    words = f"Check: {says}" if says else "Check"
    cell.insert(0, raw(f'<details class="check"><summary>{words}'))
    cell.insert(1, raw("</summary>"))
    cell += raw("</details>")


def fold(app, doctree, docname):
    if app.builder.format != "html":
        return
    for section in list(doctree.findall(nodes.section)):
        title = section[0]
        if title.astext().startswith(TITLE):
            fold_section(section)
    for cell in list(doctree.findall(nodes.container)):
        if "tag_check" in cell.get("classes", []):
            fold_cell(cell)


def setup(app):
    # after the symbols are marked, which looks at sections' titles
    app.connect("doctree-resolved", fold, priority=950)
