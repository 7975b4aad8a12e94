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


def head(weights: Tensor) -> Picture:
    """The weights (query_len, key_len) of a head that looks back."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8 if narrow else 5)
        every = 2 if narrow else 1
        names = [i if i % every == 0 else "" for i in range(len(weights))]
        heatmap(
            weights,
            names,
            names,
            ax=ax,
            limits=(0, 1),
            axes=("query position", "key position"),
            scale="weight",
        )
        return figure

    return show(
        draw,
        "Attention weights: apart from the first three rows, each row has "
        "its full cell three columns to the left of the diagonal.",
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
