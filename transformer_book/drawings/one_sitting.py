"""What the whole thing in one sitting shows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    heatmap,
    panels,
    show,
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
                look = dict(colour="attention", width=2.5)
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
                text = f"{value:.2f}".replace("-", "−")
                sketch.box(middle, y, text, "embedding", width=column - 2)
        return sketch

    return show(
        draw,
        f"The words {', '.join(tokens)}, beside each its id, and beside "
        f"that its row of {x.size(1)} numbers.",
    )


def asks(tokens: Sequence[str], who: int, scores: Sequence[float]) -> Picture:
    """The query of one word meets every key; lines as wide as scores."""
    largest = max(abs(score) for score in scores)

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 44 + 52 * len(tokens))
        asking, found = (64, 196) if narrow else (150, 460)
        box = 116 if narrow else 150
        middle = 44 + 52 * (len(tokens) - 1) / 2
        sketch.box(
            asking, middle, f"query of {tokens[who]}", "query", width=box
        )
        sketch.words(found + box / 2 + 8, 12, "score", "start")
        for i, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            y = 44 + 52 * i
            look = {"width": 1 + 6 * abs(score) / largest}
            if score < 0:
                look |= {"width": 1.3, "stroke_dasharray": "4 4"}
            sketch.line(
                (asking + box / 2, middle),
                (found - box / 2 - 2, y),
                colour="attention",
                **look,
            )
            sketch.box(found, y, f"key of {token}", "key", width=box)
            number = f"{score:.2f}".replace("-", "−")
            sketch.words(found + box / 2 + 8, y, number, "start")
        return sketch

    pairs = zip(tokens, scores, strict=True)
    told = ", ".join(f"{token} {score:.2f}" for token, score in pairs)
    return show(
        draw,
        f"From the query of {tokens[who]} a line to the key of every word, "
        f"as wide as its score: {told}.".replace(" -", " −"),
    )


def layers() -> Picture:
    """A layer of each stack: sub-layers, residual connections, norms."""
    steps = {
        "encoder layer": ["self-attention", "feed-forward"],
        "decoder layer": [
            "masked\nself-attention",
            "cross-attention",
            "feed-forward",
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
                plain = text == "feed-forward"
                part = "feed_forward" if plain else "attention"
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
        "the same around feed-forward. The decoder layer has three such "
        "steps: masked self-attention, cross-attention, into which the "
        "memory comes, and feed-forward.",
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
        start = ("embedding + positions", 394, "embedding")
        masked = "masked\nself-attention"
        steps = {
            left: [
                start,
                ("self-attention", 330, "attention"),
                (add, 292, "norm"),
                ("feed-forward", 246, "feed_forward"),
                (add, 208, "norm"),
            ],
            right: [
                start,
                (masked, 326, "attention"),
                (add, 286, "norm"),
                ("cross-attention", 244, "attention"),
                (add, 206, "norm"),
                ("feed-forward", 164, "feed_forward"),
                (add, 126, "norm"),
                ("linear", 64, "embedding"),
            ],
        }
        for x, part, top in (left, "encoder", 190), (right, "decoder", 108):
            frame = dict(width=box + 22, height=356 - top, part=part)
            sketch.box(x, (top + 356) / 2, fill_opacity=0.06, **frame)
        for x, boxes in steps.items():
            below = floor - 10
            for text, y, colour in boxes:
                if narrow:
                    text = text.replace(" + ", " +\n")
                high = 38 if "\n" in text else 22 if text == add else 30
                sketch.line((x, below), (x, y + high / 2), arrow=True)
                sketch.box(x, y, text, colour, width=box, height=high)
                below = y - high / 2
        edge = (box + 22) / 2 - 4
        sketch.words(left - edge, 180, "× 2", "start")
        sketch.words(right - edge, 98, "× 2", "start")
        way = [(left, 197), (left, 176), (wide / 2, 176), (wide / 2, 244)]
        sketch.line(*way, (right - box / 2, 244), arrow=True, width=2)
        sketch.words(left, 162, "memory")
        sketch.line((right, 49), (right, 32), arrow=True)
        sketch.words(right, 20, target[-1])
        return sketch

    return show(
        draw,
        f"On the left {' '.join(source)} goes through vectors with "
        "positions and two encoder layers of self-attention and feed-forward, "
        "each followed by add and norm. The result, the memory, goes into "
        "the cross-attention of the decoder on the right, which has read "
        f"{' '.join(target[:-1])} and gives each word a score, by a linear "
        f"layer; the best is {target[-1]}.",
    )


def teacher_forcing(inputs: Sequence[str], labels: Sequence[str]) -> Picture:
    """The decoder's input above its labels, one place apart."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 196 if narrow else 136)
        edge = 0 if narrow else 116
        above, below = (52, 138) if narrow else (22, 108)
        column = (wide - edge) / len(inputs)
        box = column - (4 if narrow else 18)
        size = 12 if narrow else 13
        words = (16, 182) if narrow else (above, below)
        sketch.words(4, words[0], "it reads", anchor="start")
        sketch.words(4, words[1], "it should predict", anchor="start")
        for i, (before, after) in enumerate(zip(inputs, labels, strict=True)):
            x = edge + (i + 0.5) * column
            if i:
                look = dict(colour="muted", stroke_dasharray="4 4")
                sketch.line((x, above + 16), (x - column, below - 16), **look)
            sketch.line((x, above + 16), (x, below - 16), width=2, arrow=True)
            for y, word in (above, before), (below, after):
                look = {"fill_opacity": 0.22 if y == above else 0}
                sketch.box(x, y, "", "decoder", width=box, height=32, **look)
                sketch.words(x, y, word, size=size)
        return sketch

    return show(
        draw,
        f"Two rows of boxes, one above the other. It reads "
        f"{' '.join(inputs)}. It should predict {' '.join(labels)}. A "
        "dashed line joins each word that it should predict with the same "
        "word one place further on in what it reads.",
    )


def places(encodings: Tensor) -> Picture:
    """Position vectors (length, d_model), a row for each position."""
    length, d_model = encodings.shape

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.6)
        heatmap(encodings, range(length), range(d_model), ax=ax)
        figure.axes[-1].remove()  # the scale of sines needs no bar
        ax.set(xticks=[0, d_model - 1], yticks=[0, length - 1])
        ax.set(xticklabels=["number 0", f"{d_model - 1}"])
        ax.tick_params(axis="x", rotation=0)
        ax.set_ylabel("position")
        look = dict(transform=ax.transAxes, va="bottom")
        ax.text(0, 1.02, "fast hands", ha="left", **look)
        ax.text(1, 1.02, "slow hands", ha="right", **look)
        return figure

    return show(
        draw,
        f"A grid of {length} positions by {d_model} numbers. On the left, "
        "where the hands are fast, the colours change from row to row; on "
        "the right, where they are slow, they hardly change at all.",
    )


def echo(words: Sequence[str], again: Tensor, right: Tensor) -> Picture:
    """Chances of the word just read and of the right one, at each place.

    `words` has one more than there are places: the last word is only
    predicted.
    """
    read, following = words[:-1], words[1:]
    heights = range(len(read))

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.6)
        for chances, shift, ink, told in (
            (again, -0.2, COLOURS["target"], "{} again"),
            (right, 0.2, COLOURS["muted"], "{}"),
        ):
            names = read if shift < 0 else following
            ax.barh(
                [y + shift for y in heights],
                chances.tolist(),
                height=0.36,
                color=ink,
            )
            for y, chance, name in zip(
                heights, chances.tolist(), names, strict=True
            ):
                words = f"{told.format(name)}, {chance:.2f}"
                ax.text(chance + 0.01, y + shift, words, va="center")
        ax.set_yticks(heights, [f"after {word}" for word in read])
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.35 if narrow else 1.1), xticks=[0, 0.5, 1])
        ax.set_xlabel("probability of the next word")
        return figure

    told = "; ".join(
        f"after {before}, {before} again {same:.2f} and {after} {fine:.2f}"
        for before, after, same, fine in zip(
            read, following, again.tolist(), right.tolist(), strict=True
        )
    )
    return show(draw, f"Bars of probability before training: {told}.")


def learning(
    losses: Sequence[float], least: float, said: Mapping[int, str]
) -> Picture:
    """The loss of each step, with what the model wrote at some of them."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        room = 25 if narrow else 52
        ax.plot(
            range(1, len(losses) + 1),
            losses,
            color=COLOURS["loss"],
            linewidth=1.2,
        )
        ax.axhline(least, linestyle="--", color=COLOURS["muted"])
        lowest = max(losses) + 1.0
        for step, words in said.items():
            at = losses[max(0, step - 1)]
            if step and words == said[max(s for s in said if s < step)]:
                continue  # nothing new was said
            height = min(at, lowest - 0.5)  # words do not overlap
            lowest = height
            if len(words) > room:
                words = words[:room].rsplit(" ", 1)[0] + " …"
            ax.plot(step, at, "o", color=COLOURS["loss"], markersize=4)
            ax.annotate(
                f"{step}: {words or 'nothing'}",
                (step, at),
                (step + 14, height + 0.1),
                va="bottom",
            )
        ax.text(
            len(losses),
            least - 0.12,
            f"as low as it can go: {least:.2f}",
            ha="right",
            va="top",
        )
        ax.set(xlabel="step", ylabel="loss per word", ylim=(0, None))
        return figure

    told = "; ".join(f"step {step}: {words}" for step, words in said.items())
    return show(
        draw,
        f"The loss over {len(losses)} steps falls from {losses[0]:.1f} "
        f"towards {least:.2f}. On the curve, the translations: {told}.",
    )


def looked(
    source: Sequence[str], target: Sequence[str], weights: Tensor
) -> Picture:
    """Bands from each word being chosen to the words looked at.

    `weights` (target_len, source_len); less than a tenth is not drawn.
    """

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 230)
        above = [wide * (j + 0.5) / len(source) for j in range(len(source))]
        below = [wide * (i + 0.5) / len(target) for i in range(len(target))]
        for i, row in enumerate(weights.tolist()):
            for j, weight in enumerate(row):
                if weight < 0.1:
                    continue
                sketch.flow(
                    (below[i], 200),
                    (below[i], 120),
                    (above[j], 110),
                    (above[j], 30),
                    width=22 * weight,
                    colour="attention",
                )
        for x, word in zip(above, source, strict=True):
            sketch.words(x, 16, word, colour="source")
        for x, word in zip(below, target, strict=True):
            sketch.words(x, 214, word, colour="target")
        return sketch

    told = "; ".join(
        f"{word}: "
        + ", ".join(
            f"{name} {share:.2f}"
            for name, share in zip(source, row, strict=True)
            if share >= 0.1
        )
        for word, row in zip(target, weights.tolist(), strict=True)
    )
    return show(
        draw,
        "Bands from the words of the translation up to the English words "
        f"that the decoder looked at. {told}.",
    )
