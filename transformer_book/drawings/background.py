"""What the chapter on the paper's background shows."""

from collections.abc import Mapping, Sequence

import drawsvg

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)


def squeeze(source: Sequence[str], target: Sequence[str]) -> Picture:
    """What a target word can see: the last state, or every state."""

    def draw(narrow: bool) -> Sketch:
        half = PHONE * 96 if narrow else PAGE * 48
        sketch = Sketch(half if narrow else 2 * half, 500 if narrow else 240)
        titles = "one vector", "attention over all states"
        for number, title in enumerate(titles):
            left = 0 if narrow else half * number
            top = 255 * number if narrow else 0
            below = [
                left + half * (i + 0.8) / (len(source) + 0.6)
                for i in range(len(source))
            ]
            above = [
                left + half * (i + 0.5) / len(target)
                for i in range(len(target))
            ]
            sketch.words(left + half / 2, top + 14, title, font_weight="bold")
            for start, end in zip(below, below[1:], strict=False):
                start, end = start + 10, end - 10
                sketch.line((start, top + 190), (end, top + 190), arrow=True)
            for x, word in zip(above, target, strict=True):
                for state in below if number else below[-1:]:
                    sketch.line((state, top + 180), (x, top + 82))
                sketch.dot(x, top + 72, "decoder")
                sketch.words(x, top + 48, word)
            for x, word in zip(below, source, strict=True):
                sketch.dot(x, top + 190, "encoder")
                sketch.words(x, top + 218, word)
        return sketch

    return show(
        draw,
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

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
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
        return figure

    return show(
        draw,
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

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 78 * len(ways) + 4)
        step = (wide - 40) / (distance + 0.6)
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
        return sketch

    return show(
        draw,
        f"Four rows of {distance + 1} words. Steps that a signal takes from "
        "the first to the last: "
        + "; ".join(
            f"{len(stops) - 1} with {name}"
            for name, (_, stops) in ways.items()
        )
        + ".",
    )
