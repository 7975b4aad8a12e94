"""What the chapter on positions shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown
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
from transformer_book.records import markdown_table


def hands(places: Sequence[int], angles: Sequence) -> Picture:
    """Dials whose hands point at `angles`, a list for each place."""
    pairs = len(angles[0])

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        left = 52 if narrow else 110
        step = (wide - left) / len(places)
        radius = min(34, 0.42 * step)
        down = 2 * radius + (24 if narrow else 18)
        sketch = Sketch(wide, 46 + pairs * down)
        middle = left + step * len(places) / 2
        sketch.words(middle, 10, "position")
        for column, pos in enumerate(places):
            x = left + step * (column + 0.5)
            sketch.words(x, 32, str(pos))
            for row, angle in enumerate(angles[column]):
                y = 46 + down * (row + 0.5)
                look = {"stroke": COLOURS["muted"], "stroke_width": 1.2}
                sketch.dot(x, y, "none", radius, **look)
                sketch.free.children.pop()  # hands lie on their dials
                tip = (
                    x + 0.94 * radius * math.sin(angle),
                    y - 0.94 * radius * math.cos(angle),
                )
                sketch.line(
                    (x, y), tip, width=3.2, colour="position", arrow=True
                )
        for row in range(pairs):
            y = 46 + down * (row + 0.5)
            if narrow:
                sketch.words(0, y, f"{2 * row}, {2 * row + 1}", "start")
            else:
                name = f"numbers {2 * row}, {2 * row + 1}"
                sketch.words(0, y, name, "start")
        return sketch

    return show(
        draw,
        f"Dials in {pairs} rows, a column each for the positions "
        f"{', '.join(map(str, places))}. At position 0 all hands stand "
        "upright. From each position to the next the first row's hand "
        "turns by a radian, the second's by a tenth of it, the third's "
        "by a hundredth; the last one hardly moves.",
    )


def table(encodings: Tensor) -> Picture:
    """All encodings (length, d_model), one row for each position."""
    length, d_model = encodings.shape

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.6 if narrow else 3.4)
        heatmap(
            encodings,
            range(length),
            range(d_model),
            ax=ax,
            limits=(-1, 1),
            axes=("position", "dimension"),
        )
        ax.set_yticks(range(0, length, 8))
        return figure

    return show(
        draw,
        f"A grid of {length} positions by {d_model} dimensions: on the "
        "left the signs change from row to row, on the right they stay "
        "the same.",
    )


def ladders(hands: int) -> Picture:
    """Wavelengths on a logarithmic line: by one factor, by one step."""
    longest = 2 * math.pi * 10_000 ** ((hands - 1) / hands)
    shares = [i / (hands - 1) for i in range(hands)]
    first = 2 * math.pi
    rows = {
        "by the same factor": [
            first * (longest / first) ** share for share in shares
        ],
        "by the same step": [
            first + (longest - first) * share for share in shares
        ],
    }

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 196)

        def place(length: float) -> float:
            return 14 + (wide - 34) * math.log10(length / 5) / 4.05

        for row, (name, lengths) in enumerate(rows.items()):
            y = 48 + 70 * row
            sketch.words(4, y - 30, name, "start", font_weight="bold")
            sketch.line((10, y), (wide - 6, y), colour="muted")
            for length in lengths:
                sketch.line(
                    (place(length), y - 12),
                    (place(length), y + 12),
                    colour="position",
                    width=2.5,
                )
        for length, name in (
            (10, "10"),
            (100, "100"),
            (1000, "1,000"),
            (10_000, "10,000"),
        ):
            sketch.line((place(length), 138), (place(length), 146))
            sketch.words(place(length), 158, name)
        sketch.words(wide / 2, 182, "positions until the hand is back")
        return sketch

    fast = sum(length < 1000 for length in rows["by the same step"])
    return show(
        draw,
        f"Two lines with {hands} marks each, from 6 to {longest:,.0f} "
        "positions, on a logarithmic scale. By the same factor they are "
        f"evenly spread; by the same step all but {fast} lie above 1,000.",
    )


def head(weights: Tensor) -> Picture:
    """The weights (query_len, key_len) of a head that looks back."""
    count = len(weights)

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        cell = 20
        sketch = Sketch(wide, 44 + cell * count)
        left = 90 if narrow else 250
        sketch.words(left + cell * count / 2, 10, "looked at")
        sketch.words(left - 30, 30, "looks", "end")
        for i, row in enumerate(weights.tolist()):
            y = 42 + cell * (i + 0.5)
            sketch.words(left - 14, y, str(i), "end", size=12)
            x = left + cell * (i + 0.5)
            sketch.words(x, 30, str(i), size=12)
            for j, weight in enumerate(row):
                sketch.box(
                    left + cell * (j + 0.5),
                    y,
                    "",
                    "attention",
                    width=cell - 2,
                    height=cell - 2,
                    fill_opacity=0.03 + 0.9 * weight,
                    stroke_opacity=0.3,
                )
            # where it is itself
            sketch.dot(x, y, "none", 4, stroke="currentColor")
        return sketch

    return show(
        draw,
        "Attention weights: apart from the first three rows, each row has "
        "its full cell three columns to the left of the diagonal, which is "
        "marked by circles.",
    )


def longer(record: Mapping[str, Any]) -> Markdown:
    """Tokens right by the number of sentences, a share for each seed."""
    rows: dict[tuple, dict] = {}
    for run in record["runs"]:
        kind, trained_on = run["positions"], run["trained_on"]
        row = rows.setdefault(
            (kind, trained_on),
            {"positions": kind, "sentences in training": trained_on},
        )
        for count, pieces in record["pieces"].items():
            column = f"{count}, of {pieces:.0f} tokens"
            share = f"{run['tested_on'][count]['right']:.1%}"
            before = [row[column]] if column in row else []
            row[column] = ", ".join([*before, share])
    return Markdown(markdown_table([*rows.values()]))
