"""How long a first reading takes, counted in the finished pages.

A first reading is what stands open in an article: nothing that is
folded, no code, no output, no live part. A word is what stands between
spaces and holds a letter or a digit; a formula counts as one word.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes

PACE = 200  # words a minute
LEFT_OUT = (
    "details, .dropdown, .highlight, .cell_input, .cell_output, .live,"
    " .first-reading, .headerlink, script, style"
)
SPAN = '<span class="first-reading" data-what="{}"></span>'
EMPTY = re.compile(r'(<span class="first-reading" data-what="(\w+)">)[^<]*')


def words(page: str) -> int:
    """Words of the first reading of a page of the site, its HTML."""
    article = BeautifulSoup(page, "html.parser").article
    for part in article.select(LEFT_OUT):
        part.decompose()
    for formula in article.select(".math"):
        formula.replace_with(" formula ")
    found = article.get_text(" ").split()
    return sum(any(map(str.isalnum, word)) for word in found)


def is_counted(docname: str) -> bool:
    """Chapters, but for the one that states its own two hours."""
    return docname.startswith("book/") and not docname.startswith(
        ("book/appendix/", "book/start/one_sitting")
    )


def place(role, raw, text, line, inliner, options=None, content=None):
    """`{first-reading}` with `words`, `hours` or `pace`: for all."""
    return [nodes.raw("", SPAN.format(text), format="html")], []


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
    total, said = 0, {"pace": PACE}
    last = [app.config.root_doc]  # it states the sum
    for name in [*filter(is_counted, app.env.found_docs), *last]:
        path = Path(app.builder.get_outfilename(name))
        page = path.read_text("utf-8")
        count = words(page)
        said["minutes"] = -(-count // PACE)  # rounded up
        said["words"] = f"{total:,}"
        said["hours"] = f"{total / PACE / 60:.1f}"
        total += count
        new = EMPTY.sub(lambda m: f"{m[1]}{said[m[2]]}", page)
        if new != page:
            path.write_text(new, "utf-8")


def setup(app):
    app.add_role("first-reading", place)
    app.connect("doctree-resolved", head)
    app.connect("build-finished", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
