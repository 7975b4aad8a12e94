"""What the chapter on masks shows."""

import math
from collections.abc import Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PAPER,
    PHONE,
    Picture,
    Sketch,
    panels,
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

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        cell, line = (60, 30) if narrow else (49, 36)
        edge = 62 if narrow else 56
        high = 62 + line * count
        gap = 0 if narrow else (wide - edge - 3 * cell * count - 4) / 2
        sketch = Sketch(wide, high * (3 if narrow else 1))
        for number, (title, matrix) in enumerate(matrices.items()):
            start = edge + (0 if narrow else number * (cell * count + gap))
            top = (number * high if narrow else 0) + 24
            middle = start + cell * count / 2
            sketch.words(middle, top - 12, title, font_weight="bold")
            if number and not narrow:
                level = top + line * count / 2
                ends = (start - gap + 8, level), (start - 8, level)
                sketch.line(*ends, arrow=True)
            for i, row in enumerate(matrix.tolist()):
                y = top + line * (i + 0.5)
                if narrow or not number:
                    sketch.words(start - 8, y, str(tokens[i]), "end")
                x = start + cell * (i + 0.5)
                below = top + line * count + 14
                sketch.words(x, below, str(tokens[i]), size=12)
                for j, value in enumerate(row):
                    shut = bool(closed[i, j]) and number > 0
                    digits = 2 if title == "weights" else 1
                    told = f"{value:.{digits}f}".replace("-", "−")
                    ink, strength = "muted", 0
                    if shut:
                        told = "0" if title == "weights" else "−∞"
                        strength = 0.25
                    elif title == "weights":
                        ink, strength = "attention", 0.1 + 0.75 * value
                    rim = {"stroke_opacity": 0.5}
                    if closed[i, j] and scores[i, j] == largest:
                        rim = {"stroke": "currentColor", "stroke_width": 2}
                    sketch.box(
                        start + cell * (j + 0.5),
                        y,
                        told,
                        ink,
                        width=cell - 2,
                        height=line - 2,
                        fill_opacity=strength,
                        **rim,
                    )
        return sketch

    return show(
        draw,
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
        "padding": ("bad", 0.25),
        "future": ("muted", 0.25),
    }

    def states(title: str, query: int, key: int) -> list[str]:
        found = []
        if title != "padding mask" and not past[query, key]:
            found.append("future")
        if title != "causal mask" and not real[key]:
            found.append("padding")
        return found or ["open"]

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        cell = 19 if narrow else 44
        edge = 48 if narrow else 64
        gap = (wide - edge - 3 * cell * count - 4) / 2
        sketch = Sketch(wide, 60 + cell * count)
        titles = "padding mask", "causal mask", "together"
        for number, title in enumerate(titles):
            left = edge + number * (cell * count + gap)
            middle = left + cell * count / 2
            words = title.replace(" mask", "") if narrow else title
            sketch.words(middle, 12, words, font_weight="bold")
            if number:
                sign = "and" if number == 1 else "="
                level = 32 + cell * count / 2
                sketch.words(left - gap / 2, level, sign)
            for i, token in enumerate(tokens):
                y = 32 + cell * (i + 0.5)
                if not number:
                    sketch.words(left - 6, y, token, "end", size=12)
                if not narrow:
                    x = left + cell * (i + 0.5)
                    below = 32 + cell * count + 14
                    sketch.words(x, below, token, size=12)
                for j in range(count):
                    place = left + cell * (j + 0.5), y
                    found = states(title, i, j)
                    ink, strength = looks[found[0]]
                    sketch.box(
                        *place,
                        "",
                        ink,
                        width=cell - 2,
                        height=cell - 2,
                        fill_opacity=strength,
                        stroke_opacity=0.4,
                    )
                    if len(found) == 2:  # closed twice: half of each
                        _half(sketch, *place, cell - 2, *looks[found[1]])
        return sketch

    open_ = [
        sum(states("together", i, j) == ["open"] for j in range(count))
        for i in range(count)
    ]
    return show(
        draw,
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

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        good, bad = COLOURS["good"], COLOURS["bad"]
        ax.plot(honest, color=good)
        ax.plot(leaking, color=bad)
        ax.axhline(best, color="black", linestyle=":", linewidth=1.2)
        ax.plot([end, end], [leaking[-1], used], "--", color=bad, lw=1.2)
        ax.plot(end, used, "o", color=bad, markersize=8)
        beside = {"ha": "right", "ma": "right", "va": "center"}
        words = f"the same model with the mask back: {used:.1f} "
        if narrow:
            words = f"with the mask back: {used:.1f} "
        last = end * (0.96 if narrow else 0.98)
        ax.text(last, used, words, color=bad, **beside)
        words = "with the mask: it guesses (ln 20)"
        ax.text(last, best + 0.7, words, color=good, **beside)
        words = "mask forgotten: it reads the answer"
        height = 0.8
        if narrow:
            words, height = "mask forgotten: it\nreads the answer", 1.3
        ax.text(last, leaking[-1] + height, words, color=bad, **beside)
        ax.set(xlabel="step", ylabel="loss, nats per symbol")
        ax.set_ylim(0, used + 1)
        return figure

    return show(
        draw,
        "Loss against training steps on random sequences. With the causal "
        "mask it settles on the line of ln 20. Without it, it falls far "
        f"below what is possible; a dot high above, at {used:.1f}, is the "
        "loss of the same model once the mask is back.",
    )


def doors() -> Picture:
    """A word and a padded position: what may go from one to the other."""
    floors = "attention", "feed-forward", "loss"
    inks = "attention", "feed_forward", "loss"

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        step, bottom = 88, 268
        sketch = Sketch(width, bottom + 28)
        word, padding = (84, 262) if narrow else (210, 510)
        middle = (word + padding) / 2

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
                    gone = dict(stroke_dasharray="4 4", colour="muted")
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
        gone = dict(stroke_dasharray="4 4", colour="muted")
        sketch.line((right, y + 12), (left, y + 12), arrow=True, **gone)
        shut(middle, y + 12)
        y -= step
        sketch.line((right, y), (left, y), arrow=True, **gone)
        shut(middle, y)
        return sketch

    return show(
        draw,
        "Two columns from the bottom to the top, a word and a padded "
        "position: attention, feed-forward, loss. In attention an "
        "arrow leads from the word to the padding. Three ways out of the "
        "padding are crossed out: in attention to the word, in feed-forward "
        "to the word, and at the top into the loss, because padding has no "
        "label.",
    )
