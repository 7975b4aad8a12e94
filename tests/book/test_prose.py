"""What pages say beside their records, figures and tables.

A paragraph about a record has its numbers in the check that follows. Before
it is a line that the page doesn't show, "% The next paragraph is about this
record; the check holds it."
"""

import re

import pytest
import tangle
from test_ledger import figures, held

MARK = re.compile(r"^% .*\bholds? (?:it|them)\.$", re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\}.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`|\$[^$]*\$")  # and mathematics
SETTING = re.compile(r"\b(?:seed|dropout|width|beam of|distance of) [\d.]+\b")
# what is not measured but was decided, by page
GIVEN = {
    "rivals": {29_000, 200, 500, 8_500},
    "variations": {32, 128, 500},
}


def marked():
    """Page, paragraphs up to the next check, and that check."""
    for page in sorted(tangle.ROOT.glob("book/**/*.md")):
        text = page.read_text("utf-8")
        for mark in MARK.finditer(text):
            paragraphs, after = text[mark.end() :], []
            for cell in CELL.finditer(paragraphs):
                if "tags: [check]" in cell[0]:
                    after = [CELL.sub("", paragraphs[: cell.start()]), cell[0]]
                    break
            assert after, f"{page.stem}: no check after {mark[0]}"
            code = after[1].split("---\n")[-1].removesuffix("```")
            yield page.stem, after[0], code


def unheld(page, paragraphs, code):
    """The numbers that no assertion of the code compares with."""
    bounds = {bound for ends in held(code) for bound in ends}
    plain = SETTING.sub("", CODE.sub("", paragraphs))
    missing = []
    for value, unit in figures(plain):
        # a percentage may be asserted as such, or as a share
        written = {value: unit, 100 * value: 100 * unit}
        near = any(
            abs(abs(bound) - number) <= step / 2 + 1e-9
            for bound in bounds
            for number, step in written.items()
        )
        if not near and value not in GIVEN.get(page, ()):
            missing.append(value)
    return missing


MARKED = list(marked())


def test_pages_promise_that_their_checks_hold_the_numbers():
    assert len(MARKED) > 8


@pytest.mark.parametrize(
    ("page", "paragraphs", "code"), MARKED, ids=[page for page, *_ in MARKED]
)
def test_numbers_are_in_the_check(page, paragraphs, code):
    assert unheld(page, paragraphs, code) == []


@pytest.mark.parametrize("number", ["8 to 11%", "1.8", "0.8 nats", "157"])
def test_another_number_is_noticed(number):
    other = re.sub(r"\d+", lambda digits: str(int(digits[0]) + 3), number)
    [(page, paragraphs, code)] = [
        one for one in MARKED if one[0] == "rivals" and number in one[1]
    ]
    assert unheld(page, paragraphs.replace(number, other), code)


PAGES = {
    page.stem: page.read_text("utf-8")
    for page in sorted(tangle.ROOT.glob("book/*/*.md"))
}


@pytest.mark.parametrize("page", PAGES)
def test_a_table_has_like_decimals_and_per_cent_has_no_space(page):
    """`round` leaves 4.9 beside -1.22; format the numbers instead."""
    for cell in CELL.findall(PAGES[page]):
        assert not re.search(r"\.round\(\d\)\n```$", cell), cell
    assert not re.findall(
        r"\d %(?= ?[^\w({ ]| [a-z])", CELL.sub("", PAGES[page])
    )
