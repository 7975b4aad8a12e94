"""How long a first reading takes, counted in the finished pages.

A first reading is what is open in an article: its words and its code,
but nothing that is folded, no output and no live part. A word is what is
between spaces and holds a letter or a digit; a formula counts as one
word. A line of code counts unless it is blank.

Extensions that state reading times count every word of the source, what
is folded and what is code among them, and take code for prose.
"""

import math
import re
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes

PACE = 200  # words a minute
CODE_PACE = 15  # lines of code a minute
FOLDED = "details, .dropdown, .cell_output, .live, script, style"
NO_WORDS = ".highlight, .cell_input, .first-reading, .headerlink"
SPAN = '<span class="first-reading" data-what="{}"></span>'
EMPTY = re.compile(r'(<span class="first-reading" data-what="(\w+)">)[^<]*')


def measured(page: str) -> tuple[int, int]:
    """Words and lines of code in the first reading of a page's HTML."""
    article = BeautifulSoup(page, "html.parser").article
    for part in article.select(FOLDED):
        part.decompose()
    code = [block.get_text() for block in article.select(".highlight pre")]
    lines = [line for text in code for line in text.splitlines()]
    for part in article.select(NO_WORDS):
        part.decompose()
    for formula in article.select(".math"):
        formula.replace_with(" formula ")
    found = article.get_text(" ").split()
    words = sum(any(map(str.isalnum, word)) for word in found)
    return words, sum(bool(line.strip()) for line in lines)


def minutes(words: int, lines: int) -> float:
    """How long somebody takes who reads the code too."""
    return words / PACE + lines / CODE_PACE


def is_counted(docname: str) -> bool:
    """Whether a page is a chapter; the appendix is for looking up."""
    return docname.startswith("book/") and not docname.startswith(
        "book/appendix/"
    )


def place(role, raw, text, line, inliner, options=None, content=None):
    """`{first-reading}` with words, lines, hours, pace or code-pace."""
    what = text.replace("-", "_")
    return [nodes.raw("", SPAN.format(what), format="html")], []


def head(app, doctree, docname):
    """Say under a chapter's title how long it takes."""
    if is_counted(docname) and app.builder.format == "html":
        says = f"First reading: about {SPAN.format('minutes')} minutes"
        line = f'<p class="first-reading">{says}</p>'
        title = next(doctree.findall(nodes.title))
        where = title.parent.index(title) + 1
        title.parent.insert(where, nodes.raw("", line, format="html"))


def fill(app, error):
    """Write the numbers into their places, which every build does."""
    if error or app.builder.format != "html":
        return
    all_words = all_lines = 0
    last = [app.config.root_doc]  # it states the sums
    for name in [*filter(is_counted, app.env.found_docs), *last]:
        path = Path(app.builder.get_outfilename(name))
        page = path.read_text("utf-8")
        words, lines = measured(page)
        said = {
            "minutes": math.ceil(minutes(words, lines)),
            "words": f"{all_words:,}",
            "lines": f"{all_lines:,}",
            "hours": f"{minutes(all_words, all_lines) / 60:.1f}",
            "pace": PACE,
            "code_pace": CODE_PACE,
        }
        all_words += words
        all_lines += lines
        new = EMPTY.sub(lambda m, said=said: f"{m[1]}{said[m[2]]}", page)
        if new != page:
            path.write_text(new, "utf-8")


def setup(app):
    app.add_role("first-reading", place)
    app.connect("doctree-resolved", head)
    app.connect("build-finished", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
