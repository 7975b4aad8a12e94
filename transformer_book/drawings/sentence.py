"""What the page "One sentence, start to end" shows."""

import math
from collections.abc import Mapping, Sequence

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


def journey(
    source: Sequence[str],
    written: Sequence[str],
    following: str,
    *,
    layers: int,
    d_model: int,
    vocab_size: int,
) -> Picture:
    """The path of a sentence through the model, at one of its steps.

    `source` and `written` are the tokens that go in, `following` is the
    next one. On the site, each box is a link to its section.
    """
    vectors = "#sentence-vectors"
    encoder, decoder = "#sentence-encoder", "#sentence-decoder"
    memory = f"memory: {len(source)} × {d_model}"
    left = [
        (" ".join(source), "encoder", vectors),
        ("embedding + positions", "embedding", vectors),
        (f"encoder, {layers} layers", "encoder", encoder),
        (memory, "encoder", encoder),
    ]
    right = [
        (" ".join(written), "decoder", decoder),
        ("embedding + positions", "embedding", vectors),
        (f"decoder, {layers} layers", "decoder", decoder),
        (f"linear: {vocab_size} scores", "embedding", decoder),
        (f"next: {following}", "decoder", decoder),
    ]

    def draw(narrow: bool) -> Sketch:
        width = 138 if narrow else 210
        places = (71, 241) if narrow else (200, 480)
        edge = 328 if narrow else 620  # where the loop goes down
        sketch = Sketch((PHONE if narrow else PAGE) * 96, 272)
        heights = [252 - 56 * row for row in range(len(right))]
        for x, column in zip(places, (left, right), strict=True):
            for row, (words, part, link) in enumerate(column):
                y = heights[row]
                if row:
                    sketch.line((x, y + 41), (x, y + 17), arrow=True)
                high = 30
                if narrow and part == "embedding" and "+" in words:
                    words, high = words.replace("+ ", "+\n"), 35
                look = dict(width=width, height=high, href=link)
                sketch.box(x, y, words, part, **look)
        ends = places[0] + width / 2, places[1] - width / 2
        middle = sum(ends) / 2
        sketch.line(
            (ends[0], heights[3]),
            (middle, heights[3]),
            (middle, heights[2]),
            (ends[1] - 2, heights[2]),
            arrow=True,
        )
        side = places[1] + width / 2
        sketch.line(
            (side, heights[4]),
            (edge, heights[4]),
            (edge, heights[0]),
            (side + 2, heights[0]),
            arrow=True,
        )
        return sketch

    return show(
        draw,
        "Left, from below: English tokens, embedding plus position, encoder, "
        "memory. Right: Spanish tokens so far, embedding plus position, the "
        "decoder, also fed by the memory, scores, the next token, from "
        "which an arrow leads back down.",
    )


def moved(
    words: Sequence[str], alike: Mapping[tuple[int, str], Tensor]
) -> Picture:
    """How far a word's vector turns when another word is exchanged.

    `alike` has, for the place and the word that is put there, the cosine
    of each vector (len,) with that of the sentence of `words`.
    """

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 62 * len(alike))
        step = wide / len(words)
        box = min(96, step - 8)
        for row, ((place, other), cosines) in enumerate(alike.items()):
            y = 18 + 62 * row
            for k, (word, cosine) in enumerate(
                zip(words, cosines.tolist(), strict=True)
            ):
                x = step * (k + 0.5)
                if k == place:
                    look = dict(fill_opacity=0, stroke_dasharray="4 3")
                    sketch.box(x, y, other, "source", width=box, **look)
                    continue
                turned = min(0.85, 4 * (1 - cosine))
                sketch.box(
                    x, y, word, "source", width=box, fill_opacity=turned
                )
                sketch.words(x, y + 26, f"{cosine:.2f}")
        return sketch

    told = "; ".join(
        f"with {other}: "
        + ", ".join(
            f"{word} {cosine:.2f}"
            for k, (word, cosine) in enumerate(
                zip(words, cosines.tolist(), strict=True)
            )
            if k != place
        )
        for (place, other), cosines in alike.items()
    )
    return show(
        draw,
        f"The sentence {' '.join(words)} with one word exchanged, and the "
        f"cosine of every other word's vector with the old one. {told}.",
    )


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
