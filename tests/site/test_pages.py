"""Every page of the built site, read as HTML."""

import json
import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import folding
import jupytext
import nbformat
import pytest
import tangle
import torch
from bs4 import BeautifulSoup
from mended_pages import SHORT
from parts import PAGES, SITE, soup

CHAPTERS = [
    path.relative_to(tangle.ROOT).with_suffix("").as_posix()
    for path in [tangle.ROOT / "index.md", *tangle.contents()]
]


@cache
def anchors(page: str) -> set[str]:
    return {tag["id"] for tag in soup(page).find_all(id=True)}


@cache
def executed() -> dict[str, list]:
    """What each cell of each chapter put out, in the build."""
    folder = tangle.ROOT / "_build" / "executed"
    found = {name: folder / f"{name}.json" for name in CHAPTERS}
    return {
        name: json.loads(path.read_text("utf-8"))["outputs"]
        for name, path in found.items()
        if path.exists()
    }


@pytest.mark.parametrize("name", CHAPTERS)
def test_outputs_are_on_the_page(name):
    path = tangle.ROOT / f"{name}.md"
    if name not in executed():
        assert "{code-cell}" not in path.read_text("utf-8")
        return
    cells = [
        cell for cell in jupytext.read(path).cells if cell.cell_type == "code"
    ]
    hidden = {"remove-cell", "remove-output"}
    wanted = sum(
        bool(outputs) and not hidden & set(cell.metadata.get("tags", []))
        for cell, outputs in zip(cells, executed()[name], strict=True)
    )
    # The map of the first page looks like an output, and is none.
    shown = soup(f"{name}.html").select("div.cell_output:not(.book-map)")
    assert len(shown) == wanted
    assert not soup(f"{name}.html").select(".traceback")


@pytest.mark.parametrize("name", CHAPTERS)
def test_what_is_to_be_remembered_is_open(name):
    for one in soup(f"{name}.html").find_all("strong", string="To remember."):
        assert not one.find_parent("details")


@pytest.mark.parametrize("page", PAGES)
def test_pictures_have_words(page):
    """And none lays white under its words, which are light in the dark."""
    for image in soup(page).find_all("img"):
        alt = image.get("alt", "").strip()
        assert alt and not alt.endswith((".png", ".svg")), image
    for svg in soup(page).select("div.cell_output svg:not(svg svg)"):
        holder = svg.find_parent(attrs={"role": "img"}) or svg
        assert holder.get("aria-label") or svg.find("title"), page
    for svg in soup(page).select("div.cell_output svg.picture"):
        assert "fill: #ffffff" not in str(svg), svg["aria-label"]


@pytest.mark.parametrize("page", PAGES)
def test_formulas_alone_need_mathjax(page):
    scripts = soup(page).select("script[src*=tex-mml-chtml]")
    assert bool(scripts) == bool(soup(page).select(".math"))


@pytest.mark.parametrize("page", PAGES)
def test_charts_stand_still_until_they_are_drawn(page):
    charts = soup(page).select("[id^=altair-viz]")
    still = soup(page).select(".chart-still[role=img] > svg")
    assert len(still) == len(charts)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in soup(page).find_all(["a", "link", "script", "img"]):
        address = link.get("href") or link.get("src") or ""
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
            continue
        here = SITE / page
        root = SITE if page == "404.html" else here.parent
        target = (root / unquote(parts.path)) if parts.path else here
        if target.is_dir():
            target = target / "index.html"
        assert target.exists(), f"{page} links to {address}"
        if parts.fragment and target.suffix == ".html":
            name = target.resolve().relative_to(SITE).as_posix()
            assert parts.fragment in anchors(name), f"{page}: {address}"


# Words that stay together


def prose(page: str) -> str:
    """What an article says, without code, formulas, pictures and scripts."""
    article = BeautifulSoup(str(soup(page).article), "html.parser")
    for part in article.select("pre, code, script, style, svg, .sig, .math"):
        part.replace_with("\ufffc")
    return article.get_text()


@pytest.mark.parametrize("page", PAGES)
def test_no_line_ends_before_what_belongs_to_it(page):
    """A number behind "Figure" and before "%", what an arrow points to."""
    apart = r"\b[Ff]igure[ \n]\d|\b[Ss]ection[ \n]\d|\d[ \n]%|→[ \n]"
    assert not re.findall(apart, prose(page))


@pytest.mark.parametrize("page", PAGES)
def test_a_short_name_keeps_the_signs_that_touch_it(page):
    for name in soup(page).select("article code.literal"):
        whole = name.find_parent(class_="unbroken")
        if len(name.get_text().strip()) > SHORT:
            assert not whole, name
            continue
        assert whole, name
        after = whole.next_sibling
        torn = isinstance(after, str) and re.match(r"[.,;:?!)]", after)
        assert not torn, whole.parent


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_fold_says_all_that_its_code_says_first(name):
    """Over several lines too, and its names are code, not backticks."""
    for title in soup(f"{name}.html").select("article details > summary"):
        assert "`" not in title.get_text(), title
    for fold in soup(f"{name}.html").select("details.check"):
        code = fold.select_one(".cell_input pre").get_text()
        said = folding.title_of(folding.first_comment(code))
        wanted = f"<summary>Check: {said}" if said else "<summary>Check"
        summary = BeautifulSoup(f"{wanted}</summary>", "html.parser")
        shown = fold.summary.get_text().replace("\N{NO-BREAK SPACE}", " ")
        assert shown == summary.get_text()


def test_the_book_s_name_keeps_its_sign():
    home = soup("book/training/loss.html").select_one("nav.bd-links a")
    sign = home.select_one(".page-sign")
    assert sign and not home.get_text().partition("◉")[0][-1].isspace()


@pytest.mark.parametrize("page", PAGES)
def test_what_is_printed_is_columns_or_prose(page):
    kinds = ".output.stream, .output.text_plain"
    for printed in soup(page).select(kinds):
        wide = max(map(len, printed.get_text().splitlines()), default=0)
        assert ("columns" in printed["class"]) == (wide <= 79)


# Finding the pages


def test_every_page_describes_itself():
    """Each chapter in words of its own, found by search engines."""
    said = {}
    for page in PAGES:
        if page == "404.html":
            continue
        [tag] = soup(page).find_all("meta", {"name": "description"})
        said[page] = tag["content"]
        assert 20 < len(said[page]) <= 161, page
        tags = soup(page).find_all("meta", property=True)
        shared = {tag["property"]: tag["content"] for tag in tags}
        assert shared["og:description"] == said[page]
        assert shared["og:title"] and shared["twitter:card"]
        assert shared["og:image"].startswith(("http://", "https://"))
        image = shared["og:image"].partition("_static/")[2]
        assert (SITE / "_static" / image).stat().st_size < 300_000
    lines = {said[f"{name}.html"] for name in CHAPTERS}
    assert len(lines) == len(CHAPTERS)


def test_a_chapter_lights_its_part_of_figure_1():
    """In the small copy beside its title: so many of the fifteen boxes."""
    parts = dict(embeddings=3, positions=2, attention=3, masks=1, layers=7)
    for chapter, count in parts.items():
        copy = soup(f"book/architecture/{chapter}.html").find(
            class_="chapter-map"
        )
        lit = len(copy.find_all(class_="lit"))
        unlit = len(copy.find_all(class_="unlit"))
        assert (lit, lit + unlit) == (count, 15), chapter


def test_neighbours_say_what_is_there():
    for name, after in zip(CHAPTERS[1:-1], CHAPTERS[2:], strict=True):
        link = soup(f"{name}.html").select_one("a.right-next")
        assert link["href"].endswith(Path(after).name + ".html")
        assert len(link.select_one(".prev-next-says").text) > 15


def test_record_lists_every_executed_page():
    page = soup("book/appendix/running.html")
    links = page.select("article tr a")
    shown = {link["href"].split("#")[0] for link in links}
    for name in executed():
        address = os.path.relpath(f"{name}.html", "book/appendix")
        here = name == "book/appendix/running"
        assert ("" if here else address) in shown, name
    assert torch.__version__ in page.get_text()


def test_the_reference_lists_methods_below_their_classes():
    """By their own names, which have room there."""
    page = soup("book/appendix/reference.html")
    names = [code.get_text() for code in page.select(".page-toc code")]
    assert "forward()" in names and not any("." in name for name in names)
    assert "<class" not in page.get_text()


def test_symbols_and_terms_quote_the_glossary():
    page = soup("book/architecture/attention.html")
    symbols = page.select("a.symbol[data-says]")
    assert any("64" in link["data-says"] for link in symbols)
    page = soup("book/appendix/glossary.html")
    term = page.select_one('a[href="#term-key"]')
    assert term["data-says"] in page.get_text()


# The notebooks it offers

NOTEBOOKS = sorted((SITE / "_sources").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_offered_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert "import transformer_lib" in notebook.cells[0].source
    assert not any(cell.get("outputs") for cell in notebook.cells)


ORDER = ["Parameters", "Returns", "Yields", "Return type", "Raises", "Warns"]


def test_entries_of_the_reference_have_one_order():
    """What goes in, what comes out, what is raised, and the chapter."""
    page = soup("book/appendix/reference.html")
    for entry in page.select("dl.py.function, dl.py.class"):
        name, says = entry.find("dt"), entry.find("dd")
        assert "<" not in name.get_text(), "a default as it prints itself"
        fields = says.select(":scope > dl.field-list > dt")
        places = [
            ORDER.index(field.get_text().rstrip(":")) for field in fields
        ]
        assert places == sorted(places), name["id"]
        if name["id"].startswith("transformer_lib."):
            last = says.select(":scope > :not(dl.py)")[-1]
            assert last.get_text().startswith("Chapter: "), name["id"]
            assert last.find("a"), name["id"]
        assert not says.select("cite"), "names in a docstring are code"
