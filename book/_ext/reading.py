"""What helps a reader on every page.

- Symbols and terms carry what the glossary says of them; `book.js`
  shows it on hover and focus. The glossary page is the one source.
- Each page knows a line about itself: its first sentences. They become
  its description, and the line at the links to the next page.
- An entry of the reference links the section that explains it.
- The first page shows the figure that the chapter on the model draws.
- Slips of the tools below us that keep a page from being read aloud
  are mended in the finished page.
"""

import hashlib
import html
import posixpath
import re
import shutil
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

BOOK = Path(__file__).resolve().parents[1]
GLOSSARY = "book/appendix/glossary"
AMBIGUOUS = set("k r n m epsilon V b_1 b_2 x_i y_i z_i".split())
CAPTIONS = {  # pages that no chapter writes
    "genindex": "All names of the library and all terms, A to Z.",
    "search": "Search the book: the index lies in the site itself.",
    "py-modindex": "The modules of the library.",
    "_modules/index": "The library's source, module by module.",
}


# What the glossary says


def plain(text: str) -> str:
    """Markdown and formulas as words for a small box."""
    text = re.sub(r"\{ref\}`(?:([^`<]*) <)?(\w*)>?`", r"\1", text)
    text = re.sub(r"\{\w+\}`([^`<]*?)(?: <[^`]*>)?`", r"\1", text)
    for tex, sign in [
        ("\\sum", "∑"),
        ("\\sqrt", "√"),
        ("\\log", "log"),
        ("\\alpha", "α"),
        ("\\beta", "β"),
        ("\\epsilon", "ε"),
    ]:
        text = text.replace(tex, sign)
    text = re.sub(r"\\text\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\^\{(-?)(\w+)\}", r"^\1\2", text)
    text = re.sub(r"[$`*{}\\]", "", text)
    return re.sub(r"\s+([.,:])", r"\1", " ".join(text.split()))


def formula_key(text: str) -> str:
    return re.sub(r"\\text|[{}\s\\]", "", text)


@cache
def glossary() -> str:
    """The glossary page, or nothing in a book without one."""
    path = BOOK / "appendix" / "glossary.md"
    return path.read_text("utf-8") if path.exists() else ""


@cache
def terms() -> dict[str, str]:
    """The definition of each term, by the anchor of its entry."""
    entries = glossary().partition(":::{glossary}\n")[2]
    found = re.findall(r"^(\S.*)\n  (.+)$", entries, re.M)
    return {f"term-{nodes.make_id(term)}": plain(says) for term, says in found}


@cache
def symbols() -> dict[str, str]:
    """What each symbol stands for, by its formula or its name in code.

    A formula that the table qualifies by words, and letters that mean
    another thing elsewhere, are left out.
    """
    table = glossary().partition("(glossary-terms)=")[0]
    found = {}
    for row in re.findall(r"^\|(.*)\|$", table, re.M)[2:]:
        written, code, says, base = (cell.strip() for cell in row.split("|"))
        says = plain(says) + (f"; base model: {plain(base)}" if base else "")
        names = []
        if match := re.fullmatch(r"\$([^$]*)\$", written):
            names += re.split(r", (?![^(]*\))", match[1])
        for name in map(formula_key, names):
            if name not in AMBIGUOUS:
                found[f"${name}$"] = says
        for name in re.findall(r"`(\w+)`", code):
            if "_" in name or name in {"N", "h"}:
                found[name] = says
    return found


def explain(says: str, address: str, node: nodes.Node) -> list:
    name = html.escape(plain(node.astext()))
    start = (
        f'<a class="symbol" href="{address}" aria-label="{name}" '
        f'data-says="{html.escape(says)}">'
    )
    return [
        nodes.raw("", start, format="html"),
        node.deepcopy(),
        nodes.raw("", "</a>", format="html"),
    ]


UNTOUCHED = (
    nodes.reference,
    nodes.title,
    nodes.term,
    nodes.rubric,
    nodes.figure,
)


def is_inside(node: nodes.Node) -> bool:
    """Whether a link would stand in a heading or another link."""
    while (node := node.parent) is not None:
        if isinstance(node, UNTOUCHED):
            return True
        if "sd-summary-title" in getattr(node, "attributes", {}).get(
            "classes", []
        ):
            return True
    return False


def mark_symbols(app, doctree, docname):
    """Explain a symbol where a section first uses it."""
    if docname == GLOSSARY or app.builder.format != "html":
        return
    address = app.builder.get_relative_uri(docname, GLOSSARY)
    seen = set()
    for node in list(doctree.findall()):
        if isinstance(node, nodes.section):
            seen = set()
        if isinstance(node, nodes.math):
            key = f"${formula_key(node.astext())}$"
        elif type(node) is nodes.literal and not node.get("reftype"):
            key = node.astext()
        else:
            continue
        if key not in symbols() or key in seen or is_inside(node):
            continue
        seen.add(key)
        says = symbols()[key]
        place = f"{address}#glossary-symbols"
        node.replace_self(explain(says, place, node))


# A line about each page


def sentences(text: str, limit: int) -> str:
    """The first sentences that fit, at least one, shortened if needed."""
    said = ""
    for part in re.split(r"(?<=[.?!])\s+(?=[A-Z\"“(])", text):
        fits = len(said) + len(part) + 1 <= limit
        if len(said) > limit / 3 and not fits:
            break
        said = f"{said} {part}".strip()
    if len(said) > limit:
        said = said[: limit - 1].rsplit(" ", 1)[0].rstrip(",;:") + " …"
    return said


LABEL = "\ue000{}\ue001"  # stands for the title that a label names


def note_line(app, doctree):
    """Keep the page's first paragraph."""
    env = app.env
    for node in doctree.findall(nodes.paragraph):
        if isinstance(node.parent, nodes.section):
            words = node.deepcopy()
            for cited in list(words.findall(addnodes.pending_xref)):
                if cited.get("refdomain") == "cite":
                    cited.parent.remove(cited)
                elif cited["reftype"] == "ref" and not cited.get(
                    "refexplicit"
                ):
                    mark = LABEL.format(cited["reftarget"])
                    cited.replace_self(nodes.Text(mark))
            text = plain(words.astext()).replace(" ,", ",")
            env.metadata[env.docname]["line"] = text
            return


def line_of(env, docname: str, limit: int) -> str:
    if docname in CAPTIONS:
        return CAPTIONS[docname]
    if docname.startswith("_modules/"):
        name = docname.partition("/")[2].replace("/", ".")
        return f"The source of {name}, collected from its chapter."
    return sentences(whole_line(env, docname), limit)


def whole_line(env, docname: str) -> str:
    """A page's first paragraph, titles in place of labels.

    What is a mere pointer, in parentheses, is left out.
    """
    labels = env.get_domain("std").labels
    mark = LABEL.format("(.*?)")

    def title(match):
        found = labels.get(match[1].lower())
        return f"“{found[2]}”" if found and found[2] else match[1]

    line = env.metadata[docname].get("line", "")
    line = re.sub(rf" \({mark}(?:, {mark})*\)", "", line)
    return re.sub(mark, title, line)


def add_lines(app, pagename, templatename, context, doctree):
    """Say at the links to the neighbours what is there."""
    around = getattr(app.builder, "relations", {}).get(pagename)
    if not around:
        return
    for side, docname in zip(["prev", "next"], around[1:], strict=True):
        if docname and context.get(side):
            says = line_of(app.env, docname, 110)
            context[side] = {**context[side], "says": says}


def rewrite_all(app, env):
    """Write every page again if what all of them quote has changed."""
    lines = sorted((name, whole_line(env, name)) for name in env.found_docs)
    said = hashlib.sha256(f"{glossary()}{lines}".encode()).hexdigest()
    changed = getattr(env, "quoted_everywhere", said) != said
    env.quoted_everywhere = said
    return list(env.found_docs) if changed else []


def link_chapter(app, what, name, item, options, lines):
    """Make a link of the label that ends a docstring."""
    for pattern, link in [
        (r"(book/\S+)", r":doc:`/\1`"),
        (r"([\w-]+)", r":ref:`\1 <\1>`"),  # some have no title
    ]:
        pattern, link = f"^Chapter: {pattern}$", f"Chapter: {link}"
        lines[:] = [re.sub(pattern, link, line) for line in lines]


# The map on the first page


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


# The finished page


SEARCH = re.compile(
    r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)'
    r'\.js[^"]*"></script>'
)
FORMULA = re.compile(r'class="(?:[^"]* )?math[ "]|\\\(|\\\[|\$\$')
MATHJAX = re.compile(
    r"<script>window\.MathJax = [^\n]*</script>\s*"
    r'<script [^>]*src="([^"]*mathjax[^"]*)"></script>'
)


def lighten(page: str) -> str:
    """Load the search's index on the search page alone, and MathJax
    where formulas are; elsewhere it is fetched when nothing else is."""
    if 'id="search-results"' not in page:
        page = SEARCH.sub("", page)
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

    def say(match):
        says = terms().get(match[2])
        data = f' data-says="{html.escape(says)}"' if says else ""
        return f"{match[1]}{data}"

    return re.sub(
        r'(<a class="reference internal" href="[^"]*#(term-[\w-]+)")',
        say,
        page,
    )


def drop_stale(app):
    """Have the source's pages made again if what makes them changed.

    Sphinx keeps them for as long as the module they show is the same.
    """
    folder = Path(app.outdir, "_modules")
    first = folder / "index.html"
    makers = [
        *Path(__file__).parent.rglob("*.py"),
        *Path(__file__).parent.rglob("*.html"),
        *BOOK.parent.glob("_*.yml"),
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
    app.add_directive("book-map", BookMap)
    app.config.templates_path.append(str(Path(__file__).parent / "templates"))
    app.add_js_file("book.js")
    app.connect("builder-inited", mend_pages)
    app.connect("autodoc-process-docstring", link_chapter)
    app.connect("doctree-read", note_line)
    app.connect("env-updated", rewrite_all)
    app.connect("doctree-resolved", draw_map)
    app.connect("doctree-resolved", mark_symbols, priority=900)
    app.connect("html-page-context", add_lines)
    return {
        "env_version": 2,  # what note_line keeps; read all when it changes
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
