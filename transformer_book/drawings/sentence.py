"""What the page "One sentence, start to end" shows."""

import math
from collections.abc import Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    SIGNED,
    WIDTH,
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

    step, first = 62, 168
    bus, run, token = 34, 178, 360
    sketch = Sketch(WIDTH, first + step * len(written) - 26)
    sketch.box(100, 18, " ".join(source), "encoder", 190, href=vectors)
    sketch.line((74, 33), (74, 57), arrow=True)
    sketch.box(74, 74, "encoder", "encoder", width=120, href=encoder)
    sketch.words(146, 74, "runs once", "start", font_weight="bold")
    end = first + step * (len(written) - 1)
    sketch.line((bus, 90), (bus, end), colour="source", width=2.5)
    sketch.words(bus + 10, 112, "memory", "start")
    look = {"width": 110, "href": decoder}
    before = first - 52
    sketch.box(token, before, "<bos>", "decoder", **look)
    sketch.words(token, before - 44, "for every token", font_weight="bold")
    for number, word in enumerate(written):
        y = first + step * number
        ends = (bus, y), (run - 57, y)
        sketch.line(*ends, arrow=True, colour="source", width=2.5)
        sketch.line((token - 55, before + 8), (run + 36, y - 17), arrow=True)
        sketch.box(run, y, "decoder", "decoder", **look)
        sketch.line((run + 55, y), (token - 57, y), arrow=True)
        sketch.box(token, y, word, "decoder", **look)
        before = y
    return show(
        sketch,
        f"One box, the encoder, which runs once and has read "
        f"{' '.join(source)}. From it one line, the memory, leads to a "
        f"column of {len(written)} boxes, the decoder, which runs once for "
        "every token. The first one reads <bos>. Each writes one token, from "
        f"which an arrow leads to the next: {', '.join(written)}.",
    )


def moved(
    words: Sequence[str], *exchanges: tuple[int, str, Tensor]
) -> Picture:
    """How far vectors turn when one word becomes another, a row for each.

    An exchange is the place of the word, the other word, and (len,) the
    cosines of each vector before and after.
    """
    step, deep, radius = WIDTH / len(words), 196, 62
    box = min(96, step - 6)
    sketch = Sketch(WIDTH, deep * len(exchanges) - 12)
    told = []
    for row, (place, other, alike) in enumerate(exchanges):
        top, foot = deep * row, deep * row + 150
        angles = [math.degrees(math.acos(min(1, one))) for one in alike]
        kept = [k for k in range(len(words)) if k != place]
        most = max(kept, key=lambda k: angles[k])
        for k, word in enumerate(words):
            sketch.box(step * (k + 0.5), top + 18, word, "source", width=box)
        for k in kept:
            x = step * (k + 0.5)
            _turn(sketch, x, foot, radius, angles[k])
            look = {"font_weight": "bold"} if k == most else {}
            sketch.words(x, foot + 20, f"{angles[k]:.0f}°", **look)
        x, turn = step * (place + 0.5), math.radians(angles[most])
        sketch.line((x, top + 33), (x, top + 50), arrow=True)
        look = {"fill_opacity": 0, "stroke_dasharray": "4 3"}
        sketch.box(x, top + 66, other, "source", width=box, **look)
        if row == 0:
            hand = step * (most + 0.5)
            sketch.words(
                hand - 6, foot - 0.8 * radius, "before", "end", size=12
            )
            x = hand + radius * math.sin(turn) + 3
            sketch.words(
                x, foot - radius * math.cos(turn) - 8, "after", size=12
            )
        angles = ", ".join(f"{words[k]} {angles[k]:.0f}°" for k in kept)
        told.append(f"{words[place]} becomes {other}: {angles}.")
    return show(
        sketch,
        f"The sentence {' '.join(words)}. Under each word that stays are two "
        "hands, its vector before and after an exchange, and the angle "
        f"between them. {' '.join(told)}",
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

    figures, (left, right) = panels(2, 250)
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
    return show(figures, told.replace(" -", " −"))
