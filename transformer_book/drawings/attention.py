"""What the chapter on attention shows."""

from collections.abc import Mapping, Sequence

import numpy as np

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
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

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        size = (19, 22) if narrow else (34, 26)
        gap = 20 if narrow else 62
        step = 3 * size[1] + 44
        sketch = Sketch(width, 3 * step + 4)
        start = 46 if narrow else 64
        below = 28 + step
        for i, token in enumerate(tokens):
            y = below + size[1] * (i + 0.5)
            look = {"font_weight": "bold"} if i == lit else {}
            sketch.words(start - 8, y, token, anchor="end", **look)
        middle = below + 1.5 * size[1]
        end = _matrix(sketch, start, below, X, "embedding", size, "X", lit)
        for number, (name, (part, W, product)) in enumerate(maps.items()):
            y = 28 + step * number
            level = y + 1.5 * size[1]
            turn = end + gap * 0.4
            times = end + (0.66 if narrow else 0.78) * gap
            corners = (turn, middle), (turn, level), (times - 8, level)
            sketch.line((end, middle), *corners)
            sketch.words(times, level, "×")
            after = _matrix(sketch, end + gap, y, W, part, size, "W")
            beside = (end + gap + after) / 2 + 12
            sketch.words(beside, y - 17, name, size=12)
            begin = end + 2 * gap + size[0] * 4
            sketch.words((after + begin) / 2, level, "=")
            last = _matrix(sketch, begin, y, product, part, size, name, lit)
            if not narrow:
                what = {"query": "its query", "key": "its key"}
                told = what.get(part, "its value")
                told += f", {product.shape[1]} numbers"
                beside = y + size[1] * (lit + 0.5)
                sketch.words(last + 10, beside, told, anchor="start")
        return sketch

    return show(
        draw,
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

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        size = (16, 22) if narrow else (30, 26)
        step = 74 if narrow else 84
        sketch = Sketch(width, 38 + step * len(tokens))
        gap = 21 if narrow else 44
        middle = 74 + step * (len(tokens) - 1) / 2
        corner = middle - size[1] / 2
        end = _matrix(sketch, 4, corner, query[None], "query", size)
        sketch.words((end + 4) / 2, corner - 30, "query")
        sketch.words((end + 4) / 2, corner - 12, f"of {asks}")
        keys = end + gap
        shares = keys + size[0] * K.shape[1] + 5
        if not narrow:
            shares += 66  # a column of scores before that of weights
        values = shares + (62 if narrow else 76)
        leave = values + size[0] * V.shape[1]
        arrive = leave + gap + (12 if narrow else 50)
        close = keys + size[0] * K.shape[1]
        places = [
            (keys, close, "keys"),
            (shares, values, "weights"),
            (values, leave + (24 if narrow else 0), "values"),
        ]
        if not narrow:
            places.append((close, shares, "scores"))
        for start, stop, name in places:
            sketch.words((start + stop) / 2, 14, name, font_weight="bold")
        wide = 28 if narrow else 34
        below = middle - wide / 2
        rows = zip(tokens, scores, weights, strict=True)
        for i, (token, score, weight) in enumerate(rows):
            y = 74 + step * i
            top = y - size[1] / 2
            sketch.line((end, middle), (keys, y), colour="query", arrow=True)
            _matrix(sketch, keys, top, K[i : i + 1], "key", size)
            sketch.words(keys, top - 12, token, anchor="start")
            sketch.words((shares + values) / 2, y, f"{weight:.3f}")
            if narrow:  # above its weight
                told = f"score {score:.0f}"
                sketch.words((shares + values) / 2, y - 20, told, size=12)
            else:
                sketch.words((close + shares) / 2, y, f"{score:.1f}")
            _matrix(sketch, values, top, V[i : i + 1], "value", size)
            thick = wide * weight
            below += thick / 2
            bend = (leave + arrive) / 2
            path = [(leave, y), (bend, y), (bend, below), (arrive, below)]
            sketch.flow(*path, width=thick, colour="value")
            below += thick / 2
        size = (24, 22) if narrow else (42, 26)
        last = _matrix(
            sketch, arrive, corner, output[None].round(1), "value", size
        )
        sketch.words((arrive + last) / 2, corner - 12, "output")
        return sketch

    return show(
        draw,
        "On the left a query, joined to the keys of all three tokens. Each "
        "key leads to a score, a weight and its token's value. Bands from the "
        "values, as wide as the weights, run together into the output: "
        "the widest comes from trees, then I.",
    )


def widths(shares: Mapping[int, np.ndarray]) -> Picture:
    """Weights of eight keys, a panel for each number that divided."""
    said = {
        1: "undivided: one key takes\nnearly everything",
        8: "÷ 8, the root:\nthe keys differ",
        64: "÷ 64: all keys\nare nearly equal",
    }

    def draw(narrow: bool):
        figure, axes = panels(3, narrow, height=2.1, sharey=True)
        for ax, (divisor, weights) in zip(axes, shares.items(), strict=True):
            keys = range(1, len(weights) + 1)
            ax.bar(keys, weights, color=COLOURS["attention"])
            ax.set_title(said[divisor])
            ax.set(ylim=(0, 1), yticks=[0, 0.5, 1], xticks=keys)
            ax.set_xlabel("key")
            if narrow or ax is axes[0]:
                ax.set_ylabel("weight")
        return figure

    return show(
        draw,
        "Weights of eight keys as bars, three times. Undivided, one key has "
        "nearly all. Divided by 8, the root of 64, the largest has about a "
        "third. Divided by 64, all have about an eighth.",
    )


def stripes(tokens: Sequence[str], h: int) -> Picture:
    """One matrix that holds the query matrices of all heads."""

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(width, 200)
        rise = 26
        stripe = 26 if narrow else 58
        side = 38 if narrow else 100
        start = 48 if narrow else 60
        gap = (width - start - side - 2 * h * stripe - 4) / 2
        level = 112

        def block(x: float, part: str, wide: float, rows: int, **look):
            height = rows * rise
            sketch.box(x + wide / 2, level, "", part, wide, height, **look)

        for i, token in enumerate(tokens):
            y = level + rise * (i - (len(tokens) - 1) / 2)
            sketch.words(start - 8, y, token, anchor="end")
        block(start, "embedding", side, len(tokens))
        sketch.words(start + side / 2, level, "X")
        matrix = start + side + gap
        sketch.words(matrix - gap / 2, level, "×")
        product = matrix + h * stripe + gap
        sketch.words(product - gap / 2, level, "=")
        for head in range(h):
            # one head is followed from its stripe to its block
            look = {"fill_opacity": 0.55 if head == 1 else 0.16}
            x = matrix + head * stripe
            block(x, "query", stripe, 4, **look)
            name = f"{head + 1}" if narrow else f"head {head + 1}"
            sketch.words(x + stripe / 2, level - 66, name)
            x = product + head * stripe
            block(x, "query", stripe, len(tokens), **look)
            sketch.words(x + stripe / 2, level - 66, name)
        middle = matrix + h * stripe / 2
        title = "heads of w_q" if narrow else "w_q: four matrices side by side"
        sketch.words(middle, 18, title, font_weight="bold")
        middle = product + h * stripe / 2
        title = "their queries" if narrow else "the queries of four heads"
        sketch.words(middle, 18, title, font_weight="bold")
        return sketch

    return show(
        draw,
        f"A matrix X with a row for each of {len(tokens)} tokens, times a "
        f"matrix of {h} stripes, one for each head, is a matrix of {h} "
        "blocks: the queries of each head. The second head's stripe and its "
        "block are marked.",
    )


def figure_2(h: int = 8) -> Picture:
    """The paper's figure 2: one attention, and `h` side by side."""
    inks = {"Q": "query", "K": "key", "V": "value"}

    def single(sketch, x, top):
        """One attention: x is the middle of the product's boxes."""
        title = "Scaled dot-product attention"
        sketch.words(x + 35, top + 12, title, font_weight="bold")
        frame = dict(width=230, height=294, fill_opacity=0.07)
        sketch.box(x + 35, top + 175, "", "attention", **frame)
        for y, text, part in (
            (60, "MatMul", "value"),
            (126, "SoftMax", "attention"),
            (178, "Mask (optional)", "attention"),
            (230, "Scale (÷ √64)", "attention"),
            (296, "MatMul", "attention"),
        ):
            place = (x + 35, 200) if part == "value" else (x, 130)
            sketch.box(place[0], top + y, text, part, place[1])
        for low, high in ((281, 245), (215, 193), (163, 141), (111, 75)):
            sketch.line((x, top + low), (x, top + high), arrow=True)
        for y, name in ((264, "scores"), (93, "weights")):
            sketch.words(x + 8, top + y, name, "start", size=12)
        for place, stop, name in (
            (x - 35, 311, "Q"),
            (x + 35, 311, "K"),
            (x + 110, 75, "V"),
        ):
            start = (place, top + 336)
            sketch.line(start, (place, top + stop), arrow=True)
            look = dict(colour=inks[name], font_weight="bold")
            sketch.words(place, top + 346, name, **look)

    def several(sketch, left, top, cell):
        """All of them, from the left edge of the first."""
        right = left + h * cell
        middle = (left + right) / 2
        title = f"Multi-head attention, h = {h}"
        sketch.words(middle, top + 12, title, font_weight="bold")
        sketch.line((middle, top + 41), (middle, top + 24), arrow=True)
        sketch.box(middle, top + 56, "Linear", "muted", h * cell)
        sketch.line((middle, top + 102), (middle, top + 71), arrow=True)
        sketch.words(right + 8, top + 117, "Concat", "start", size=12)
        for name, y in ("V", 264), ("K", 290), ("Q", 316):
            look = dict(colour=inks[name], size=12)
            sketch.words(
                right + 8, top + y, f"Linear ← {name}", "start", **look
            )
        for i in range(h):
            x = left + cell * (i + 0.5)
            sketch.box(x, top + 117, "", "value", cell)
            sketch.line((x, top + 172), (x, top + 132), arrow=True)
            look = {"fill_opacity": 0.5 if i == 0 else 0.22}
            text = str(i + 1)
            sketch.box(x, top + 195, text, "attention", cell - 4, 44, **look)
            sketch.line((x, top + 251), (x, top + 217), arrow=True)
            for part, y in ("value", 264), ("key", 290), ("query", 316):
                sketch.box(x, top + y, "", part, cell - 4, 24)

    def draw(narrow: bool) -> Sketch:
        size = (PHONE * 96, 730) if narrow else (PAGE * 96, 356)
        sketch = Sketch(*size)
        look = dict(colour="attention", stroke_dasharray="5 4", width=1.6)
        if narrow:
            single(sketch, 140, 0)
            several(sketch, 16, 390, 31)
            way = [(60, 300), (6, 300), (6, 585), (18, 585)]
            sketch.line(*way, **look)
        else:
            single(sketch, 86, 0)
            several(sketch, 326, 0, 38)
            sketch.line((236, 28), (328, 173), **look)
            sketch.line((236, 322), (328, 217), **look)
        return sketch

    return show(
        draw,
        "Scaled dot-product attention: queries times keys, scale, mask, "
        "softmax, times values. It is drawn as the first of "
        f"{h} narrow columns of multi-head attention. Each column has three "
        "linear maps, of Q, K and V, and an attention; their outputs lie "
        "side by side, concatenated, and go through a last linear map.",
    )
