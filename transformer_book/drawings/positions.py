"""What the chapter on positions shows."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import drawsvg
from IPython.display import Markdown
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    WIDTH,
    Picture,
    Sketch,
    chart,
    fading,
    show,
)
from transformer_book.tables import markdown_table


def hands(places: Sequence[int], angles: Sequence) -> Picture:
    """Dials whose hands point at `angles`, a list for each place.

    Where places are left out, three dots say so.
    """
    pairs = len(angles[0])
    order = "first", "second", "third", "fourth", "fifth", "sixth"

    left, gap = 56, 14
    jumps = [after - before > 1 for before, after in pairwise(places)]
    step = (WIDTH - left - gap * sum(jumps)) / len(places)
    radius = min(34, 0.42 * step)
    down = 2 * radius + 24
    sketch = Sketch(WIDTH, 46 + pairs * down)
    sketch.words(left + (WIDTH - left) / 2, 10, "position")
    x = left + 0.5 * step
    for column, pos in enumerate(places):
        if column:
            x += step
            if jumps[column - 1]:
                x += gap
                sketch.words(x - (step + gap) / 2, 32, "…")
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
            sketch.line((x, y), tip, width=3.2, colour="position", arrow=True)
    for row in range(pairs):
        y = 46 + down * (row + 0.5)
        sketch.words(0, y, order[row], "start")

    return show(
        sketch,
        f"Dials in {pairs} rows, one for each hand, a column each for the "
        f"positions {', '.join(map(str, places))}. At position 0 all hands "
        "point straight up; from position to position the first hand turns "
        "most, and the last one hardly moves.",
    )


def table(encodings: Tensor) -> Picture:
    """All encodings (length, d_model), one row for each position."""
    length, d_model = encodings.shape

    figure, ax = chart(250)
    look = {"cmap": fading("attention", signed=True), "aspect": "auto"}
    look |= {"clim": (-1, 1), "interpolation": "none"}
    bar = figure.colorbar(ax.imshow(encodings, **look), ax=ax, shrink=0.8)
    bar.solids.set(rasterized=True, edgecolor="none", linewidth=0)
    bar.ax.patch.set_visible(False)
    ax.set(xlabel="dimension", ylabel="position")
    ax.set_xticks(range(0, d_model, 8))
    ax.set_yticks(range(0, length, 8))

    return show(
        figure,
        f"A grid of {length} positions by {d_model} dimensions: on the "
        "left the signs change from row to row, on the right they stay "
        "the same.",
    )


def ladders(hands: int) -> Picture:
    """Wavelengths by one factor and by one step, counted by tens.

    The line is logarithmic, and under each of its tenfold parts is how
    many hands it has.
    """
    longest = 2 * math.pi * 10_000 ** ((hands - 1) / hands)
    shares = [i / (hands - 1) for i in range(hands)]
    first = 2 * math.pi
    rows = {
        "each longer by the same factor": [
            first * (longest / first) ** share for share in shares
        ],
        "each longer by the same number": [
            first + (longest - first) * share for share in shares
        ],
    }
    bounds = [4, 10, 100, 1000, 10_000, 60_000]

    def counted(lengths: Sequence[float]) -> list[int]:
        return [
            sum(low <= length < high for length in lengths)
            for low, high in pairwise(bounds)
        ]

    sketch = Sketch(WIDTH, 232)

    def place(length: float) -> float:
        whole = math.log10(bounds[-1] / bounds[0])
        return 4 + (WIDTH - 8) * math.log10(length / bounds[0]) / whole

    for bound in bounds[1:-1]:
        x = place(bound)
        look = dict(colour="muted", stroke_dasharray="3 4")
        sketch.line((x, 24), (x, 188), **look)
        sketch.words(x, 200, f"{bound:,}")
    for row, (name, lengths) in enumerate(rows.items()):
        y = 50 + 88 * row
        sketch.words(4, y - 32, name, "start", font_weight="bold")
        sketch.line((4, y), (WIDTH - 4, y), colour="muted")
        for length in lengths:
            x = place(length)
            look = dict(colour="position", width=2.5)
            sketch.line((x, y - 12), (x, y + 12), **look)
        parts = zip(pairwise(bounds), counted(lengths), strict=True)
        for (low, high), count in parts:
            told = str(count)
            if high == 10 * low:  # there is room
                told = f"{count or 'no'} hand{'s' if count != 1 else ''}"
            sketch.words((place(low) + place(high)) / 2, y + 26, told)
    told = "positions for one turn of a hand (logarithmic)"
    sketch.words(WIDTH / 2, 222, told)
    told = "; ".join(
        f"{name}: {', '.join(map(str, counted(lengths)))}"
        for name, lengths in rows.items()
    )
    return show(
        sketch,
        f"Two logarithmic lines with {hands} marks each, up to "
        f"{longest:,.0f} positions. How many take under 10 positions, under "
        f"100, under 1,000, under 10,000 and more: {told}.",
    )


def head(weights: Tensor) -> Picture:
    """The weights (query_len, key_len) of a head that looks back.

    An arc from each position to the one that has most of its weight.
    """
    most = weights.argmax(-1).tolist()
    back = len(most) - 1 - most[-1]

    step = (WIDTH - 48) / (len(most) - 1)
    sketch = Sketch(WIDTH, 128)
    level = 84
    for i, j in enumerate(most):
        start, end = 33 + step * i, 33 + step * j
        # arcs that end at one dot end side by side
        end += 2 + 4 * max(0, back - (i - j))
        path = drawsvg.Path().M(start, level - 9)
        bend = level - 9 - 47 * (i - j)
        path.Q((start + end) / 2, bend, end, level - 9)
        if i == j:  # a loop
            path = drawsvg.Path().M(start - 6, level - 7)
            path.C(8, level - 12, 8, level - 44, start - 2, level - 9)
        look = dict(colour="attention", width=2)
        if i - j < back:
            look = dict(colour="muted", width=1.8, stroke_dasharray="4 3")
        sketch.stroke(path, arrow=True, **look)
    for i in range(len(most)):
        sketch.dot(33 + step * i, level, "position", 7)
        sketch.words(33 + step * i, level + 24, str(i))

    told = ", ".join(f"{i} at {j}" for i, j in enumerate(most))
    return show(
        sketch,
        f"{len(most)} positions in a row, and an arc from each to the one at "
        f"which it looks: {told}.",
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
