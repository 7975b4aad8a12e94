"""The exercises: stubs, their checks, the course that they make."""

import importlib
import math
import re
import shutil
import subprocess
import sys

import jupytext
import pytest
import tangle
import torch
import yaml
from test_chapters import CHAPTERS

import transformer_lib as lib
from transformer_book.exercises import check

TEXT = {page: path.read_text("utf-8") for page, path in CHAPTERS.items()}
TITLE = re.compile(r"^`{3,4}\{exercise\} ?(.*)\n(?::label: (\S+))?", re.M)
STUBS = {
    "embeddings.tied": "embeddings-ex-1",
    "positions.sinusoids": "positions-ex-1",
    "attention.attention": "attention-ex-1",
    "attention.multi_head": "attention-ex-2",
    "masks.masks": "masks-ex-1",
    "layers.encoder_layer": "layers-ex-1",
    "layers.decoder_layer": "layers-ex-2",
    "loss.smoothed": "loss-ex-1",
    "schedule.learning_rate": "schedule-ex-1",
    "training.update": "training-ex-1",
    "decoding.greedy": "decoding-ex-1",
    "beams.search": "beams-ex-1",
}
PLAIN = {  # written and checked in the page
    "positions.sinusoids": "positions-ex-1",
    "attention.rows": "attention-ex-1",
    "masks.recent": "masks-ex-2",
    "schedule.learning_rate": "schedule-ex-1",
    "beams.score": "beams-ex-2",
    "evaluation.precision": "evaluation-ex-1",
}
LABELS = STUBS | PLAIN


def cells_of(name):
    """The page's two cells of a stub: itself, and its solution."""
    label = LABELS[name]
    page = next(p for p in TEXT if p.endswith(f"/{name.split('.')[0]}"))
    found = re.search(
        rf":label: {label}\n.*?^```{{solution-end}}", TEXT[page], re.M | re.S
    )
    assert found, f"{page} has no exercise {label}"
    cells = [cell[3] for cell in tangle.CELL.finditer(found[0])]
    cells = [cell for cell in cells if f'check("{name}", ' in cell]
    assert len(cells) == 2
    return cells


def answer_in(cell, stub=""):
    """What a cell defines, below its stub, without the check."""
    code, call = re.search(r"(.*)^(.*\bcheck\(.*)", cell, re.M | re.S).groups()
    scope = {name: getattr(lib, name) for name in lib.__all__}
    scope |= {"torch": torch, "nn": torch.nn, "math": math}
    exec(stub.partition("\ncheck(")[0], scope)
    exec(code, scope)
    return scope[re.search(r", (\w+)\)", call)[1]]


def solution(name, change=()):
    """The page's answer; or with pieces of it changed, a mistake."""
    stub, code = cells_of(name)
    return answer_in(changed(code, change), stub)


def changed(code, change):
    for old, new in change:
        assert old in code, f"{old!r} is not in the solution"
        code = code.replace(old, new)
    return code


ANSWERS = yaml.safe_load(
    (tangle.ROOT / "tests/book/answers.yml").read_text("utf-8")
)
MISTAKES = {name: answers["mistakes"] for name, answers in ANSWERS.items()}
CASES = [(name, says) for name in MISTAKES for says in MISTAKES[name]]


@pytest.mark.parametrize("name", LABELS)
def test_a_stub_is_not_right_and_does_not_fail(name, capsys):
    assert not check(name, answer_in(cells_of(name)[0]))
    said = capsys.readouterr().out
    assert "raised" not in said and "could not use" not in said


@pytest.mark.parametrize("name, says", CASES)
def test_a_mistake_is_named(name, says, capsys):
    """By its own words, and by those of no other mistake."""
    assert not check(name, solution(name, MISTAKES[name][says]))
    told = capsys.readouterr().out
    assert says.lower() in told.lower()
    for other in MISTAKES[name]:
        assert other == says or other not in told


OTHERS = [name for name in STUBS if "another" in ANSWERS[name]]


@pytest.mark.parametrize("name", OTHERS)
def test_another_way_is_right_too(name, capsys):
    """Einsum, additive masks, a head at a time."""
    code = ANSWERS[name]["another"]
    answer = answer_in(f'{code}\nassert check("{name}", Answer)')
    assert check(name, answer), capsys.readouterr().out


@pytest.mark.parametrize("name", PLAIN)
def test_plain_python_is_enough(name, tmp_path, monkeypatch):
    """The site's files and no package: stub, solution and mistakes."""
    monkeypatch.syspath_prepend(str(tangle.ROOT / "book" / "_ext"))
    for file in importlib.import_module("live_pages").CHECKS:
        (tmp_path / file).parent.mkdir()
        shutil.copy(tangle.ROOT / file, tmp_path / file)
    stub, answer = cells_of(name)
    ask = answer[answer.index("check(") :].partition("\n")[0]
    code = answer.partition("\nassert ")[0]
    mistakes = list(MISTAKES[name].items())[:2]
    cells = [stub, code, *(changed(code, one) for _, one in mistakes)]
    lines = [f"import sys; sys.path.insert(0, {str(tmp_path)!r})"]
    lines += [cells[0], *(f"{cell}\n{ask}" for cell in cells[1:])]
    isolated = [sys.executable, "-I", "-S", "-c", "\n".join(lines)]
    ran = subprocess.run(isolated, capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    _, written, right, *wrong = ran.stdout.split(f"{name}: ")
    assert "returns None" in written and right == "right.\n"
    for (says, _), told in zip(mistakes, wrong, strict=True):
        assert says.lower() in told.lower()


def exercises_of(text):
    """Label, name and minutes of each exercise of a page."""
    for said, label in TITLE.findall(text):
        found = re.fullmatch(r"(.+) \((\d+) minutes, ★{1,3}\)", said)
        assert found, f"{said!r}: how long, and how hard?"
        yield label, found[1], int(found[2])


def test_a_stub_is_the_first_exercise_of_its_chapter():
    for page, text in TEXT.items():
        labels = [label for label, _, _ in exercises_of(text)]
        stubs = [label for label in labels if label in LABELS.values()]
        assert labels[: len(stubs)] == stubs, page


# The course

COURSE = tangle.ROOT / "book" / "appendix" / "course.md"
CELLS = [
    cell.source
    for cell in jupytext.read(COURSE).cells
    if cell.cell_type == "code"
]
TOGETHER = [i for i, cell in enumerate(CELLS) if "class Tied" in cell][0]
PIECES, *REST = CELLS[TOGETHER:]


def test_the_course_sets_the_twelve_and_adds_up():
    text = TEXT["book/appendix/course"]
    row = r"\{ref\}`([^`<]+) <(\w+-ex-\d)>`, (\d+) minutes"
    rows = {label: (name, int(n)) for name, label, n in re.findall(row, text)}
    assert [*rows] == [*STUBS.values(), "course-ex-1"]
    told = [each for text in TEXT.values() for each in exercises_of(text)]
    assert rows.items() <= {(label, (a, b)) for label, a, b in told}
    times = [minutes for _, minutes in rows.values()]
    total = re.search(r"take (\d+) minutes, .* (\d+)\.", text)
    assert [*map(int, total.groups())] == [sum(times[:-1]), sum(times)]
    both = re.findall(r", (\d+) minutes \((\d+) in class\)", text)
    alone, in_class = zip(*[map(int, pair) for pair in both], strict=True)
    assert [*alone] == times
    assert [*in_class] == [math.ceil(1.5 * minutes) for minutes in times]


def test_the_courses_pieces_are_the_pages_solutions():
    for name in STUBS:
        code = cells_of(name)[1].rpartition("\n\n\nassert check")[0]
        assert f"\n\n{code.strip()}\n" in f"{PIECES}\n", name


def test_the_course_uses_every_piece():
    """A piece that is somebody's own is the one that is called."""
    scope, called = {}, set()
    exec(PIECES, scope)
    names = re.findall(r"^(?:def|class) (\w+)", PIECES, re.M)
    assert len(names) == len(STUBS)

    def noted(name, piece):
        return lambda *args, **named: called.add(name) or piece(*args, **named)

    for name in names:
        scope[name] = noted(name, scope[name])
    for cell in REST[:-1]:
        exec(cell.replace("steps=600", "steps=1"), scope)
    assert called == set(names)
