"""Figure 1, which the chapter on the model draws, in other places.

`{book-map}` is the whole figure, on the first page, with links that lead
from there. The chapters that build a part of the model begin with a small
copy in which that part is lit.
"""

import html
import posixpath
import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

MODEL = "book/architecture/model"
NAME = "model-fig-1"
# A chapter's boxes: what leads to it, or the words in them; and a name.
LIT = {
    "embeddings": (r'href="embeddings\.', "embedding and linear layer"),
    "positions": (r'href="positions\.', "positions"),
    "attention": (r'href="attention\.', "attention, in all its places"),
    "masks": (r">masked\b", "masked self-attention"),
    "layers": (r'href="layers\.', "feed-forward, add & norm"),
}
LINK = re.compile(r"<a (.*?)</a>", re.DOTALL)


class BookMap(SphinxDirective):
    """Figure 1, as the chapter on the model draws it."""

    def run(self):
        return [nodes.container("", classes=["book-map", "cell_output"])]


def figure_1(app) -> str:
    """The figure in the page on the model."""
    for raw in app.env.get_doctree(MODEL).findall(nodes.raw):
        if "<svg" in raw.astext() and ".html" in raw.astext():
            return raw.astext()
    raise ValueError(f"{MODEL} draws no figure with links")


def draw_map(app, doctree, docname):
    for place in doctree.findall(nodes.container):
        if "book-map" not in place.get("classes", []):
            continue
        here = posixpath.dirname(docname)
        there = posixpath.relpath(posixpath.dirname(MODEL), here or ".")
        picture = re.sub(r'href="(?!#)', f'href="{there}/', figure_1(app))
        place += nodes.raw("", picture, format="html")


def small(picture: str, pattern: str, name: str) -> str:
    """The figure without words, with some of its boxes lit."""
    wide = picture[: picture.index("</svg>") + len("</svg>")]

    def box(found: re.Match) -> str:
        kind = "lit" if re.search(pattern, found[1]) else "unlit"
        return f'<g class="{kind}">{found[1].partition(">")[2]}</g>'

    wide = re.sub(r"<text.*?</text>", "", LINK.sub(box, wide), flags=re.S)
    start = wide.index(">") + 1
    size = re.search(r'viewBox="[^"]*"', wide)[0]
    says = html.escape(f"What this chapter builds of figure 1: {name}")
    return (
        f'<a class="chapter-map" href="{posixpath.basename(MODEL)}.html'
        f'#{NAME}" title="{says}"><svg role="img" aria-label="{says}" '
        f"{size}>{wide[start:]}</a>"
    )


def light_part(app, doctree, docname):
    """Begin a chapter on a part of the model with the part's place."""
    folder, _, chapter = docname.rpartition("/")
    if folder != posixpath.dirname(MODEL) or chapter not in LIT:
        return
    if app.builder.format != "html":
        return
    title = next(doctree.findall(nodes.title))
    picture = small(figure_1(app), *LIT[chapter])
    copy = nodes.raw("", picture, format="html")
    title.parent.insert(title.parent.index(title), copy)  # beside it


def setup(app):
    app.add_directive("book-map", BookMap)
    app.connect("doctree-resolved", draw_map)
    app.connect("doctree-resolved", light_part)
