"""How a reader or a search engine finds the book's pages and files.

Descriptions, a search that knows hyphens, a page for addresses that lead
nowhere, what Binder installs, and the files that `make pdf` and `make epub`
add. Of the extensions for these, each does one and is not among the pinned
packages.
"""

import html
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from docutils import nodes
from page_lines import line_of
from sphinx.search.en import SearchEnglish
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "http://localhost:8000/"  # where `make serve` shows the site
DOWNLOADS = ["index", "book/appendix/running"]  # have `{downloads}`


def site_address() -> str:
    """Where the site is published, from the environment, or ""."""
    address = os.environ.get("BOOK_URL", "")
    owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
    if not address and name:
        address = f"https://{owner.lower()}.github.io/{name}/"
    return address and address.rstrip("/") + "/"


def set_address(app, config):
    if not config.html_baseurl:
        config.html_baseurl = site_address()


# What a page says of itself


def title_of(env, docname: str) -> str:
    if docname in env.titles:
        return env.titles[docname].astext()
    return docname.rpartition("/")[2]


def describe(app, pagename, templatename, context, doctree):
    """A description, and what a shared link shows."""
    book = app.config.html_title or app.config.project
    title = title_of(app.env, pagename)
    line = line_of(app.env, pagename, 160) or f"{title}: {book}"
    values = {
        "og:title": title,
        "og:description": line,
        "og:site_name": book,
        "og:type": "website" if pagename == "index" else "article",
        "twitter:card": "summary_large_image",
    }
    address = site_address()
    if address:
        values["og:url"] = f"{address}{pagename}.html"
    if app.builder.name in {"html", "dirhtml"}:
        # absolute: who shows a link has no page to start from
        values["og:image"] = f"{address or LOCAL}_static/site.png"
        values["og:image:alt"] = (
            "A sentence and its translation; the word “ball” is covered, "
            "and the girl throws the dog"
        )
    tags = [f'<meta name="description" content="{html.escape(line)}">']
    tags += [
        f'<meta property="{name}" content="{html.escape(value)}">'
        for name, value in values.items()
    ]
    if pagename == "404":
        root = urlsplit(site_address() or LOCAL).path
        tags = [f'<base href="{root}">']
        tags += ['<meta name="robots" content="noindex">']
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


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
    yield (
        "404",
        {"title": "No page is here", "body": LOST},
        "page.html",
    )


# Search

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


# Where the launch buttons lead

FOR_BINDER = """\
# What the notebooks need: PyTorch without CUDA, which is far smaller.
--extra-index-url https://download.pytorch.org/whl/cpu
{pins}
{package}
"""


def binder() -> str:
    """The packages that Binder installs beside the notebooks."""
    from executable_book import package

    wanted = {"torch", "numpy", "tokenizers", "safetensors"}
    wanted |= {"tqdm", "matplotlib", "altair", "drawsvg", "pandas"}
    wanted |= {"sacrebleu"}
    listed = (ROOT / "requirements.txt").read_text("utf-8")
    pins = [
        f"{line}+cpu" if line.startswith("torch==") else line
        for line in listed.splitlines()
        if line.partition("==")[0] in wanted
    ]
    return FOR_BINDER.format(pins="\n".join(pins), package=package())


def write_binder(site: Path) -> None:
    """Say beside the published notebooks what they need."""
    from executable_book import repository

    if not repository():
        return
    folder = site / "binder"
    folder.mkdir(exist_ok=True)
    folder.joinpath("requirements.txt").write_text(binder(), "utf-8")
    folder.joinpath("runtime.txt").write_text("python-3.11\n")


# What `make pdf` and `make epub` add

FILES = [("pdf", "PDF"), ("epub", "EPUB")]


class Downloads(SphinxDirective):
    """Marks where the book's files are offered once they are made."""

    def run(self):
        up = "../" * self.env.docname.count("/")
        marks = "".join(
            f"<!--offer {up}downloads/executable-transformer.{end}-->"
            for end, _ in FILES
        )
        return [
            nodes.raw(
                "",
                f'<ul class="downloads">{marks}</ul>',
                format="html",
            )
        ]


def offer(site: Path) -> None:
    """Put links to the files that are there in place of the marks."""
    for name in DOWNLOADS:
        page = site / f"{name}.html"
        if not page.exists():
            continue
        text = page.read_text("utf-8")
        for end, word in FILES:
            mark = re.compile(rf"<!--offer (\S+\.{end})-->")
            found = mark.search(text)
            if not found or not (page.parent / found[1]).exists():
                continue
            size = (page.parent / found[1]).stat().st_size / 1e6
            text = mark.sub(
                f'<li><a href="{found[1]}" download>The whole book as '
                f"{word}</a>, {size:.1f} MB</li>",
                text,
            )
        text = text.replace('<ul class="downloads"></ul>', "")
        page.write_text(text, "utf-8")


def complete(app, error):
    """What stands beside the pages, when they are all there."""
    if not error and app.builder.format == "html":
        write_binder(Path(app.outdir))
        offer(Path(app.outdir))


def setup(app):
    app.add_search_language(English)
    app.add_directive("downloads", Downloads)
    app.connect("config-inited", set_address, priority=400)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", add_search_script)
    app.connect("html-collect-pages", lost_page)
    app.connect("build-finished", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
