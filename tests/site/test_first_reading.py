"""How long the chapters' first readings are, in the built pages."""

import re

import first_reading as counting
import pytest
import tangle
from parts import html

MOST = 1800  # words
CHAPTERS = [
    path.relative_to(tangle.ROOT).with_suffix("").as_posix()
    for path in tangle.contents()
]
COUNTED = [name for name in CHAPTERS if counting.is_counted(name)]
SHORT = [n for n in COUNTED if n != "book/start/one_sitting"]
SAMPLE = """<nav>Not here</nav><article><h1>Two words<a
class="headerlink">#</a></h1><p class="first-reading">Not here</p>
<div class="admonition paper"><p>A box, <em>of</em> d_model - six
<span class="math">\\(a + b\\)</span></p></div>
<div class="cell"><div class="cell_input">no</div>
<div class="cell_output"><p>12 words <svg><text>no</text></svg></p>
</div></div><figure><svg></svg></figure><div class="math">a</div>
<div class="highlight"><pre>a line of code

and another</pre></div>
<details><div class="highlight"><pre>no</pre></div></details>
<details><summary>In depth</summary><p>no</p></details>
<div class="solution dropdown admonition">no</div>
<div class="live">no</div></article>"""


def read(name: str) -> str:
    return html(f"{name}.html")


def test_what_counts_as_a_word():
    # a formula within a line is three words, one by itself is looked at
    found = counting.measured(SAMPLE)
    assert found == counting.Reading(
        words=2 + 6 + 1, lines=2, shown=2 + 4, looks=2
    )
    opened = SAMPLE.replace("details", "section")
    assert counting.measured(opened)[:2] == (2 + 6 + 1 + 3, 3)


def test_which_pages_are_counted():
    left = [n for n in CHAPTERS if n not in COUNTED]
    assert len(COUNTED) > 20
    assert all("appendix" in name for name in left)


@pytest.mark.parametrize("name", SHORT)
def test_a_first_reading_is_short(name):
    page = read(name)
    count = counting.measured(page).words
    assert 100 < count <= MOST
    more = f"<p>{'more ' * MOST}</p></article>"
    longer = page.replace("</article>", more, 1)
    assert counting.measured(longer).words == count + MOST  # it can fail


def shown(name: str) -> dict[str, str]:
    """The numbers that a page states, by what they are."""
    pattern = r'data-what="(\w+)">([^<]*)</span>'
    return dict(re.findall(pattern, read(name)))


def test_pages_state_what_was_counted():
    total = counting.Reading(0, 0, 0, 0)
    for name in COUNTED:
        reading = counting.measured(read(name))
        total = counting.Reading(*map(sum, zip(total, reading, strict=True)))
        said = int(shown(name)["minutes"])
        assert said - 1 < reading.minutes() <= said
    said = shown("index")
    assert said["words"] == f"{total.words:,}"
    assert said["lines"] == f"{total.lines:,}"
    assert (said["pace"], said["code_pace"]) == ("200", "15")
    hours = (total.words + total.shown) / 200 + total.lines / 15
    hours = (hours + total.looks * 15 / 60) / 60
    assert abs(float(said["hours"]) - hours) <= 0.051


def test_the_chapters_take_six_hours_at_most():
    hours = sum(counting.measured(read(n)).minutes() for n in COUNTED) / 60
    assert hours <= 6.0
