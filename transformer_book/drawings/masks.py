"""What the chapter on masks shows."""

import math
from collections.abc import Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    heatmap,
    panels,
    show,
)


def stages(scores: Tensor, closed: Tensor, tokens: Sequence) -> Picture:
    """Scores, the scores that a mask leaves, and the weights."""
    left = scores.masked_fill(closed, -math.inf)
    matrices = {
        "scores": scores,
        "after the mask": left.masked_fill(closed, math.nan),
        "weights": left.softmax(-1),
    }

    def draw(narrow: bool):
        figure, axes = panels(3, narrow, height=3.1)
        for ax, (title, matrix) in zip(axes, matrices.items(), strict=True):
            is_weight = title == "weights"
            limits = (0, 1) if is_weight else (-4, 4)
            words = "query" if narrow or ax is axes[0] else "", "key"
            heatmap(matrix, tokens, tokens, title, ax, limits, axes=words)
            ax.images[0].colorbar.remove()
            ax.tick_params(axis="x", rotation=0)
            for i, row in enumerate(matrix.tolist()):
                for j, number in enumerate(row):
                    shut = bool(closed[i, j]) and ax is not axes[0]
                    told = f"{number:.1f}".replace("-", "−")
                    told = "−∞" if shut else told
                    if is_weight:
                        told = "" if shut else f"{number:.2f}"
                    ax.text(j, i, told, ha="center", va="center")
        return figure

    return show(
        draw,
        "Three four by four grids. First all scores, positive and "
        "negative. Then the scores with minus infinity above the "
        "diagonal. Then the weights: empty above the diagonal, and each "
        "row sums to one.",
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

    def state(title: str, query: int, key: int) -> str:
        if title != "causal mask" and not real[key]:
            return "padding"
        shut = title != "padding mask" and not past[query, key]
        return "future" if shut else "open"

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        cell = 19 if narrow else 38
        edge = 48 if narrow else 64
        gap = (wide - edge - 3 * cell * count - 4) / 2
        sketch = Sketch(wide, 60 + cell * count)
        titles = "padding mask", "causal mask", "both"
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
                    ink, strength = looks[state(title, i, j)]
                    sketch.box(
                        left + cell * (j + 0.5),
                        y,
                        "",
                        ink,
                        width=cell - 2,
                        height=cell - 2,
                        fill_opacity=strength,
                        stroke_opacity=0.4,
                    )
        return sketch

    open_ = [
        sum(state("both", i, j) == "open" for j in range(count))
        for i in range(count)
    ]
    return show(
        draw,
        f"Three grids of {count} queries by {count} keys. The padding mask "
        "closes the columns of padding, the causal mask what is above the "
        "diagonal. Both together leave each query "
        f"{', '.join(map(str, open_))} keys.",
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
        ax.plot(end, used, "o", color=bad, markersize=8)
        beside = {"ha": "right", "ma": "right", "va": "center"}
        words = f"the mask is back: {used:.1f},\nworse than guessing"
        ax.text(0.93 * end, used, words, color=bad, **beside)
        words = "with the mask: it guesses (ln 20)"
        ax.text(end, best + 0.7, words, color=good, **beside)
        words = "mask forgotten: it reads the answer"
        height = 0.8
        if narrow:
            words, height = "mask forgotten: it\nreads the answer", 1.3
        ax.text(end, leaking[-1] + height, words, color=bad, **beside)
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

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        step, bottom = 84, 252
        sketch = Sketch(width, bottom + 30)
        word, padding = (96, 256) if narrow else (230, 500)
        names = {word: "trees", padding: "<pad>"}
        for x, name in names.items():
            sketch.words(x, bottom + 14, name, font_weight="bold")
        inks = "attention", "feed_forward", "loss"
        for number, floor in enumerate(floors):
            y = bottom - 56 - step * number
            for x in names:
                low = y + step - 21 if number else bottom
                if floor != "loss" or x == word:
                    sketch.line((x, low), (x, y + 21), arrow=True)
                sketch.box(x, y, floor, inks[number], 92, 40, solid=True)
            middle = (word + padding) / 2
            left, right = word + 50, padding - 50
            if floor == "attention":
                sketch.line((left, y - 10), (right, y - 10), arrow=True)
                sketch.line(
                    (right, y + 10), (left, y + 10), colour="bad", arrow=True
                )
                sketch.words(middle, y + 10, "✕", colour="bad", size=17)
                words = "closed" if narrow else "the mask closes the column"
                sketch.words(middle, y + 30, words, colour="bad")
            elif number == 1:
                words = "alone" if narrow else "no way across"
                sketch.words(middle, y, words)
            else:
                at = y + 42
                sketch.words(padding, at, "✕", colour="bad", size=17)
                words = "left out" if narrow else "its label is left out"
                sketch.words(middle, y, words, colour="bad")
        return sketch

    return show(
        draw,
        "Two columns from the bottom to the top, a word and a padded "
        "position: attention, feed-forward, loss. In attention an "
        "arrow leads from the word to the padding, and the one from the "
        "padding to the word is crossed out. Between the boxes above nothing "
        "leads across. The padded position's way into the loss is crossed "
        "out.",
    )
