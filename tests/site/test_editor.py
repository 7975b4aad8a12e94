"""Python in the pages: the paper in one file, and exercises."""

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import tangle
from bs4 import BeautifulSoup
from parts import given, press, soup
from playwright.sync_api import expect

CHAPTER = "book/start/one_file.html"
EXERCISE = "book/training/schedule.html"
PART = ".live[data-live=editor]"
PATIENCE = 120_000  # milliseconds, until Python is there
TEXT = (tangle.ROOT / "transformer.py").read_text("utf-8")


@pytest.fixture
def live_pages(monkeypatch):
    """The extension that builds the part."""
    monkeypatch.syspath_prepend(str(tangle.ROOT / "book" / "_ext"))
    return import_module("live_pages")


@pytest.fixture
def opened(visit):
    """The part in a browser."""
    if "folder" not in given(CHAPTER, "editor"):
        assert not os.environ.get("BROWSER_REQUIRED"), "no Pyodide"
        pytest.skip("the site was built without Python for the browser")

    def opened(chapter=CHAPTER, **settings):
        page = visit(chapter, **settings)
        part = page.locator(PART)
        part.locator("textarea").wait_for()
        return page, part

    return opened


def says(part, text, **settings):
    expect(part.get_by_role("status")).to_contain_text(text, **settings)


def test_it_runs_and_stops(opened):
    page, part = opened()
    assert not [one for one in page.asked if "pyodide" in one]
    press(part, "Run")
    printed = part.get_by_role("region", name="prints")
    expect(printed).to_contain_text(
        re.compile(r"step   1  loss \d\.\d\d"), timeout=PATIENCE
    )
    expect(part.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"^The loss: \d")
    )
    says(part, "Step ")
    (worker,) = page.workers
    with worker.expect_event("close"):
        press(part, "Stop")
    says(part, "Stopped.")
    expect(part.get_by_role("button", name="Stop")).to_be_disabled()
    asked = {one.split("/")[-1] for one in page.asked if "pyodide" in one}
    assert asked == set(given(CHAPTER, "editor")["files"])


def test_what_goes_wrong_is_marked(opened):
    page, part = opened()
    area, marked = part.locator("textarea"), part.locator(".editor-wrong")
    area.fill(
        "x = 1\n" * 90 + "def f():\n    return x / 0\n\n\nprint(f)\nf()\n"
    )
    press(part, "Run")
    says(part, "Line 92: ZeroDivisionError", timeout=PATIENCE)
    assert marked.all_text_contents() == ["    return x / 0\n"]
    expect(marked).to_be_in_viewport()
    printed = part.get_by_role("region", name="prints").text_content()
    assert printed.startswith("<function f") and "_pyodide" not in printed
    area.fill("print(2)\nif:\n")
    expect(marked).to_have_count(0)
    press(part, "Run")  # in the same Python
    says(part, "Line 2: SyntaxError")
    assert marked.all_text_contents() == ["if:\n"]
    area.fill("print(__name__, 'x' in globals())")
    press(part, "Run")
    says(part, "Ended")
    assert "__main__ False" in part.locator("pre").text_content()


def test_what_does_not_arrive_is_asked_for_again(opened):
    page, part = opened()
    page.context.route("**/pyodide.asm.wasm", lambda route: route.abort())
    press(part, "Run")
    says(part, "Python could not be loaded.", timeout=PATIENCE)
    page.problems.clear()
    page.context.unroute_all()
    part.locator("textarea").fill("print(6 * 7)")
    press(part, "Run")
    says(part, "Ended", timeout=PATIENCE)
    assert part.locator("pre").text_content() == "42"


def test_a_line_is_changed(opened):
    """Each button makes the text that the record was made of."""
    sys.path.insert(0, str(tangle.ROOT / "experiments"))
    one_file = import_module("one_file")
    sys.path.pop(0)
    _, part = opened()
    area = part.locator("textarea")
    for name, edits in one_file.EDITS.items():
        if not edits:
            continue
        press(part, name)
        assert area.input_value() == one_file.edited(edits), name
        assert part.locator(".editor-changed").count() == len(edits)
        expect(part.locator(".editor-changed").first).to_be_in_viewport()
        expect(part.get_by_role("button", name=name)).to_be_disabled()
        press(part, "Reset")
        assert area.input_value() == TEXT


def test_the_keyboard_is_not_caught(opened):
    page, part = opened()
    area = part.get_by_role("textbox", name="transformer.py")
    area.press("Control+End")
    page.keyboard.press("Tab")
    page.keyboard.type("x")
    assert area.input_value() == f"{TEXT}    x"
    last = part.locator("code > span").last
    assert last.text_content() == "    x\n"
    expect(last).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(part.get_by_role("button", name="Run")).to_be_focused()


def test_an_exercise_is_checked_in_its_page(opened):
    page, part = opened(EXERCISE)
    assert not re.search("pyodide|worker|exercises", " ".join(page.asked))
    area, printed = part.locator("textarea"), part.get_by_role("region")
    stub = area.input_value()
    imports, _, _ = stub.partition("def ")
    press(part, "Run")
    expect(printed).to_contain_text("returns None", timeout=PATIENCE)
    solution = page.locator(".solution pre").first.text_content()
    for answer, told in (
        (solution.replace("min(", "max("), "takes the lower"),
        (solution, "schedule.learning_rate: right."),
    ):
        area.fill(imports + answer)
        press(part, "Run")
        expect(printed).to_contain_text(told)
    area.fill(stub.replace("...", "return step[0]"))
    press(part, "Run")
    says(part, "Line 6: TypeError: 'int' object is not subscriptable")
    press(part, "Reset")
    assert area.input_value() == stub


def test_each_exercise_in_plain_python_has_an_editor():
    met = False
    for page in tangle.contents():
        told = page.read_text("utf-8").count("tags: [editor]")
        name = page.relative_to(tangle.ROOT).with_suffix(".html").as_posix()
        assert len(soup(name).select(f"{PART} .cell_input")) == told, name
        met |= told > 0
    assert met


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("chapter", [CHAPTER, EXERCISE])
def test_it_fits(opened, fits, chapter, width):
    page, part = opened(chapter, width=width, height=800)
    fits(page, PART)
    if width > 1000:
        assert part.bounding_box()["height"] < 640
    copy, area = (
        part.locator(one).bounding_box() for one in ("code", "textarea")
    )
    assert copy == area  # the colours lie under their letters


@pytest.mark.parametrize(
    ("chapter", "code"), [(CHAPTER, TEXT), (EXERCISE, "def rate(step")]
)
def test_without_scripts_the_code_is_there(visit, chapter, code):
    page = visit(chapter, java_script_enabled=False)
    shown = page.locator(f"{PART} pre").first
    expect(shown).to_be_visible()
    assert code in shown.text_content()


def test_a_site_without_it_says_so(live_pages, monkeypatch, tmp_path):
    """Without npm, and where npm brings something else."""
    monkeypatch.setattr(live_pages, "MADE", tmp_path)
    monkeypatch.setattr(live_pages, "PYODIDE", tmp_path / "pyodide-314.0.7")
    said = []
    monkeypatch.setattr(live_pages, "say", said.append)
    npm = tmp_path / "bin" / "npm"
    monkeypatch.setenv("PATH", str(npm.parent))
    live_pages.fetch_pyodide()
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\n: > pyodide.tgz\n")
    npm.chmod(0o755)
    live_pages.fetch_pyodide()
    assert len(said) == 2
    assert "npm" in said[0] and "sha256" in said[1]
    assert os.listdir(tmp_path) == ["bin"]
    page = BeautifulSoup(live_pages.editable(), "html.parser")
    assert "built without Python" in page.text
    assert page.pre.text == TEXT


def test_the_page_names_what_the_site_has():
    about = given(CHAPTER, "editor")
    if "folder" not in about:
        assert "built without" in soup(CHAPTER).select_one(PART).text
        return
    folder = Path("_static", "live", about["folder"])
    site = tangle.ROOT / "_build" / "html" / folder
    assert folder.name in (site.parent / "LICENSES.txt").read_text("utf-8")
    sizes = {one.name: one.stat().st_size for one in site.iterdir()}
    assert json.dumps(sizes, sort_keys=True) == json.dumps(
        about["files"], sort_keys=True
    )
