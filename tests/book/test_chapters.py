"""How the build executed each chapter: what it kept is read here."""

import json
import shutil
from unittest.mock import Mock

import executable_book
import jupytext
import pytest
import tangle
from run_chapters import is_current, is_notebook, run

ROOT = tangle.ROOT

PAGES = [ROOT / "index.md", *tangle.contents()]
CHAPTERS = {
    page.relative_to(ROOT).with_suffix("").as_posix(): page
    for page in PAGES
    if is_notebook(page)
}


EXECUTED = ROOT / "_build" / "executed"  # what the build kept of each


def test_the_book_was_built():
    assert EXECUTED.exists(), "no chapter has run yet: make book"


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_ran(name):
    if not EXECUTED.exists():
        pytest.skip("no chapter has run yet")  # said once, above
    path = EXECUTED / f"{name}.json"
    assert path.exists(), f"{name} has not run: make book"
    result = json.loads(path.read_text("utf-8"))
    assert result["error"] is None, result["error"]
    assert result["keep"], f"{name} wrote to stderr"
    assert is_current(result, CHAPTERS[name]), f"{name} is old: make book"


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_fits_the_page(name):
    for cell in jupytext.read(CHAPTERS[name]).cells:
        if cell.cell_type == "code":
            for line in cell.source.splitlines():
                assert len(line) <= 79, f"{len(line)} columns: {line}"


def page(path, code):
    """A chapter of one cell."""
    head = (ROOT / "book/appendix/running.md").read_text("utf-8")
    head = "---".join(head.split("---")[:2])
    path.write_text(f"{head}---\n\n```{{code-cell}}\n{code}\n```\n")
    return path


READS = """\
import subprocess, sys
from transformer_book.records import load_run
run = load_run("little-spanish")
code = "import transformer_lib.masks"
subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_what_a_chapter_reads_is_noted(tmp_path):
    """Paths from the checkout's root, so that a copy's result is as good."""
    path = page(tmp_path / "page.md", READS)
    result = run(path)
    assert result["keep"] and result["error"] is None
    read = set(result["depends"])
    assert {"runs/models.jsonl"} <= read
    assert {"transformer_book/records.py"} <= read
    assert {"transformer_lib/masks.py"} <= read  # by the subprocess
    assert "transformer_lib/training.py" not in read
    assert is_current(result, path)
    result["depends"]["transformer_lib/masks.py"] = "another"
    assert not is_current(result, path)


def test_only_packages_that_a_chapter_imports_count(tmp_path):
    """`pip install` of anything else leaves its result as it is."""
    path = page(tmp_path / "page.md", "import yaml")
    result = run(path)
    assert "PyYAML" in result["packages"]
    assert "torch" not in result["packages"]
    assert is_current(result, path)
    result["packages"]["PyYAML"] = "0.1"
    assert not is_current(result, path)


@pytest.mark.parametrize(
    "code, error",
    [
        ("import sys\nprint(1, file=sys.stderr)", None),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_failures_and_noise_are_not_kept(code, error, tmp_path):
    result = run(page(tmp_path / "page.md", code))
    assert not result["keep"]
    assert error is None or error in result["error"]


def test_another_extension_makes_all_pages_anew(tmp_path):
    """Sphinx reads them again when a value of this kind has changed."""
    folder = tmp_path / "_ext"
    shutil.copytree(ROOT / "book" / "_ext", folder)
    before = executable_book.makers(folder)
    app = Mock()
    executable_book.setup(app)
    app.add_config_value.assert_any_call("makers", before, "env", list)
    with (folder / "folding.py").open("a") as file:
        file.write("# changed\n")
    assert executable_book.makers(folder) != before
