"""The finished pages, mended.

Sphinx, the theme and sphinx-exercise leave some things that a screen
reader stumbles over. None of them has an option for these, so they are
changed in the page's HTML.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes
from glossary_tips import mark_terms
from sphinx.jinja2glue import BuiltinTemplateLoader
from sphinx_exercise.nodes import exercise_enumerable_node

ROOT = Path(__file__).resolve().parents[2]


def name_exercises(app, doctree, docname):
    """Take the parentheses off the title that an exercise was given.

    "Exercise 9 (Equation 1 (10 minutes))" is how sphinx-exercise has it,
    without an option; `book.css` puts a dot between number and title.
    """
    for box in doctree.findall(exercise_enumerable_node):
        title = box.next_node(nodes.title)
        if title.children[0].astext() == " (":
            del title[0], title[-1]


def mend(page: str) -> str:
    """What a screen reader would stumble over, mended."""
    page = page.replace(
        '<div id="pst-primary-sidebar" ',
        '<div id="pst-primary-sidebar" role="complementary" '
        'aria-label="The book" ',
    )
    page = re.sub(r"<th(?: [^>]*)?>(?:<p></p>)?</th>", "<td></td>", page)
    page = page.replace(' role="doc-biblioentry"', "")
    page = re.sub(r' id="(?:exercise|solution)-content"', "", page)
    page = page.replace(
        '<div role="list" class="citation-list">',
        '<div class="citation-list">',
    )
    page = re.sub(  # no line begins with the full stop behind a formula
        r'(<span class="math[^"]*">[^<]*</span>[.,;:?!)]+)',
        r'<span class="unbroken">\1</span>',
        page,
    )
    page = re.sub(  # nor is a short name torn from its parenthesis
        r'(\(?)(<code class="docutils literal notranslate">'
        r'<span class="pre">[^<]{1,30}</span></code>)([.,;:?!)]*)',
        lambda found: (
            f'<span class="unbroken">{found[0]}</span>'
            if found[1] or found[3]
            else found[0]
        ),
        page,
    )
    page = re.sub(  # a box and the words on it are one link
        r'(<a href="[^"]*"><rect[^<>]*/>)</a>(<text[^<>]*>[^<>]*</text>)',
        r"\1\2</a>",
        page,
    )
    page = re.sub(
        r'<a href="[^"]*">(<(?:rect|path|circle)[^<>]*/>)</a>',
        r"\1",
        page,
    )
    return mark_terms(page)


def drop_stale(app):
    """Have the source's pages made again if what makes them changed.

    Sphinx keeps them for as long as the module they show is the same.
    """
    folder = Path(app.outdir, "_modules")
    first = folder / "index.html"
    makers = [
        *Path(__file__).parent.rglob("*.py"),
        *Path(__file__).parent.rglob("*.html"),
        *ROOT.glob("_*.yml"),
    ]
    if first.exists() and any(
        maker.stat().st_mtime > first.stat().st_mtime for maker in makers
    ):
        shutil.rmtree(folder)


class Mended(BuiltinTemplateLoader):
    """Sphinx's templates, whose pages are mended when they are written."""

    def render(self, template, context):
        return mend(super().render(template, context))


def choose_templates(app, config):
    config.template_bridge = f"{__name__}.Mended"
    config.templates_path.append(str(Path(__file__).parent / "templates"))


def prepare(app):
    if app.builder.format == "html":
        drop_stale(app)


def setup(app):
    app.connect("config-inited", choose_templates)
    app.connect("builder-inited", prepare)
    app.connect("doctree-resolved", name_exercises)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
