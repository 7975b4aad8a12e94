"""The library is what the chapters write, and imports when asked."""

import re
import subprocess
import sys

import jupytext
import pytest
import tangle
from jupytext.config import load_jupytext_config
from notebooks import is_notebook

BEGIN = '''\
({name})=
# A chapter

```{{code-cell}} ipython3
:tags: [export, remove-cell]

"""A module.""";
```

'''


def write(folder, monkeypatch, **chapters):
    """A book of these chapters, in this order, collected."""
    paths = []
    for name, cells in chapters.items():
        fence = "```{code-cell} ipython3\n:tags: [export]\n\n"
        code = [f"{fence}{cell}\n```\n" for cell in cells]
        path = folder / f"{name}.md"
        text = BEGIN.format(name=name) + "\n".join(code)
        path.write_text(text, "utf-8")
        paths.append(path)
    monkeypatch.setattr(tangle, "ROOT", folder)
    monkeypatch.setattr(tangle, "contents", lambda: paths)
    settings = '[project]\nversion = "1"\n[tool.ruff]\nline-length = 70\n'
    (folder / "pyproject.toml").write_text(settings)
    return tangle.tangle()


def test_an_edit_of_the_library_is_never_lost(tmp_path, monkeypatch, capsys):
    """It is named, and so is the chapter that it belongs in."""
    write(tmp_path, monkeypatch, one=["A = 1"])
    monkeypatch.setattr(tangle, "WRITTEN", tmp_path / "_build" / "written")
    monkeypatch.setattr("sys.argv", ["tangle.py"])
    (tmp_path / "index.md").write_text("")
    module = tmp_path / "transformer_lib" / "one.py"
    module.parent.mkdir()
    assert tangle.main() == 0 and "A = 1" in module.read_text()
    page = tmp_path / "one.md"
    page.write_text(page.read_text().replace("A = 1", "A = 2"))
    assert tangle.main() == 0 and "A = 2" in module.read_text()
    module.write_text("A = 3\n")
    assert tangle.main() == 1 and module.read_text() == "A = 3\n"
    assert "make the change in one.md" in capsys.readouterr().err
    module.unlink()
    assert tangle.main() == 0 and "A = 2" in module.read_text()


def test_a_module_is_collected(tmp_path, monkeypatch):
    cells = ["import os\n\nLIMIT, HALF = 3, 1.5\n_HIDDEN = 1"]
    cells += ['def f():\n    """Say."""\n    os']
    files, problems = write(tmp_path, monkeypatch, one=cells)
    assert not problems
    assert '"""A module.\n\nChapter: one\n"""' in files["one.py"]
    assert '    """Say.\n\n    Chapter: one\n    """' in files["one.py"]
    for name in "HALF", "LIMIT", "f":
        assert f"from .one import {name} as {name}\n" in files["__init__.pyi"]


def test_pages_are_in_step():
    """As JupyterLab saves them; `tools/tangle.py --check` asks the rest."""
    index = tangle.ROOT / "index.md"
    config = load_jupytext_config(str(index))
    for path in filter(is_notebook, [index, *tangle.contents()]):
        text = path.read_text("utf-8")
        notebook = jupytext.read(path)
        notebook.metadata["kernelspec"]["language"] = "python"
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.metadata["user_expressions"] = [{"expression": "x"}]
        assert jupytext.writes(notebook, "md:myst", config=config) == text
        # a cell that is a docstring does not print it
        assert text.count('---\n"""') == text.count('""";\n```'), path


def test_what_draws_or_tabulates_is_folded():
    for path in [tangle.ROOT / "index.md", *tangle.contents()]:
        for cell in tangle.CELL.finditer(path.read_text("utf-8")):
            if re.search(r"^drawings\.", cell[3], re.M):
                tags = tangle.metadata_in(cell[2]).get("tags", [])
                assert tangle.FOLDED & set(tags), f"{path}:\n{cell[0]}"


CELL = "```{{code-cell}} ipython3\n{}x = 1\n```\n"
HIDDEN = "jupyter:\n  source_hidden: true\n"
BEGUN = "x = 0\n```\n```{solution-start} a\n```\n```{code-cell} ipython3\n"
ENDED = BEGUN.replace("start", "end")
HEADERS = {
    f"{BEGUN}{ENDED}": f"{BEGUN}---\n{HIDDEN}---\n{ENDED}",
    ":tags: [check]\n\n": f"---\n{HIDDEN}tags: [check]\n---\n",
    ":tags: [export]\n\n": ":tags: [export]\n\n",
    "": "",
    f"---\n{HIDDEN}tags: [export]\n---\n": ":tags: [export]\n\n",
    f"---\n{HIDDEN}---\n": "",
    "---\ntags: [hide-input]\nmystnb:\n  figure:\n    name: a\n---\n": (
        f"---\n{HIDDEN}tags: [hide-input]\n"
        "mystnb:\n  figure:\n    name: a\n---\n"
    ),
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_is_marked(header):
    marked = CELL.format(HEADERS[header])
    assert tangle.with_marks(CELL.format(header)) == marked
    assert tangle.with_marks(marked) == marked


def test_a_caption_exports_nothing(tmp_path, monkeypatch):
    """A word of it is no tag."""
    header = "---\nmystnb:\n  figure:\n    caption: We export\n---\n"
    page = tmp_path / "page.md"
    page.write_text(CELL.format(header), "utf-8")
    monkeypatch.setattr(tangle, "ROOT", tmp_path)
    assert not tangle.Chapter(page).exports


REFUSED = {
    "def f(:": (13, "syntax error"),
    "A = 1\nA = 2": (14, "A is defined twice, first on line 13"),
    "A = B": (13, "Undefined name `B`"),
    "import os": (13, "imported but unused"),
    "def f():\n    pass": (13, "f has no docstring"),
    "from transformer_lib.two import A\n\nB = A": (13, "no earlier"),
    "from transformer_book import A\n\nB = A": (13, "no earlier"),
    "from .two import A\n\nB = A": (13, "no earlier"),
}


@pytest.mark.parametrize("cell", REFUSED)
def test_the_collector_refuses(cell, tmp_path, monkeypatch):
    chapters = {"one": [cell], "two": ["TWO = 1"]}
    files, problems = write(tmp_path, monkeypatch, **chapters)
    line, message = REFUSED[cell]
    assert problems[0].startswith(f"one.md:{line}:")
    assert message in problems[0]
    assert "one.py" not in files and "two.py" in files


def test_importing_is_light():
    code = """if True:
        import sys
        import transformer_lib
        assert "torch" not in sys.modules
        transformer_lib.Transformer
        heavy = "matplotlib altair IPython pandas pooch sacrebleu"
        assert not set(heavy.split()) & set(sys.modules)
        from transformer_lib import attention, export
        for name in "training", "schedule", "experiment":
            assert f"transformer_lib.{name}" not in sys.modules
        import transformer_lib.attention as module
        assert attention is module is transformer_lib.attention
        assert attention is sys.modules["transformer_lib.attention"]
        assert callable(transformer_lib.scaled_dot_product_attention)
        assert callable(export.export_model)
        assert not hasattr(transformer_lib, "nonsense")
        for name in transformer_lib.__all__:
            getattr(transformer_lib, name)
    """
    subprocess.run([sys.executable, "-c", code], check=True)
