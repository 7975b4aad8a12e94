"""Every page of the built site, read as HTML."""

import json
import re
from functools import cache
from urllib.parse import unquote, urlsplit

import finding
import folding
import jupytext
import nbformat
import pytest
import tangle
from bs4 import BeautifulSoup
from notebooks import EVAL
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
    hidden = {"remove-cell", "remove-output", "notebook"}
    wanted = sum(
        bool(outputs) and not hidden & set(cell.metadata.get("tags", []))
        for cell, outputs in zip(cells, executed()[name], strict=True)
    )
    # The map of the first page looks like an output, and is none.
    shown = soup(f"{name}.html").select("div.cell_output:not(.book-map)")
    assert len(shown) == wanted
    assert not soup(f"{name}.html").select(".traceback")
    for told in soup(f"{name}.html").select("main p, main li, main td"):
        words = [
            x for x in told.find_all(string=True) if x.parent.name != "code"
        ]
        escaped = re.search(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})", "".join(words))
        assert not escaped, told  # a string in {eval} is shown as its repr


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
def test_a_sign_behind_a_formula_stands_once(page):
    for kept in soup(page).select("span.unbroken"):
        sign, after = kept.get_text()[-1], kept.next_sibling
        assert not str(after or "").startswith(sign), kept.parent.get_text()


@pytest.mark.parametrize("page", PAGES)
def test_formulas_alone_need_mathjax(page):
    scripts = soup(page).select("script[src*=tex-mml-chtml]")
    assert bool(scripts) == bool(soup(page).select(".math"))


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
        if link.find_parent(class_="downloads") and not target.exists():
            shown = (SITE / "_static/downloads.css").read_text("utf-8")
            assert f".{target.suffix[1:]} {{" not in shown  # it is hidden
            continue
        assert target.exists(), f"{page} links to {address}"
        if parts.fragment and target.suffix == ".html":
            name = target.resolve().relative_to(SITE).as_posix()
            assert parts.fragment in anchors(name), f"{page}: {address}"


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
        assert fold.summary.get_text() == summary.get_text()


# Finding the pages


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_chapter_describes_itself(name):
    """In words of its own, for search engines and shared links."""
    page = soup(f"{name}.html")
    [tag] = page.find_all("meta", {"name": "description"})
    assert 20 < len(tag["content"]) <= 160
    tags = page.find_all("meta", property=True)
    shared = {tag["property"]: tag["content"] for tag in tags}
    assert shared["og:description"] == tag["content"]
    assert shared["og:title"]
    assert page.find("meta", {"name": "twitter:card"})
    start, image = shared["og:image"].split("_static/")
    assert start.startswith(("http://", "https://"))
    assert (SITE / "_static" / image).stat().st_size < 300_000


def test_programs_find_the_whole_book():
    """llms.txt leads to one file, with values in text, and outputs."""
    found = re.findall(r"\]\((.+?)\)", (SITE / "llms.txt").read_text("utf-8"))
    links = [link.removeprefix(finding.site_address()) for link in found]
    assert len(links) == 1 + len(CHAPTERS)
    assert all((SITE / link).is_file() for link in links)
    whole = (SITE / links[0]).read_text("utf-8")
    assert not EVAL.search(whole)
    for name in CHAPTERS:
        for cell in executed().get(name, []):
            for output in cell:
                assert output.get("text", "").rstrip() in whole, name


def test_the_reference_lists_methods_below_their_classes():
    """By their own names, which have room there."""
    page = soup("book/appendix/reference.html")
    names = [code.get_text() for code in page.select(".page-toc code")]
    assert "forward()" in names and not any("." in name for name in names)
    assert "<class" not in page.get_text()


# The notebooks it offers

NOTEBOOKS = sorted((SITE / "_sources").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_offered_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert "import transformer_lib" in notebook.cells[0].source
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert "{eval}" not in nbformat.writes(notebook)


def test_entries_of_the_reference_lead_to_their_chapters():
    page = soup("book/appendix/reference.html")
    for entry in page.select("dl.py.function, dl.py.class"):
        name, says = entry.find("dt"), entry.find("dd")
        assert "<" not in name.get_text(), "a default as it prints itself"
        if name["id"].startswith("transformer_lib."):
            lines = [p for p in says.find_all("p") if "Chapter: " in p.text]
            assert lines and lines[0].find("a"), name["id"]
        assert not says.select("cite"), "names in a docstring are code"
