"""What is handed out: a wheel and an sdist, and what both hold."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

NAME = "executable_transformer"


@pytest.fixture(scope="module")
def built(tmp_path_factory, root):
    """The sdist, and the wheel that is built from it alone."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", out]
    subprocess.run([*build, "-t", "sdist"], cwd=root, check=True)
    [sdist] = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    source = out / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "-t", "wheel"], cwd=source, check=True)
    [wheel] = out.glob("*.whl")
    return source, wheel


def names(folder, where):
    """Git's own files under a folder of the repository."""
    found = subprocess.check_output(
        ["git", "ls-files", folder], cwd=where, text=True
    )
    return set(found.split())


def test_the_sdist_is_the_repository(built, root):
    source, _ = built
    assert (source / "transformer_lib/py.typed").is_file()
    assert (source / "pretrained/little-spanish/config.json").is_file()
    paths = (path for path in source.rglob("*") if path.is_file())
    held = {path.relative_to(source).as_posix() for path in paths}
    assert names("transformer_lib", root) <= held
    assert not [x for x in held if re.search(r"\.(pyc|pt)$|\.venv", x)]


def test_the_wheel_has_all_that_runs_and_nothing_else(built, root):
    _, wheel = built
    held = set(zipfile.ZipFile(wheel).namelist())
    own = names("transformer_lib", root) | names("transformer_book", root)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for run, place in shipped["force-include"].items():
        own |= {x.replace(run, place, 1) for x in names(run, root)}
    about = {x for x in held if x.startswith(f"{NAME}-")}
    assert held - about == own
    assert "transformer_lib/py.typed" in own
    for model in (root / "pretrained").glob("*/model.safetensors"):
        place = f"transformer_lib/pretrained/{model.parent.name}"
        assert f"{place}/model.safetensors" in held


def test_an_installed_wheel_does_what_the_readme_says(built, tmp_path, root):
    """Its own lines, in a folder and an environment without the tree."""
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    pip += ["--no-index", "--target", target, built[1]]
    subprocess.run(pip, check=True)
    readme = (root / "README.md").read_text("utf-8")
    [lines] = re.findall(r"```python\n(.*?)```", readme, re.S)
    *before, last = lines.strip().splitlines()
    code = f"{chr(10).join(before)}\nimport json, transformer_lib as t"
    code += f"\nprint(json.dumps([t.__file__, t.__version__, {last}]))"

    def said_by(*words):
        env = {"PYTHONPATH": str(target), "PATH": ""}
        return subprocess.check_output(
            [sys.executable, *words], cwd=tmp_path, env=env, text=True
        )

    file, version, said = json.loads(said_by("-c", code))
    assert file == str(target / "transformer_lib/__init__.py")
    assert f"-{version}-" in built[1].name
    assert said == "Me gustan los árboles"
    script = target / "bin" / "transformer-lib"
    words = "translate", "--model", "little-spanish", "I like trees"
    assert said_by(script, *words).strip() == said


def test_it_works_from_a_zip(built, tmp_path):
    """As programs are frozen: the wheel itself is on the path."""
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        import transformer_lib as t
        assert sys.argv[1] in t.__file__ and t.__version__
        assert len(t.load_corpus("little_spanish", split="test")) == 500
        assert t.Transformer(t.TransformerConfig.tiny(300))
    """
    command = [sys.executable, "-I", "-c", code, built[1]]
    subprocess.run(command, check=True, cwd=tmp_path)


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
