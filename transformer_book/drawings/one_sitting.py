"""What the whole thing in one sitting shows."""

import math
from collections.abc import Mapping, Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    GAP,
    PAPER,
    WIDE,
    WIDTH,
    Picture,
    Sketch,
    chart,
    columns,
    fading,
    show,
)


def depends(
    english: Sequence[str],
    spanish: Sequence[str],
    on: Sequence[tuple[int, int]],
    gloss: Sequence[str],
) -> Picture:
    """Two sentences; lines from a Spanish word to what decides it.

    `gloss` has the meaning of each Spanish word, in one line or two.
    """
    sketch = Sketch(WIDTH, 196)
    above = columns(len(english), 0, WIDTH)
    below = columns(len(spanish), 0, WIDTH)
    for i, j in on:
        look = {"colour": "muted", "width": 1.3}
        if i == len(english) - 1:
            look = {"colour": "attention", "width": 2.5}
        sketch.line((below[j], 112), (above[i], 42), arrow=True, **look)
    for x, word in zip(above, english, strict=True):
        sketch.box(x, 24, word, "encoder")
    for x, word, told in zip(below, spanish, gloss, strict=True):
        sketch.box(x, 130, word, "decoder")
        for number, line in enumerate(told.split("\n")):
            sketch.words(x, 160 + 18 * number, line)
    told = "; ".join(f"{spanish[j]} needs {english[i]}" for i, j in on)
    return show(
        sketch, f"Arrows from the Spanish to the English words: {told}."
    )


def vectors(
    tokens: Sequence[str], ids: Sequence[int], table: Tensor
) -> Picture:
    """Words, the rows of the table that their ids name, and the numbers.

    `table` is (vocab_size, d_model); it is drawn to scale.
    """
    rows, d_model = table.shape
    top, high, box = 50, 228, 62  # of the table, and a word's width
    left, strip, first = 136, 46, 222  # the table's edge, the numbers'
    sketch = Sketch(WIDTH, 290)
    sketch.words(box / 2 + 2, 16, "word")
    sketch.words((box + left) / 2, 16, "id")
    sketch.words(left + strip / 2, 16, f"{rows} rows")
    sketch.words((first + WIDTH) / 2, 16, f"vector, {d_model} numbers")
    look = {"width": strip, "fill_opacity": 0.1}
    middle = left + strip / 2
    sketch.box(middle, top + high / 2, "", "embedding", height=high, **look)
    for name, y in ("0", top + 6), (str(rows - 1), top + high - 6):
        sketch.words(left - 6, y, name, "end")
    places = columns(len(tokens), top, top + high)
    for y, token, number in zip(places, tokens, ids, strict=True):
        row = top + high * (number + 0.5) / rows
        sketch.box(box / 2 + 2, y, token, "encoder", width=box)
        sketch.line((box + 4, y), (left - 1, row), arrow=True)
        sketch.words((box + left) / 2, (y + row) / 2, str(number))
        look = {"width": strip, "height": 4, "fill_opacity": 1}
        sketch.box(middle, row, "", "embedding", **look)
        sketch.line((left + strip, row), (first - 1, y), arrow=True)
        cells = columns(d_model, first, WIDTH - 1)
        width = (WIDTH - 1 - first) / d_model - 2
        for x, value in zip(cells, table[number].tolist(), strict=True):
            text = f"{value:.2f}".replace("-", "−")
            sketch.box(x, y, text, "embedding", width=width)
    picked = ", ".join(map("{} row {}".format, tokens, ids))
    return show(
        sketch,
        f"A table of {rows} rows, in which arrows from the words pick a row "
        f"each: {picked}. Beside it each is written out, in {d_model} "
        "numbers.",
    )


def averages(
    tokens: Sequence[str], shares: Mapping[str, Tensor], lit: int
) -> Picture:
    """Averages with bands from the words that they take from.

    `shares` has, for each title, the weights (len, len). The bands of
    the word `lit` stand out, with stripes in place of one that is gone.
    """
    first = next(iter(shares.values()))[lit].tolist()
    width = (WIDE - GAP) / 2
    places = columns(len(tokens), 0, width)
    pieces, told = [], []
    for title, weights in shares.items():
        sketch = Sketch(width, 206)
        sketch.words(width / 2, 12, title, font_weight="bold")
        now = weights[lit].tolist()
        for x, before, share in zip(places, first, now, strict=True):
            if share < 0.1 < before:  # stripes where a band was
                low, bend = places[lit] - 20, 115
                gone = drawsvg.Path().M(low, 172)
                gone.C(low, bend, x + 26, bend, x + 26, 58)
                look = {"colour": "muted", "stroke_dasharray": "1.5 4"}
                sketch.stroke(gone, 26 * before, arrow=False, **look)
        rows = weights.tolist()
        sketch.ribbons(places, places, rows, (172, 58), 26, lit)
        for x, token in zip(places, tokens, strict=True):
            sketch.box(x, 42, token, "value")
            sketch.box(x, 188, f"new {token}", "value")
        pieces.append(sketch)
        takes = ", ".join(
            f"{share:.2f} of {other}"
            for other, share in zip(tokens, now, strict=True)
            if share
        )
        told.append(f"{title}: {tokens[lit]} takes {takes}.")
    return show(
        pieces,
        "Bands lead from the values of the words down to new ones. "
        f"{' '.join(told)}",
    )


def encoder_layer(tokens: Sequence[str]) -> Picture:
    """A layer of the encoder, with a column for each word."""
    sketch = Sketch(WIDTH, 392)
    middles = columns(len(tokens), 138, WIDTH)
    aside = 36  # where the input goes around
    words, attention, feed = 374, 282, 132
    for y, name, told in (
        (attention, "self-attention", "here the words meet"),
        (feed, "feed-forward", "each word alone"),
    ):
        sketch.words(2, y - 8, name, "start", font_weight="bold")
        sketch.words(2, y + 10, told, "start")
        after = y - (52 if y == attention else 48)
        sketch.words(2, after, "add", "start")
        sketch.words(2, after - 30, "norm", "start")
    broad = middles[-1] - middles[0] + 2 * aside + 16
    middle = (middles[0] + middles[-1]) / 2
    sketch.box(middle, attention, "", "attention", width=broad, height=48)
    for x, token in zip(middles, tokens, strict=True):
        for other in middles:
            ends = (x, attention + 24), (other, attention - 24)
            sketch.line(*ends, colour="attention", width=1.6)
        sketch.box(x, words, token, "encoder", width=64)
        box = 2 * aside - 16
        sketch.box(x, feed, "", "feed_forward", width=box, height=34)
        for start, part, half, end in (
            (words - 15, attention, 24, attention - 52),
            (attention - 93, feed, 17, feed - 48),
        ):
            sketch.line((x, start), (x, part + half + 1), arrow=True)
            sketch.line((x, part - half), (x, end + 10))
            fork, side = start - 14, x - aside
            if part == attention:  # the line is in front of its box
                past = (side, part + half), (side, part - half)
                sketch.line(*past, width=7, colour=PAPER, front=True)
            around = (x, fork), (side, fork), (side, end), (x - 10, end)
            sketch.line(*around, width=2.5, arrow=True, front=True)
            sketch.plus(x, end)
            sketch.line((x, end - 10), (x, end - 20), arrow=True)
            sketch.box(x, end - 30, "", "norm", width=box, height=20)
        sketch.line((x, feed - 88), (x, feed - 106), arrow=True)
        sketch.words(x, feed - 118, f"new {token}")
    return show(
        sketch,
        f"A column for each of {', '.join(tokens)}, read upwards. "
        "Self-attention is one broad box, in which every column is joined "
        "to every other. All else is separate for each word: the sum, the "
        "norm, feed-forward, the sum and the norm again. Around "
        "self-attention and around feed-forward a thick line carries what "
        "goes in to the sum.",
    )


def machine(source: Sequence[str], target: Sequence[str]) -> Picture:
    """Encoder and decoder, and the one way from the one to the other."""
    sketch = Sketch(WIDTH, 466)
    left, right, box, floor = 110, 320, 152, 436
    edge = (box + 22) / 2  # of a frame, from its middle
    sketch.words(left, floor, " ".join(source))
    sketch.words(right, floor, " ".join(target[:-1]))
    start = "embedding + positions", 394
    add = "add & norm"
    steps = {
        left: [
            start,
            ("self-attention", 330),
            (add, 292),
            ("feed-forward", 246),
            (add, 208),
        ],
        right: [
            start,
            ("masked\nself-attention", 326),
            (add, 286),
            ("cross-attention", 244),
            (add, 206),
            ("feed-forward", 164),
            (add, 126),
            ("linear", 64),
        ],
    }
    for x, part, top in (left, "encoder", 190), (right, "decoder", 108):
        frame = {"width": 2 * edge, "height": 356 - top, "part": part}
        sketch.box(x, (top + 356) / 2, fill_opacity=0.06, **frame)
        sketch.words(x - edge + 4, top - 10, "× 2", "start")
    # the frame is open where the memory comes in
    door = {"width": 5, "height": 18, "fill_opacity": 1}
    sketch.box(right - edge, 244, "", PAPER, **door)
    for x, boxes in steps.items():
        below = floor - 10
        for text, y in boxes:
            part = "encoder" if x == left else "decoder"
            look = {"fill_opacity": 0.1, "stroke_opacity": 0.6}
            if text == "cross-attention":
                part, look = "attention", {"fill_opacity": 0.4}
            high = 38 if "\n" in text else 22 if text == add else 30
            sketch.line((x, below), (x, y + high / 2), arrow=True)
            sketch.box(x, y, text, part, width=box, height=high, **look)
            below = y - high / 2
    turn = right - edge - 18
    way = [(left, 189), (left, 166), (turn, 166), (turn, 244)]
    look = {"arrow": True, "width": 4, "colour": "attention"}
    sketch.line(*way, (right - box / 2 - 1, 244), **look, front=True)
    sketch.words(left, 150, "memory", font_weight="bold")
    sketch.line((right, 49), (right, 32), arrow=True)
    sketch.words(right, 20, target[-1])
    return show(
        sketch,
        f"On the left {' '.join(source)} goes through vectors with "
        "positions and two encoder layers of self-attention and feed-forward, "
        "each followed by add and norm. The result, the memory, leaves by "
        "one thick line, which goes into the cross-attention of the decoder "
        "on the right; no other line joins the two. The decoder has read "
        f"{' '.join(target[:-1])}; through masked self-attention, "
        "cross-attention, feed-forward and a linear layer it comes to "
        f"{target[-1]}.",
    )


def teacher_forcing(inputs: Sequence[str], labels: Sequence[str]) -> Picture:
    """The decoder's input above its labels, one place apart."""
    sketch = Sketch(WIDTH, 196)
    above, below = 52, 138
    places = columns(len(inputs), 0, WIDTH)
    step = WIDTH / len(inputs)
    sketch.words(4, 16, "it reads", "start")
    sketch.words(4, 182, "it should predict", "start")
    for i, (before, after) in enumerate(zip(inputs, labels, strict=True)):
        x = places[i]
        if i:
            look = {"stroke_dasharray": "5 4", "width": 2.5}
            ends = (x, above + 16), (x - step, below - 16)
            sketch.line(*ends, colour="decoder", **look)
        sketch.line((x, above + 16), (x, below - 16), arrow=True)
        look = {"width": step - 10, "height": 32}
        sketch.box(x, above, before, "decoder", **look)
        sketch.box(x, below, after, "decoder", fill_opacity=0, **look)
    return show(
        sketch,
        f"Two rows of boxes, one above the other. It reads "
        f"{' '.join(inputs)}. It should predict {' '.join(labels)}. A "
        "dashed line joins each word that it should predict with the same "
        "word one place further on in what it reads.",
    )


def places(encodings: Tensor, numbers: Sequence[int], one: int) -> Picture:
    """Some numbers of the position vectors (length, d_model), in colour.

    `numbers` are sines; the position `one` is framed in all of them.
    """
    length, d_model = encodings.shape
    turns = {k: 2 * math.pi * 10_000 ** (k / d_model) for k in numbers}
    names = [f"number {k}\n(wave of {turn:,.0f})" for k, turn in turns.items()]
    figure, ax = chart(250)
    look = {"cmap": fading("position", signed=True), "aspect": "auto"}
    ax.imshow(encodings[:, list(numbers)].T, vmin=-1, vmax=1, **look)
    for edge in (one - 0.5, one + 0.5):
        ax.axvline(edge, color="black", linewidth=1.2)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="position", xticks=[0, one, length - 1])
    told = ", ".join(f"{k} of {turn:,.0f}" for k, turn in turns.items())
    return show(
        figure,
        f"A row of colours for each of {len(names)} numbers, over the "
        f"positions 0 to {length - 1}. How many positions long their waves "
        f"are: {told}. The first changes its sign again and again, and the "
        f"last stays near 0. Position {one} is framed.",
    )


def echo(words: Sequence[str], again: Tensor, right: Tensor) -> Picture:
    """Chances of the word just read, and of the right one beside them.

    `words` has one more than there are places: the last word is only
    predicted.
    """
    read, following = words[:-1], words[1:]
    figure, ax = chart(250)
    bars = ax.barh(read, again, height=0.6, color=COLOURS["target"])
    told = map("{} again: {:.0%}".format, read, again.tolist())
    ax.bar_label(bars, [*told], padding=4)
    beside = {"transform": ax.get_yaxis_transform(), "ha": "right"}
    ax.text(1, -0.85, "the right word", weight="bold", **beside)
    for y, (word, p) in enumerate(zip(following, right.tolist(), strict=True)):
        much = f"{p:.0%}" if p >= 0.01 else "under 1%"
        ax.text(1, y, f"{word}: {much}", va="center", **beside)
    ax.set_yticks(range(len(read)), [f"after {word}" for word in read])
    ax.invert_yaxis()
    marks = [0, 0.2, 0.4, 0.6]
    ax.set_xticks(marks, [f"{mark:.0%}" for mark in marks])
    ax.set_xlim(0, 1.55)
    ax.set_xlabel("probability before training", x=0.3 / 1.55)
    ax.spines["bottom"].set_bounds(0, marks[-1])
    told = "; ".join(
        f"after {before}, {before} again {same:.0%} and {after} {fine:.1%}"
        for before, after, same, fine in zip(
            read, following, again.tolist(), right.tolist(), strict=True
        )
    )
    return show(figure, f"Bars of probability before training: {told}.")


def learning(
    losses: Sequence[float], least: float, said: Mapping[int, str]
) -> Picture:
    """The loss of each step, with what the model wrote at some of them."""
    figure, ax = chart(340)
    ink, room = COLOURS["loss"], 36  # letters beside a dot
    ax.plot(range(1, len(losses) + 1), losses, color=ink, linewidth=1.2)
    ax.axhline(least, linestyle="--", color=COLOURS["muted"])
    lowest, before = max(losses) + 1.0, None
    for step, words in said.items():
        if step and words == before:
            continue  # nothing new was said
        before = words
        at = losses[max(0, step - 1)]
        lowest = min(at, lowest - 0.65)  # words do not overlap
        if len(words) > room:
            words = words[:room].rsplit(" ", 1)[0] + " …"
        ax.plot(step, at, "o", color=ink, markersize=4)
        ax.annotate(
            f"{step}: {words or '(writes nothing)'}",
            (step, at),
            (step + 14, lowest + 0.1),
            va="bottom",
        )
    told = f"{least:.2f}: with smoothing it can go no lower"
    ax.text(len(losses), least - 0.12, told, ha="right", va="top")
    ax.set(xlabel="step", ylabel="loss per word", ylim=(0, losses[0] + 1))
    told = "; ".join(f"step {step}: {words}" for step, words in said.items())
    return show(
        figure,
        f"The loss over {len(losses)} steps falls from {losses[0]:.1f} "
        f"towards {least:.2f}. On the curve, the translations: {told}.",
    )


def looked(
    source: Sequence[str], target: Sequence[str], weights: Tensor, lit: int
) -> Picture:
    """Bands from each word being chosen to the words looked at.

    `weights` (target_len, source_len); less than a tenth is not drawn.
    The bands of the word `lit` stand out.
    """
    sketch = Sketch(WIDTH, 262)
    above = columns(len(source), 0, WIDTH)
    below = columns(len(target), 0, WIDTH)
    sketch.words(2, 16, "looked at", "start")
    sketch.words(2, 250, "chosen", "start")
    drawn = weights.where(weights >= 0.1, 0.0).tolist()
    sketch.ribbons(below, above, drawn, (214, 54), 26, lit)
    for x, word in zip(above, source, strict=True):
        sketch.words(x, 40, word, colour="source")
    for i, (x, word) in enumerate(zip(below, target, strict=True)):
        look = {"font_weight": "bold"} if i == lit else {}
        sketch.words(x, 228, word, colour="target", **look)
    told = ", ".join(
        f"{name} {share:.2f}"
        for name, share in zip(source, drawn[lit], strict=True)
        if share
    )
    return show(
        sketch,
        "Bands from the words of the translation up to the English words "
        f"that the decoder looked at. From {target[lit]}: {told}.",
    )
