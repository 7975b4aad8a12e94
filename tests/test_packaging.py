"""What is handed out: a wheel, an sdist and notebooks.

The wheel is installed into a fresh environment, which has the packages
that it builds on and not this checkout. There the README's lines work,
and so do the book's notebooks, without a corpus, a home or a network.
"""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import jupytext
import pytest
import tangle
from jupyter_client.manager import AsyncKernelManager
from notebooks import execute

NAME = "executable_transformer"
NOWHERE = "http://127.0.0.1:9"
PAGES = {
    path.stem: path
    for path in [tangle.ROOT / "index.md", *tangle.contents()]
    if "{code-cell}" in path.read_text("utf-8")
}


@pytest.fixture(scope="module")
def built(tmp_path_factory, root):
    """The wheel, built from the sdist alone."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", out]
    subprocess.run([*build, "-t", "sdist"], cwd=root, check=True)
    [sdist] = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    source = out / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "-t", "wheel"], cwd=source, check=True)
    [wheel] = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory):
    """The folder of the programs of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    only = ["install", "-q", "--no-deps", "--no-index", built]
    subprocess.run([*pip, *only], check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    inside = subprocess.check_output(
        [programs / "python", "-c", ask], text=True
    )
    # A path in a .pth file is taken as it is: the checkout, which is
    # installed there by such a file, does not come along.
    others = Path(inside.strip(), "others.pth")
    others.write_text(sysconfig.get_path("purelib"))
    return programs


def names(folder, where):
    """Git's own files under a folder of the repository."""
    found = subprocess.check_output(
        ["git", "ls-files", folder], cwd=where, text=True
    )
    return set(found.split())


def test_the_wheel_has_all_that_runs_and_nothing_else(built, root):
    held = set(zipfile.ZipFile(built).namelist())
    project = tomllib.loads((root / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    own = set().union(*(names(x, root) for x in shipped["packages"]))
    for run, place in shipped["force-include"].items():
        own |= {x.replace(run, place, 1) for x in names(run, root)}
    held = {x for x in held if not x.startswith(f"{NAME}-")}
    assert not held - own, f"git does not have {held - own}: `git add` first"
    assert not own - held, f"the wheel lacks {own - held}"
    assert "transformer_lib/py.typed" in own
    for model in (root / "pretrained").glob("*/model.safetensors"):
        place = f"transformer_lib/pretrained/{model.parent.name}"
        assert f"{place}/model.safetensors" in held


def test_an_installed_wheel_does_what_the_readme_says(fresh, tmp_path, root):
    """Its own lines, in a folder and an environment without the tree."""
    readme = (root / "README.md").read_text("utf-8")
    [lines] = re.findall(r"```python\n(.*?)```", readme, re.S)
    *before, last = lines.strip().splitlines()
    code = f"{chr(10).join(before)}\nimport json, transformer_lib as t"
    code += f"\nprint(json.dumps([t.__file__, t.__version__, {last}]))"

    def said_by(program, *words):
        command = [fresh / program, *words]
        return subprocess.check_output(
            command, cwd=tmp_path, env={"PATH": ""}, text=True
        )

    file, version, said = json.loads(said_by("python", "-c", code))
    assert Path(file).is_relative_to(fresh.parent)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert version == project["project"]["version"]
    assert said == "Me gustan los árboles"
    words = "translate", "--model", "little-spanish", "I like trees"
    assert said_by("transformer-lib", *words).strip() == said


def imports(page):
    """The import statements of a page's cells."""
    for cell in jupytext.read(page).cells:
        if cell.cell_type == "code" and "raises-exception" not in str(cell):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield ast.unparse(node)


def test_all_that_the_notebooks_import_is_there(fresh, tmp_path):
    """By one process, as if all of them were one notebook."""
    pytest.importorskip("ctranslate2")  # of the extra `book`, as all of them
    lines = {line: None for page in PAGES.values() for line in imports(page)}
    assert len(lines) > 100
    where = f"import transformer_book as t; assert {str(fresh.parent)!r}"
    code = "\n".join([*lines, f"{where} in t.__file__"])
    command = [fresh / "python", "-I", "-c", code]
    subprocess.run(command, cwd=tmp_path, check=True)


# One that computes with a model, and one that reads records
@pytest.mark.parametrize("name", ["sentence", "rivals"])
def test_a_notebook_runs_with_the_package_alone(name, fresh, tmp_path):
    notebook = jupytext.read(PAGES[name])
    manager = AsyncKernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = str(fresh / "python")
    manager.kernel_spec.env = {}
    execute(
        notebook,
        tmp_path,
        kernel=manager,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            "http_proxy": NOWHERE,
            "https_proxy": NOWHERE,
        },
    )
    assert not list(tmp_path.glob(".cache/transformer_lib/*/*"))


def test_a_version_is_the_same_everywhere(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version = project["version"]
    for file, line in {
        "CITATION.cff": f"version: {version}",
        "CHANGELOG.md": f"## {version}",
        "book/appendix/cli.md": f"  note   = {{Version {version}}},",
    }.items():
        assert line in (root / file).read_text("utf-8").splitlines(), file


def test_the_name_is_the_projects_own(root):
    """`transformer-lib` on the package index is somebody else's."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["project"]["name"] == "executable-transformer"
    pages = [root / "README.md", root / "Makefile", root / "index.md"]
    pages += [*(root / "book").rglob("*.md")]
    pages += [*(root / "book/_ext").glob("*.py")]
    for page in pages:
        for line in re.findall("pip install.*", page.read_text("utf-8")):
            assert not re.search(r"transformer[-_]lib", line), page
