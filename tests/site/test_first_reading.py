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
SHORT = [n for n in COUNTED if n != "book/start/one_sitting"]
SAMPLE = """<nav>Not here</nav><article><h1>Two words<a
class="headerlink">#</a></h1><p class="first-reading">Not here</p>
<div class="admonition paper"><p>A box, <em>of</em> d_model - six
<span class="math">\\(a + b\\)</span></p></div>
<div class="cell"><div class="cell_input">no</div>
<div class="cell_output"><p>no</p></div></div>
<div class="highlight"><pre>a line of code

and another</pre></div>
<details><div class="highlight"><pre>no</pre></div></details>
<details><summary>In depth</summary><p>no</p></details>
<div class="solution dropdown admonition">no</div>
<div class="live">no</div></article>"""


def read(name: str) -> str:
    return (SITE / f"{name}.html").read_text("utf-8")


def test_what_counts_as_a_word():
    assert counting.measured(SAMPLE) == (2 + 6, 2)
    opened = SAMPLE.replace("details", "section")
    assert counting.measured(opened) == (2 + 6 + 3, 3)


def test_which_pages_are_counted():
    left = [n for n in CHAPTERS if n not in COUNTED]
    assert len(COUNTED) > 20
    assert all("appendix" in name for name in left)


@pytest.mark.parametrize("name", SHORT)
def test_a_first_reading_is_short(name):
    page = read(name)
    count, _ = counting.measured(page)
    assert 100 < count <= MOST
    more = f"<p>{'more ' * MOST}</p></article>"
    longer = page.replace("</article>", more, 1)
    assert counting.measured(longer)[0] == count + MOST  # it can fail


def shown(name: str) -> dict[str, str]:
    """The numbers that a page states, by what they are."""
    pattern = r'data-what="(\w+)">([^<]*)</span>'
    return dict(re.findall(pattern, read(name)))


def test_pages_state_what_was_counted():
    all_words = all_lines = 0
    for name in COUNTED:
        words, lines = counting.measured(read(name))
        all_words += words
        all_lines += lines
        said = int(shown(name)["minutes"])
        assert said - 1 < words / 200 + lines / 15 <= said
    said = shown("index")
    assert said["words"] == f"{all_words:,}"
    assert said["lines"] == f"{all_lines:,}"
    assert (said["pace"], said["code_pace"]) == ("200", "15")
    hours = (all_words / 200 + all_lines / 15) / 60
    assert abs(float(said["hours"]) - hours) <= 0.051
