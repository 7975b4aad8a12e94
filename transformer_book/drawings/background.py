"""What the chapter on the paper's background shows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import drawsvg

from transformer_book.figures import (
    COLOURS,
    GAP,
    WIDE,
    WIDTH,
    Picture,
    Sketch,
    chart,
    columns,
    show,
)


def squeeze(source: Sequence[str], target: Sequence[str]) -> Picture:
    """What a target word can see: the last state, or every state."""

    width = (WIDE - GAP) / 2
    inner = 0.12 * width  # the states are nearer to each other
    below = columns(len(source), inner, width)
    above = columns(len(target), 0, width)
    pieces = []
    for title in ("one vector", "attention over all states"):
        sketch = Sketch(width, 230)
        sketch.words(width / 2, 14, title, font_weight="bold")
        for start, end in pairwise(below):
            sketch.line((start + 10, 190), (end - 10, 190), arrow=True)
        for x, word in zip(above, target, strict=True):
            for state in below if pieces else below[-1:]:
                sketch.line((state, 180), (x, 82))
            sketch.dot(x, 72, "decoder")
            sketch.words(x, 48, word)
        for x, word in zip(below, source, strict=True):
            sketch.dot(x, 190, "encoder")
            sketch.words(x, 218, word)
        pieces.append(sketch)
    return show(
        pieces,
        "Twice, three source words are read in a row. With one vector all "
        "four target words hang on the state after the last. With "
        "attention every target word is joined to the state of every "
        "source word.",
    )


def recalled(words: Sequence[int], recall: Mapping) -> Picture:
    """Share of symbols recalled, by what the answer may look at."""
    looks = {"last state": "recurrence", "all states": "attention"}
    told = {
        "last state": "one vector",
        "all states": "attention over all states",
    }

    figure, ax = chart(270)
    for name, shares in recall.items():
        ink = COLOURS[looks[name]]
        ax.plot(words, shares, "o-", color=ink)
        below = name == "last state"
        ax.text(
            words[-1],
            shares[-1] + (0.1 if below else -0.06),
            f"{told[name]}: {shares[-1]:.0%}",
            ha="right",
            va="bottom" if below else "top",
            color=ink,
        )
    ax.axhline(1 / 8, color=COLOURS["muted"], linestyle=":")
    ax.text(words[0], 1 / 8 - 0.03, "guessing among eight", va="top")
    ax.set(xticks=words, xlabel="symbols read", ylim=(0, 1.05))
    ax.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    ax.set_ylabel("share recalled")

    return show(
        figure,
        "Share of symbols recalled against the length read. With "
        "attention nearly all at every length; from the last state all "
        "of two, and fewer and fewer of more.",
    )


def routes(distance: int) -> Picture:
    """The way of a signal from one word to another, by kind of layer.

    A convolution's window holds a word and the two before it; in the
    dilated one its places lie three times as far apart in each layer.
    """
    spread, rest, apart = [0], distance, 1
    while rest:
        spread.append(spread[-1] + apart * (rest % 3))
        rest, apart = rest // 3, 3 * apart
    ways = {  # its ink, and where it stops
        "recurrence, within one layer": (
            "recurrence",
            [*range(distance + 1)],
        ),
        "convolution of three words, a layer each": (
            "feed_forward",
            [*range(0, distance, 2), distance],
        ),
        "dilated convolution, a layer each": ("feed_forward", spread),
        "self-attention, one layer": ("attention", [0, distance]),
    }

    sketch = Sketch(WIDTH, 78 * len(ways) + 4)
    step = (WIDTH - 40) / (distance + 0.6)
    for row, (name, (ink, stops)) in enumerate(ways.items()):
        y = 78 * row + 62
        count = len(stops) - 1
        steps = "1 step" if count == 1 else f"{count} steps"
        sketch.words(
            4, y - 48, f"{name}: {steps}", "start", font_weight="bold"
        )
        for start, end in zip(stops, stops[1:], strict=False):
            path = drawsvg.Path()
            left, right = 20 + step * start, 20 + step * end
            high = 12 + 2 * (end - start)
            path.M(left, y - 8)
            path.Q((left + right) / 2, y - 8 - 2 * high, right, y - 8)
            sketch.stroke(path, width=2, colour=ink, arrow=True)
        for word in range(distance + 1):
            x = 20 + step * word
            look = {"stroke": COLOURS[ink], "stroke_width": 1.3}
            fill = ink if word in stops else "none"
            sketch.dot(x, y, fill, radius=6, **look)

    return show(
        sketch,
        f"Four rows of {distance + 1} words. Steps that a signal takes from "
        "the first to the last: "
        + "; ".join(
            f"{len(stops) - 1} with {name}"
            for name, (_, stops) in ways.items()
        )
        + ".",
    )
