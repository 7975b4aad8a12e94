"""What pages say beside their records, figures and tables.

A paragraph about a record has its numbers in the check that follows. Before
it is a line that the page doesn't show, "% The next paragraph is about this
record; the check holds it."
"""

import ast
import re

import pytest
import tangle
from tangle import CELL
from test_ledger import figures, held

MARK = re.compile(r"^% .*\bholds? (?:it|them)\.$", re.MULTILINE)
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
DRAWINGS = tangle.ROOT / "transformer_book" / "drawings"
# beside each other on the page, in a column on the phone
STACKED = re.compile(r"\bpanels\(|\bpieces\b")
SIDE = re.compile(
    r"\((?:at the |on the )?(?:left|right)\b|\b[Ll]eft is\b|\bLeft[,:]|"
    r"\bRight[,:]|\b(?:at|on|to) the (?:left|right)\b|"
    r"\b(?:left|right) (?:panel|picture|half)\b"
)
CAPTION = re.compile(r"^    caption: (.*?)\n    name: (\S+)$", re.M | re.S)


def stacked_drawings():
    """The functions that draw several panels."""
    for file in sorted(DRAWINGS.glob("*.py")):
        text = file.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                if STACKED.search(ast.get_source_segment(text, node)):
                    yield file.stem, node.name


def beside_panels(pages):
    """Figures of several panels, and what is said of each."""
    names = {name for _, name in stacked_drawings()}
    for page, text in pages.items():
        for cell in CELL.finditer(text):
            caption = CAPTION.search(cell[0])
            code = cell[0].rpartition("---\n")[2]
            if caption and names & set(re.findall(r"\b(\w+)\(", code)):
                words = [caption[1]]
                for paragraph in CELL.sub("", text).split("\n\n"):
                    if f"`{caption[2]}`" in paragraph:
                        words.append(paragraph)
                yield f"{page}: {caption[2]}", "\n".join(words)


def test_a_panel_is_called_by_its_title():
    """On a phone, what is at the left on the page is at the top."""
    found = dict(beside_panels(PAGES))
    assert len(found) > 10
    wrong = {name: SIDE.findall(said) for name, said in found.items()}
    assert not {name: words for name, words in wrong.items() if words}


def test_a_side_is_noticed():
    cell = """```{code-cell} ipython3
---
mystnb:
  figure:
    caption: The gradient explodes (left).
    name: a-fig
---
drawings.what_arrives(measured)
```
"""
    [(name, said)] = beside_panels({"a": cell})
    assert (name, SIDE.findall(said)) == ("a: a-fig", ["(left"])


@pytest.mark.parametrize("page", PAGES)
def test_a_table_has_like_decimals_and_per_cent_has_no_space(page):
    """`round` leaves 4.9 beside -1.22; format the numbers instead."""
    for cell in CELL.finditer(PAGES[page]):
        assert not re.search(r"\.round\(\d\)\n$", cell[3]), cell[3]
    assert not re.findall(
        r"\d %(?= ?[^\w({ ]| [a-z])", CELL.sub("", PAGES[page])
    )
