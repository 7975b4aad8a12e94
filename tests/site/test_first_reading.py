"""What a first reading is, and that each chapter says how long it takes."""

import re

import first_reading as counting
import pytest
import tangle
from parts import html

CHAPTERS = [
    path.relative_to(tangle.ROOT).with_suffix("").as_posix()
    for path in tangle.contents()
]
COUNTED = [name for name in CHAPTERS if counting.is_counted(name)]
SAMPLE = """<nav>Not here</nav><article><h1>Two words<a
class="headerlink">#</a></h1><p class="first-reading">Not here</p>
<div class="admonition paper"><p>A box, <em>of</em> d_model - six
<span class="math">\\(a + b\\)</span></p></div>
<div class="cell"><div class="cell_input">no</div>
<div class="cell_output"><p>12 words <svg><text>no</text></svg></p>
<figure><svg><text>no</text></svg><figcaption>A caption is read
</figcaption></figure></div></div><figure><svg></svg></figure>
<div class="math">a</div>
<div class="highlight"><pre>a line of code

and another</pre></div>
<details><div class="highlight"><pre>no</pre></div></details>
<details><summary>In depth</summary><p>no</p></details>
<div class="solution dropdown admonition">no</div>
<div class="live">no</div></article>"""


def test_what_counts_as_a_word():
    # a formula within a line is three words, one by itself is looked at,
    # and a figure is looked at and its caption read
    found = counting.measured(SAMPLE)
    assert found == counting.Reading(
        words=2 + 6 + 1, lines=2, shown=2 + 4 + 4, looks=3
    )
    opened = SAMPLE.replace("details", "section")
    assert counting.measured(opened)[:2] == (2 + 6 + 1 + 3, 3)


SAID = re.compile(r'data-what="minutes">(\d+)</span> minutes')


@pytest.mark.parametrize("name", COUNTED)
def test_a_chapter_says_how_long_it_takes(name):
    assert int(SAID.search(html(f"{name}.html"))[1]) % 5 == 0


def test_what_it_says_was_counted():
    page = html("book/architecture/masks.html")
    counted = counting.measured(page).minutes()
    assert abs(int(SAID.search(page)[1]) - counted) <= 2.5


def test_the_first_page_says_how_they_are_counted():
    said = (tangle.ROOT / "index.md").read_text("utf-8")
    words, lines = counting.PACE, counting.CODE_PACE
    assert f"{words} words or {lines} lines of code a minute" in said
    assert counting.LOOK == 30 and "half a minute for a figure" in said


def test_the_navigation_says_it_too_and_where_one_can_play():
    page = html("book/architecture/masks.html")
    start = page.find(counting.NAVIGATION)
    signs = dict(
        re.findall(
            r'href="([^"]+)">[^<]*<span class="page-sign">(.*?)</span></a>',
            page[start : page.find("</nav>", start)],
        )
    )
    minutes = SAID.search(page)[1]
    assert signs["#"].endswith(f"{minutes} min")
    assert "interactive" in signs["#"]
    assert "interactive" not in signs["layers.html"]
    assert "../appendix/glossary.html" not in signs


def test_signs_are_put_once():
    page = f'{counting.NAVIGATION}"><a class="internal" href="#">T</a></nav>'
    path = counting.Path("/a.html")
    signs = {path: counting.sign(15, playable=True)}
    once = counting.signed(page, path, signs)
    assert "15 min" in once
    assert counting.signed(once, path, signs) == once
