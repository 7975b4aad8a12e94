"""How long the chapters' first readings are, in the built pages."""

import importlib
import re
import sys

import pytest
import tangle

sys.path.insert(0, str(tangle.ROOT / "book" / "_ext"))
counting = importlib.import_module("first_reading")
sys.path.pop(0)

SITE = tangle.ROOT / "_build" / "html"
MOST = 1800  # words
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
<div class="cell_output"><p>no</p></div></div>
<div class="highlight"><pre>no no</pre></div>
<details><summary>In depth</summary><p>no</p></details>
<div class="solution dropdown admonition">no</div>
<div class="live">no</div></article>"""


def read(name: str) -> str:
    return (SITE / f"{name}.html").read_text("utf-8")


def test_what_counts_as_a_word():
    assert counting.words(SAMPLE) == 2 + 6
    opened = SAMPLE.replace("details", "section")
    assert counting.words(opened) == 2 + 6 + 3


def test_which_pages_are_counted():
    left = [n for n in CHAPTERS if n not in COUNTED]
    assert "book/start/one_sitting" in left and len(COUNTED) > 20
    assert all("appendix" in name for name in left[1:])


@pytest.mark.parametrize("name", COUNTED)
def test_a_first_reading_is_short(name):
    page = read(name)
    count = counting.words(page)
    assert 100 < count <= MOST
    more = f"<p>{'more ' * MOST}</p></article>"
    longer = page.replace("</article>", more, 1)
    assert counting.words(longer) == count + MOST  # it can fail


def shown(name: str) -> dict[str, str]:
    """The numbers that a page states, by what they are."""
    pattern = r'data-what="(\w+)">([^<]*)</span>'
    return dict(re.findall(pattern, read(name)))


def test_pages_state_what_was_counted():
    total = 0
    for name in COUNTED:
        count = counting.words(read(name))
        total += count
        minutes = int(shown(name)["minutes"])
        assert minutes - 1 < count / counting.PACE <= minutes
    said = shown("index")
    assert said["words"] == f"{total:,}"
    assert said["pace"] == str(counting.PACE)
    hours = total / counting.PACE / 60
    assert abs(float(said["hours"]) - hours) <= 0.051
    assert "minutes" not in shown("book/start/one_sitting")
