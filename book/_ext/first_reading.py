"""How long a first reading takes, counted in the finished pages.

It stands under a chapter's title, and in the navigation beside it, with a
sign where a page has something to play with.

A first reading is what is open in an article: its words, its code, its
formulas, figures and outputs, but nothing that is folded and no
interactive figure. A caption is read like any text, besides the look at
its figure. A word is what is between spaces and holds a letter or a
digit; a formula within a line takes the time of three. A line of code
counts unless it is blank. The paces are those of somebody who reads the
code so as to be able to explain it. Readers with a clock needed what they
give, within a quarter on nearly every page, or less; the first page says
how they are counted.

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
PLAYABLE = "data-live="
NAVIGATION = '<nav class="bd-links'
LINK = re.compile(
    r'(<a class="[^"]*internal" href="([^"]+)">)(.*?)'
    r'(?:<span class="page-sign">.*?</span>)?</a>',
    re.DOTALL,
)
EMPTY = re.compile(r'(<span class="first-reading" data-what="(\w+)">)[^<]*')


class Reading(NamedTuple):
    """What is open on a page: how much there is to read."""

    words: int  # of the prose and its tables
    lines: int  # of code
    shown: int  # words and numbers in outputs, captions among them
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
    page = page.replace("<wbr>", "")  # it would count as a space
    article = BeautifulSoup(page, "html.parser").article
    for part in article.select(FOLDED):
        part.decompose()
    looks = len(article.select("figure, div.math"))
    shown = 0
    for part in article.select(".cell_output"):
        for picture in part.select("svg"):
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
    files = {
        name: Path(app.builder.get_outfilename(name))
        for name in app.env.found_docs
    }
    pages = {name: path.read_text("utf-8") for name, path in files.items()}
    minutes = {
        name: measured(page).minutes()
        for name, page in pages.items()
        if is_counted(name)
    }
    hours = round(sum(minutes.values()) / 60)
    rounded = {
        name: 5 * max(1, round(each / 5)) for name, each in minutes.items()
    }
    signs = {
        files[name]: sign(rounded.get(name), PLAYABLE in page)
        for name, page in pages.items()
    }
    for name, page in pages.items():
        said = {"minutes": rounded.get(name), "hours": hours}
        new = EMPTY.sub(lambda m, said=said: f"{m[1]}{said[m[2]]}", page)
        new = signed(new, files[name], signs)
        if new != page:
            files[name].write_text(new, "utf-8")


def sign(minutes: int | None, playable: bool) -> str:
    """What the navigation says of a page beside its title."""
    says = ""
    if playable:
        says += (
            '<span class="playable" title="has an interactive figure">'
            '<span aria-hidden="true">◉</span><span class="visually-hidden">'
            "interactive, </span></span>"
        )
    if minutes:
        says += f"{minutes} min"
    return f'<span class="page-sign">{says}</span>' if says else ""


def signed(page: str, path: Path, signs: dict[Path, str]) -> str:
    """A page whose navigation has its signs; those of before are taken off."""
    start = page.find(NAVIGATION)
    end = page.find("</nav>", start)
    if start < 0:
        return page

    def link(found: re.Match) -> str:
        opening, href, title = found.groups()
        target = (path.parent / href).resolve() if href != "#" else path
        return f"{opening}{title.rstrip()}{signs.get(target, '')}</a>"

    return page[:start] + LINK.sub(link, page[start:end]) + page[end:]


def setup(app):
    app.add_role("first-reading", place)
    app.connect("doctree-resolved", head)
    app.connect("build-finished", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
