"""What the chapter on attention, recurrence and convolution shows."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    GAP,
    WIDE,
    Picture,
    Sketch,
    chart,
    columns,
    show,
)
from transformer_book.tables import markdown_table, with_powers

LOOKS = {
    "recurrent": "recurrence",
    "convolutional": "feed_forward",
    "self-attention": "attention",
}
PARTS = {  # of a layer's name, and its ink
    "recurrence": "recurrence",
    "convolution": "feed_forward",
    "attention": "attention",
}
MIDDLE = {"ha": "center", "va": "center"}


def printed(rows: str) -> Markdown:
    """Table 2 as the paper prints it, from lines of commas."""
    measured = "BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr"
    head = ["model", *measured]
    table = [
        dict(zip(head, row.split(","), strict=True))
        for row in with_powers(rows).splitlines()
    ]
    return Markdown(markdown_table(table))


def three_layers(words: Sequence[str]) -> Picture:
    """How a word hears of the others, in each of three layers.

    The last word but one is followed: recurrence brings it what lies
    before, a window its neighbours, attention all words.
    """
    titles = "recurrence", "convolution", "self-attention"
    looks = "recurrence", "feed_forward", "attention"
    verdicts = (
        "in turn, from the left only",
        "at once, from neighbours only",
        "at once, from all words",
    )
    followed = len(words) - 2
    reach = (  # the words of which it hears
        range(followed + 1),
        range(followed - 1, followed + 2),
        range(len(words)),
    )

    width = (WIDE - 2 * GAP) / 3
    places = columns(len(words), 10, width - 10)
    low, high, middle = 142, 62, width / 2
    pieces = []
    kinds = zip(titles, looks, verdicts, reach, strict=True)
    for title, look, verdict, heard in kinds:
        sketch = Sketch(width, 206)
        frame = {"width": width - 4, "height": 200, "stroke_opacity": 0.5}
        sketch.box(middle, 103, fill_opacity=0, **frame)
        sketch.words(middle, 20, title, font_weight="bold")
        arrow = {"colour": look, "arrow": True}
        if title == "recurrence":
            for x in places[: followed + 1]:
                sketch.line((x, low - 11), (x, high + 11), **arrow)
            for start, end in pairwise(places[: followed + 1]):
                sketch.line((start + 11, high), (end - 11, high), **arrow)
        else:
            for i in heard:  # to the edge of the dot
                across = places[i] - places[followed]
                share = 12 / math.hypot(across, low - 11 - high)
                end = (
                    places[followed] + share * across,
                    high + share * (low - 11 - high),
                )
                sketch.line((places[i], low - 11), end, **arrow)
        for i, (x, word) in enumerate(zip(places, words, strict=True)):
            state = title == "recurrence" and i < followed
            if state or i == followed:
                sketch.dot(x, high, look)
            known = 1 if i in heard else 0.25
            sketch.dot(x, low, "muted", fill_opacity=known)
            sketch.words(x, low + 24, word, fill_opacity=max(known, 0.6))
        sketch.words(middle, low + 50, verdict, colour=look)
        pieces.append(sketch)
    word = words[followed]
    return show(
        pieces,
        f"Three layers over the same {len(words)} words; arrows show how "
        f"the vector of {word!r} is made. Recurrence: a state is handed "
        "on from word to word. Convolution: from the word and its two "
        "neighbours. Self-attention: from all words at once. Words that do "
        "not reach it are pale.",
    )


def work(counted: Mapping[int, tuple[float, float]]) -> Picture:
    """Attention's work at two lengths, in times that of recurrence.

    By tokens in the sentence: what table 1 counts, and all of it.
    """

    figure, ax = chart(280)
    ink = COLOURS["attention"]
    ax.barh(0, 1, 0.5, color=COLOURS["recurrence"], alpha=0.6)
    ax.text(1.05, 0, "1 ×", va="center")
    names = ["recurrence"]
    for row, (tokens, (bare, whole)) in enumerate(counted.items(), 1):
        names.append(f"self-attention, {tokens} tokens")
        ax.barh(-row, bare, 0.5, color=ink, alpha=0.6)
        more = {"left": bare, "color": ink, "alpha": 0.2}
        ax.barh(-row, whole - bare, 0.5, **more)
        ax.text(
            (bare + whole) / 2, -row, "not counted: four matrices", **MIDDLE
        )
        ax.text(whole + 0.05, -row, f"{whole:.3g} ×", va="center")
    ax.text(bare / 2, -row, "table 1", **MIDDLE)
    for place, name in enumerate(names):
        ax.text(0, 0.3 - place, name, va="bottom")
    ax.set(xlabel="work, in times that of recurrence", xlim=(0, 3.4))
    ax.set(xticks=range(4), yticks=[], ylim=(-row - 0.4, 0.7))
    ax.spines["left"].set_visible(False)

    said = "; ".join(
        f"at {tokens} tokens {whole:.3g} times, of which table 1 counts "
        f"{bare:.2g} and the four matrices take {whole - bare:.2g}"
        for tokens, (bare, whole) in counted.items()
    )
    return show(
        figure,
        "Bars of a layer's work, in times that of recurrence, whose bar is "
        f"1 long. Self-attention: {said}.",
    )


def waiting(lengths: Sequence[int], counted: Mapping) -> Picture:
    """Operations in a row by length, a line for each layer."""

    figure, ax = chart(290)
    ax.set(xlabel="words in the sentence")
    ax.set(xticks=range(0, 201, 50), xlim=(0, 1.5 * lengths[-1]))
    ax.set_ylabel("operations in a row")
    most = counted["recurrent"][-1]
    for name, numbers in counted.items():
        look = {"color": COLOURS[LOOKS[name]]}
        ax.plot(lengths, numbers, **look)
        told = f"{name}: {numbers[-1]}"
        apart = 0.05 * most * (name == "self-attention")  # two are close
        place = 1.02 * lengths[-1], numbers[-1] + apart
        ax.text(*place, told, va="center", weight="bold", **look)
    ax.set_ylim(0, None)
    ax.spines["bottom"].set_bounds(0, lengths[-1])
    return show(
        figure,
        "Operations that follow one another against the length: recurrence "
        f"rises in a straight line to {most}, "
        "self-attention and convolution stay level near the bottom.",
    )


def path_lengths(
    lengths: tuple[int, int], paths: Mapping[str, tuple[int, int]]
) -> Picture:
    """Steps between both ends of a sentence, and of one twice as long."""

    figure, ax = chart(330)
    for row, (name, steps) in enumerate(paths.items()):
        kind = next(look for part, look in PARTS.items() if part in name)
        ax.text(0, 0.42 - row, name, va="center", color=COLOURS[kind])
        for place, alpha, length, count in zip(
            (0.12, -0.18), (0.5, 1), lengths, steps, strict=True
        ):
            look = {"color": COLOURS[kind], "alpha": alpha}
            ax.barh(place - row, count, 0.26, **look)
            told = f"{count}" if row else f"{count} in {length} words"
            ax.text(count + 0.5, place - row, told, va="center")
    ax.set(title="steps from the first word to the last")
    ax.set(xticks=[], yticks=[])
    ax.margins(x=0.3)
    ax.set_xlim(0, None)
    ax.spines[:].set_visible(False)
    said = ", ".join(
        f"{name} {short} and {longer}"
        for name, (short, longer) in paths.items()
    )
    return show(
        figure,
        f"Bars of the steps between the ends of a sentence of {lengths[0]} "
        f"words and of one of {lengths[1]}: {said}.",
    )
