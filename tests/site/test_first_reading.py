"""Each chapter says how long a first reading of it takes, within a quarter.

A first reading is what is open in an article: its words, code, formulas,
figures and outputs, but nothing that is folded and no interactive figure.
"""

import copy
import re
from types import SimpleNamespace

import pytest
import tangle
from parts import soup
from reading_time import MINUTES, new_minutes
from sittings import objective

PACE = 130  # words a minute, those of outputs too
CODE_PACE = 9  # lines of code a minute, for one who wants to explain them
LOOK = 0.5  # minutes for a figure, or for a formula on its own line
FOLDED = "details, .dropdown, .live, script, style"
PAGES = {path.stem: path for path in tangle.contents()}


def measured(page: str) -> float:
    """How many minutes somebody takes who reads all that is open."""
    article = copy.copy(soup(page).article)
    for part in article.select(FOLDED):
        part.decompose()
    looks = len(article.select("figure, div.math"))
    for picture in article.select("svg"):
        picture.decompose()
    lines = 0
    for code in article.select(".cell_input pre, :not(.output) > .highlight"):
        lines += sum(bool(line.strip()) for line in code.text.splitlines())
        code.decompose()
    words = [w for w in article.get_text(" ").split() if re.search(r"\w", w)]
    return len(words) / PACE + lines / CODE_PACE + looks * LOOK


def test_every_chapter_has_its_minutes():
    chapters = {
        name
        for name, path in PAGES.items()
        if "appendix" not in path.parts and name in MINUTES
    }
    wanted = {n for n, p in PAGES.items() if "appendix" not in p.parts}
    assert wanted == chapters and set(MINUTES) <= set(PAGES)


@pytest.mark.parametrize("name", MINUTES)
def test_its_minutes_are_true_within_a_quarter(name):
    page = PAGES[name].relative_to(tangle.ROOT).with_suffix(".html")
    minutes = measured(page.as_posix())
    off = abs(MINUTES[name] - minutes)
    assert off <= max(2.5, minutes / 4), f"{minutes:.0f} minutes"
    said = soup(page.as_posix()).select_one("p.first-reading").text
    assert f"about {MINUTES[name]} minutes" in said
    assert name == "learning" or len(objective(PAGES[name])) > 20


def test_a_page_with_other_minutes_is_written_again():
    pages = {"index", "book/architecture/attention", "book/training/loss"}
    env = SimpleNamespace(found_docs=pages, minutes=MINUTES | {"loss": 1})
    assert new_minutes(None, env) == ["book/training/loss"]
    assert new_minutes(None, env) == []


def test_the_first_page_adds_them_up():
    said = soup("index.html").article.text
    hours = int(re.search(r"reading takes about (\d+) hours", said)[1])
    assert abs(hours - sum(MINUTES.values()) / 60) <= hours / 4
