"""Every page's notebook runs to its end with the installed package alone.

The wheel is installed into a fresh environment that has the packages it
builds on and not this checkout. Each notebook runs in an empty folder,
without a corpus, a home or a network.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbformat
import pytest
import tangle
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = tangle.ROOT
PAGES = {
    path.stem: path
    for path in [ROOT / "index.md", *tangle.contents()]
    if "{code-cell}" in path.read_text("utf-8")
}
# Every page that shows results of a corpus that does not ship.
RESULTS = "attention_maps full_run variations rivals why_attention".split()
LONGEST = "one_sitting experiment training attention_maps after".split()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A fresh environment's, with the wheel and what it builds on."""
    folder = tmp_path_factory.mktemp("fresh")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run([*build, "-d", folder], cwd=ROOT, check=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    inside = subprocess.check_output([python, "-c", ask], text=True).strip()
    install = "-m pip install -q --no-deps --no-index --target".split()
    subprocess.run([sys.executable, *install, inside, wheel], check=True)
    # A path in a .pth file is taken as it is: the checkout, which is
    # installed there by such a file, does not come along.
    others = Path(inside, "others.pth")
    others.write_text(sysconfig.get_path("purelib"))
    return str(python)


WHERE = """\
import sys
import transformer_lib
import transformer_book.records
for package in transformer_lib, transformer_book:
    assert package.__file__.startswith(sys.prefix), package.__file__
assert not [path for path in sys.path if path == {checkout!r}]
"""


def run(python: str, page: Path, folder: Path) -> str:
    """Execute a page as a reader does who has downloaded it; its outputs."""
    notebook = jupytext.read(page)
    where = WHERE.format(checkout=str(ROOT))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(where))
    (folder / "home").mkdir()
    (folder / "empty").mkdir()
    nowhere = "http://127.0.0.1:9"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "http_proxy": nowhere,
        "https_proxy": nowhere,
    }
    manager = AsyncKernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = python
    manager.kernel_spec.env = {}
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=600,
        resources={"metadata": {"path": str(folder / "empty")}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    client.execute(env=environment)
    assert not list((folder / "home").glob(".cache/transformer_lib/*/*"))
    return str([cell.get("outputs") for cell in notebook.cells])


@pytest.fixture(scope="module")
def running(python, tmp_path_factory):
    """All pages, two at a time, the longest first."""
    order = sorted(PAGES, key=lambda name: name not in LONGEST)
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(
                run, python, PAGES[name], tmp_path_factory.mktemp(name)
            )
            for name in order
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_runs_with_the_package_alone(name, running):
    outputs = running[name].result()
    if name in RESULTS:  # they are whole, and say of nothing that it lacks
        assert "not here" not in outputs
        assert "have not been made" not in outputs
    if name == "one_sitting":
        assert "of 500 new sentences exactly right" in outputs
        assert "image/png" in outputs
