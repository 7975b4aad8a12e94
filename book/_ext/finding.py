"""How a reader, a search engine or a program finds the book's pages.

Descriptions, `sitemap.xml`, `robots.txt`, `llms.txt`, a page
for addresses that lead nowhere, and the record of how each page ran. Of
the extensions for these, each does one and is not among the pinned
packages; a list is some ten lines here.
"""

import html
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from docutils import nodes
from page_lines import line_of
from run_chapters import execution
from sphinx.search.en import SearchEnglish
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "http://localhost:8000/"  # where `make serve` shows the site
RECORD = "book/appendix/running"  # where `{run-record}` stands


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
        up = address or "../" * pagename.count("/")
        values["og:image"] = f"{up}_static/site.png"
        values["og:image:alt"] = f"A page of the book {book}"
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


# Lists of all pages


def in_order(env) -> list[tuple[str, list[str]]]:
    """Each part's caption and pages, in reading order."""
    root = env.config.root_doc
    parts = [("", [root])]
    for toctree in env.tocs and env.get_doctree(root).findall(
        lambda node: node.tagname == "toctree"
    ):
        caption = toctree.get("caption") or ""
        parts.append((caption, [name for _, name in toctree["entries"]]))
    return parts


def sitemap(pages: list[str], address: str) -> str:
    lines = [
        f"<url><loc>{html.escape(address + page)}</loc></url>"
        for page in pages
    ]
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        + "\n".join(lines)
        + "\n</urlset>\n"
    )


def llms(env, address: str) -> str:
    """A table of contents for programs that read."""
    book = env.config.html_title
    lines = [f"# {book}", "", f"> {line_of(env, 'index', 400)}"]
    for caption, names in in_order(env):
        lines += ["", f"## {caption or 'Start'}", ""]
        for name in names:
            source = f"{address}_sources/{name}.md"
            line = line_of(env, name, 160)
            lines.append(f"- [{title_of(env, name)}]({source}): {line}")
    return "\n".join(lines) + "\n"


def write_lists(app, error):
    if error or app.builder.name not in {"html", "dirhtml"}:
        return
    address = site_address()
    names = [n for _, part in in_order(app.env) for n in part]
    pages = [f"{name}.html" for name in names if name in app.env.titles]
    target = Path(app.outdir)
    target.joinpath("sitemap.xml").write_text(
        sitemap(pages, address or LOCAL), "utf-8"
    )
    target.joinpath("robots.txt").write_text(
        f"User-agent: *\nAllow: /\nSitemap: {address or LOCAL}sitemap.xml\n",
        "utf-8",
    )
    target.joinpath("llms.txt").write_text(llms(app.env, address), "utf-8")
    write_binder(target)
    offer(target)


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
    for name in ["index", RECORD]:
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


# The record of how each page ran


class Record(SphinxDirective):
    """A table of the pages that the build executed."""

    def run(self):
        return [nodes.container("", classes=["run-record"])]


def fill_record(app, doctree, docname):
    for place in doctree.findall(nodes.container):
        if "run-record" not in place.get("classes", []):
            continue
        rows = []
        for caption, names in in_order(app.env):
            for name in names:
                if not (run := execution(app.env, name)):
                    continue
                when = datetime.fromtimestamp(run["mtime"], UTC)
                address = app.builder.get_relative_uri(docname, name)
                title = html.escape(title_of(app.env, name))
                rows.append(
                    f'<tr><td><a href="{address}">{title}</a></td>'
                    f"<td>{html.escape(caption)}</td>"
                    f'<td class="number">{run["runtime"]:.1f}</td>'
                    f"<td>{when:%Y-%m-%d %H:%M}</td></tr>"
                )
        head = "".join(
            f'<th scope="col">{name}</th>'
            for name in ("page", "part", "seconds", "executed (UTC)")
        )
        place += nodes.raw(
            "",
            f'<table class="table"><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>",
            format="html",
        )


def rewrite_record(app, env):
    return [RECORD] if RECORD in env.found_docs else []


def setup(app):
    app.add_search_language(English)
    app.add_directive("run-record", Record)
    app.add_directive("downloads", Downloads)
    app.connect("config-inited", set_address, priority=400)
    app.connect("env-updated", rewrite_record)
    app.connect("doctree-resolved", fill_record)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", add_search_script)
    app.connect("html-collect-pages", lost_page)
    app.connect("build-finished", write_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
