"""How the build executed each chapter: what it kept is read here."""

import json
import sys

import jupytext
import pytest
import tangle

ROOT = tangle.ROOT
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from run_chapters import code_key, is_notebook  # noqa: E402

PAGES = [ROOT / "index.md", *tangle.contents()]
CHAPTERS = {
    page.relative_to(ROOT).with_suffix("").as_posix(): page
    for page in PAGES
    if is_notebook(page)
}
LONG = {"one_sitting", "first_translation"}


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_ran(name):
    path = ROOT / "_build" / "executed" / f"{name}.json"
    assert path.exists(), f"{name} has not run: make book"
    result = json.loads(path.read_text("utf-8"))
    now = code_key(jupytext.read(CHAPTERS[name]))
    assert result["key"] == now, f"{name} changed since: make book"
    assert result["error"] is None, result["error"]
    assert result["keep"], f"{name} wrote to stderr"
    # a chapter takes a quarter of this on two idle cores
    limit = 480 if CHAPTERS[name].stem in LONG else 120
    assert result["seconds"] < limit


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_fits_the_page(name):
    for cell in jupytext.read(CHAPTERS[name]).cells:
        if cell.cell_type == "code":
            for line in cell.source.splitlines():
                assert len(line) <= 70, f"{len(line)} columns: {line}"
