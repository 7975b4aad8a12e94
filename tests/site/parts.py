"""What the tests of the site share: its pages and their live parts."""

import functools
import json
from pathlib import Path

import axe_playwright_python
import tangle
import torch
from bs4 import BeautifulSoup

from transformer_lib import Translator

SITE = tangle.ROOT / "_build" / "html"
DATA = SITE / "_static" / "live" / "data"
CHAPTERS = {
    path.relative_to(tangle.ROOT).with_suffix(".html").as_posix()
    for path in tangle.contents()
}
FOUND = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")}
PAGES = sorted(  # of this build, without what an earlier one left
    name
    for name in FOUND
    if name in CHAPTERS or not name.startswith(("book/", "_static/"))
)
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")


def html(page: str) -> str:
    return (SITE / page).read_text("utf-8")


@functools.cache
def soup(page: str) -> BeautifulSoup:
    return BeautifulSoup(html(page), "html.parser")


def given(page: str, part: str) -> dict | list:
    """What a live part of a page was given by the build."""
    script = soup(page).select_one(f"[data-live={part}] script")
    return json.loads(script.string)


@functools.cache
def shipped(name: str) -> Translator:
    """A model that ships, on the CPU."""
    return Translator.from_pretrained(tangle.ROOT / "pretrained" / name)


def plain(token: str) -> str:
    """A token as the pages show it."""
    names = {"<bos>": "start", "<eos>": "end"}
    return names.get(token, token.replace("▁", ""))


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def numbers(texts: list[str]) -> torch.Tensor:
    return torch.tensor([*map(number, texts)])


def slide(slider, value) -> None:
    """Set a slider as the reader would: its value, then its event."""
    slider.evaluate(
        "(input, value) => { input.value = value;"
        " input.dispatchEvent(new Event('input')) }",
        value,
    )


def press(place, name: str) -> None:
    place.get_by_role("button", name=name, exact=True).click()
