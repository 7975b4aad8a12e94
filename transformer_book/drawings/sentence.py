"""What the page "One sentence, start to end" shows."""

import math
from collections.abc import Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    SIGNED,
    Picture,
    Sketch,
    panels,
    show,
)


def journey(source: Sequence[str], written: Sequence[str]) -> Picture:
    """One run of the encoder, and the first runs of the decoder.

    `source` are the tokens that go in, `written` those that come out, one
    from each run. On the site, each box is a link to its section.
    """
    encoder, decoder = "#sentence-encoder", "#sentence-decoder"
    vectors = "#sentence-vectors"
    written = written[:5]

    def across() -> Sketch:
        sketch = Sketch(PAGE * 96, 274)
        left, first = 84, 236
        step = (PAGE * 96 - first - 52) / max(1, len(written) - 1)
        token, run, bus = 24, 116, 196
        sketch.box(
            left, 256, " ".join(source), "encoder", width=150, href=vectors
        )
        sketch.line((left, 240), (left, bus + 16), arrow=True)
        sketch.box(left, bus, "encoder", "encoder", width=110, href=encoder)
        sketch.words(left, bus - 28, "runs once", font_weight="bold")
        end = first + step * (len(written) - 1)
        sketch.line((left + 55, bus), (end, bus), colour="source", width=2.5)
        sketch.words((left + 55 + first) / 2, bus, "memory")
        for number, told in enumerate(("runs once", "for every token")):
            y = run - 8 + 17 * number
            sketch.words(first - 54, y, told, "end", font_weight="bold")
        look = dict(width=min(90, step - 14), href=decoder)
        before = left
        sketch.box(left, token, "<bos>", "decoder", **look)
        for number, word in enumerate(written):
            x = first + step * number
            up = dict(arrow=True, colour="source", width=2.5)
            sketch.line((x, bus), (x, run + 17), **up)
            sketch.line(
                (before + 24, token + 15), (x - 16, run - 16), arrow=True
            )
            sketch.box(x, run, "decoder", "decoder", **look)
            sketch.line((x, run - 15), (x, token + 17), arrow=True)
            sketch.box(x, token, word, "decoder", **look)
            before = x
        return sketch

    def down() -> Sketch:
        step, first = 62, 168
        sketch = Sketch(PHONE * 96, first + step * len(written) - 26)
        bus, run, token = 26, 128, 270
        sketch.box(
            76, 18, " ".join(source), "encoder", width=148, href=vectors
        )
        sketch.line((56, 33), (56, 57), arrow=True)
        sketch.box(56, 74, "encoder", "encoder", width=108, href=encoder)
        sketch.words(120, 74, "runs once", "start", font_weight="bold")
        end = first + step * (len(written) - 1)
        sketch.line((bus, 90), (bus, end), colour="source", width=2.5)
        sketch.words(4, 112, "memory", "start")
        look = dict(width=92, href=decoder)
        before = first - 52
        sketch.box(token, before, "<bos>", "decoder", **look)
        for number, word in enumerate(written):
            y = first + step * number
            on = dict(arrow=True, colour="source", width=2.5)
            sketch.line((bus, y), (run - 48, y), **on)
            sketch.line(
                (token - 46, before + 8), (run + 30, y - 17), arrow=True
            )
            sketch.box(run, y, "decoder", "decoder", **look)
            sketch.line((run + 46, y), (token - 48, y), arrow=True)
            sketch.box(token, y, word, "decoder", **look)
            before = y
        return sketch

    return show(
        lambda narrow: down() if narrow else across(),
        f"One box, the encoder, which runs once and has read "
        f"{' '.join(source)}. From it one line, the memory, leads to a row "
        f"of {len(written)} boxes, the decoder, which runs once for every "
        "token. The first one reads <bos>. Each writes one token, from which "
        f"an arrow leads to the next: {', '.join(written)}.",
    )


def moved(
    words: Sequence[str], place: int, other: str, alike: Tensor
) -> Picture:
    """How far vectors turn when the word at `place` becomes `other`.

    `alike` (len,) has the cosines of each vector before and after.
    """
    angles = [math.degrees(math.acos(min(1, one))) for one in alike.tolist()]
    kept = [k for k in range(len(words)) if k != place]
    most = max(kept, key=lambda k: angles[k])

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        step = wide / len(words)
        box = min(96, step - 6)
        radius, foot = (58, 130) if narrow else (100, 168)
        sketch = Sketch(wide, foot + 34)
        for k, word in enumerate(words):
            sketch.box(step * (k + 0.5), 18, word, "source", width=box)
        for k in kept:
            x = step * (k + 0.5)
            _turn(sketch, x, foot, radius, angles[k])
            look = {"font_weight": "bold"} if k == most else {}
            sketch.words(x, foot + 20, f"{angles[k]:.0f}°", **look)
        x, turn = step * (place + 0.5), math.radians(angles[most])
        sketch.line((x, 33), (x, foot - 35), arrow=True)
        look = dict(fill_opacity=0, stroke_dasharray="4 3")
        sketch.box(x, foot - 18, other, "source", width=box, **look)
        hand = step * (most + 0.5)
        sketch.words(hand - 6, foot - 0.8 * radius, "before", "end", size=12)
        tip = hand + radius * math.sin(turn), foot - radius * math.cos(turn)
        sketch.words(tip[0] + 3, tip[1] - 8, "after", size=12)
        return sketch

    told = ", ".join(f"{words[k]} {angles[k]:.0f}°" for k in kept)
    return show(
        draw,
        f"The sentence {' '.join(words)}, in which {words[place]} becomes "
        f"{other}. Under every other word are two hands, its vector before "
        f"and after. The angles between them: {told}.",
    )


def _turn(
    sketch: Sketch, x: float, y: float, radius: float, angle: float
) -> None:
    """A hand that points up and one turned by `angle`, in degrees."""
    turn = math.radians(angle)
    tip = x + radius * math.sin(turn), y - radius * math.cos(turn)
    wedge = drawsvg.Path(fill=COLOURS["source"], fill_opacity=0.45)
    wedge.M(x, y).L(x, y - radius).A(radius, radius, 0, 0, 1, *tip).Z()
    sketch.append(wedge)
    sketch.line((x, y), (x, y - radius), colour="muted", width=2)
    sketch.line((x, y), tip, colour="source", width=3)


def one_score(
    word: str, keys: Sequence[str], place: int, query: Tensor, key: Tensor
) -> Picture:
    """A query (d_k,) and keys (len, d_k): a score, and its row.

    Left, the products that make the score of the key at `place`; right,
    the softmax over the scores of all keys.
    """
    d_k = len(query)
    products = query * key[place]
    total = products.sum().item()
    weights = (key @ query / math.sqrt(d_k)).softmax(dim=-1)
    score = total / math.sqrt(d_k)

    def draw(narrow: bool):
        figure, (left, right) = panels(2, narrow, height=2.6)
        colours = [
            SIGNED["negative" if one < 0 else "positive"] for one in products
        ]
        left.bar(range(1, d_k + 1), products, color=colours)
        left.axhline(0, color="grey", linewidth=0.5)
        left.set(
            title=f"{total:.2f} ÷ √{d_k} = score {score:.2f}",
            xlabel=f"dimension of the query of “{word}”",
            ylabel=f"times the key of “{keys[place]}”",
        )
        looks = [
            COLOURS["attention"] if i == place else COLOURS["muted"]
            for i in range(len(keys))
        ]
        bars = right.barh(list(keys), weights, color=looks)
        right.bar_label(bars, fmt="%.2f", padding=3)
        right.invert_yaxis()
        right.set(title="weight, the softmax of the scores")
        right.set(xlim=(0, 1.2), xticks=[0, 0.5, 1])
        return figure

    shares = [
        f"{name} {weight:.2f}"
        for name, weight in zip(keys, weights.tolist(), strict=True)
    ]
    told = (
        f"The {d_k} products of the query of {word} and the key of "
        f"{keys[place]} sum to {total:.2f}; divided by the root of {d_k} "
        f"that is the score {score:.2f}. Weights of the row: "
        f"{', '.join(shares)}."
    )
    return show(draw, told.replace(" -", " −"))
