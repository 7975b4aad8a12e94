"""The whole book as one PDF and as an EPUB, from the built site.

`python tools/print_book.py pdf` and `... epub`, after `make book`. (Sphinx's
own EPUB builder has formulas as pictures of LaTeX's, and does not declare
the SVG in its pages, which EPUB 3 demands.)
Chromium draws formulas and prints; nothing is executed. All
that is folded on the site is open here. The files are put into the site,
whose first page offers them then.
"""

import html
import importlib
import re
import sys
import uuid
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
NAME = "executable-transformer"
CHROMIUM = "/usr/bin/chromium"
TITLE = yaml.safe_load((ROOT / "_config.yml").read_text())["title"]


def contents() -> list[tuple[str, list[str]]]:
    """Each part's caption and pages."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    parts = [("", [toc["root"]])]
    for part in toc["parts"]:
        names = [chapter["file"] for chapter in part["chapters"]]
        parts.append((part["caption"], names))
    return parts


def slug(name: str) -> str:
    return name.replace("/", "-")


# What the site has in a place, in the order of the page.
LIVE = re.compile(r"\{admonition\} (.+)\n:class: on-the-site live ")

FREEZE = Path(__file__).with_name("freeze.js").read_text("utf-8")


def freeze(page, name: str, names: dict, xml: bool):
    """A page's article with nothing left to run, and its images."""
    page.goto((SITE / f"{name}.html").as_uri(), wait_until="load")
    page.wait_for_function(
        # A page without formulas has its settings alone.
        "!window.MathJax?.startup?.promise ||"
        " MathJax.startup.promise.then(() => true)"
    )
    # Its rules, not its text: MathJax adds one for each sign that it meets.
    style = page.evaluate(
        "[...(document.getElementById('MJX-CHTML-styles')?.sheet.cssRules ||"
        " [])].map(rule => rule.cssText)"
    )
    live = LIVE.findall((ROOT / f"{name}.md").read_text("utf-8"))
    given = [name, names, SITE.as_posix(), xml, live]
    return page.evaluate(FREEZE, given), style


def frozen(xml: bool):
    """Every page of the book, frozen, by one browser."""
    names = {n: slug(n) for _, part in contents() for n in part}
    pages, styles = {}, {}
    with sync_playwright() as playwright:
        browser = start(playwright)
        for name in names:
            page = browser.new_page()
            pages[name], style = freeze(page, name, names, xml)
            styles |= dict.fromkeys(style)
            page.close()
        browser.close()
    return pages, "\n".join(styles)


def start(playwright):
    return playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu"],
    )


def toc_list(address, title_of) -> str:
    """The table of contents as nested lists."""
    lines = []
    for caption, names in contents():
        entries = "".join(
            f'<li><a href="{address(name)}">'
            f"{html.escape(title_of(name))}</a></li>"
            for name in names
        )
        head = f"<span>{html.escape(caption)}</span>" if caption else ""
        lines.append(f"<li>{head}<ol>{entries}</ol></li>" if head else entries)
    return f"<ol>{''.join(lines)}</ol>"


def titles(pages: dict) -> dict[str, str]:
    found = {}
    for name, (text, _) in pages.items():
        head = re.search(r"<h1[^>]*>(.*?)</h1>", text, re.S)[1]
        found[name] = html.unescape(re.sub("<[^>]*>", "", head)).strip()
    return found


# PDF

SHEET = """
@page { size: A4; margin: 18mm 16mm 20mm; }
body { font: 10.5pt/1.45 "DejaVu Serif", Georgia, serif; margin: 0; }
main { display: block; max-width: none; }
.chapter { break-before: page; }
.toctree-wrapper { display: none; }
.cover { height: 240mm; text-align: center; padding-top: 80mm; }
.cover h1 { font-size: 30pt; }
.contents { line-height: 1.3; }
.contents li { margin: 0; }
h1, h2, h3, h4 { font-family: "DejaVu Sans", sans-serif; }
.chapter h1 { font-size: 22pt; }
.chapter h2 { font-size: 16pt; margin-top: 1.2em; }
.chapter h3 { font-size: 13pt; }
pre, blockquote, .highlight, [class*="highlight-"], .fold.fold, .admonition {
  break-inside: auto !important; overflow: visible !important; }
.highlight, [class*="highlight-"], .cell_input, .fold.fold {
  display: block !important; }
div.math { break-inside: avoid; padding-top: 0.2em !important; }
pre { orphans: 1; widows: 1; }
pre, code { font-family: "DejaVu Sans Mono", monospace; }
pre { font-size: 7.6pt; white-space: pre-wrap; padding: 0.5em 0.8em;
  color: #080808; overflow-wrap: anywhere; }
.fold { border: 1px solid #888; border-left-width: 3px;
  padding: 0.3em 0.8em; margin: 0.8em 0; }
.fold-title { font-weight: bold; break-after: avoid; margin-bottom: 0.5em; }
.fold > .sd-card-body { padding: 0; }
.sd-row { break-inside: avoid; }
.on-the-site { border: 1px dashed #888; padding: 0.3em 0.8em; }
table { border-collapse: collapse; font-size: 9pt; margin-bottom: 1em; }
td, th { padding: 0.15em 0.5em; vertical-align: top; }
td p, th p { margin: 0 !important; }
.citation { break-inside: avoid; }
dl, dd, dd p { margin-bottom: 0.3em !important; }
img, svg { max-width: 100%; }
mjx-container { overflow: visible !important; }
html[data-theme="light"] main.bd-content * { box-shadow: none !important; }
"""
FOOT = (
    '<div style="font-size: 8px; width: 100%; text-align: center">'
    '<span class="pageNumber"></span></div>'
)


def one_page() -> str:
    """The book as one page of HTML."""
    pages, formulas = frozen(xml=False)
    named = titles(pages)
    sheets = [
        path.relative_to(SITE).as_posix()
        for pattern in [
            "styles/pydata-sphinx-theme.css",
            "pygments.css",
            "mystnb.*.css",
            "exercise.css",
            "sphinx-design.min.css",
            "book.css",
        ]
        for path in sorted((SITE / "_static").glob(pattern))
    ]
    links = "".join(
        f'<link rel="stylesheet" href="{sheet}">' for sheet in sheets
    )
    formulas = re.sub(
        r'url\("?[^")]*/(_static/[^")]*)"?\)', r'url("\1")', formulas
    )
    chapters = "".join(
        f'<div class="chapter bd-article" id="{slug(name)}--top">{text}</div>'
        for name, (text, _) in pages.items()
    )
    listed = toc_list(lambda n: f"#{slug(n)}--top", named.get)
    today = f"{datetime.now(UTC):%d %B %Y}"
    return (
        '<!doctype html><html lang="en" data-theme="light"><head>'
        f'<meta charset="utf-8"><title>{TITLE}</title>{links}'
        f"<style>{formulas}</style><style>{SHEET}</style></head><body>"
        f'<main class="bd-content"><div><div class="cover"><h1>{TITLE}'
        "</h1><p>“Attention Is All You Need”, explained and "
        f"built section by section</p><p>{today}</p></div>"
        f'<div class="chapter contents"><h1>Contents</h1>{listed}'
        f"</div>{chapters}</div></main></body></html>"
    )


def make_pdf(target: Path) -> None:
    whole = SITE / "_whole.html"
    whole.write_text(one_page(), "utf-8")
    try:
        with sync_playwright() as playwright:
            browser = start(playwright)
            page = browser.new_page()
            page.set_default_timeout(600_000)
            page.goto(whole.as_uri(), wait_until="load")
            page.evaluate("document.fonts.ready.then(() => true)")
            page.pdf(
                path=target,
                prefer_css_page_size=True,
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=FOOT,
                outline=True,
                tagged=True,
            )
            browser.close()
    finally:
        whole.unlink()


# EPUB

STYLE = """
body { line-height: 1.5; margin: 0 4%; }
pre { font-size: 0.75em; overflow-wrap: anywhere; white-space: pre-wrap; }
.cell, .admonition, .fold { margin: 1em 0; }
.cell_input { border-left: 3px solid #888; padding-left: 0.6em; }
.admonition, .fold { border: 1px solid #888; padding: 0.3em 0.8em; }
.admonition-title, .fold-title { font-weight: bold; }
.paper { border-left: 5px double #8a5a00; }
.experiment { border-left: 5px dashed #6d3fc4; }
.on-the-site { border: 1px dashed #888; padding: 0.3em 0.8em; }
table { border-collapse: collapse; font-size: 0.8em; }
td p, th p { margin: 0; }
td, th { border-bottom: 1px solid #aaa; padding: 0.2em 0.5em; }
svg, img { max-width: 100%; height: auto; }
.k, .kn, .ow, .kc { font-weight: bold; }
.c1 { font-style: italic; }
"""
CONTAINER = """<?xml version="1.0"?>
<container version="1.0"
 xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf"
 media-type="application/oebps-package+xml"/></rootfiles></container>
"""


def xhtml(title: str, body: str) -> str:
    """A file of the EPUB; signs that XML forbids become U+FFFD."""
    body = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "\ufffd", body)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" '
        'xmlns:epub="http://www.idpf.org/2007/ops" lang="en" '
        f'xml:lang="en"><head><title>{html.escape(title)}</title>'
        '<link rel="stylesheet" type="text/css" href="book.css"/></head>'
        f"<body>{body}</body></html>\n"
    )


def package(pages: dict, images: list[str]) -> str:
    """The list of all files, and the reading order."""
    items, spine = [], []
    for name, (text, _) in pages.items():
        kinds = [
            kind
            for kind, mark in [("mathml", "<math"), ("svg", "<svg")]
            if mark in text
        ]
        extra = f' properties="{" ".join(kinds)}"' if kinds else ""
        items.append(
            f'<item id="{slug(name)}" href="{slug(name)}.xhtml" '
            f'media-type="application/xhtml+xml"{extra}/>'
        )
        spine.append(f'<itemref idref="{slug(name)}"/>')
    for number, path in enumerate(images):
        kind = {"svg": "svg+xml", "jpg": "jpeg"}
        kind = kind.get(path[-3:], path[-3:])
        items.append(
            f'<item id="image-{number}" media-type="image/{kind}" '
            f'href="images/{path.replace("/", "-")}"/>'
        )
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    name = uuid.uuid5(uuid.NAMESPACE_URL, NAME)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<package version="3.0" '
        'xmlns="http://www.idpf.org/2007/opf" unique-identifier="id" '
        'xml:lang="en"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">urn:uuid:{name}</dc:identifier>'
        f"<dc:title>{TITLE}</dc:title><dc:language>en</dc:language>"
        f"<dc:creator>{TITLE} authors</dc:creator>"
        f'<meta property="dcterms:modified">{stamp}</meta></metadata>'
        '<manifest><item id="nav" href="nav.xhtml" properties="nav" '
        'media-type="application/xhtml+xml"/><item id="css" '
        f'href="book.css" media-type="text/css"/>{"".join(items)}'
        f"</manifest><spine>{''.join(spine)}</spine></package>\n"
    )


def make_epub(target: Path) -> None:
    pages, _ = frozen(xml=True)
    named = titles(pages)
    images = sorted({i for _, found in pages.values() for i in found})
    listed = toc_list(lambda n: f"{slug(n)}.xhtml", named.get)
    nav = f'<nav epub:type="toc"><h1>Contents</h1>{listed}</nav>'
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", CONTAINER)
        book.writestr("OEBPS/book.opf", package(pages, images))
        book.writestr("OEBPS/nav.xhtml", xhtml(TITLE, nav))
        book.writestr("OEBPS/book.css", STYLE)
        for name, (text, _) in pages.items():
            book.writestr(
                f"OEBPS/{slug(name)}.xhtml", xhtml(named[name], text)
            )
        for path in images:
            book.write(SITE / path, f"OEBPS/images/{path.replace('/', '-')}")


def offer() -> None:
    """Have the site's pages link the files, as each build does."""
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    finding = importlib.import_module("finding")
    sys.path.pop(0)
    finding.offer(SITE)


def main(kind: str) -> None:
    if not Path(CHROMIUM).exists():
        sys.exit(f"printing the book needs {CHROMIUM}")
    folder = SITE / "downloads"
    folder.mkdir(exist_ok=True)
    target = folder / f"{NAME}.{kind}"
    {"pdf": make_pdf, "epub": make_epub}[kind](target)
    offer()
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main(*sys.argv[1:])
