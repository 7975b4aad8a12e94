"""The finished pages, mended.

Sphinx, the theme and sphinx-exercise leave some things that a screen
reader stumbles over. None of them has an option for these, so they are
changed in the page's HTML.
"""

import html
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


SHORT = 24  # letters of a name that a phone's line has room for
NAME = (
    r'<code class="[^"]*\bliteral\b[^"]*">'
    r'(?:\s*<span class="pre">[^<]*</span>)+\s*</code>'
)
NAMES = re.compile(
    rf"[(\[\u201c]*(?:<(a|em|strong)(?: [^<>]*)?>{NAME}</\1>|{NAME})"
    r"[.,;:?!)\]\u201d]*"
)
JOINT = re.compile(r"(?<=\w)([._/(=]+)(?=[\w\"'&(])")


def keep_whole(found: re.Match) -> str:
    """A short name in code on one line, with the signs that touch it.

    A long one may go on in the next line, behind one of its joints.
    """
    name = re.search(NAME, found[0])[0]
    letters = html.unescape(re.sub(r"<[^>]*>", "", name)).strip()
    if len(letters) <= SHORT:
        alone = found[0][0] == "<" and found[0][-1] == ">"
        whole = name if alone else found[0]  # a link stays where it is
        unbroken = f'<span class="unbroken">{whole}</span>'
        return found[0].replace(whole, unbroken)
    return found[0].replace(
        name,
        re.sub(
            r'(?<=<span class="pre">)[^<]*',
            lambda part: JOINT.sub(r"\1<wbr>", part[0]),
            name,
        ),
    )


MARKUP = re.compile(  # tags, and what is not prose
    r"(<(script|style|pre|svg|code|textarea|title)\b.*?</\2>|<[^<>]*>)",
    re.DOTALL,
)
TOGETHER = re.compile(
    r"\b((?:[Ff]igure|[Tt]able|[Ss]ection|[Ee]quation|[Ee]xercise)s?)"
    r"\s+(?=\(?\d)"
    r"|(?<=\d)\s+(?=%)"
    r"|(?<=\u2192)\s+"
)


def join_words(page: str) -> str:
    """No line ends in "Figure", in an arrow, or before a per cent sign."""
    head, article, rest = page.partition("<article")
    body, end, after = rest.partition("</article>")
    parts = MARKUP.split(body)
    # by threes: prose, markup, and the markup's name if it holds no prose
    parts[::3] = [
        TOGETHER.sub(lambda found: f"{found[1] or ''}\u00a0", prose)
        for prose in parts[::3]
    ]
    del parts[2::3]
    return head + article + "".join(parts) + end + after


OUTPUT = re.compile(
    r'<div class="output ((?:stream|text_plain) [^"]*"><div class="highlight">'
    r"<pre>(.*?)</pre>)",
    re.DOTALL,
)
COLUMNS = 79  # of a line of code; what is wider is prose


def mark_columns(found: re.Match) -> str:
    """What is printed no wider than code keeps its lines, as code does."""
    printed = html.unescape(re.sub(r"<[^>]*>", "", found[2]))
    if max(map(len, printed.splitlines()), default=0) > COLUMNS:
        return found[0]
    return f'<div class="output columns {found[1]}'


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
        r'(<span class="math[^"]*">[^<]*</span>[.,;:?!)\u201d]+)',
        r'<span class="unbroken">\1</span>',
        page,
    )
    page = NAMES.sub(keep_whole, page)
    page = join_words(page)
    page = OUTPUT.sub(mark_columns, page)
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
