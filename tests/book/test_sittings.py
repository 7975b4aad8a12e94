"""The archives for teachers: notebooks without solutions, and with them."""

import builtins
import json
import math
import xml.etree.ElementTree as ET

import jupytext
import nbformat
import pytest
import sittings as made
import torch
from notebooks import expressions
from test_chapters import EXECUTED

import transformer_lib as lib

SITTINGS = made.sittings()
KEYS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}


def result(sitting):
    name = sitting.page.relative_to(made.ROOT / "book").with_suffix(".json")
    path = EXECUTED / "book" / name
    if not path.exists():
        pytest.skip("the chapter has not run yet")
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(params=SITTINGS, ids=lambda one: one.name)
def sitting(request):
    return request.param


@pytest.fixture
def notebooks(sitting):
    """The students' and the solved one; whatever the text evaluates is 0."""
    cells = jupytext.read(sitting.page).cells
    asked = [one for cell in cells for one in expressions(cell)]
    zero = {"data": {"text/plain": "0"}}
    whole = made.solved(sitting, [(one, zero) for one in asked])
    return made.for_students(whole), whole


def about(notebook):
    return [c for c in notebook.cells if "nbgrader" in c.metadata]


def test_nbgrader_knows_the_cells(sitting, notebooks):
    for notebook in notebooks:
        nbformat.validate(notebook)
        cells = about(notebook)
        names = [c.metadata.nbgrader.grade_id for c in cells]
        assert len(names) == len({*names})
        [graded] = [c for c in cells if c.metadata.nbgrader.grade]
        assert graded.metadata.nbgrader.points == sitting.minutes
        assert graded.metadata.nbgrader.locked
        at = names.index(sitting.label)
        assert cells[at + 1] is graded and cells[at].metadata.nbgrader.solution
        for cell in cells:
            told = cell.metadata.nbgrader
            assert {*told} - {"points"} == KEYS and told.schema_version == 3
    for cell in about(notebooks[1]):
        marked = bool(made.REGION.search(cell.source))
        assert marked == cell.metadata.nbgrader.solution


def test_no_solution_is_in_the_students_notebook(notebooks):
    students, whole = notebooks
    text = "\n".join(cell.source for cell in students.cells)
    assert "SOLUTION" not in text
    for cell in whole.cells:
        for region in made.REGION.finditer(cell.source):
            lines = [line.strip() for line in region[0].splitlines()[1:-1]]
            long = [line for line in lines if len(line) > 15]
            assert long and not [line for line in long if line in text]


def test_what_is_left_out_is_not_asked_for(notebooks):
    known = {*vars(builtins), "__name__", "__file__"}
    for cell in notebooks[0].cells:
        if cell.cell_type == "code" and "%pip" not in cell.source:
            defined, asked = made.names_in(cell.source)
            assert asked <= known, cell.source
            known |= defined


def test_a_stub_raises_and_the_solution_is_right(sitting, notebooks, capsys):
    for notebook in notebooks:
        scope = {name: getattr(lib, name) for name in lib.__all__}
        scope |= {"torch": torch, "nn": torch.nn, "math": math}
        cells = {c.metadata.nbgrader.grade_id: c for c in about(notebook)}
        exec(cells[sitting.label].source, scope)
        check = cells[f"{sitting.label}-check"].source
        if notebook is notebooks[1]:
            exec(check, scope)
        else:
            with pytest.raises(AssertionError):
                exec(check, scope)
    assert "not yet. It is to be written." in capsys.readouterr().out


def test_an_archive_has_all_that_a_teacher_needs():
    sitting = SITTINGS[4]
    told = result(sitting)
    pictures = made.figures(sitting.page, told["outputs"])
    files = made.archive(sitting, told["values"], pictures)
    notebooks = {"masks.ipynb", "masks-solved.ipynb"}
    licences = {"figures/LICENSE-TEXT", "figures/LICENSE-FONTS"}
    assert {"teacher.md", *notebooks, *licences} < {*files}
    drawn = {name for name in files if name.startswith("figures/masks-")}
    assert len(drawn) > 4 and len(drawn) % 2 == 0
    for name in drawn:
        assert name[:-4] + ".pdf" in drawn
        if name.endswith(".pdf"):
            assert files[name].startswith(b"%PDF-")
        else:
            assert ET.fromstring(files[name]).tag.endswith("}svg")
            assert b"var(--" not in files[name]
    page = files["teacher.md"]
    assert f"everybody can {sitting.can}" in page
    assert "-     triangle = torch.ones(length, length).tril().bool()" in page
    assert "Loss 7.51 at the first step, 1.01 at the end; 0 of 100" in page
