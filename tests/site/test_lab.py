"""Chapters in JupyterLab, in a real browser, as `make lab` opens them."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request

import jupytext
import pytest
import tangle
from parts import patiently
from playwright.sync_api import TimeoutError

from transformer_book.figures import Sketch
from transformer_book.records import load_counts

CHAPTER = "book/architecture/layers.md"  # has a check, drawings, a table
FOLDED = """() => [...document.querySelectorAll(".jp-CodeCell")].map(cell =>
  !!cell.querySelector(".jp-InputPlaceholder"))"""
SEEN = """() => [...document.querySelectorAll(".jp-CodeCell")].filter(cell =>
  cell.querySelector(".jp-CodeMirrorEditor")?.checkVisibility()).length"""


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """The address of a JupyterLab that knows no earlier sitting."""
    home = tmp_path_factory.mktemp("lab")
    settings = home / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Every cell is in the page, not those alone that are seen.
    whole = settings / "tracker.jupyterlab-settings"
    whole.write_text('{"windowingMode": "none"}')
    env = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
    }
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser"]
    command += ["--allow-root", "--IdentityProvider.token="]
    command += ["--ServerApp.port=0", f"--ServerApp.root_dir={tangle.ROOT}"]
    command += ["--expose-app-in-browser"]
    with open(home / "log", "w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        yield patiently(lambda: address_in(home / "runtime"), server)
    finally:
        server.kill()  # nothing of it is kept, and it is slow to end
        server.wait()


def address_in(folder) -> str:
    """What the server has written down, once it answers there.

    The file is there before all of it is written, and before the server
    listens.
    """
    [file] = folder.glob("jpserver-*.json")
    address = json.loads(file.read_text())["url"]
    urllib.request.urlopen(f"{address}api/status").close()
    return address


def test_a_picture_has_no_link_in_jupyterlab():
    """JupyterLab shows an error in place of a picture with links."""
    sketch = Sketch(90, 30)
    sketch.box(45, 15, "a part", href="part.html")
    drawn = sketch.as_svg()
    assert "a part" in drawn and "href" not in drawn


def test_what_the_site_folds_is_folded_in_jupyterlab(browser, lab):
    notebook = jupytext.read(tangle.ROOT / CHAPTER)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    folded = ["jupyter" in cell.metadata for cell in cells]
    assert sum(folded) > 2 and not all(folded)
    page = browser.new_page()
    page.goto(f"{lab}doc/tree/{CHAPTER}?factory=Jupytext%20Notebook")
    seen = f"document.querySelectorAll('.jp-CodeCell').length == {len(cells)}"
    page.wait_for_function(seen, timeout=120_000)
    assert page.evaluate(FOLDED) == folded
    assert page.evaluate(SEEN) == len(cells) - sum(folded)
    page.close()


def test_values_stand_in_the_text_in_jupyterlab(browser, lab):
    """MyST's `{eval}`, once the cells before it have run."""
    # Few cells are before it, and none that trains.
    chapter = "book/results/attention_maps.md"
    page = browser.new_page()
    page.goto(f"{lab}doc/tree/{chapter}?factory=Jupytext%20Notebook")
    said = f"counted over {load_counts('two_heads')['sentences']} captions"
    seen = "window.jupyterapp?.commands.hasCommand('notebook:run-all-cells')"
    page.wait_for_function(seen, timeout=120_000)
    # Text that is run before there is a kernel keeps its expressions, and
    # nothing on the page says when its kernel answers: run until it stands.
    for _ in range(20):
        page.evaluate(
            "void jupyterapp.commands.execute('notebook:run-all-cells')"
        )
        with contextlib.suppress(TimeoutError):
            page.get_by_text(said).wait_for(timeout=20_000)
            break
    assert page.get_by_text(said).is_visible()
    page.close()
