"""How a reader finds the book's pages and files.

A search that knows hyphens, a page for addresses that lead nowhere, the
book as one file of Markdown and llms.txt, which programs look for, and the
files that `make pdf` and `make epub` add. sphinx-notfound-page mends the
addresses of its page, but not those of this theme's navigation.
"""

import html
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import jupytext
from docutils import nodes
from notebooks import with_values
from run_chapters import kept
from sphinx.search.en import SearchEnglish
from sphinx.util.docutils import SphinxDirective

LOCAL = "http://localhost:8000/"  # where `make serve` shows the site


def site_address() -> str:
    """Where the site is published, from the environment, or ""."""
    address = os.environ.get("BOOK_URL", "")
    owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
    if not address and name:
        address = f"https://{owner.lower()}.github.io/{name}/"
    return address and address.rstrip("/") + "/"


def set_address(app, config):
    config.html_baseurl = config.html_baseurl or site_address()
    # absolute: who shows a shared link has no page to start from
    config.ogp_site_url = config.html_baseurl or LOCAL


LOST = """\
<section><h1>No page is here</h1>
<p>The address leads nowhere. It may be mistyped, or the page has moved.</p>
<ul>
<li><a href="index.html">The first page</a></li>
<li><a href="search.html">Search the book</a></li>
<li><a href="book/appendix/paper.html">From a statement of the paper
to its place in the book</a></li>
</ul></section>
"""


def lost_page(app):
    """A page for addresses that lead nowhere; it works at any depth."""
    root = urlsplit(app.config.ogp_site_url).path
    tags = f'<base href="{root}"><meta name="robots" content="noindex">'
    context = {"title": "No page is here", "body": LOST, "metatags": tags}
    yield "404", context, "page.html"


SPLIT = """
function splitQuery(query) {
  var words = query.match(/[\\p{L}\\p{N}_]+(?:-[\\p{L}\\p{N}_]+)*/gu) || [];
  return words.map(function (word) { return word.replaceAll("-", ""); });
}
"""


class English(SearchEnglish):
    """Finds "warm-up" when asked for "warmup", and the other way round.

    The index has the parts of a hyphenated word and the whole without
    its hyphens; a query loses them too. Sphinx splits at each hyphen, and
    has an option for other languages, not for this.
    """

    js_splitter_code = SPLIT

    def split(self, input: str) -> list[str]:
        joined = re.findall(r"\w+(?:-\w+)+", input)
        whole = [word.replace("-", "") for word in joined]
        return [*super().split(input), *whole]


def add_search_script(app, pagename, templatename, context, doctree):
    """`search_page.js` shows what is found, after Sphinx's own script."""
    if pagename == "search":
        app.add_js_file("search_page.js", loading_method="defer")


FILES = {"pdf": "PDF", "epub": "EPUB", "md": "Markdown"}
NAME = "executable-transformer"


class Downloads(SphinxDirective):
    """Links to the book's files, which `offer` shows once they are made."""

    def run(self):
        up = "../" * self.env.docname.count("/")
        links = [
            f'<li class="{end}"><a href="{up}downloads/{NAME}.{end}" download>'
            f"The whole book as {word}</a></li>"
            for end, word in FILES.items()
        ]
        text = f'<ul class="downloads">{"".join(links)}</ul>'
        return [nodes.raw("", text, format="html")]


def offer(site: Path) -> None:
    """Have the site's pages show links to the files that are there."""
    made = [
        f".downloads .{end} {{ display: list-item }}\n"
        for end in FILES
        if (site / "downloads" / f"{NAME}.{end}").exists()
    ]
    hidden = ".downloads li { display: none }\n"
    sheet = site / "_static" / "downloads.css"
    sheet.write_text(hidden + "".join(made), "utf-8")


def as_markdown(app, docname: str) -> str:
    """A page with its values, and what its cells print, as plain text."""
    result = kept(app, docname)
    page = jupytext.read(app.env.doc2path(docname))
    outputs = iter(result.get("outputs", []))
    parts = []
    for cell in with_values(page, result.get("values", [])).cells:
        parts.append(cell.source)
        if cell.cell_type == "code":
            parts[-1] = f"```python\n{cell.source}\n```"
            printed = ""
            for output in next(outputs):
                data = output.get("data", {})
                parts += filter(None, [data.pop("text/markdown", "")])
                printed += output.get("text") or data.get("text/plain", "")
            if printed:
                parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def write_markdown(app, site: Path) -> None:
    """The whole book as one file, and llms.txt, which says what is where."""
    pages = list(app.env.collect_relations())  # in the order of reading
    place = f"downloads/{NAME}.md"
    (site / "downloads").mkdir(exist_ok=True)
    whole = "\n".join(as_markdown(app, page) for page in pages)
    (site / place).write_text(whole, "utf-8")

    base = app.config.html_baseurl
    lines = [f"- [The whole book]({base}{place}): every page, in one file"]
    for page in pages:
        written = (site / f"{page}.html").read_text("utf-8")
        said = re.search('name="description" content="([^"]*)"', written)
        title = app.env.titles[page].astext()
        link = f"- [{title}]({base}_sources/{page}.md)"
        lines.append(f"{link}: {html.unescape(said[1])}" if said else link)
    about = (
        "The paper “Attention Is All You Need”, section by section, in code "
        "that runs and is tested, from which a library is collected."
    )
    text = f"# {app.config.html_title}\n\n> {about}\n\n## Pages\n\n"
    (site / "llms.txt").write_text(text + "\n".join(lines) + "\n", "utf-8")


def complete(app, error):
    if not error and app.builder.format == "html":
        write_markdown(app, Path(app.outdir))
        offer(Path(app.outdir))


def setup(app):
    app.setup_extension("sphinxext.opengraph")
    app.add_search_language(English)
    app.add_directive("downloads", Downloads)
    app.add_css_file("downloads.css")
    app.connect("config-inited", set_address, priority=400)
    app.connect("html-page-context", add_search_script)
    app.connect("html-collect-pages", lost_page)
    app.connect("build-finished", complete)
