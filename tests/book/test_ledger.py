"""Each row of the fidelity ledger leads to code, a test and a place."""

import ast
import functools
import importlib
import math
import re

import bite
import pytest
import tangle
import yaml

LEDGER = tangle.ROOT / "book" / "fidelity.yml"
ROWS = yaml.safe_load(LEDGER.read_text("utf-8"))
FIELDS = {"id", "section", "says", "status", "chapter"}
MORE = {"symbol", "test", "breaks", "alters"}
BUILT = {"exact", "option"}  # a change to their code must be noticed
STATES = {*BUILT, "scaled", "open", "undecidable"}


@functools.cache
def labels() -> set[str]:
    pages = [tangle.ROOT / "index.md", *tangle.contents()]
    return {label for p in pages for label in tangle.Chapter(p).labels}


@functools.cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((tangle.ROOT / path).read_text("utf-8"))
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef))
    return {function.name for function in functions}


def test_ids_are_unique():
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_leads_somewhere(row):
    assert FIELDS <= set(row) <= FIELDS | MORE
    assert row["status"] in STATES and row["says"].strip()
    assert row["chapter"] in labels()
    package, *path = row.get("symbol", "").split(".")
    if path:
        thing = importlib.import_module(f"{package}.{path[0]}")
        functools.reduce(getattr, path[1:], thing)
    if row.get("test"):
        file, _, name = row["test"].partition("::")
        assert name.split("[")[0] in functions_in(file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row_has_what_its_state_asks(row):
    built = row["status"] in BUILT
    if row["status"] in {"open", "undecidable"}:
        assert not row.get("test") and not row.get("symbol")
    else:
        assert row.get("test")
    assert not built or "breaks" in row
    # `make bite` tries each of them
    for change in bite.changes(row):
        assert not change.complaint()


NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(%?)")
NAMED = re.compile(r"\b(?:table|figure|section|equation) \d+", re.IGNORECASE)
IN_WORDS = re.compile(
    r"\b(?:half|thirds?|quarters?|tenths?|hundredths?|percent|in ten|"
    r"in a hundred|(?:two|three|four|five) (?:BLEU )?(?:points|times))\b"
)
PAPERS = {"variations-heads": {0.9}}  # what the paper itself prints


def figures(says: str) -> list[tuple[float, float]]:
    """Each number of a row, and a unit of its last digit."""
    found = []
    for digits, percent in NUMBER.findall(NAMED.sub("", says)):
        whole, _, decimals = digits.replace(",", "").partition(".")
        unit = (0.01 if percent else 1) * 10.0 ** -len(decimals)
        found.append((int(whole + decimals) * unit, unit))
    return found


def code_of_test(row: dict, whole: bool = False) -> str:
    """The row's test: a function, or its section of a page, or all of it."""
    file, _, name = row["test"].partition("::")
    path = tangle.ROOT / (bite.page_of(row) or file)
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        if whole:
            return "\n".join(bite.programs(text, path))
        _, _, section = text.partition(f"({row['chapter']})=\n")
        section, *_ = re.split(r"^\([\w-]+\)=$", section, flags=re.MULTILINE)
        return "\n".join(bite.programs(section, path))
    (function,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return ast.unparse(function)


def held(code: str) -> list[list[float]]:
    """What assertions compare with: numbers, and both ends of ranges."""
    compared: list[ast.AST] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Assert):
            compared += ast.walk(node.test)
        elif isinstance(node, ast.For):  # over what is asserted
            compared += ast.walk(node.iter)
    found = []
    for node in compared:
        ends = [node, node]
        if isinstance(node, ast.Compare):
            ends = [node.left, node.comparators[-1]]
        values = [getattr(end, "value", None) for end in ends]
        if all(type(value) in (int, float) for value in values):
            found.append(values)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_figures_are_in_the_rows_own_test(row):
    """A figure that was measured is in digits, and asserted."""
    if row["status"] != "scaled":
        return
    assert not IN_WORDS.search(row["says"]), "in digits, please"
    ranges = held(code_of_test(row))
    for value, unit in figures(row["says"]):
        assert value in PAPERS.get(row["id"], ()) or any(
            low - 1e-9 <= value <= high + 1e-9
            and high - low <= 2 * unit + 1e-9
            for low, high in ranges
        ), value


COUNTS = dict(
    zip(
        "two three four five six seven eight nine ten".split(),
        range(2, 11),
        strict=True,
    )
)
PRINTED = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(%?)(?!\w)")
WRITTEN = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_numbers_of_an_exact_row_are_in_its_test(row):
    """A layer of three sub-layers is held by a test that says three."""
    if row["status"] != "exact":
        return
    says = NAMED.sub("", row["says"])
    said = [COUNTS[word] for word in says.split() if word in COUNTS]
    for digits, percent in PRINTED.findall(says):
        said.append(float(digits.replace(",", "")) / (100 if percent else 1))
    code = code_of_test(row, whole=True)
    nodes = ast.walk(ast.parse(code))
    texts = [str(x.value) for x in nodes if isinstance(x, ast.Constant)]
    numbers = [float(x) for x in texts if WRITTEN.fullmatch(x)]
    for number in said:
        assert any(math.isclose(number, x) for x in numbers), number
