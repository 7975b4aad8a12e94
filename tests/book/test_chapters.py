"""How the build executed each chapter: what it kept is read here."""

import json
import os
import shutil
from unittest.mock import Mock

import executable_book
import jupytext
import nbformat
import pytest
import tangle
from nbclient.exceptions import CellExecutionError
from notebooks import execute, is_notebook, with_values
from run_chapters import Result, is_current, run

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
    head = (ROOT / "book/appendix/cli.md").read_text("utf-8")
    head = "---".join(head.split("---")[:2])
    path.write_text(f"{head}---\n\n```{{code-cell}}\n{code}\n```\n")
    return path


def test_what_a_chapter_imports_is_noted(tmp_path):
    """Paths from the checkout's root, so that a copy's result is as good."""
    code = (
        "import yaml\nimport transformer_book.records, transformer_lib.masks\n"
        "transformer_book.records.load_run('rivals/transformer-0')"
    )
    path = page(tmp_path / "page.md", code)
    result = run(path)
    assert result["keep"] and result["error"] is None
    read = set(result["depends"])
    assert {"runs/rivals.jsonl", "transformer_lib/masks.py"} <= read
    assert "runs/recipes.jsonl" not in read
    assert "transformer_lib/training.py" not in read
    assert "PyYAML" in result["packages"]
    assert "spacy" not in result["packages"]  # which anybody may install
    assert is_current(result, path)
    for kind, name in [
        ("depends", "runs/rivals.jsonl"),
        ("depends", "transformer_lib/masks.py"),
        ("packages", "PyYAML"),
    ]:
        changed = {**result, kind: {**result[kind], name: "another"}}
        assert not is_current(changed, path)


def test_a_chapter_that_starts_the_library_depends_on_all_of_it(tmp_path):
    result = run(page(tmp_path / "page.md", "import subprocess"))
    assert "transformer_lib/training.py" in result["depends"]


# Values in the text

SAID = """\
The first of {eval}`len(x)` is {eval}`f"{x[0]:.1%}"`.

```{code-cell}
---
mystnb:
  figure:
    caption: Of {eval}`y[-1]`.
---
y = [0.75]
```

The first of {eval}`len(y)` is {eval}``f"`{y[0]:.1%}`"``.
"""


def test_an_expression_in_the_text_is_evaluated_where_it_is(tmp_path):
    path = page(tmp_path / "page.md", "x = [0.5, 1]")
    path.write_text(path.read_text() + SAID)
    result = run(path)
    assert result["error"] is None
    notebook = with_values(jupytext.read(path), result["values"])
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "The first of 2 is 50.0%." in text
    assert "The first of 1 is `75.0%`." in text
    assert "Of 0.75." in str(notebook.cells[-2].metadata)  # a caption
    client = Result(notebook, path, None, Mock(), result=result)
    with client:
        asked = "len(x)", "len(y)", "len(y)"
        shown = [client.eval_variable(each) for each in asked]
    values = [one["data"]["text/plain"] for [one] in shown]
    assert values == ["2", "1", "1"]
    path.write_text(path.read_text().replace("len(x)", "len( x)"))
    assert not is_current(result, path)


def test_a_notebook_runs_in_our_own_environment_unless_told(monkeypatch):
    """As make bite runs a page, and make portable."""
    monkeypatch.setenv("WANTED", "1")
    code = "import os\nassert os.environ.get('WANTED') == '1'"
    cells = [nbformat.v4.new_code_cell(code)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert execute(notebook, ROOT) == []
    with pytest.raises(CellExecutionError):
        execute(notebook, ROOT, env={**os.environ, "WANTED": "0"})


@pytest.mark.parametrize(
    "code, expression, error",
    [
        ("import sys\nprint(1, file=sys.stderr)", "1", None),
        ("1 / 0", "1", "ZeroDivisionError"),
        ("x = 1", "1 / 0", "ZeroDivisionError"),
        ("x = 1", "None", "gives nothing to show"),
        ("x = 1", "x", "`x` is 1, but 2 when all cells have run"),
    ],
)
def test_failures_and_noise_are_not_kept(code, expression, error, tmp_path):
    path = page(tmp_path / "page.md", code)
    later = "```{code-cell}\nx = 2\n```\n"
    said = f"\nIt is {{eval}}`{expression}`.\n\n"
    path.write_text(path.read_text() + said + later)
    result = run(path)
    assert not result["keep"]
    assert error is None or error in result["error"]


def test_another_extension_makes_all_pages_anew(tmp_path, monkeypatch):
    """Sphinx reads them again when a value of this kind has changed."""

    def makers():
        app = Mock()
        executable_book.setup(app)
        [call] = app.add_config_value.mock_calls
        assert call.args[0] == "makers" and call.args[2] == "env"
        return call.args[1]

    before = makers()
    folder = tmp_path / "_ext"
    shutil.copytree(ROOT / "book" / "_ext", folder)
    monkeypatch.setattr(executable_book, "__file__", str(folder / "one.py"))
    assert makers() == before
    with (folder / "folding.py").open("a") as file:
        file.write("# changed\n")
    executable_book.file_digest.cache_clear()
    assert makers() != before
