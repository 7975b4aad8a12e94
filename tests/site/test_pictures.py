"""The pictures of the pages, as a browser draws them."""

from pathlib import Path

import pytest
from parts import CHAPTERS, html

CROSSED = Path(__file__).with_name("crossed.js").read_text("utf-8")
DRAWN = sorted(page for page in CHAPTERS if 'class="picture"' in html(page))


@pytest.mark.parametrize("page", DRAWN)
def test_words_are_drawn_on_nothing(visit, page):
    """With the letters that ship; neither on the page nor on a phone."""
    for width in (1280, 390):
        opened = visit(page, width=width)
        loaded = (
            "document.fonts.load('14px \"Book Sans\"').then(f => f.length)"
        )
        assert opened.evaluate(loaded) == 1
        assert not opened.evaluate(CROSSED)


SIGHT = '<svg class="picture" aria-label="a" width="300" height="60">{}</svg>'
WORDS = '<text x="20" y="30">some words</text>'
FOUND = {
    "": [],
    '<text x="90" y="30">more</text>': ["more"],
    '<path d="M0 25 L300 25" stroke="red"/>': ["a line"],
    '<path d="M0 45 L300 45" stroke="red"/>': [],
    '<rect x="40" y="5" width="90" height="50" stroke="red"/>': ["a line"],
    '<rect x="5" y="5" width="190" height="50" stroke="red"/>': [],
    '<circle cx="40" cy="25" r="4"/>': ["a mark"],
    '<text x="270" y="30">and more</text>': ["is cut"],
}


def test_a_crossed_word_is_noticed(browser):
    page = browser.new_page()
    style = "<style>text { font: 16px 'DejaVu Sans', sans-serif }</style>"
    sights = [SIGHT.format(WORDS + beside) for beside in FOUND]
    page.set_content(style + "<br>".join(sights))
    found = [what for _, _, what in page.evaluate(CROSSED)]
    page.close()
    assert found == sum(FOUND.values(), [])


def test_a_phone_shows_words_that_can_be_read(visit):
    """They shrink to eleven pixels and a half; then the picture is pushed."""
    page = visit("book/translating/beams.html", width=390)
    sizes = page.evaluate("""() =>
      [...document.querySelectorAll("svg.picture text")].map(
        text => parseFloat(getComputedStyle(text).fontSize)
          * text.getScreenCTM().d)""")
    assert len(sizes) > 20 and min(sizes) > 11
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
