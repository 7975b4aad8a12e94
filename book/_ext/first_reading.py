"""How long a first reading takes, counted in the finished pages.

A first reading is what is open in an article: its words, its code, its
formulas, figures and outputs, but nothing that is folded and no
interactive figure. A word is what is between spaces and holds a letter
or a digit; a formula within a line takes the time of three. A line of code
counts unless it is blank. The paces are those of somebody who reads the
code so as to be able to explain it: two readers with a clock needed what
they give, within a quarter on nearly every page.

Extensions that state reading times count every word of the source, what
is folded and what is code among them, and take code for prose.
"""

import re
from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup
from docutils import nodes

PACE = 130  # words a minute, those of tables and outputs too
CODE_PACE = 9  # lines of code a minute
LOOK = 30  # seconds for a figure, or for a formula on its own line
FOLDED = "details, .dropdown, .live, script, style"
NO_WORDS = ".highlight, .cell_input, .first-reading, .headerlink"
SPAN = '<span class="first-reading" data-what="{}"></span>'
EMPTY = re.compile(r'(<span class="first-reading" data-what="(\w+)">)[^<]*')


class Reading(NamedTuple):
    """What is open on a page: how much there is to read."""

    words: int  # of the prose and its tables
    lines: int  # of code
    shown: int  # words and numbers in outputs
    looks: int  # figures, and formulas on lines of their own

    def minutes(self) -> float:
        """How long somebody takes who reads all of it."""
        text = (self.words + self.shown) / PACE
        return text + self.lines / CODE_PACE + self.looks * LOOK / 60


def word_count(part) -> int:
    found = part.get_text(" ").split()
    return sum(any(map(str.isalnum, word)) for word in found)


def measured(page: str) -> Reading:
    """The first reading of a page's HTML."""
    article = BeautifulSoup(page, "html.parser").article
    for part in article.select(FOLDED):
        part.decompose()
    looks = len(article.select("figure, div.math"))
    shown = 0
    for part in article.select(".cell_output"):
        for picture in part.select("svg, figcaption"):
            picture.decompose()
        shown += word_count(part)
        part.decompose()
    code = [block.get_text() for block in article.select(".highlight pre")]
    lines = [line for text in code for line in text.splitlines()]
    for part in article.select(NO_WORDS):
        part.decompose()
    for formula in article.select(".math"):
        formula.replace_with(" formula ")
        shown += 2
    return Reading(
        words=word_count(article),
        lines=sum(bool(line.strip()) for line in lines),
        shown=shown,
        looks=looks,
    )


def is_counted(docname: str) -> bool:
    """Whether a page is a chapter; the appendix is for looking up."""
    return docname.startswith("book/") and not docname.startswith(
        "book/appendix/"
    )


def place(role, raw, text, line, inliner, options=None, content=None):
    """`{first-reading}` of words that a notebook shows as they are.

    The site says in their place how many hours all chapters take.
    """
    says = f"about {SPAN.format('hours')} hours"
    return [nodes.raw("", says, format="html")], []


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
    total = 0.0
    # the first page comes last: it states the sum
    last = [app.config.root_doc]
    for name in [*filter(is_counted, app.env.found_docs), *last]:
        path = Path(app.builder.get_outfilename(name))
        page = path.read_text("utf-8")
        minutes = measured(page).minutes()
        said = {
            "minutes": 5 * max(1, round(minutes / 5)),
            "hours": round(total / 60),
        }
        total += minutes
        new = EMPTY.sub(lambda m, said=said: f"{m[1]}{said[m[2]]}", page)
        if new != page:
            path.write_text(new, "utf-8")


def setup(app):
    app.add_role("first-reading", place)
    app.connect("doctree-resolved", head)
    app.connect("build-finished", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
