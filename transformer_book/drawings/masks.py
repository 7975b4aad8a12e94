"""What the chapter on masks shows."""

import math
from collections.abc import Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    GAP,
    PAPER,
    WIDE,
    WIDTH,
    Picture,
    Sketch,
    chart,
    show,
)


def stages(scores: Tensor, closed: Tensor, tokens: Sequence) -> Picture:
    """Scores, the scores that a mask leaves, and the weights."""
    count = len(tokens)
    left = scores.masked_fill(closed, -math.inf)
    largest = scores[closed].max()  # of those that go
    matrices = {
        "scores": scores,
        "after the mask": left,
        "weights": left.softmax(-1),
    }

    cell, line, edge, top = 40, 30, 54, 24
    pieces = []
    for number, (title, matrix) in enumerate(matrices.items()):
        sketch = Sketch((WIDE - 2 * GAP) / 3, 62 + line * count)
        middle = edge + cell * count / 2
        sketch.words(middle, top - 12, title, font_weight="bold")
        for i, row in enumerate(matrix.tolist()):
            y = top + line * (i + 0.5)
            x = edge + cell * (i + 0.5)
            sketch.words(edge - 6, y, str(tokens[i]), "end")
            sketch.words(x, top + line * count + 14, str(tokens[i]))
            for j, value in enumerate(row):
                digits = 2 if title == "weights" else 1
                told = f"{value:.{digits}f}".replace("-", "−")
                ink, strength = "muted", 0
                if number and closed[i, j]:
                    told = "0" if title == "weights" else "−∞"
                    strength = 0.25
                elif title == "weights":
                    ink, strength = "attention", 0.1 + 0.35 * value
                rim = {"stroke_opacity": 0.5}
                if closed[i, j] and scores[i, j] == largest:
                    rim = {"stroke": "currentColor", "stroke_width": 2}
                size = {"width": cell - 2, "height": line - 2}
                x = edge + cell * (j + 0.5)
                look = size | rim
                sketch.box(x, y, told, ink, fill_opacity=strength, **look)
        pieces.append(sketch)
    return show(
        pieces,
        f"Three grids of {count} queries by {count} keys. First the scores. "
        "Then the same scores with minus infinity above the diagonal, in "
        "grey. Then the weights: zero above the diagonal, and each row sums "
        f"to one. The largest score that goes, {largest:.1f}, is framed.",
    )


def together(
    tokens: Sequence[str], real: Sequence[bool], past: Tensor
) -> Picture:
    """Padding mask and causal mask as grids, and what both leave open.

    `real` says of each token that it is no padding; `past` is the causal
    mask (query_len, key_len).
    """
    count = len(tokens)
    looks = {
        "open": ("attention", 0.85),
        "padding": ("source", 0.75),
        "future": ("muted", 0.25),
    }

    def states(title: str, query: int, key: int) -> list[str]:
        found = []
        if title != "padding mask" and not past[query, key]:
            found.append("future")
        if title != "causal mask" and not real[key]:
            found.append("padding")
        return found or ["open"]

    cell, edge = 25, 50
    gap = (WIDTH - edge - 3 * cell * count - 4) / 2
    sketch = Sketch(WIDTH, 40 + cell * count)
    size = {"width": cell - 2, "height": cell - 2}
    titles = "padding mask", "causal mask", "together"
    for number, title in enumerate(titles):
        left = edge + number * (cell * count + gap)
        middle = left + cell * count / 2
        sketch.words(middle, 12, title, font_weight="bold")
        if number:
            sign = "and" if number == 1 else "="
            sketch.words(left - gap / 2, 32 + cell * count / 2, sign)
        for i, token in enumerate(tokens):
            y = 32 + cell * (i + 0.5)
            if not number:
                sketch.words(left - 6, y, token, "end")
            for j in range(count):
                place = left + cell * (j + 0.5), y
                found = states(title, i, j)
                look = {"stroke_opacity": 0.4, **size}
                ink, look["fill_opacity"] = looks[found[0]]
                sketch.box(*place, "", ink, **look)
                if len(found) == 2:  # closed twice: half of each
                    _half(sketch, *place, cell - 2, *looks[found[1]])
    open_ = [
        sum(states("together", i, j) == ["open"] for j in range(count))
        for i in range(count)
    ]
    return show(
        sketch,
        f"Three grids of {count} queries by {count} keys. The padding mask "
        "closes the columns of padding, the causal mask what is above the "
        "diagonal. Both together leave each query "
        f"{', '.join(map(str, open_))} keys.",
    )


def _half(
    sketch: Sketch, x: float, y: float, side: float, ink: str, strength: float
) -> None:
    """The lower left half of a cell, in an ink of its own."""
    low, high = x - side / 2, x + side / 2
    corners = (low, y - side / 2), (low, y + side / 2), (high, y + side / 2)
    flat = [number for corner in corners for number in corner]
    sketch.append(
        drawsvg.Lines(
            *flat, close=True, fill=PAPER, stroke=PAPER, stroke_width=1
        )
    )
    colour = COLOURS[ink]
    sketch.append(
        drawsvg.Lines(*flat, close=True, fill=colour, fill_opacity=strength)
    )


def honest_and_leaking(
    honest: Sequence[float],
    leaking: Sequence[float],
    best: float,
    used: float,
) -> Picture:
    """The losses of trainings on noise with and without causal mask.

    `used` is the second model's loss where it cannot read ahead.
    """
    end = len(honest) - 1

    figure, ax = chart(310)
    good, bad = COLOURS["good"], COLOURS["bad"]
    ax.plot(honest, color=good)
    ax.plot(leaking, color=bad)
    ax.axhline(best, color="black", linestyle=":", linewidth=1.2)
    ax.plot([end, end], [leaking[-1], used], "--", color=bad, lw=1.2)
    ax.plot(end, used, "o", color=bad, markersize=8)
    beside = {"ha": "right", "ma": "right", "va": "center"}
    words = f"with the mask back: {used:.1f} "
    last = 0.97 * end
    ax.text(last, used, words, color=bad, **beside)
    words = "with the mask: it guesses (ln 20)"
    ax.text(last, best + 0.7, words, color=good, **beside)
    words = "mask forgotten: it\nreads the answer"
    ax.text(last, leaking[-1] + 1.2, words, color=bad, **beside)
    ax.set(xlabel="step", ylabel="loss, nats per symbol")
    ax.set_ylim(0, used + 1)

    return show(
        figure,
        "Loss against training steps on random sequences. With the causal "
        "mask it settles on the line of ln 20. Without it, it falls far "
        f"below what is possible; a dot high above, at {used:.1f}, is the "
        "loss of the same model once the mask is back.",
    )


def doors() -> Picture:
    """A word and a padded position: what may go from one to the other."""
    floors = "attention", "feed-forward", "loss"
    inks = "attention", "feed_forward", "loss"

    step, bottom = 88, 268
    sketch = Sketch(WIDTH, bottom + 28)
    word, padding = 90, 340
    middle = (word + padding) / 2
    gone = {"stroke_dasharray": "4 4", "colour": "muted"}

    def shut(x: float, y: float) -> None:
        sketch.dot(x, y, PAPER, 11, stroke="currentColor")
        cross = drawsvg.Path(stroke="currentColor", stroke_width=2.4)
        cross.M(x - 5, y - 5).L(x + 5, y + 5)
        cross.M(x - 5, y + 5).L(x + 5, y - 5)
        sketch.append(cross)

    for x, name in (word, "trees"), (padding, "<pad>"):
        sketch.words(x, bottom + 14, name, font_weight="bold")
        for number, floor in enumerate(floors):
            y = bottom - 58 - step * number
            low = y + step - 21 if number else bottom
            if x == padding and floor == "loss":
                sketch.line((x, low), (x, y + 21), arrow=True, **gone)
                shut(x, (low + y + 21) / 2)
                look = {"fill_opacity": 0, "stroke_dasharray": "4 4"}
                sketch.box(x, y, "no label", "muted", 104, 40, **look)
                continue
            sketch.line((x, low), (x, y + 21), arrow=True)
            sketch.box(x, y, floor, inks[number], 104, 40, solid=True)
    left, right = word + 54, padding - 54
    y = bottom - 58
    sketch.line((left, y - 12), (right, y - 12), arrow=True)
    sketch.line((right, y + 12), (left, y + 12), arrow=True, **gone)
    shut(middle, y + 12)
    sketch.words(middle, y + 36, "closed by the mask")
    y -= step
    sketch.line((right, y), (left, y), arrow=True, **gone)
    shut(middle, y)
    sketch.words(middle, y + 24, "each word alone")
    sketch.words(middle, y - 64, "nothing comes back", font_weight="bold")

    return show(
        sketch,
        "Two columns from the bottom to the top, a word and a padded "
        "position: attention, feed-forward, loss. In attention an "
        "arrow leads from the word to the padding. Three ways out of the "
        "padding are crossed out: in attention to the word, in feed-forward "
        "to the word, and at the top into the loss, because padding has no "
        "label.",
    )
