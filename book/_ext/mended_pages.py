"""The finished pages, mended and lightened.

Sphinx, the theme and sphinx-exercise leave some things that a screen
reader stumbles over, or that a first visit loads without need. None of
them has an option for these, so they are changed in the page's HTML.
"""

import re
import shutil
from pathlib import Path

import icons
from docutils import nodes
from glossary_tips import mark_terms
from sphinx_exercise.nodes import exercise_enumerable_node

ROOT = Path(__file__).resolve().parents[2]

# None of these is needed before the page can be read.
LATER = re.compile(
    r'<script((?: [^>]*)? src="[^"]*/(?:clipboard\.min|copybutton'
    r"|design-tabs|doctools|sphinx-book-theme|sphinx_highlight"
    r'|togglebutton)\.js[^"]*")>'
)


def name_exercises(app, doctree, docname):
    """Take the parentheses off the title that an exercise was given.

    "Exercise 9 (Equation 1 (10 minutes))" is how sphinx-exercise has it,
    without an option; `book.css` puts a dot between number and title.
    """
    for box in doctree.findall(exercise_enumerable_node):
        title = box.next_node(nodes.title)
        if title.children[0].astext() == " (":
            del title[0], title[-1]


SEARCH = re.compile(
    r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)'
    r'\.js[^"]*"></script>'
)
FORMULA = re.compile(r'class="(?:[^"]* )?math[ "]|\\\(|\\\[|\$\$')
MATHJAX = re.compile(
    r"<script>window\.MathJax = [^\n]*</script>\s*"
    r'<script [^>]*src="([^"]*mathjax[^"]*)"></script>'
)

# Nothing runs here through Thebe; and this sheet asks for basic.css alone,
# which the browser would learn only when it has come.
THEBE = re.compile(r"\s*<link [^>]*sphinx-thebe\.css[^>]*>")
ASKS_FOR_BASIC = re.compile(r'styles/theme\.css(?:\?digest=\w+)?"')


def lighten(page: str) -> str:
    """Load the search's index on the search page alone, and MathJax
    where formulas are; elsewhere it is fetched when nothing else is.
    No page needs the theme's script of icons, and outside the search
    most scripts can wait until the page is there."""
    page = icons.SCRIPT.sub("", page)
    page = THEBE.sub("", page)
    page = ASKS_FOR_BASIC.sub('basic.css"', page)
    if 'id="search-results"' not in page:
        page = SEARCH.sub("", page)
        page = LATER.sub(r"<script defer\1>", page)
    if not FORMULA.search(page):
        page = MATHJAX.sub(
            r'<link rel="prefetch" as="script" href="\1" />', page
        )
    return page


def mend(page: str) -> str:
    """What a screen reader would stumble over, mended."""
    page = lighten(page)
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


def mend_pages(app):
    """Let every page that the templates write be mended."""
    if app.builder.format == "html":
        drop_stale(app)
        render = app.builder.templates.render
        app.builder.templates.render = lambda *args: mend(render(*args))


def setup(app):
    app.config.templates_path.append(str(Path(__file__).parent / "templates"))
    app.connect("builder-inited", mend_pages)
    app.connect("doctree-resolved", name_exercises)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
