"""Which line is broken? The course's mistakes as a game and as a sheet.

The lines are the page's own, with the change that was trained
(`experiments/mistakes.py`), and `web/recorded/broken.json` has what came of
it. Without scripts, and on paper, the page has a sheet: for each level a
curve, a translation and some lines, one of them wrong; the answers come last.
`web/live/broken.js` makes a game of the same.
"""

import difflib
import html
import json
import math
import re
from functools import cache
from pathlib import Path

from sittings import planted, sittings

from transformer_book.figures import COLOURS, LETTERS

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "web" / "recorded" / "broken.json"
WHY = {
    "an open future": "Without `tril` every position may see the whole "
    "translation, so training needs only to copy the next word. The loss is "
    "lower than a healthy one, and a model that writes has no next word to "
    "copy.",
    "gradients that stay": "`optimizer.zero_grad()` is missing before the "
    "first batch of a step or after `optimizer.step()`, so `loss.backward()` "
    "adds to the gradients of all steps before. They grow and the loss with "
    "them.",
    "the first position's logits": "The model is sound, on unseen sentences "
    "too, so the mistake is made in writing: the next word is always read "
    "off the first position.",
    "no cross-attention": "The line `y = norms[1](y + attend_memory(y, "
    "memory, source_mask))` is missing. The decoder writes good Spanish and "
    "never looks at the English: another noun in it moves no logit.",
    "labels shown to the decoder": "The decoder is given the words that it "
    "is asked for. The causal mask holds, so no later word leaks. But on "
    "unseen sentences the model is fed rightly, and there it fails.",
    "no factor √d_model": "The table's rows begin with length 1, and nothing "
    "makes them longer where words are read. The vectors of positions drown "
    "them: the model learns which words are likely in which place.",
    "0 for a forbidden score": "A score of 0 is an ordinary score. So "
    "forbidden words keep some weight: the map has no empty triangle, and "
    "even padding moves what is written.",
    "heads joined without moving their axis back": "The map is a clean "
    "triangle, so the masks hold, and yet padding moves the logits, and a "
    "later word those before it a little. So the leak is behind the weights, "
    "where `reshape` mixes heads and positions.",
    "padding counted": "The translations are good, but the loss of a "
    "sentence depends on the padding behind it. The mean is taken over "
    "padding, too.",
    "a ramp that lags by one": "Only the rates tell: the first step has a "
    "rate of 0, and each later step that of the step before, as long as they "
    "rise. What else differs is chance.",
}


# A missing line has more than one place, and other lines show that it is
# missing: those who point there have found it.
ALSO = {
    "gradients that stay": [
        "def update",
        "loss.backward()",
        "optimizer.step()",
    ],
    "no cross-attention": ["attend_self, attend_memory ="],
    "no factor √d_model": ["table = torch.randn(", "rows ="],
}
# What a line that many suspect is told.
NOT_THIS = {
    "an open future": {
        "padding =": "Padding behind the English moves nothing.",
    },
    "gradients that stay": {
        'optimizer.param_groups[0]["lr"]': "The rates are a healthy model's.",
    },
    "the first position's logits": {
        "return padding": "On unseen sentences the model is healthy.",
        "loss =": "The loss is a healthy model's.",
    },
    "labels shown to the decoder": {
        "return padding": "A later word moves no earlier logit.",
        "triangle =": "A later word moves no earlier logit.",
    },
    "0 for a forbidden score": {
        "triangle =": "The triangle is right. How is it used?",
        "return padding": "The masks are right. How are they used?",
    },
    "heads joined without moving their axis back": {
        "return padding": "The map is a clean triangle: the masks hold.",
        "padding =": "The map is a clean triangle: the masks hold.",
        "scores = scores.masked": "The map is a clean triangle.",
    },
    "padding counted": {
        "padding =": "Padding behind the English moves no logit.",
        "loss = smoothed(": "A mean times the tokens is a sum, divided once.",
    },
    "a ramp that lags by one": {
        "step += 1": "So the first step is step 1.",
        "step = 0": "The first step is step 1 all the same.",
    },
}
# The page's own functions, where it calls them by the library's names.
OWN = {
    "scaled_dot_product_attention(": "my_attention(",
    "learning_rate(": "rate(",
    "smoothed_loss(logits, batch.labels)": "smoothed(logits, batch.labels, "
    "0.1) * batch.tokens",
}
MOST = 4  # lines of the sheet beside the wrong one


def code_of(functions: str, changes: tuple = ()) -> list[str]:
    """Functions of the course's page, with a change in them."""
    whole = own_names(planted()["whole"](changes))
    found: list[str] = []
    for name in functions.split():
        body = re.search(
            rf"^(?:@.*\n)?(?:def|class) {name}\b.*(?:\n(?: .*)?)*", whole, re.M
        )
        lines = body[0].rstrip().splitlines()
        found += [*(line.rstrip() for line in lines), ""]
    return found[:-1]


def own_names(code: str) -> str:
    for name, own in OWN.items():
        code = code.replace(name, own)
    return code


def faults(old: list[str], new: list[str]) -> tuple[list[int], list[str]]:
    """Which lines of the new code are wrong, and the right ones.

    Where a line is missing, its neighbours are wrong.
    """
    wrong: list[int] = []
    right = []
    match = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, i, j, a, b in match.get_opcodes():
        if kind != "equal":
            wrong += range(a, b) if b > a else [a - 1, a]
            right += old[i:j]
    return wrong, right


def suspects(functions: str, new: list[str], wrong: list[int]) -> list[int]:
    """The wrong line among some that other mistakes would change."""
    old, found = code_of(functions), set()
    for _, _, *changes in planted()["MISTAKES"]:
        _, lines = faults(old, code_of(functions, tuple(changes)))
        found |= {i for i, line in enumerate(new) if line in lines}
    others = sorted(found - {*wrong})
    return sorted([*others[:: -(-len(others) // MOST) or 1], wrong[-1]])


@cache
def levels() -> list[dict]:
    """All that the game knows; the first two rows are healthy models."""
    page = planted()
    found = json.loads(RECORD.read_text("utf-8"))["rows"]
    known = {c[1]: c for c in (*page["MISTAKES"], page["LAG"])}
    places = {s.number: s.page for s in sittings()}
    pairs = zip(found[2:], page["LEVELS"], strict=True)
    for row, (mistake, functions) in pairs:
        sitting, _, *changes = known[mistake]
        new = code_of(functions, tuple(changes))
        wrong, right = faults(code_of(functions), new)
        place = places[sitting].relative_to(ROOT / "book")
        row["code"], row["wrong"], row["mended"] = new, wrong, right
        row["also"] = [
            at
            for at, line in enumerate(new)
            for start in ALSO.get(mistake, [])
            if line.strip().startswith(start)
        ]
        row["told_of"] = {
            at: words
            for at, line in enumerate(new)
            for start, words in NOT_THIS.get(mistake, {}).items()
            if line.strip().startswith(start)
        }
        row["suspects"] = suspects(functions, new, wrong)
        row["why"] = WHY[mistake]
        row["chapter"] = f"../{place.with_suffix('.html')}"
    for row in found:
        row["trees"] = short(row["trees"])
        row["told"] = [(a, b, short(c)) for a, b, c in row["told"]]
    return found


def short(said: str) -> str:
    """A translation; one that never ends is cut."""
    said = said.strip()
    return f"{said[:40]}…" if len(said) > 40 else said or "(nothing)"


def curve(row: dict, healthy: dict) -> str:
    """A training's loss beside the healthy one's, on a logarithmic scale."""
    top = max(8.0, *row["curve"], *row["held_out"])

    def at(step: float, loss: float) -> str:
        height = math.log(loss / 0.9) / math.log(top / 0.9)
        return f"{30 + step * 0.44:.1f},{134 - 124 * height:.1f}"

    def line(losses: list[float]) -> str:
        points = (at(10 * i + 5, y) for i, y in enumerate(losses))
        return " ".join(points)

    ticks = ""
    for loss in (1, 2, 4, 8, 16, 32):
        if loss <= top:
            x, y = at(0, loss).split(",")
            ticks += (
                f'<path d="M{x},{y}h264" stroke="{COLOURS["muted"]}" '
                f'stroke-opacity=".35"/><text x="24" y="{float(y) + 4}" '
                f'text-anchor="end">{loss}</text>'
            )
    dots = "".join(
        '<circle r="3.5" fill="none" stroke="{}" cx="{}" cy="{}"/>'.format(
            COLOURS["bad"], *at(50 * i + 50, loss).split(",")
        )
        for i, loss in enumerate(row["held_out"])
    )
    words = (
        f"The training loss, in means of ten steps, goes from "
        f"{row['curve'][0]} to "
        f"{row['curve'][-1]}, a healthy model's from {healthy['curve'][0]} "
        f"to {healthy['curve'][-1]}."
    )
    return (
        f'<svg class="picture" viewBox="0 0 300 152" role="img" '
        f'aria-label="{words}" fill="currentColor" style="{LETTERS}" '
        f'font-size="11">{ticks}'
        f'<polyline fill="none" stroke="{COLOURS["muted"]}" '
        f'stroke-width="5" stroke-opacity=".6" '
        f'points="{line(healthy["curve"])}"/>'
        f'<polyline fill="none" stroke="{COLOURS["bad"]}" '
        f'stroke-width="2" points="{line(row["curve"])}"/>'
        f'<g class="broken-unseen">{dots}</g>'
        '<text x="30" y="149">0</text>'
        '<text x="294" y="149" text-anchor="end">600 steps</text></svg>'
    )


def facts(row: dict) -> list[str]:
    """What the sheet says of a level, of all that can be looked at."""
    earlier = max(row["target"][:-1])
    rates = ", ".join(f"{1e4 * rate:.2f}" for rate in row["sizes"][0][:3])
    one, padded = row["losses"]
    return [
        f"Loss {row['first']} at the first step, {row['last']} at the end, "
        f"{row['held_out'][-1]} on unseen sentences.",
        f"{row['right']} of 100 are right. “I like trees” becomes "
        f"“{row['trees']}”.",
        f"Another last word in Spanish moves earlier logits by {earlier:.1f}, "
        f"another English noun by {max(row['source']):.1f}, padding by "
        f"{max(row['padding']):.1f}; with padding behind it, a pair's loss "
        f"goes from {one} to {padded}.",
        f"The first rates are {rates} times 10⁻⁴. Vectors of words are "
        f"{row['words']} long, those of positions {row['places']}.",
    ]


def sheet() -> str:
    """The levels as a table, and all that the game knows, for its script."""
    healthy, _, *found = levels()
    body = answers = ""
    for number, row in enumerate(found, 1):
        code = row["code"]
        lines = "".join(
            f"<li><code>{html.escape(code[at].strip())}</code></li>"
            for at in row["suspects"]
        )
        told = "".join(f"<li>{html.escape(one)}</li>" for one in facts(row))
        body += (
            f'<tr><th scope="row">{number}</th><td>{curve(row, healthy)}'
            f'<ul>{told}</ul></td><td><ol type="A">{lines}</ol></td></tr>'
        )
        letter = chr(65 + row["suspects"].index(row["wrong"][-1]))
        why = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(row["why"]))
        answers += f"<li>{letter}. {why}</li>"
    table = (
        '<table class="broken-still"><caption>Ten models, each with one '
        "line that is wrong, or that has lost the line above it. Pink is "
        "the model’s loss in training (means of ten steps), its rings that "
        "on unseen sentences, "
        "and gray a healthy model’s. The healthy one gets "
        f"{healthy['right']} of 100 right.</caption><thead><tr>"
        '<th scope="col">level</th><th scope="col">what one sees</th>'
        '<th scope="col">which line?</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    return (
        f'{table}<details class="broken-answers"><summary>Answers</summary>'
        f"<ol>{answers}</ol></details>"
    )
