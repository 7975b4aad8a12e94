"""What the whole thing in one sitting shows."""

import math
from collections.abc import Mapping, Sequence

import drawsvg
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PAPER,
    PHONE,
    Picture,
    Sketch,
    panels,
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

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 192)

        def places(count):
            return [wide * (i + 0.5) / count for i in range(count)]

        above, below = places(len(english)), places(len(spanish))
        for i, j in on:
            look = dict(colour="muted", width=1.3)
            if i == len(english) - 1:
                look = dict(colour="attention", width=2.5)
            sketch.line((below[j], 112), (above[i], 42), arrow=True, **look)
        for x, word in zip(above, english, strict=True):
            sketch.box(x, 24, word, "encoder", width=76)
        for x, word, told in zip(below, spanish, gloss, strict=True):
            sketch.box(x, 130, word, "decoder", width=76)
            for number, line in enumerate(told.split("\n")):
                sketch.words(x, 158 + 18 * number, line, size=12)
        return sketch

    told = "; ".join(f"{spanish[j]} needs {english[i]}" for i, j in on)
    meant = "; ".join(
        f"{word} means {' '.join(told.split())}"
        for word, told in zip(spanish, gloss, strict=True)
    )
    return show(
        draw,
        f"Arrows from the Spanish to the English words: {told}. {meant}.",
    )


def vectors(
    tokens: Sequence[str], ids: Sequence[int], table: Tensor
) -> Picture:
    """Words, the rows of the table that their ids name, and the numbers.

    `table` is (vocab_size, d_model); it is drawn to scale.
    """
    rows = len(table)

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 292)
        box, strip = (50, 34) if narrow else (84, 72)
        left = 96 if narrow else 200  # where the table begins
        first = left + strip + (30 if narrow else 64)
        column = (wide - first - 2) / table.size(1)
        top, high = 50, 228
        sketch.words(box / 2 + 2, 16, "word")
        sketch.words(left + strip / 2, 16, f"{rows} rows")
        told = f"vector, {table.size(1)} numbers"
        sketch.words((first + wide) / 2, 16, told)
        sketch.words((box + left) / 2, 16, "id")
        sketch.box(
            left + strip / 2,
            top + high / 2,
            "",
            "embedding",
            width=strip,
            height=high,
            fill_opacity=0.1,
        )
        for name, y in ("0", top + 6), (str(rows - 1), top + high - 6):
            sketch.words(left - 6, y, name, "end", size=12)
        for i, (token, number) in enumerate(zip(tokens, ids, strict=True)):
            y = top + high * (i + 0.5) / len(tokens)
            row = top + high * (number + 0.5) / rows
            sketch.box(box / 2 + 2, y, token, "encoder", width=box)
            sketch.line((box + 4, y), (left - 1, row), arrow=True)
            sketch.words((box + left) / 2, (y + row) / 2, str(number))
            look = dict(width=strip, height=4, fill_opacity=1)
            sketch.box(left + strip / 2, row, "", "embedding", **look)
            sketch.line((left + strip, row), (first - 1, y), arrow=True)
            for j, value in enumerate(table[number].tolist()):
                middle = first + (j + 0.5) * column
                text = f"{value:.2f}".replace("-", "−")
                sketch.box(middle, y, text, "embedding", width=column - 2)
        return sketch

    picked = ", ".join(
        f"{token} row {number}"
        for token, number in zip(tokens, ids, strict=True)
    )
    return show(
        draw,
        f"A table of {rows} rows, in which arrows from the words pick a row "
        f"each: {picked}. Each picked row is written out beside the table, "
        f"as {table.size(1)} numbers.",
    )


def _bands(
    sketch: Sketch,
    above: Sequence[float],
    below: Sequence[float],
    weights: Sequence[Sequence[float]],
    heights: tuple[float, float],
    wide: float,
    lit: int,
) -> None:
    """Bands as wide as the weights; at a word they lie side by side.

    Those of the row `lit` stand out.
    """
    top, bottom = heights
    reach = 0.4 * (bottom - top)
    ends = [
        x - wide * sum(column) / 2
        for x, column in zip(above, zip(*weights, strict=True), strict=True)
    ]
    for i, (x, row) in enumerate(zip(below, weights, strict=True)):
        strength = 0.85 if i == lit else 0.25
        start = x - wide * sum(row) / 2
        for j, weight in enumerate(row):
            thick = wide * weight
            if thick < 0.5:  # nobody would see it
                continue
            low, high = start + thick / 2, ends[j] + thick / 2
            start, ends[j] = start + thick, ends[j] + thick
            sketch.flow(
                (low, bottom),
                (low, bottom - reach),
                (high, top + reach),
                (high, top),
                width=thick,
                colour="attention",
                strength=strength,
            )


def averages(
    tokens: Sequence[str], shares: Mapping[str, Tensor], lit: int
) -> Picture:
    """Averages with bands from the words that they take from.

    `shares` has, for each title, the weights (len, len). The bands of
    the word `lit` stand out, with stripes in place of one that is gone.
    """
    first = next(iter(shares.values()))[lit].tolist()

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        high = 214
        sketch = Sketch(wide, high * (len(shares) if narrow else 1))
        gap = 0 if narrow else 36
        half = wide if narrow else (wide - gap) / len(shares)
        for number, (title, weights) in enumerate(shares.items()):
            left = 0 if narrow else number * (half + gap)
            top = number * high if narrow else 0
            places = [
                left + half * (i + 0.5) / len(tokens)
                for i in range(len(tokens))
            ]
            title_at = left + half / 2
            sketch.words(title_at, top + 12, title, font_weight="bold")
            ends = top + 58, top + 172
            now = weights[lit].tolist()
            for x, before, share in zip(places, first, now, strict=True):
                if share < 0.1 < before:  # stripes where a band was
                    low, bend = places[lit] - 20, sum(ends) / 2
                    gone = drawsvg.Path().M(low, ends[1])
                    gone.C(low, bend, x + 26, bend, x + 26, ends[0])
                    look = dict(colour="muted", stroke_dasharray="1.5 4")
                    sketch.stroke(gone, 26 * before, arrow=False, **look)
            _bands(sketch, places, places, weights.tolist(), ends, 26, lit)
            for x, token in zip(places, tokens, strict=True):
                sketch.box(x, top + 42, token, "value", width=76)
                sketch.box(x, top + 188, f"new {token}", "value", width=84)
        return sketch

    told = " ".join(
        f"{title}: "
        + "; ".join(
            f"{token} takes "
            + ", ".join(
                f"{share:.2f} of {other}"
                for other, share in zip(tokens, row, strict=True)
                if share
            )
            for token, row in zip(tokens, weights.tolist(), strict=True)
        )
        + "."
        for title, weights in shares.items()
    )
    return show(
        draw,
        f"Bands lead from the values of the words down to new ones. {told}",
    )


def encoder_layer(tokens: Sequence[str]) -> Picture:
    """A layer of the encoder, with a column for each word."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 392)
        edge, step = (124, 82) if narrow else (214, 170)
        columns = [edge + step * i for i in range(len(tokens))]
        aside = 24 if narrow else 38  # where the input goes around
        words, attention, feed = 374, 282, 132
        names = {
            attention: "self-attention",
            attention - 52: "add",
            attention - 82: "norm",
            feed: "feed-forward",
            feed - 48: "add",
            feed - 78: "norm",
        }
        for y, name in names.items():
            look = {"font_weight": "bold"} if y in (attention, feed) else {}
            if narrow and "-" in name:
                one, two = name.split("-")
                sketch.words(2, y - 8, f"{one}-", "start", **look)
                sketch.words(2, y + 8, two, "start", **look)
                continue
            sketch.words(2, y - (8 if look else 0), name, "start", **look)
        if not narrow:
            told = "here the words meet"
            sketch.words(2, attention + 10, told, "start")
            sketch.words(2, feed + 10, "each word alone", "start")
        broad = columns[-1] - columns[0] + 2 * aside + 16
        middle = (columns[0] + columns[-1]) / 2
        look = dict(width=broad, height=48)
        sketch.box(middle, attention, "", "attention", **look)
        for x, token in zip(columns, tokens, strict=True):
            for other in columns:
                ends = (x, attention + 24), (other, attention - 24)
                sketch.line(*ends, colour="attention", width=1.6)
            sketch.box(x, words, token, "encoder", width=64)
            box = 2 * aside - 16
            sketch.box(x, feed, "", "feed_forward", width=box, height=34)
            for start, part, end in (
                (words - 15, attention, attention - 52),
                (attention - 93, feed, feed - 48),
            ):
                half = 24 if part == attention else 17
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
                look = dict(width=box, height=20)
                sketch.box(x, end - 30, "", "norm", **look)
            sketch.line((x, feed - 88), (x, feed - 106), arrow=True)
            sketch.words(x, feed - 118, f"new {token}")
        return sketch

    return show(
        draw,
        f"A column for each of {', '.join(tokens)}, read upwards. "
        "Self-attention is one broad box, in which every column is joined "
        "to every other. All else is separate for each word: the sum, the "
        "norm, feed-forward, the sum and the norm again. Around "
        "self-attention and around feed-forward a thick line carries what "
        "goes in to the sum.",
    )


def machine(source: Sequence[str], target: Sequence[str]) -> Picture:
    """Encoder and decoder, and the one way from the one to the other."""
    add = "add & norm"

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 466)
        left, right = wide * 0.26, wide * 0.74
        box = 128 if narrow else 210
        floor = 436
        sketch.words(left, floor, " ".join(source))
        sketch.words(right, floor, " ".join(target[:-1]))
        start = ("embedding + positions", 394)
        masked = "masked\nself-attention"
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
                (masked, 326),
                (add, 286),
                ("cross-attention", 244),
                (add, 206),
                ("feed-forward", 164),
                (add, 126),
                ("linear", 64),
            ],
        }
        for x, part, top in (left, "encoder", 190), (right, "decoder", 108):
            frame = dict(width=box + 22, height=356 - top, part=part)
            sketch.box(x, (top + 356) / 2, fill_opacity=0.06, **frame)
        edge = (box + 22) / 2
        # the frame is open where the memory comes in
        door = dict(width=5, height=18, fill_opacity=1)
        sketch.box(right - edge, 244, "", PAPER, **door)
        for x, boxes in steps.items():
            below = floor - 10
            for text, y in boxes:
                part = "encoder" if x == left else "decoder"
                look = {"fill_opacity": 0.1, "stroke_opacity": 0.6}
                if text == "cross-attention":
                    part, look = "attention", {"fill_opacity": 0.4}
                if narrow:
                    text = text.replace(" + ", " +\n")
                high = 38 if "\n" in text else 22 if text == add else 30
                sketch.line((x, below), (x, y + high / 2), arrow=True)
                look |= dict(width=box, height=high)
                sketch.box(x, y, text, part, **look)
                below = y - high / 2
        sketch.words(left - edge + 4, 180, "× 2", "start")
        sketch.words(right - edge + 4, 98, "× 2", "start")
        way = [(left, 189), (left, 170), (wide / 2, 170), (wide / 2, 244)]
        look = dict(arrow=True, width=4, colour="attention")
        sketch.line(*way, (right - box / 2 - 1, 244), **look, front=True)
        sketch.words(left, 154, "memory", font_weight="bold")
        sketch.line((right, 49), (right, 32), arrow=True)
        sketch.words(right, 20, target[-1])
        return sketch

    return show(
        draw,
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
                look = dict(
                    colour="decoder", stroke_dasharray="5 4", width=2.5
                )
                sketch.line((x, above + 16), (x - column, below - 16), **look)
            sketch.line((x, above + 16), (x, below - 16), arrow=True)
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


def places(encodings: Tensor, numbers: Sequence[int], one: int) -> Picture:
    """Some numbers of the position vectors (length, d_model), as waves.

    `numbers` are sines; the position `one` is marked in all of them.
    """
    length, d_model = encodings.shape
    turns = {k: 2 * math.pi * 10_000 ** (k / d_model) for k in numbers}

    def draw(narrow: bool):
        # below one another on both: the positions are the same
        figure, axes = panels(len(turns), True, height=0.95, sharex=True)
        if not narrow:
            figure.set_figwidth(PAGE)
        ink = COLOURS["position"]
        fine = [i / 20 for i in range(20 * length - 19)]
        for ax, (k, turn) in zip(axes, turns.items(), strict=True):
            wave = [math.sin(2 * math.pi * x / turn) for x in fine]
            ax.axhline(0, color=COLOURS["muted"], linewidth=0.6)
            ax.axvspan(
                one - 0.3, one + 0.3, color=COLOURS["muted"], alpha=0.3, lw=0
            )
            ax.plot(fine, wave, color=ink, linewidth=1.2)
            ax.plot(encodings[:, k], "o", color=ink, markersize=3.5)
            ax.plot(one, encodings[one, k], "o", color=ink, markersize=8)
            ax.set(ylim=(-1.25, 1.25), yticks=[-1, 1])
            told = f"number {k}: a wave is {turn:,.0f} positions long"
            if narrow:
                told = f"number {k}: {turn:,.0f} positions long"
            ax.set_title(told, loc="left")
        axes[-1].set(xlabel="position", xticks=range(0, length, 5))
        axes[-1].text(one + 0.5, 0.7, f"position {one}", va="center")
        return figure

    told = ", ".join(f"{k} of {turn:,.0f}" for k, turn in turns.items())
    return show(
        draw,
        f"Waves over the positions 0 to {length - 1}, below each other. "
        f"Numbers and the length of their waves, in positions: {told}. The "
        f"first goes up and down, the last hardly leaves 0. A grey stripe "
        f"marks position {one} in all of them.",
    )


def echo(words: Sequence[str], again: Tensor, right: Tensor) -> Picture:
    """Chances of the word just read and of the right one, at each place.

    `words` has one more than there are places: the last word is only
    predicted.
    """
    read, following = words[:-1], words[1:]
    heights = range(len(read))

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        ink = COLOURS["target"]
        for y in heights:
            for word, chance, at in (
                (f"{read[y]} again", again[y].item(), y - 0.19),
                (f"{following[y]}, the right word", right[y].item(), y + 0.19),
            ):
                ax.barh(at, chance, height=0.32, color=ink)
                much = f"{chance:.2f}" if chance >= 0.01 else "under 0.01"
                told = f"{word}: {much}"
                ax.text(chance + 0.01, at, told, va="center")
        ax.set_yticks(heights, [f"after {word}" for word in read])
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.25 if narrow else 0.72), xticks=[0, 0.2, 0.4, 0.6])
        ax.set_xlabel("probability")
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
            height = min(at, lowest - 0.6)  # words do not overlap
            lowest = height
            if len(words) > room:
                words = words[:room].rsplit(" ", 1)[0] + " …"
            ax.plot(step, at, "o", color=COLOURS["loss"], markersize=4)
            ax.annotate(
                f"{step}: {words or '(writes nothing)'}",
                (step, at),
                (step + 14, height + 0.1),
                va="bottom",
            )
        ax.text(
            len(losses),
            least - 0.12,
            f"{least:.2f}: with smoothing it can go no lower",
            ha="right",
            va="top",
        )
        ax.set(xlabel="step", ylabel="loss per word", ylim=(0, losses[0] + 1))
        return figure

    told = "; ".join(f"step {step}: {words}" for step, words in said.items())
    return show(
        draw,
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

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        rise, left = (20, 0) if narrow else (0, 76)
        sketch = Sketch(wide, 230 + 2 * rise)

        def spread(count):
            step = (wide - left) / count
            return [left + step * (i + 0.5) for i in range(count)]

        above, below = spread(len(source)), spread(len(target))
        sketch.words(2, 16, "looked at", "start")
        sketch.words(2, 214 + 2 * rise, "chosen", "start")
        drawn = weights.where(weights >= 0.1, 0.0).tolist()
        _bands(sketch, above, below, drawn, (30 + rise, 200 + rise), 26, lit)
        for x, word in zip(above, source, strict=True):
            sketch.words(x, 16 + rise, word, colour="source")
        for i, (x, word) in enumerate(zip(below, target, strict=True)):
            look = {"font_weight": "bold"} if i == lit else {}
            sketch.words(x, 214 + rise, word, colour="target", **look)
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
