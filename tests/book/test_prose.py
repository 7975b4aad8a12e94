"""What pages say beside their records, figures and tables."""

import ast
import re

import tangle
from tangle import CELL

PAGES = {
    page.stem: page.read_text("utf-8")
    for page in sorted(tangle.ROOT.glob("book/*/*.md"))
}
DRAWINGS = tangle.ROOT / "transformer_book" / "drawings"
# beside each other on the page, in a column on the phone
STACKED = re.compile(r"\bpanels\(|\bpieces\b")
SIDE = re.compile(
    r"\((?:at the |on the )?(?:left|right)\b|\b[Ll]eft is\b|\bLeft[,:]|"
    r"\bRight[,:]|\b(?:at|on|to) the (?:left|right)\b|"
    r"\b(?:left|right) (?:panel|picture|half)\b"
)
CAPTION = re.compile(r"^    caption: (.*?)\n    name: (\S+)$", re.M | re.S)


def stacked_drawings():
    """The functions that draw several panels."""
    for file in sorted(DRAWINGS.glob("*.py")):
        text = file.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                if STACKED.search(ast.get_source_segment(text, node)):
                    yield file.stem, node.name


def beside_panels(pages):
    """Figures of several panels, and what is said of each."""
    names = {name for _, name in stacked_drawings()}
    for page, text in pages.items():
        for cell in CELL.finditer(text):
            caption = CAPTION.search(cell[0])
            code = cell[0].rpartition("---\n")[2]
            if caption and names & set(re.findall(r"\b(\w+)\(", code)):
                words = [caption[1]]
                for paragraph in CELL.sub("", text).split("\n\n"):
                    if f"`{caption[2]}`" in paragraph:
                        words.append(paragraph)
                yield f"{page}: {caption[2]}", "\n".join(words)


def test_a_panel_is_called_by_its_title():
    """On a phone, what is at the left on the page is at the top."""
    found = dict(beside_panels(PAGES))
    assert len(found) > 10
    wrong = {name: SIDE.findall(said) for name, said in found.items()}
    assert not {name: words for name, words in wrong.items() if words}
