"""What a page says of a record is what its check asserts.

A comment before paragraphs, "% The next paragraph is about this record; the
check holds it.", promises it. Each decimal and each percentage in them has
a number in the next check that is no further away than one of its last
digit.
"""

import ast
import re
from collections.abc import Iterator

import jupytext
import pytest
import tangle

PAGES = [path for path in tangle.contents() if path.suffix == ".md"]
PROMISE = re.compile(r"^% .*\bholds? (?:it|them)\.$", re.MULTILINE)
ONE, TWO = "next paragraph", "next two paragraphs"
NUMBER = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)(%?)(?![\w,]|\.\d)")
NO_PROSE = re.compile(r"\{[a-z:]+\}`[^`]*`|`[^`]*`|\$[^$]*\$")


def promises(path) -> Iterator[tuple[str, str]]:
    """Paragraphs that a check is said to hold, and the check."""
    cells = jupytext.read(path).cells
    for number, cell in enumerate(cells):
        if cell.cell_type != "markdown":
            continue
        for promise in PROMISE.finditer(cell.source):
            later = cells[number + 1 :]
            tags = [one.metadata.get("tags", []) for one in later]
            end = next(i for i, tag in enumerate(tags) if "check" in tag)
            said = [cell.source[promise.end() :]]
            if ONE in promise[0] or TWO in promise[0]:
                paragraphs = said[0].strip().split("\n\n")
                said = paragraphs[: 1 if ONE in promise[0] else 2]
            else:
                between = later[:end]
                said += [x.source for x in between if x.cell_type != "code"]
            yield "\n\n".join(said), later[end].source


def numbers(check: str) -> list[float]:
    nodes = ast.walk(ast.parse(check))
    values = [x.value for x in nodes if isinstance(x, ast.Constant)]
    text = " ".join(value for value in values if isinstance(value, str))
    numbers = [x for x in values if type(x) in (int, float)]
    return [*map(float, re.findall(r"\d+\.\d+", text)), *numbers]


def unheld(paragraphs: str, check: str) -> list[str]:
    """Decimals and percentages of which the check says nothing."""
    held = numbers(check)
    missing = []
    for digits, percent in NUMBER.findall(NO_PROSE.sub("", paragraphs)):
        whole, _, decimals = digits.partition(".")
        if not decimals and not percent:
            continue
        unit = 10.0 ** -len(decimals) + 1e-9
        value = float(digits)
        close = [abs(value - x) <= unit for x in held]
        if percent:
            close += [abs(value - 100 * x) <= unit for x in held]
        if not any(close):
            missing.append(digits + percent)
    return missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_is_said_of_a_record_is_in_its_check(path):
    for paragraphs, check in promises(path):
        assert not unheld(paragraphs, check), paragraphs[:80]


def test_an_altered_number_is_found():
    check = "assert (min(fewer), max(fewer)) == (8, 11)\nassert 1.7 < gap"
    assert not unheld("They write 8 to 11% fewer, 1.8 points less.", check)
    assert unheld("They write 8 to 13% fewer, 3.8 points less.", check) == [
        "13%",
        "3.8",
    ]


def test_there_are_promises():
    assert sum(len(list(promises(path))) for path in PAGES) > 8
