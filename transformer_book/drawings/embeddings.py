"""What the chapter on embeddings shows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    PAPER,
    WIDTH,
    Picture,
    Sketch,
    show,
    width_of,
)


def neighbours(
    near: Mapping[str, Sequence[tuple[str, float]]],
    translations: Mapping[str, tuple[str, float]],
) -> Picture:
    """Tokens, and where their nearest and their translation lie.

    Each has a line of cosines, from -0.35 to 0.6.
    """
    low, high = -0.35, 0.6
    left, right, step, top = 92, WIDTH - 8, 78, 62
    bottom = top + step * (len(near) - 1) + 38
    sketch = Sketch(WIDTH, bottom + 44)

    def place(cosine: float) -> float:
        return left + (right - left) * (cosine - low) / (high - low)

    ring = {"stroke": "currentColor", "stroke_width": 1.4}
    edge = {"stroke": PAPER, "stroke_width": 1}
    dashes = {"colour": "muted", "stroke_dasharray": "3 4"}
    sketch.line((place(0), 24), (place(0), bottom), **dashes)
    sketch.words(place(0), 12, "its translation")
    sketch.words(right, 12, "its nearest", "end", "embedding")
    for row, (token, found) in enumerate(near.items()):
        y = top + step * row
        other, cosine = translations[token]
        sketch.line((left, y), (right, y), colour="muted")
        sketch.box(42, y, token.strip("▁"), "embedding", width=82)
        for level, (name, x) in zip((y - 19, y, y + 19), found, strict=False):
            sketch.dot(place(x), level, "embedding", 4, **edge)
            words = place(x) - 8, level, name.strip("▁")
            sketch.words(*words, "end", "embedding")
        sketch.dot(place(cosine), y, "none", 5, **ring)
        sketch.words(place(cosine), y - 18, other.strip("▁"))
    sketch.line((left, bottom), (right, bottom))
    for tick in (-0.3, 0, 0.3, 0.6):
        x = place(tick)
        sketch.line((x, bottom), (x, bottom + 5))
        sketch.words(x, bottom + 16, f"{tick:g}".replace("-", "−"))
    sketch.words((left + right) / 2, bottom + 34, "cosine")

    told = "; ".join(
        f"{token.strip('▁')}: "
        + ", ".join(f"{name.strip('▁')} {x:.2f}" for name, x in found[:3])
        + f"; its translation {translations[token][0].strip('▁')} "
        + f"{translations[token][1]:.2f}"
        for token, found in near.items()
    )
    return show(
        sketch,
        f"A line of cosines for each of {len(near)} tokens, with dots for its "
        "three nearest, far on the right, and a ring for its translation, "
        f"far to the left of them. {told}.".replace(" -", " −"),
    )


def lookup(
    said: Sequence[str],
    names: Sequence[str],
    ids: Sequence[int],
    table: Tensor,
) -> Picture:
    """One-hot rows times a table, whose picked rows are the product."""

    line, head, cell, number, first = 24, 30, 15, 15, 46
    sketch = Sketch(WIDTH, head + line * len(names) + 4)
    edge = first + cell * len(names)
    body = edge + 76
    right = body + number * table.size(1)
    result = WIDTH - 2 - number * table.size(1)
    level = head + line * (len(names) - len(said)) / 2
    titles = {
        "one-hot": (first + edge) / 2,
        "table": (body + right) / 2,
        "vectors": (result + WIDTH - 2) / 2,
    }
    for title, x in titles.items():
        sketch.words(x, 12, title, font_weight="bold")
    sketch.words((edge + body) / 2, 12, "×", size=17)
    sketch.words((right + result) / 2, 12, "=", size=17)

    def numbers(row, left, y, lit):
        for column, value in enumerate(row.tolist()):
            x = left + number * (column + 0.5)
            look = dict(width=number - 2, height=line - 5)
            ink, strength = ("embedding", 0.45) if lit else ("muted", 0)
            look |= {"fill_opacity": strength, "stroke_opacity": 0.6}
            value = round(value, 1) or 0.0  # and no "−0.0"
            sketch.box(x, y, "", ink, **look)

    for i, name in enumerate(names):
        y = head + line * (i + 0.5)
        ink = "currentColor" if i in ids else "muted"
        sketch.words(body - 6, y, name, "end", size=12, colour=ink)
        numbers(table[i], body, y, i in ids)
    for k, (word, place) in enumerate(zip(said, ids, strict=True)):
        y, row = level + line * (k + 0.5), head + line * (place + 0.5)
        sketch.words(first - 6, y, word, "end")
        for j in range(len(names)):
            look = dict(width=cell - 1, height=line - 4)
            look |= {"fill_opacity": 0.04, "stroke_opacity": 0.4}
            if j == place:
                look |= {"fill_opacity": 0.45, "stroke_opacity": 1}
            x = first + cell * (j + 0.5)
            sketch.box(x, y, "", "source", **look)
        sketch.words(first + cell * (place + 0.5), y, "1", size=12)
        # from the 1 to its row of the table, and on to the product
        look = dict(colour="embedding", width=2)
        start = (first + cell * (place + 1), y), (edge + 4, y)
        name = body - 10 - width_of(names[place])
        sketch.line(*start, (name, row), arrow=True, **look, front=True)
        sketch.line((right, row), (result - 1, y), arrow=True, **look)
        numbers(table[place], result, y, True)

    return show(
        sketch,
        f"A one-hot matrix with a row for each of {', '.join(said)}, in "
        f"which a single 1 names a token, times a table with a row for each "
        f"of {len(names)} tokens. An arrow leads from each 1 to its row of "
        "the table, which is lit, and from there to a row of the product: "
        "the lit rows in the order of the sentence.",
    )
