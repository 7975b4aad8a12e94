"""The book as PDF and EPUB, made here from a few pages of the site."""

import importlib
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

# No control is left, nor a fold that has its title twice.
LEFT = re.compile(r'<(details|script|noscript)|"downloads|title">(.+)\s+\2<')
SOME = [
    ("", ["index", "book/translating/translator"]),
    ("Architecture", ["book/architecture/masks"]),
    ("Results", ["book/results/attention_maps"]),
    ("Appendix", ["book/appendix/glossary", "book/appendix/cli"]),
]


@pytest.fixture(scope="module")
def printer(chromium):
    module = importlib.import_module("print_book")
    module.contents = lambda: SOME
    return module


def test_pdf(printer, tmp_path):
    """Every page is there, links lead inside, and text can be read."""
    whole = printer.one_page()
    inner = set(re.findall(r'href="#([^"]+)"', whole))
    ids = set(re.findall(r'id="([^"]+)"', whole))
    assert len(inner) > 10 and inner <= ids
    assert not LEFT.search(whole)
    assert "mjx-container" in whole
    signs = set(re.findall(r'<mjx-c class="(mjx-c[0-9A-F]+)', whole))
    drawn = set(re.findall(r"mjx-c\.(mjx-c[0-9A-F]+)[^{]*::before", whole))
    assert len(signs) > 20 and signs <= drawn, signs - drawn
    assert "In depth" in whole and "On the book's site: masks" in whole
    assert "may not look at “ball”" in whole  # the cover's two states
    target = tmp_path / "book.pdf"
    printer.make_pdf(target)
    data = target.read_bytes()
    assert data.startswith(b"%PDF-") and b"/DCTDecode" not in data
    assert len(re.findall(rb"/Type\s*/Page\b", data)) > 10
    assert b"/Outlines" in data and b"/StructTreeRoot" in data


def test_epub(printer, tmp_path):
    """Well-formed, without scripts, and clean to epubcheck."""
    target = tmp_path / "book.epub"
    printer.make_epub(target)
    with zipfile.ZipFile(target) as book:
        names = book.namelist()
        assert names[0] == "mimetype"
        pages = [book.read(n) for n in names if n.endswith(".xhtml")]
        assert len(pages) == 1 + sum(len(part) for _, part in SOME)
        for text in [*pages, printer.xhtml("", "\x13").encode()]:
            ET.fromstring(text)
            assert not LEFT.search(text.decode())
        masks = book.read("OEBPS/book-architecture-masks.xhtml")
        assert b"<math" in masks and b"<svg" in masks
    checker = Path("/usr/bin/epubcheck")
    if not (checker.exists() and shutil.which("java")):
        assert not os.environ.get("BROWSER_REQUIRED"), checker
        pytest.skip(f"no {checker}")
    done = subprocess.run(
        ["java", "-jar", str(checker), str(target)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
