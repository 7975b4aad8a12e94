"""Every page of the built site, read as HTML."""

import os
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import tangle
from bs4 import BeautifulSoup
from jupyter_cache import get_cache

SITE = tangle.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.parts
)
CHAPTERS = [
    path.relative_to(tangle.ROOT).with_suffix("").as_posix()
    for path in [tangle.ROOT / "index.md", *tangle.contents()]
]


@cache
def soup(page: str) -> BeautifulSoup:
    return BeautifulSoup(
        (SITE / page).read_text("utf-8"), "html.parser"
    )


@cache
def anchors(page: str) -> set[str]:
    return {tag["id"] for tag in soup(page).find_all(id=True)}


@cache
def executed() -> dict:
    """The newest executed notebook of each chapter."""
    cache = get_cache(str(tangle.ROOT / "_build" / ".jupyter_cache"))
    found = {}
    for record in sorted(
        cache.list_cache_records(), key=lambda r: r.pk
    ):
        name = os.path.relpath(record.uri, tangle.ROOT)
        found[name.removesuffix(".md")] = record.pk
    return {
        n: cache.get_cache_bundle(pk).nb for n, pk in found.items()
    }


def test_the_site_has_every_chapter():
    missing = {f"{name}.html" for name in CHAPTERS} - set(PAGES)
    assert not missing


@pytest.mark.parametrize("name", CHAPTERS)
def test_outputs_are_on_the_page(name):
    if name not in executed():
        assert "{code-cell}" not in Path(
            tangle.ROOT, f"{name}.md"
        ).read_text("utf-8")
        return
    wanted = sum(
        bool(cell.get("outputs"))
        for cell in executed()[name].cells
        if not {"remove-cell", "remove-output"}
        & set(cell.metadata.get("tags", []))
    )
    assert (
        len(soup(f"{name}.html").select("div.cell_output")) == wanted
    )
    assert not soup(f"{name}.html").select(".traceback")


@pytest.mark.parametrize("page", PAGES)
def test_pictures_have_words(page):
    for image in soup(page).find_all("img"):
        assert image.get("alt", "").strip(), image
        assert not image["alt"].endswith((".png", ".svg")), image
    for svg in soup(page).select("div.cell_output svg"):
        if not svg.find_parent("svg"):
            holder = svg.find_parent(attrs={"role": "img"})
            labelled = holder or svg
            assert labelled.get("aria-label") or svg.find("title"), (
                page
            )


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in soup(page).find_all(["a", "link", "script", "img"]):
        address = link.get("href") or link.get("src") or ""
        parts = urlsplit(address)
        if (
            parts.scheme
            or parts.netloc
            or not (parts.path or parts.fragment)
        ):
            continue
        here = SITE / page
        target = (
            (here.parent / unquote(parts.path))
            if parts.path
            else here
        )
        if target.is_dir():
            target = target / "index.html"
        assert target.exists(), f"{page} links to {address}"
        if parts.fragment and target.suffix == ".html":
            name = target.resolve().relative_to(SITE).as_posix()
            assert parts.fragment in anchors(name), (
                f"{page}: {address}"
            )


@pytest.mark.parametrize("page", PAGES)
def test_nothing_failed_on_the_page(page):
    text = soup(page).get_text()
    assert "Traceback (most recent call last)" not in text
