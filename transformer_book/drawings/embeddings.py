"""What the chapter on embeddings shows."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    PAGE,
    PAPER,
    PHONE,
    Picture,
    Sketch,
    show,
)


def neighbours(
    near: Mapping[str, Sequence[tuple[str, float]]],
    translations: Mapping[str, tuple[str, float]],
) -> Picture:
    """Tokens, and where their nearest and their translation lie.

    Each has a line of cosines, from -0.35 to 0.6.
    """
    low, high = -0.35, 0.6

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        step = 92 if narrow else 58
        left, right = (8, wide - 8) if narrow else (122, wide - 12)
        top = 88 if narrow else 66
        bottom = top + step * (len(near) - 1) + 30
        sketch = Sketch(wide, bottom + 48)

        def place(cosine: float) -> float:
            return left + (right - left) * (cosine - low) / (high - low)

        ring = {"stroke": "currentColor", "stroke_width": 1.4}
        edge = {"stroke": PAPER, "stroke_width": 1}
        zero = place(0)
        sketch.line(
            (zero, 24), (zero, bottom), colour="muted", stroke_dasharray="3 4"
        )
        told = "its five nearest, left to right"
        sketch.words(right, 12, told, "end")
        # the legend's dot has the dots' ink
        sketch.dot(right - 5 * len(told) - 10, 12, "embedding", 4)
        sketch.dot(left + 6, 12, "none", 5, **ring)
        sketch.words(left + 18, 12, "its translation", "start")
        for row, (token, found) in enumerate(near.items()):
            y = top + step * row
            other, cosine = translations[token]
            # from left to right, as their dots are
            names = [name.strip("▁") for name, _ in reversed(found)]
            sketch.line((left, y), (right, y), colour="muted")
            at = (46, y - 38) if narrow else (50, y)
            sketch.box(*at, token.strip("▁"), "embedding", width=88)
            lines = [", ".join(names)]
            if narrow:
                lines = [", ".join(names[:3]) + ",", ", ".join(names[3:])]
            for number, line in enumerate(reversed(lines)):
                sketch.words(right, y - 18 - 18 * number, line, "end")
            for number, (_, x) in enumerate(found):
                beside = 5 * (number % 3 - 1)  # none hides another
                sketch.dot(place(x), y + beside, "embedding", 4, **edge)
            sketch.dot(place(cosine), y, "none", 5, **ring)
            sketch.words(place(cosine), y + 18, other.strip("▁"))
        sketch.line((left, bottom), (right, bottom))
        for tick in (-0.3, 0, 0.3, 0.6):
            x = place(tick)
            sketch.line((x, bottom), (x, bottom + 5))
            name = f"{tick:g}".replace("-", "−")
            sketch.words(x, bottom + 16, name, size=12)
        sketch.words((left + right) / 2, bottom + 36, "cosine")
        return sketch

    told = "; ".join(
        f"{token.strip('▁')}: "
        + ", ".join(f"{name.strip('▁')} {x:.2f}" for name, x in found)
        + f"; its translation {translations[token][0].strip('▁')} "
        + f"{translations[token][1]:.2f}"
        for token, found in near.items()
    )
    return show(
        draw,
        f"A line of cosines for each of {len(near)} tokens, with dots for its "
        "five nearest, far on the right, and a ring for its translation, "
        f"far to the left of them. {told}.".replace(" -", " −"),
    )


def lookup(
    said: Sequence[str],
    names: Sequence[str],
    ids: Sequence[int],
    table: Tensor,
) -> Picture:
    """One-hot rows times a table, whose picked rows are the product."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        line, head = 24, 30
        sketch = Sketch(wide, head + line * len(names) + 4)
        cell, number = (11, 12) if narrow else (20, 40)
        first = 40 if narrow else 46
        edge = first + cell * len(names)
        body = edge + (70 if narrow else 110)
        right = body + number * table.size(1)
        result = wide - 2 - number * table.size(1)
        level = head + line * (len(names) - len(said)) / 2
        titles = {
            "one-hot": (first + edge) / 2,
            "table": (body + right) / 2,
            "vectors": (result + wide - 2) / 2,
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
                if not narrow:
                    ink = "currentColor" if lit else "muted"
                    words = f"{value:.1f}".replace("-", "−")
                    sketch.words(x, y, words, size=12, colour=ink)

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
                    look |= {"fill_opacity": 0.8, "stroke_opacity": 1}
                x = first + cell * (j + 0.5)
                sketch.box(x, y, "", "source", **look)
            sketch.words(first + cell * (place + 0.5), y, "1", size=12)
            # from the 1 to its row of the table, and on to the product
            look = dict(colour="embedding", width=2)
            start = (first + cell * (place + 1), y), (edge + 4, y)
            name = body - 12 - 7 * len(names[place])
            sketch.line(*start, (name, row), arrow=True, **look, front=True)
            sketch.line((right, row), (result - 1, y), arrow=True, **look)
            numbers(table[place], result, y, True)
        return sketch

    return show(
        draw,
        f"A one-hot matrix with a row for each of {', '.join(said)}, in "
        f"which a single 1 names a token, times a table with a row for each "
        f"of {len(names)} tokens. An arrow leads from each 1 to its row of "
        "the table, which is lit, and from there to a row of the product: "
        "the lit rows in the order of the sentence.",
    )


def gradients_by_job(
    words: Sequence[str],
    gradients: Mapping[str, Tensor],
    labels: Collection[int],
) -> Picture:
    """By job of the table, which of its rows get a gradient.

    Before the softmax an arrow is as long as the gradient: those of
    `labels` go towards the states, and all others away from them.
    """
    told = {
        "source": ("source", "embedding"),
        "target": ("target", "embedding"),
        "softmax": ("before the", "softmax"),
    }
    forces = {
        job: rows.norm(dim=1).tolist() for job, rows in gradients.items()
    }
    most = max(forces["softmax"])
    rows = range(len(words))
    learns = {
        job: [i for i in rows if force[i] > 0] for job, force in forces.items()
    }
    count = {job: len(learning) for job, learning in learns.items()}

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        line, head = 23, 56
        sketch = Sketch(wide, head + line * len(words) + 26)
        bottom = head + line * len(words)
        strip, gap, last = (70, 10, 106) if narrow else (140, 36, 230)
        left = 46 if narrow else 70
        for i, word in enumerate(words):
            sketch.words(left - 8, head + line * (i + 0.5), word, "end")
        for job, force in forces.items():
            size = last if job == "softmax" else strip
            middle = left + size / 2
            for number, name in enumerate(told[job]):
                y = 12 + 17 * number
                sketch.words(middle, y, name, font_weight="bold")
            for i in rows:
                look = dict(width=size, height=line - 3)
                look |= {"fill_opacity": 0, "stroke_opacity": 0.4}
                if i in learns[job]:
                    look |= {"fill_opacity": 0.4, "stroke_opacity": 1}
                y = head + line * (i + 0.5)
                sketch.box(middle, y, "", "embedding", **look)
                if job == "softmax":
                    reach = (size / 2 - 4) * force[i] / most
                    end = middle + (reach if i in labels else -reach)
                    sketch.line(
                        (middle, y), (end, y), width=2, arrow=True, front=True
                    )
            said = "all" if count[job] == len(words) else count[job]
            sketch.words(middle, bottom + 14, f"{said} rows learn", size=12)
            left += size + gap
        states = dict(width=12, height=bottom - head)
        sketch.box(left, (head + bottom) / 2, "", "decoder", **states)
        sketch.words(left + 6, head - 12, "states", "end", size=12)
        return sketch

    return show(
        draw,
        f"A table with a row for each of {len(words)} tokens, three times. "
        f"As the source embedding it learns in {count['source']} rows, and as "
        f"the target embedding in {count['target']}. Before the softmax it "
        f"learns in {count['softmax']}: arrows of the {len(labels)} tokens "
        "that come next lead towards the states, and all others away from "
        "them.",
    )
