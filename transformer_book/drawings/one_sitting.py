"""What the whole thing in one sitting shows."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    show,
    style,
)


def depends(
    english: Sequence[str],
    spanish: Sequence[str],
    on: Sequence[tuple[int, int]],
) -> Picture:
    """Two sentences; lines from a Spanish word to what decides it."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 170)

        def places(count):
            return [wide * (i + 0.5) / count for i in range(count)]

        above, below = places(len(english)), places(len(spanish))
        for i, j in on:
            look = dict(colour="muted", width=1.3)
            if i == len(english) - 1:
                look = dict(colour="query", width=2.5)
            sketch.line((below[j], 120), (above[i], 50), arrow=True, **look)
        for x, word in zip(above, english, strict=True):
            sketch.box(x, 32, word, "encoder", width=76)
        for x, word in zip(below, spanish, strict=True):
            sketch.box(x, 138, word, "decoder", width=76)
        return sketch

    told = "; ".join(f"{spanish[j]} needs {english[i]}" for i, j in on)
    return show(draw, f"Arrows from the Spanish to the English words: {told}.")


def vectors(tokens: Sequence[str], ids: Sequence[int], x: Tensor) -> Picture:
    """Each word, its id and its row of numbers: x (len, d_model)."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 60 + 48 * len(tokens))
        box = 58 if narrow else 92
        first = box + (66 if narrow else 150)
        column = (wide - first - 6) / x.size(1)
        place = (box + first) / 2
        sketch.words(box / 2, 16, "word")
        sketch.words(place, 16, "id")
        sketch.words((first + wide) / 2, 16, "vector")
        rows = zip(tokens, ids, x.tolist(), strict=True)
        for i, (token, number, row) in enumerate(rows):
            y = 56 + 48 * i
            sketch.box(box / 2 + 2, y, token, "encoder", width=box - 4)
            sketch.line((box + 2, y), (first - 4, y), arrow=True)
            sketch.words(place - 4, y, str(number))
            for j, value in enumerate(row):
                middle = first + (j + 0.5) * column
                text = f"{value:.2f}"
                sketch.box(middle, y, text, "embedding", width=column - 2)
        return sketch

    return show(
        draw,
        f"The words {', '.join(tokens)}, beside each its id, and beside "
        f"that its row of {x.size(1)} numbers.",
    )


def asks(tokens: Sequence[str], who: int, scores: Sequence[float]) -> Picture:
    """The query of one word meets every key; its score with each."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 240)
        shares = (0.1, 0.34, 0.64, 0.9) if narrow else (0.13, 0.38, 0.62, 0.86)
        columns = [wide * share for share in shares]
        box = 60 if narrow else 100
        heads = "vector", "query", "key", "value"
        for x, words in zip(columns, heads, strict=True):
            sketch.words(x, 16, words)
        for i, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            y = 60 + 68 * i
            start, asked, found, given = columns
            sketch.box(start, y, token, "embedding", width=box)
            sketch.box(found, y, f"k({token})", "key", width=box)
            sketch.box(given, y, f"v({token})", "value", width=box)
            from_, to = start + box / 2, asked - box / 2
            if i == who:
                sketch.line((from_, y), (to, y), arrow=True)
                sketch.box(asked, y, f"q({token})", "query", width=box)
            meet = asked + box / 2, 60 + 68 * who
            end = found - box / 2, y
            sketch.line(meet, end, colour="query", width=2, arrow=True)
            sketch.words(found, y + 25, f"score {score:.2f}")
        return sketch

    pairs = zip(tokens, scores, strict=True)
    told = ", ".join(f"{token} {score:.2f}" for token, score in pairs)
    return show(
        draw,
        f"The vector of {tokens[who]} becomes a query. Arrows lead from it "
        f"to the keys of all words, with the scores {told}. Beside each "
        "key is the value of its word.",
    )


def layers() -> Picture:
    """A layer of each stack: sub-layers, residual connections, norms."""
    steps = {
        "encoder layer": ["self-attention", "network"],
        "decoder layer": [
            "masked\nself-attention",
            "cross-attention",
            "network",
        ],
    }

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 440)
        box = 112 if narrow else 176
        columns = (76, 238) if narrow else (wide * 0.27, wide * 0.73)
        for x, (title, words) in zip(columns, steps.items(), strict=True):
            y = 404
            sketch.words(x, 428, "x")
            for text in words:
                part = "feed_forward" if text == "network" else "query"
                total, norm = y - 74, y - 104
                side = x - box / 2 - 14
                # the residual connection, and the way through the sub-layer
                around = (x, y), (side, y), (side, total), (x - 11, total)
                sketch.line(*around, width=2.5, arrow=True)
                high = 36 if "\n" in text else 30
                sketch.line((x, y + 12), (x, y - 38 + high / 2), arrow=True)
                sketch.box(x, y - 38, text, part, width=box, height=high)
                sketch.line((x, y - 38 - high / 2), (x, total + 11))
                sketch.plus(x, total)
                sketch.line((x, total - 10), (x, norm + 12), arrow=True)
                sketch.box(x, norm, "norm", "norm", width=box, height=22)
                y = norm - 15
            sketch.line((x, y + 4), (x, y - 12), arrow=True)
            sketch.words(x, y - 24, title, font_weight="bold")
            if title.startswith("decoder"):
                memory = 404 - 119 - 38
                edge = x + box / 2
                sketch.line((edge + 22, memory), (edge, memory), arrow=True)
                sketch.words(edge + 10, memory - 22, "memory", size=12)
        return sketch

    return show(
        draw,
        "Two columns, read upwards. The encoder layer: x goes through "
        "self-attention; a line around it carries x to a sum; then a norm; "
        "the same around the network. The decoder layer has three such "
        "steps: masked self-attention, cross-attention, into which the "
        "memory comes, and network.",
    )


def machine(source: Sequence[str], target: Sequence[str]) -> Picture:
    """Encoder and decoder, from a sentence to the next word of another."""
    add = "add & norm"

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 466)
        left, right = wide * 0.26, wide * 0.74
        box = 128 if narrow else 210
        floor = 436
        sketch.words(left, floor, " ".join(source))
        sketch.words(right, floor, " ".join(target[:-1]))
        start = ("vectors + positions", 394, "embedding")
        masked = "masked\nself-attention"
        steps = {
            left: [
                start,
                ("self-attention", 330, "query"),
                (add, 292, "norm"),
                ("network", 246, "feed_forward"),
                (add, 208, "norm"),
            ],
            right: [
                start,
                (masked, 326, "query"),
                (add, 286, "norm"),
                ("cross-attention", 244, "query"),
                (add, 206, "norm"),
                ("network", 164, "feed_forward"),
                (add, 126, "norm"),
                ("scores of all words", 64, "loss"),
            ],
        }
        for x, part, top in (left, "encoder", 190), (right, "decoder", 108):
            frame = dict(width=box + 22, height=356 - top, part=part)
            sketch.box(x, (top + 356) / 2, fill_opacity=0.06, **frame)
        for x, boxes in steps.items():
            below = floor - 10
            for text, y, colour in boxes:
                high = 38 if text == masked else 22 if text == add else 30
                sketch.line((x, below), (x, y + high / 2), arrow=True)
                sketch.box(x, y, text, colour, width=box, height=high)
                below = y - high / 2
        sketch.words(left + 12, 370, "2 layers", anchor="start", size=12)
        sketch.words(right + 12, 370, "2 layers", anchor="start", size=12)
        way = [(left, 197), (left, 176), (wide / 2, 176), (wide / 2, 244)]
        sketch.line(*way, (right - box / 2, 244), arrow=True, width=2)
        sketch.words(left, 162, "memory")
        sketch.line((right, 49), (right, 32), arrow=True)
        sketch.words(right, 20, target[-1])
        return sketch

    return show(
        draw,
        f"On the left {' '.join(source)} goes through vectors with "
        "positions and two encoder layers of self-attention and network, "
        "each followed by add and norm. The result, the memory, goes into "
        "the cross-attention of the decoder on the right, which has read "
        f"{' '.join(target[:-1])} and scores all words; the best is "
        f"{target[-1]}.",
    )


def teacher_forcing(inputs: Sequence[str], labels: Sequence[str]) -> Picture:
    """The decoder's input above its labels, one place apart."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 196)
        edge = 0 if narrow else 70
        column = (wide - edge) / len(inputs)
        box = column - (4 if narrow else 18)
        size = 12 if narrow else 13
        sketch.words(4, 16, "it reads", anchor="start")
        sketch.words(4, 182, "it should predict", anchor="start")
        for i, (before, after) in enumerate(zip(inputs, labels, strict=True)):
            x = edge + (i + 0.5) * column
            if i:
                look = dict(colour="muted", stroke_dasharray="4 4")
                sketch.line((x, 68), (x - column, 122), **look)
            sketch.line((x, 68), (x, 122), width=2, arrow=True)
            for y, word, part in ((52, before, "decoder"), (138, after, "")):
                sketch.box(x, y, part=part or "good", width=box, height=32)
                sketch.words(x, y, word, size=size)
        return sketch

    return show(
        draw,
        f"Two rows of boxes, one above the other. It reads "
        f"{' '.join(inputs)}. It should predict {' '.join(labels)}. A "
        "dashed line joins each word that it should predict with the same "
        "word one place further on in what it reads.",
    )


def falling(losses: Sequence[float], least: float) -> Picture:
    """The loss of each step, and the least that is possible."""

    def draw(narrow: bool):
        with style():
            figure, ax = plt.subplots(figsize=(PHONE if narrow else PAGE, 2.8))
        ax.plot(losses, color=COLOURS["loss"], linewidth=1.2)
        ax.axhline(least, linestyle="--", color=COLOURS["muted"])
        ax.text(len(losses), least - 0.15, "floor", ha="right", va="top")
        ax.set(xlabel="step", ylabel="loss per word", ylim=(0, None))
        return figure

    return show(
        draw,
        f"The loss over {len(losses)} steps falls from {losses[0]:.1f}, "
        "steeply at first and then ever more slowly, towards a dashed line "
        f"at {least:.2f}.",
    )


def written(steps: Sequence[Sequence[tuple[str, float]]]) -> Picture:
    """A translation, word by word: the likeliest words of each step."""

    def draw(narrow: bool):
        size = PHONE if narrow else PAGE
        with style():
            figure, axes = plt.subplots(
                len(steps), 1, figsize=(size, 1.05 * len(steps)), sharex=True
            )
        before = ["<bos>"]
        for ax, bars in zip(axes, steps, strict=True):
            names, shares = zip(*bars, strict=True)
            looks = ["decoder", *["muted"] * (len(bars) - 1)]
            colours = [COLOURS[look] for look in looks]
            ax.barh(range(len(bars)), shares, color=colours)
            ax.set_yticks(range(len(bars)), names)
            ax.invert_yaxis()
            ax.set_xlim(0, 1)
            cut = narrow and len(before) > 3
            line = " ".join(["…", *before[-3:]] if cut else before)
            ax.set_title(f"after {line}", loc="left")
            before.append(names[0])
        axes[-1].set_xlabel("probability of the next word")
        return figure

    line = "; ".join(
        f"{bars[0][0]} {100 * bars[0][1]:.0f} percent" for bars in steps
    )
    return show(draw, f"The likeliest next word of each step: {line}.")
