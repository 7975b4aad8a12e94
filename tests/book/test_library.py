"""The library is what the chapters write, and stays small."""

import ast
import subprocess
import sys

import pytest
import tangle

MODULES = sorted((tangle.ROOT / "transformer_lib").glob("*.py"))
BEGIN = '''\
(tokens)=
# A chapter

```{code-cell} ipython3
:tags: [export, remove-cell]

"""A module."""
```

'''


def write(folder, monkeypatch, **chapters):
    """A book of these chapters, in this order."""
    paths = []
    for name, cells in chapters.items():
        path = folder / f"{name}.md"
        path.write_text(
            BEGIN.replace("tokens", name)
            + "\n".join(
                f"```{{code-cell}} ipython3\n:tags: [export]\n\n{cell}\n```\n"
                for cell in cells
            ),
            "utf-8",
        )
        paths.append(path)
    monkeypatch.setattr(tangle, "ROOT", folder)
    (folder / "pyproject.toml").write_text(
        "[tool.ruff]\nline-length = 70\n"
    )
    monkeypatch.setattr(tangle, "contents", lambda: paths)
    return tangle.tangle()


def test_library_is_in_step():
    files, problems = tangle.tangle()
    assert not problems
    assert {
        path.name: path.read_text("utf-8") for path in MODULES
    } == files


def test_modules_are_short():
    """No module over 300 lines, but for the index."""
    lengths = {
        path.name: len(path.read_text("utf-8").splitlines())
        for path in MODULES
        if path.stem != "__init__"
    }
    assert not {name: n for name, n in lengths.items() if n > 300}


@pytest.mark.parametrize(
    "path", tangle.contents(), ids=lambda p: p.stem
)
def test_definitions_are_short(path):
    tree = ast.parse("\n".join(tangle.read_chapter(path).lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            said = 0
            if ast.get_docstring(node) is not None:
                said = first.end_lineno - first.lineno + 1
            length = node.end_lineno - node.lineno + 1 - said
            assert length <= 45, f"{node.name} has {length} lines"


def test_imports_follow_the_contents():
    order = [path.stem for path in tangle.contents()]
    for path in MODULES:
        if path.stem.startswith("__"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            module = getattr(node, "module", None) or ""
            if module.startswith("transformer_lib."):
                name = module.split(".")[1]
                assert order.index(name) < order.index(path.stem)


def test_import_is_light():
    code = (
        "import sys, transformer_lib\n"
        "transformer_lib.Transformer\n"
        "heavy = {'matplotlib', 'altair', 'spacy', 'IPython', 'pandas',"
        " 'jupyter', 'pooch', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_works():
    import transformer_lib

    for name in transformer_lib.__all__:
        assert getattr(transformer_lib, name) is not None
        where = transformer_lib.where(name)
        assert (tangle.ROOT / where.source).exists()


def test_where():
    import transformer_lib as lib

    assert "attention" in lib.where(lib.MultiHeadAttention).address
    assert lib.where(lib.Transformer.encode).source.endswith(
        "model.md"
    )
    assert lib.where("learning_rate").source.endswith("schedule.md")
    with pytest.raises(LookupError, match="no chapter defines"):
        lib.where("no_such_thing")
    with pytest.raises(LookupError, match="is not from"):
        lib.where(print)


def test_a_module_is_collected(tmp_path, monkeypatch):
    cells = [
        "import os\n\nLIMIT = 3",
        'def f():\n    """Say."""\n    os',
    ]
    files, problems = write(tmp_path, monkeypatch, one=cells)
    assert not problems
    text = files["one.py"]
    assert text.startswith("# Collected from one.md")
    assert '__all__ = ["LIMIT", "f"]' in text
    assert '    """Say.\n\n    Chapter: one\n    """' in text
    assert files == write(tmp_path, monkeypatch, one=cells)[0]


@pytest.mark.parametrize(
    "cells, line, message",
    [
        (["def f(:"], 13, "syntax error"),
        (
            ["A = 1", "A = 2"],
            19,
            "A is defined twice, first on line 13",
        ),
        (["A = B"], 13, "Undefined name `B`"),
        (["import os"], 13, "imported but unused"),
        (["def f():\n    pass"], 13, "f has no docstring"),
        (
            ["from transformer_lib.two import A\n\nB = A"],
            13,
            "imports transformer_lib.two, which no earlier chapter",
        ),
        (
            ["from transformer_book.figures import show\n\nB = show"],
            13,
            "the library draws no figures",
        ),
    ],
)
def test_the_collector_refuses(
    cells, line, message, tmp_path, monkeypatch
):
    two = ["A = 1"]
    _, problems = write(tmp_path, monkeypatch, one=cells, two=two)
    assert problems[0].startswith(f"one.md:{line}:")
    assert message in problems[0]
