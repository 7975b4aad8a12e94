"""What the chapter on the whole model shows."""

from typing import Any

import torch

from transformer_book.figures import (
    WIDTH,
    Picture,
    Sketch,
    show,
)
from transformer_lib.model import Transformer

KINDS = {  # a class of modules: its words, colour and chapter
    "Embeddings": ("embedding", "embedding", "embeddings"),
    "SinusoidalPositions": ("+ positions", "position", "positions"),
    "MultiHeadAttention": ("-attention", "attention", "attention"),
    "FeedForward": ("feed-forward", "feed_forward", "layers"),
    "LayerNorm": ("norm", "norm", "layers"),
    "Residual": ("add", "muted", "layers"),
    "Linear": ("linear", "embedding", "embeddings"),
}
CHAPTERS = (  # that write a box, and the boxes' colours
    ("Embeddings", "embedding"),
    ("Positions", "position"),
    ("Attention, Masks", "attention"),
    ("Layers", "feed_forward", "norm"),
)


def trace(model: Transformer) -> list:
    """(name, kind, inputs, output) of each call, as it returns."""
    calls = []
    for name, part in model.named_modules():
        kind = type(part).__name__
        within = kind == "Linear" and name != "pre_softmax"
        if kind in KINDS and not within:

            def note(_, args, kwargs, output, name=name, kind=kind):
                inputs = [*args, *kwargs.values()]
                calls.append((name, kind, inputs, output))

            part.register_forward_hook(note, with_kwargs=True)
    model.eval()(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 8]]))
    return calls


def read(model: Transformer) -> tuple[list, Any]:
    """Both columns' boxes and loops, and where the memory goes in."""
    columns, calls, meets = [], trace(model), None
    for i, (name, kind, inputs, output) in enumerate(calls):
        if kind == "Embeddings":
            top = calls[i - 1][3]  # of the column before, if any
            boxes, loops = [], []
            columns.append((boxes, loops))
        if ".layers." in name and ".layers.0." not in name:
            continue
        words, *looks = KINDS[kind]
        if kind == "MultiHeadAttention":
            words = name.split(".")[-1].split("_")[0] + words
            if inputs[2] is not None and inputs[2].size(-2) > 1:  # causal
                words = "masked " + words
            if inputs[1] is top:
                meets = len(boxes)
        if kind != "Residual":
            boxes.append([words, *looks])
            continue
        norm, sublayer = sorted(  # the two calls that it made
            calls[i - 2 : i], key=lambda call: call[1] != "LayerNorm"
        )
        start, total = len(boxes) - 2, inputs[0] + sublayer[3]
        if torch.allclose(norm[2][0], total):
            boxes[-1][0] = "add & norm"
        if torch.allclose(output, total):
            boxes.append([words, *looks])
        loops.append((start, len(boxes) - 1))
    return columns, meets


def figure_1(model: Transformer) -> Picture:
    """The paper's figure 1, as a sentence's way through a model.

    Every call of a module is noted and drawn in that order. A loop is
    a residual; every box leads to its chapter.
    """
    columns, meets = read(model)

    step, high, wide = 58, 38, 128
    most = max(len(boxes) for boxes, _ in columns)
    enters = columns[0][1][0][0]  # the first box inside a frame
    apart = 14  # more below a frame, for its edge
    floor = step * most + apart + 36  # above: what comes out
    sketch = Sketch(WIDTH, floor + 26)
    places = 98, WIDTH - 98

    def level(number):
        lift = apart if number >= enters else 0
        return floor - step * (number + 0.6) - lift

    out = 18  # from a box to its loop
    for part, x, sign, (boxes, loops) in zip(
        ("encoder", "decoder"), places, (-1, 1), columns, strict=True
    ):
        low, top = loops[0][0], loops[-1][1]
        bottom = level(low - 1) - high / 2 - 8
        outline = level(top) - 0.55 * step, bottom
        sketch.box(
            x + sign * out / 2,
            sum(outline) / 2,
            width=wide + 2 * out + 6,
            height=outline[1] - outline[0],
            fill_opacity=0,
        )
        for i, (words, colour, page) in enumerate(boxes):
            if len(words) > 16:
                words = "\n".join(words.rsplit(" ", 1))
                words = words.replace("cross-", "cross-\n")
            below = level(i - 1) - high / 2 if i else floor + 4
            end = level(i) + high / 2
            sketch.line((x, below), (x, end), arrow=True)
            look = {"part": colour, "href": f"{page}.html"}
            sketch.box(x, level(i), words, width=wide, height=high, **look)
        side = x + sign * wide / 2
        for first, last in loops:
            fork = level(first) + step / 2 + 2
            bend = side + sign * out
            corners = (x, fork), (bend, fork), (bend, level(last))
            sketch.line(*corners, (side, level(last)), arrow=True)
        count = len(getattr(model, part).layers)
        beyond = 16  # above or beside the frame
        y = outline[0] - 12
        look = {"size": 16, "font_weight": "bold"}
        sketch.words(side + sign * beyond, y, f"{count} ×", **look)
        ids = "source ids" if part == "encoder" else "target ids"
        sketch.words(x, floor + 15, ids)
    encoder, decoder = places
    top = level(len(columns[0][0]) - 1) - high / 2
    over = top - 0.55 * step
    between = (encoder + decoder) / 2
    enter = decoder - wide / 2
    path = [(encoder, top), (encoder, over), (between, over)]
    path += [(between, level(meets)), (enter, level(meets))]
    sketch.line(*path, arrow=True)
    sketch.words(between - 8, over - 14, "memory", "end", "encoder")
    last = level(len(columns[1][0]) - 1) - high / 2
    sketch.line((decoder, last), (decoder, 18), arrow=True)
    sketch.words(decoder, 9, "a score for every token")
    look = {"anchor": "start", "font_weight": "bold"}
    sketch.words(4, 9, "Built in", **look)
    for row, (name, *inks) in enumerate(CHAPTERS):
        y = 9 + 21 * (row + 1)
        for place, ink in enumerate(inks):
            sketch.words(4 + 18 * place, y, "■", "start", ink, size=18)
        sketch.words(44, y, name, "start")

    return show(
        sketch,
        "Figure 1: on the left the encoder, six layers of self-attention "
        "and feed-forward; on the right the decoder, six layers of "
        "masked self-attention, cross-attention and feed-forward. Add and "
        "norm follow each. The encoder's top feeds the cross-attention. A "
        "box has the colour of its chapter: "
        + "; ".join(name for name, *_ in CHAPTERS)
        + ".",
    )
