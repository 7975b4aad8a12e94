"""What the tests of the site share: its pages and their live parts."""

import functools
import http.client
import json
import shutil
import subprocess
import time
from pathlib import Path

import axe_playwright_python
import pytest
import tangle
import torch
from bs4 import BeautifulSoup

from transformer_lib import Translator, beam_search, record_attention
from transformer_lib.decoding import (
    DecoderCache,
    evaluating,
    next_log_probabilities,
)
from transformer_lib.embeddings import BOS, EOS, PAD

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

# What axe-core finds in a part, or the whole page, by day or by night.
LOOK = """async ([theme, part, options]) => {
  document.documentElement.dataset.theme = theme;
  await new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(done)));
  const found = await axe.run(part ?? document, {
    resultTypes: ["violations"], preload: false, ...options});
  return found.violations.flatMap(v => v.nodes.map(
    n => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`));
}"""


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


def greedily(name: str, text: str, begun=(), covered=()) -> list[int]:
    """What the library writes, step by step, by its own cache.

    The output goes on from what is begun; the decoder may not look at the
    places that are covered.
    """
    library = shipped(name)
    model = library.model
    source_ids = torch.tensor(library.encode([text]))
    seen = source_ids.clone()
    seen[0, list(covered)] = PAD
    ids = list(begun)
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        for last in [BOS, *begun]:
            last = torch.tensor([last])
            log_p = next_log_probabilities(model, last, seen, cache)
        while ids[-1:] != [EOS] and len(ids) < source_ids.size(1) + 49:
            ids.append(int(log_p.argmax()))
            last = torch.tensor(ids[-1:])
            log_p = next_log_probabilities(model, last, seen, cache)
    return ids


def library_beam(name: str, text: str, *search) -> list[tuple]:
    """What the library finds, best first: text, ids, log P and score."""
    maker = shipped(name)
    source_ids = torch.tensor(maker.encode([text]))
    (found,) = beam_search(maker.model, source_ids, *search)
    return [(maker.tokenizer.decode(one.ids), *one) for one in found]


def run_of(model, source_ids, ids) -> tuple[dict, dict, torch.Tensor]:
    """One run of the library while it says some ids: what each sub-layer
    was given, the attention's weights, and the probabilities."""
    given: dict[str, tuple] = {}
    hooks = [
        part.register_forward_pre_hook(
            lambda _, arguments, path=path: given.update({path: arguments})
        )
        for path, part in model.named_modules()
        if path.endswith(("attention", "feed_forward"))
    ]
    inputs = torch.tensor([[BOS, *ids[:-1]]])
    with evaluating(model), record_attention(model) as maps:
        logits = model(source_ids, inputs)[0]
    for hook in hooks:
        hook.remove()
    weights = {path: one[0] for path, one in maps.items()}
    return given, weights, logits.softmax(-1)


def patiently(attempt, program: subprocess.Popen, seconds=60):
    """What an attempt gives, once a program that was started is ready.

    Until then it may not answer, answer with an error, or have written half
    of a file.
    """
    until = time.monotonic() + seconds
    while True:
        assert program.poll() is None, f"{program.args[0]} ended"
        try:
            return attempt()
        except (OSError, ValueError, LookupError, http.client.HTTPException):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def plain(token: str) -> str:
    """A token as the pages show it."""
    return token.replace("▁", "")


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


def asked_of_node(script: str, folder: Path, *words) -> str:
    """What a module prints that Node runs; without Node the test skips."""
    node = shutil.which("node") or shutil.which(
        "node", path=str(tangle.ROOT / ".venv" / "bin")
    )
    if not node:
        pytest.skip("no node")
    path = folder / "ask.mjs"
    path.write_text(script, "utf-8")
    done = subprocess.run([node, path, *words], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def beams_of(page, name: str, cases: list) -> list:
    """What the page's own model finds: ids read, ids said, score.

    A case is a text and options of the search.
    """
    return page.evaluate(
        """async ([name, cases]) => {
          const { fetched } = await import("/_static/live/model.js");
          const { models } = await (
            await fetch("/_static/live/data/index.json")).json();
          const model = await fetched(
            models.find((one) => one.name === name));
          const best = [];
          for (const [text, options] of cases) {
            const { source, found } = await model.beam(text, options);
            best.push([source, found[0].ids, found[0].score]);
          }
          return best;
        }""",
        [name, cases],
    )
