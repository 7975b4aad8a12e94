"""What the chapter on attention shows."""

from collections.abc import Mapping, Sequence

import numpy as np

from transformer_book.figures import (
    COLOURS,
    GAP,
    WIDE,
    WIDTH,
    Picture,
    Sketch,
    panels,
    show,
)


def _matrix(
    sketch: Sketch,
    x: float,
    y: float,
    numbers: np.ndarray,
    part: str,
    size: tuple[float, float],
    name: str = "",
    lit: int | None = None,
) -> float:
    """A grid of numbers from its upper left corner; where it ends.

    The row `lit` stands out; without it no row does.
    """
    wide, high = size
    for (i, j), number in np.ndenumerate(numbers):
        middle = x + wide * (j + 0.5), y + high * (i + 0.5)
        text = f"{number:g}".replace("-", "−")
        strength = 0.22 if lit is None else 0.5 if i == lit else 0.05
        sketch.box(*middle, text, part, wide, high, fill_opacity=strength)
    end = x + wide * numbers.shape[1]
    if name:
        sketch.words((x + end) / 2, y - 12, name)
    return end


def projections(
    tokens: Sequence[str],
    X: np.ndarray,
    maps: Mapping[str, tuple[str, np.ndarray, np.ndarray]],
    lit: int,
) -> Picture:
    """X times each W: `maps` has the part, W and X W for each name.

    The token `lit` is marked in X and in the products.
    """

    size, start, gap = (26, 24), 56, 32
    step = 3 * size[1] + 44
    sketch = Sketch(WIDTH, 3 * step + 4)
    below = 28 + step
    for i, token in enumerate(tokens):
        y = below + size[1] * (i + 0.5)
        look = {"font_weight": "bold"} if i == lit else {}
        sketch.words(start - 8, y, token, "end", **look)
    middle = below + 1.5 * size[1]
    end = _matrix(sketch, start, below, X, "embedding", size, "X", lit)
    for number, (name, (part, W, product)) in enumerate(maps.items()):
        y = 28 + step * number
        level = y + 1.5 * size[1]
        turn, times = end + 0.3 * gap, end + 0.66 * gap
        corners = (turn, middle), (turn, level), (times - 8, level)
        sketch.line((end, middle), *corners)
        sketch.words(times, level, "×")
        after = _matrix(sketch, end + gap, y, W, part, size, "W")
        sketch.words((end + gap + after) / 2 + 12, y - 17, name, size=12)
        begin = end + 2 * gap + size[0] * 4
        sketch.words((after + begin) / 2, level, "=")
        _matrix(sketch, begin, y, product, part, size, name, lit)
    return show(
        sketch,
        "X, with one row per token, is multiplied by W Q, W K and W V. "
        "Q and K have four numbers per token, V has two. The row of "
        f"{tokens[lit]} is marked in X, and so are its query, its key and "
        "its value.",
    )


def one_query(
    tokens: Sequence[str],
    asks: str,
    query: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    scores: Sequence[float],
    weights: Sequence[float],
    output: np.ndarray,
) -> Picture:
    """One query against every key, and the values that it mixes."""

    size, gap, step = (22, 26), 26, 80
    sketch = Sketch(WIDTH, 42 + step * len(tokens))
    middle = 74 + step * (len(tokens) - 1) / 2
    corner = middle - size[1] / 2
    end = _matrix(sketch, 4, corner, query[None], "query", size)
    sketch.words((end + 4) / 2, corner - 30, "query")
    sketch.words((end + 4) / 2, corner - 12, f"of {asks}")
    keys = end + gap
    close = keys + size[0] * K.shape[1]
    values = close + 76
    leave = values + size[0] * V.shape[1]
    arrive = leave + 42
    for start, stop, name in (
        (keys, close, "keys"),
        (close, values, "weights"),
        (values, leave, "values"),
    ):
        sketch.words((start + stop) / 2, 14, name, font_weight="bold")
    wide = 30  # of all bands together
    below = middle - wide / 2
    rows = zip(tokens, scores, weights, strict=True)
    for i, (token, score, weight) in enumerate(rows):
        y = 74 + step * i
        top = y - size[1] / 2
        sketch.line((end, middle), (keys, y), colour="query", arrow=True)
        _matrix(sketch, keys, top, K[i : i + 1], "key", size)
        sketch.words(keys, top - 12, token, "start")
        between = (close + values) / 2
        sketch.words(between, y - 20, f"score {score:.0f}")
        sketch.words(between, y, f"{weight:.3f}", font_weight="bold")
        _matrix(sketch, values, top, V[i : i + 1], "value", size)
        thick = wide * weight
        below += thick / 2
        bend = (leave + arrive) / 2
        path = [(leave, y), (bend, y), (bend, below), (arrive, below)]
        sketch.flow(*path, width=thick, colour="value")
        below += thick / 2
    size = 30, 26
    mixed = output[None].round(1)
    last = _matrix(sketch, arrive, corner, mixed, "value", size)
    sketch.words((arrive + last) / 2, corner - 12, "output")
    return show(
        sketch,
        "On the left a query, joined to the keys of all three tokens. Each "
        "key leads to a score, a weight and its token's value. Bands from the "
        "values, as wide as the weights, run together into the output: "
        "the widest comes from trees, then I.",
    )


def widths(shares: Mapping[int, np.ndarray]) -> Picture:
    """Weights of eight keys, a panel for each number that divided."""
    said = {
        1: "undivided: one key\ntakes nearly everything",
        8: "÷ 8, the root:\nthe keys differ",
        64: "÷ 64: all keys\nare nearly equal",
    }
    figures, axes = panels(3, 200)
    for ax, (divisor, weights) in zip(axes, shares.items(), strict=True):
        keys = range(1, len(weights) + 1)
        ax.bar(keys, weights, color=COLOURS["attention"])
        ax.set_title(said[divisor])
        ax.set(ylim=(0, 1), yticks=[0, 0.5, 1], xticks=keys)
        ax.set(xlabel="key", ylabel="weight")
    return show(
        figures,
        "Weights of eight keys as bars, three times. Undivided, one key has "
        "nearly all. Divided by 8, the root of 64, the largest has about a "
        "third. Divided by 64, all have about an eighth.",
    )


def stripes(tokens: Sequence[str], h: int) -> Picture:
    """One matrix that holds the query matrices of all heads."""

    rise, stripe, side, start, level = 26, 32, 54, 54, 112
    sketch = Sketch(WIDTH, 190)
    gap = (WIDTH - start - side - 2 * h * stripe - 4) / 2

    def block(x: float, part: str, wide: float, rows: int, **look):
        height = rows * rise
        sketch.box(x + wide / 2, level, "", part, wide, height, **look)

    for i, token in enumerate(tokens):
        y = level + rise * (i - (len(tokens) - 1) / 2)
        sketch.words(start - 8, y, token, "end")
    block(start, "embedding", side, len(tokens))
    sketch.words(start + side / 2, level, "X")
    matrix = start + side + gap
    sketch.words(matrix - gap / 2, level, "×")
    product = matrix + h * stripe + gap
    sketch.words(product - gap / 2, level, "=")
    for head in range(h):
        # one head is followed from its stripe to its block
        look = {"fill_opacity": 0.55 if head == 1 else 0.16}
        for x, rows in (matrix, 4), (product, len(tokens)):
            x += head * stripe
            block(x, "query", stripe, rows, **look)
            sketch.words(x + stripe / 2, level - 66, f"{head + 1}")
    for x, title in (matrix, "heads of w_q"), (product, "their queries"):
        x += h * stripe / 2
        sketch.words(x, 18, title, font_weight="bold")
    return show(
        sketch,
        f"A matrix X with a row for each of {len(tokens)} tokens, times a "
        f"matrix of {h} stripes, one for each head, is a matrix of {h} "
        "blocks: the queries of each head. The second head's stripe and its "
        "block are marked.",
    )


def figure_2(h: int = 8) -> Picture:
    """The paper's figure 2: one attention, and `h` side by side."""
    width = (WIDE - GAP) / 2
    return show(
        [_single(Sketch(width, 356)), _several(Sketch(width, 356), h)],
        "Scaled dot-product attention: queries times keys, scale, mask, "
        "softmax, times values. It is drawn as the first of "
        f"{h} narrow columns of multi-head attention. Each column has three "
        "linear maps, of Q, K and V, and an attention; their outputs lie "
        "side by side, concatenated, and go through a last linear map.",
    )


def _single(sketch: Sketch) -> Sketch:
    """One attention, from Q, K and V at the bottom."""
    inks = {"Q": "query", "K": "key", "V": "value"}
    middle = sketch.width / 2
    x = middle - 35  # of the boxes that make the weights
    title = "Scaled dot-product attention"
    sketch.words(middle, 12, title, font_weight="bold")
    frame = {"width": 240, "height": 294, "fill_opacity": 0.07}
    sketch.box(middle, 175, "", "attention", **frame)
    sketch.box(middle, 60, "MatMul", "value", 200)
    for y, text in (
        (126, "SoftMax"),
        (178, "Mask (optional)"),
        (230, "Scale (÷ √64)"),
        (296, "MatMul"),
    ):
        sketch.box(x, y, text, "attention", 130)
    for low, high in ((281, 245), (215, 193), (163, 141), (111, 75)):
        sketch.line((x, low), (x, high), arrow=True)
    for y, name in ((264, "scores"), (93, "weights")):
        sketch.words(x + 8, y, name, "start")
    for place, stop, name in (
        (x - 35, 311, "Q"),
        (x + 35, 311, "K"),
        (x + 110, 75, "V"),
    ):
        sketch.line((place, 336), (place, stop), arrow=True)
        look = {"colour": inks[name], "font_weight": "bold"}
        sketch.words(place, 346, name, **look)
    return sketch


def _several(sketch: Sketch, h: int) -> Sketch:
    """All of them in columns; the first is drawn in full beside it."""
    cell, left = 31, 6
    right = left + h * cell
    middle = (left + right) / 2
    title = f"Multi-head attention, h = {h}"
    sketch.words(middle, 12, title, font_weight="bold")
    sketch.line((middle, 41), (middle, 24), arrow=True)
    sketch.box(middle, 56, "Linear", "muted", h * cell)
    sketch.line((middle, 102), (middle, 71), arrow=True)
    sketch.words(right + 8, 117, "Concat", "start")
    for name, part, y in (
        ("V", "value", 264),
        ("K", "key", 290),
        ("Q", "query", 316),
    ):
        sketch.words(right + 8, y, f"Linear ← {name}", "start", part)
        for i in range(h):
            sketch.box(left + cell * (i + 0.5), y, "", part, cell - 4, 24)
    for i in range(h):
        x = left + cell * (i + 0.5)
        sketch.box(x, 117, "", "value", cell)
        sketch.line((x, 172), (x, 132), arrow=True)
        look = {"fill_opacity": 0.5 if i == 0 else 0.22}
        sketch.box(x, 195, str(i + 1), "attention", cell - 4, 44, **look)
        sketch.line((x, 251), (x, 217), arrow=True)
    return sketch
