"""`{book-map}`: the figure that the chapter on the model draws, again.

The first page shows it, with links that lead from there.
"""

import posixpath
import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class BookMap(SphinxDirective):
    """Figure 1, as the chapter on the model draws it."""

    def run(self):
        return [nodes.container("", classes=["book-map", "cell_output"])]


def draw_map(app, doctree, docname):
    for place in doctree.findall(nodes.container):
        if "book-map" not in place.get("classes", []):
            continue
        source = "book/architecture/model"
        if source not in app.env.found_docs:
            continue
        drawn = [
            raw.astext()
            for raw in app.env.get_doctree(source).findall(nodes.raw)
            if "<svg" in raw.astext() and ".html" in raw.astext()
        ]
        if not drawn:
            raise ValueError(f"{source} draws no figure with links")
        here = posixpath.dirname(docname)
        there = posixpath.relpath(posixpath.dirname(source), here or ".")
        picture = re.sub(r'href="(?!#)', f'href="{there}/', drawn[0])
        place += nodes.raw("", picture, format="html")


def setup(app):
    app.add_directive("book-map", BookMap)
    app.connect("doctree-resolved", draw_map)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
