"""What the last chapter shows."""

import math
from collections.abc import Sequence

import drawsvg

from transformer_book.figures import PAGE, PHONE, Picture, Sketch, show

# What a layer of each machine holds, from the bottom to the top.
ENCODER = "self-attention", "feed-forward"
DECODER = "masked\nself-attention", "attention to\nthe source", "feed-forward"
ALONE = "masked\nself-attention", "feed-forward"


def _stack(
    sketch: Sketch,
    x: float,
    bottom: float,
    parts: Sequence[str],
    part: str,
    reads: str,
    writes: str,
) -> list[float]:
    """A stack with its layer's parts; returns their heights."""
    width, step = 118, 52
    top = bottom - step * len(parts)
    middle = (top + bottom) / 2
    sketch.box(
        x,
        middle,
        part=part,
        width=width + 22,
        height=step * len(parts) + 10,
        fill_opacity=0.06,
    )
    places = []
    for number, words in enumerate(parts):
        y = bottom - step * (number + 0.5)
        inside = "attention" if "attention" in words else "feed_forward"
        sketch.box(x, y, words, inside, width, 40, solid=True)
        places.append(y)
    sketch.line((x, bottom + 36), (x, bottom + 6), arrow=True)
    sketch.words(x, bottom + 48, reads)
    sketch.line((x, top - 6), (x, top - 34), arrow=True)
    sketch.words(x, top - 46, writes)
    sketch.words(x + width / 2 + 8, top - 16, "\u00d7 N", "end")
    return places


def machines() -> Picture:
    """The Transformer, GPT and BERT as what is left of it."""

    def pair(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x + 86, 14, "the Transformer, 2017", font_weight="bold")
        _stack(sketch, x, bottom, ENCODER, "source", "source", "memory")
        places = _stack(
            sketch, x + 172, bottom, DECODER, "target", "so far", "next token"
        )
        y = places[1]
        sketch.line(
            (x + 20, 96), (x + 84, 96), (x + 84, y), (x + 112, y), arrow=True
        )

    def gpt(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x, bottom - 200, "GPT, 2018", font_weight="bold")
        _stack(sketch, x, bottom, ALONE, "target", "so far", "next token")

    def bert(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x, bottom - 200, "BERT, 2018", font_weight="bold")
        _stack(
            sketch, x, bottom, ENCODER, "source", "text with gaps", "the gaps"
        )

    def draw(narrow: bool) -> Sketch:
        if narrow:
            sketch = Sketch(PHONE * 96, 600)
            pair(sketch, 76, 250)
            gpt(sketch, 76, 538)
            bert(sketch, 246, 538)
            return sketch
        sketch = Sketch(PAGE * 96, 310)
        pair(sketch, 80, 250)
        gpt(sketch, 450, 250)
        bert(sketch, 630, 250)
        return sketch

    return show(
        draw,
        "Three machines. The Transformer has a stack of encoder layers with "
        "self-attention and a feed-forward network, whose memory goes into "
        "the second of the three parts of each decoder layer. GPT is the "
        "decoder without that second part. BERT is the encoder alone, and "
        "predicts what is hidden in its text.",
    )


def rotation() -> Picture:
    """Two places apart by three: vectors turn, their angle stays."""
    turn = math.radians(26)

    def clock(sketch: Sketch, x: float, y: float, place: int) -> None:
        radius = 58
        ring = {"fill": "none", "stroke": "currentColor"}
        sketch.append(drawsvg.Circle(x, y, radius, stroke_opacity=0.3, **ring))
        for idea, at, shift in ("query", place, 0.3), ("key", place - 3, 0.9):
            angle = shift + turn * at
            end = (
                x + radius * math.cos(angle),
                y - radius * math.sin(angle),
            )
            sketch.line((x, y), end, width=2.6, colour=idea, arrow=True)
            label = (
                x + (radius + 13) * math.cos(angle),
                y - (radius + 13) * math.sin(angle),
            )
            sketch.words(*label, str(at), colour=idea)
        sketch.words(
            x, y + radius + 34, f"query at {place}, key at {place - 3}"
        )

    def draw(narrow: bool) -> Sketch:
        if narrow:
            sketch = Sketch(PHONE * 96, 390)
            for number, place in enumerate((3, 8)):
                clock(sketch, PHONE * 48, 90 + 190 * number, place)
            return sketch
        sketch = Sketch(PAGE * 96, 200)
        for number, place in enumerate((3, 5, 8)):
            clock(sketch, 120 + 240 * number, 90, place)
        return sketch

    return show(
        draw,
        "A query and a key as two hands of a clock, at three places in a "
        "sentence, always three tokens apart. Both hands turn with their "
        "places, and the angle between them stays the same.",
    )
