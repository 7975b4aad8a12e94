"""One test a chapter: how the build executed it."""

import json

import jupytext
import pytest
import tangle

ROOT = tangle.ROOT
PAGES = [ROOT / "index.md", *tangle.contents()]
CHAPTERS = {
    page.relative_to(ROOT).with_suffix("").as_posix(): page
    for page in PAGES
    if "format_name: myst" in page.read_text("utf-8")[:300]
}


@pytest.fixture(scope="module")
def record():
    path = ROOT / "_build" / "chapters.json"
    assert path.exists(), "build the book first: make book"
    return json.loads(path.read_text("utf-8"))["chapters"]


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_ran(name, record):
    assert name in record, f"{name} was not executed by the build"
    assert record[name]["succeeded"], record[name]["traceback"]


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_is_fast(name, record):
    """No chapter hangs: a budget far above what each one takes."""
    assert record[name]["seconds"] < 300


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_fits_the_page(name):
    notebook = jupytext.read(CHAPTERS[name])
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for line in cell.source.splitlines():
                assert len(line) <= 70, f"{len(line)} columns: {line}"


@pytest.mark.parametrize("name", CHAPTERS)
def test_no_outputs_committed(name):
    text = CHAPTERS[name].read_text("utf-8")
    assert '"outputs":' not in text and "data:image" not in text
