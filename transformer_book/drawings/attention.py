"""What the chapter on attention shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    altair,
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
) -> float:
    """A grid of numbers from its upper left corner; where it ends."""
    wide, high = size
    for (i, j), number in np.ndenumerate(numbers):
        middle = x + wide * (j + 0.5), y + high * (i + 0.5)
        sketch.box(*middle, f"{number:g}", part, wide, high)
    end = x + wide * numbers.shape[1]
    if name:
        sketch.words((x + end) / 2, y - 12, name)
    return end


def projections(
    tokens: Sequence[str],
    X: np.ndarray,
    maps: Mapping[str, tuple[str, np.ndarray, np.ndarray]],
) -> Picture:
    """X times each W: `maps` has the part, W and X W for each name."""

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
            sketch.words(start - 8, y, token, anchor="end")
        middle = below + 1.5 * size[1]
        end = _matrix(sketch, start, below, X, "embedding", size, "X")
        for number, (name, (part, W, product)) in enumerate(maps.items()):
            y = 28 + step * number
            level = y + 1.5 * size[1]
            turn = end + gap * 0.4
            corners = (turn, middle), (turn, level), (end + gap, level)
            sketch.line((end, middle), *corners, arrow=True)
            after = _matrix(sketch, end + gap, y, W, part, size, "W")
            beside = (end + gap + after) / 2 + 12
            sketch.words(beside, y - 17, name, size=11)
            begin = end + 2 * gap + size[0] * 4
            sketch.line((after, level), (begin, level), arrow=True)
            last = _matrix(sketch, begin, y, product, part, size, name)
            for i, token in enumerate([] if narrow else tokens):
                beside = y + size[1] * (i + 0.5)
                sketch.words(last + 10, beside, token, anchor="start")
        return sketch

    return show(
        draw,
        "X, with one row per token, is multiplied by W Q, W K and W V. "
        "Q and K have four numbers per token, V has two.",
    )


def one_query(
    tokens: Sequence[str],
    asks: str,
    query: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    weights: np.ndarray,
    output: np.ndarray,
) -> Picture:
    """One query against every key, and the values that it mixes."""

    def draw(narrow: bool) -> Sketch:
        width = (PHONE if narrow else PAGE) * 96
        size = (16, 22) if narrow else (30, 26)
        step = 74 if narrow else 84
        sketch = Sketch(width, 64 + step * len(tokens))
        gap = 21 if narrow else 54
        middle = 74 + step * (len(tokens) - 1) / 2
        corner = middle - size[1] / 2
        end = _matrix(sketch, 4, corner, query[None], "query", size)
        sketch.words((end + 4) / 2, corner - 30, "query")
        sketch.words((end + 4) / 2, corner - 12, f"of {asks}")
        keys = end + gap
        shares = keys + size[0] * K.shape[1] + 5
        values = shares + (62 if narrow else 70)
        leave = values + size[0] * V.shape[1]
        arrive = leave + gap + (12 if narrow else 40)
        places = (keys, shares, "keys"), (shares, values, "weights")
        last = values, leave + (24 if narrow else 0), "values"
        for start, stop, name in (*places, last):
            sketch.words((start + stop) / 2, 14, name, font_weight="bold")
        wide = 28 if narrow else 34
        below = middle - wide / 2
        for i, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
            y = 74 + step * i
            top = y - size[1] / 2
            sketch.line((end, middle), (keys, y), colour="query", arrow=True)
            _matrix(sketch, keys, top, K[i : i + 1], "key", size)
            sketch.words(keys, top - 12, token, anchor="start")
            sketch.words((shares + values) / 2, y, f"{weight:.3f}")
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
        "key leads to a weight and to its token's value. Bands from the "
        "values, as wide as the weights, run together into the output: "
        "the widest comes from trees, then I.",
    )


def widths(products: Mapping[int, np.ndarray]) -> Any:
    """Weights of eight keys at each width d_k, to divide by a number."""
    alt = altair()
    rows = [
        {"width": d_k, "key": i + 1, "product": float(p - of_one.max())}
        for d_k, of_one in products.items()
        for i, p in enumerate(of_one)
    ]
    choices = alt.binding_radio(options=list(products), name="d_k ")
    width = alt.param(name="d_k", value=64, bind=choices)
    slider = alt.binding_range(min=1, max=64, step=1, name="divide by ")
    divisor = alt.param(name="divisor", value=1, bind=slider)
    return (
        alt.Chart(
            alt.Data(values=rows),
            width=480,
            height=180,
            description="Bars for the weights of eight keys: one takes "
            "nearly all undivided, all are near equal divided by d_k.",
        )
        .mark_bar(color=COLOURS["query"])
        .add_params(width, divisor)
        .transform_filter("datum.width == d_k")
        .transform_calculate(grown="exp(datum.product / divisor)")
        .transform_joinaggregate(total="sum(grown)")
        .transform_calculate(weight="datum.grown / datum.total")
        .encode(
            x=alt.X("key:O").axis(labelAngle=0),
            y=alt.Y("weight:Q").scale(domain=[0, 1]),
        )
    )


def figure_2() -> Picture:
    """The paper's figure 2: one attention, and many side by side."""
    words = "Scaled dot-product attention"

    def stack(sketch, x, y, text, part, width, many):
        """Boxes behind one another, the foremost with words."""
        for i in reversed(range(many)):
            place = x + 5 * i, y - 5 * i
            front = text if i == 0 else ""
            sketch.box(*place, front, part, width, 30, solid=True)

    def single(sketch, x, top):
        """Left half: x is the middle of the product's boxes."""
        sketch.words(x + 20, top + 12, words, font_weight="bold")
        for y, text, part in (
            (56, "MatMul", "value"),
            (126, "SoftMax", "norm"),
            (178, "Mask (optional)", "muted"),
            (230, "Scale", "muted"),
            (282, "MatMul", "query"),
        ):
            middle = x + 35 if y == 56 else x
            wide = 200 if y == 56 else 130
            sketch.box(middle, top + y, text, part, wide)
        for low, high in ((267, 245), (215, 193), (163, 141), (111, 71)):
            sketch.line((x, top + low), (x, top + high), arrow=True)
        sketch.line((x, top + 41), (x, top + 24), arrow=True)
        for place, stop, name in (
            (x - 35, 297, "Q"),
            (x + 35, 297, "K"),
            (x + 110, 71, "V"),
        ):
            start = (place, top + 336)
            sketch.line(start, (place, top + stop), arrow=True)
            sketch.words(place, top + 346, name)

    def several(sketch, x, top):
        """Right half: h attentions between linear maps."""
        sketch.words(x, top + 12, "Multi-head attention", font_weight="bold")
        sketch.line((x, top + 41), (x, top + 24), arrow=True)
        sketch.box(x, top + 56, "Linear", "muted", 130)
        sketch.line((x, top + 102), (x, top + 71), arrow=True)
        sketch.box(x, top + 117, "Concat", "muted", 130)
        sketch.line((x, top + 172), (x, top + 132), arrow=True)
        stack(sketch, x, top + 197, words, "query", 230, 3)
        sketch.words(x + 140, top + 187, "h")
        for shift, name, part in (
            (-90, "Q", "query"),
            (0, "K", "key"),
            (90, "V", "value"),
        ):
            place = x + shift
            sketch.line((place, top + 247), (place, top + 212), arrow=True)
            stack(sketch, place, top + 272, "Linear", part, 66, 3)
            sketch.line((place, top + 336), (place, top + 287), arrow=True)
            sketch.words(place, top + 346, name)
        sketch.words(x + 140, top + 262, "h")

    def draw(narrow: bool) -> Sketch:
        size = (PHONE * 96, 760) if narrow else (PAGE * 96, 362)
        sketch = Sketch(*size)
        single(sketch, 130, 0)
        several(sketch, *((160, 395) if narrow else (520, 0)))
        return sketch

    return show(
        draw,
        "Left: queries times keys, scale, mask, softmax, times values. "
        "Right: h linear maps each, h attentions, concat, a linear map.",
    )
