"""What the chapter on attention, recurrence and convolution shows."""

import math
from collections.abc import Mapping, Sequence

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)
from transformer_book.records import Run
from transformer_book.tables import markdown_table, with_powers

LOOKS = {
    "recurrent": "recurrence",
    "convolutional": "feed_forward",
    "dilated": "feed_forward",
    "self-attention": "attention",
    "restricted": "attention",
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

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        column = wide if narrow else wide / 3
        height = 214
        sketch = Sketch(wide, 3 * height if narrow else height)
        kinds = zip(titles, looks, verdicts, reach, strict=True)
        for number, (title, look, verdict, heard) in enumerate(kinds):
            left = 0 if narrow else column * number
            top = height * number if narrow else 0
            room = column - 24
            places = [
                left + 12 + room * (i + 0.5) / len(words)
                for i in range(len(words))
            ]
            low, high = top + 142, top + 62
            middle = left + column / 2
            sketch.box(
                middle,
                top + (height - 8) / 2,
                width=column - 6,
                height=height - 10,
                fill_opacity=0,
                stroke_opacity=0.5,
            )
            sketch.words(middle, top + 20, title, font_weight="bold")
            arrow = dict(colour=look, arrow=True)
            if title == "recurrence":
                for x in places[: followed + 1]:
                    sketch.line((x, low - 11), (x, high + 11), **arrow)
                for start, end in zip(
                    places[:followed], places[1 : followed + 1], strict=True
                ):
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
        return sketch

    word = words[followed]
    return show(
        draw,
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

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.9)
        ink = COLOURS["attention"]
        ax.barh(0, 1, 0.5, color=COLOURS["recurrence"], alpha=0.6)
        ax.text(1.05, 0, "1 ×", va="center")
        names = ["recurrence"]
        for row, (tokens, (bare, whole)) in enumerate(counted.items(), 1):
            names.append(f"self-attention, {tokens} tokens")
            ax.barh(-row, bare, 0.5, color=ink, alpha=0.6)
            more = {"left": bare, "color": ink, "alpha": 0.2}
            ax.barh(-row, whole - bare, 0.5, **more)
            ax.text((bare + whole) / 2, -row, "four matrices", **MIDDLE)
            ax.text(whole + 0.05, -row, f"{whole:.3g} ×", va="center")
        told = "table 1" if narrow else "what table 1 counts"
        ax.text(bare / 2, -row, told, **MIDDLE)
        for place, name in enumerate(names):
            ax.text(0, 0.3 - place, name, va="bottom")
        ax.set(xlabel="work, in times that of recurrence", xlim=(0, 3.4))
        ax.set(xticks=range(4), yticks=[], ylim=(-row - 0.4, 0.7))
        ax.spines["left"].set_visible(False)
        return figure

    said = "; ".join(
        f"at {tokens} tokens {whole:.3g} times, of which table 1 counts "
        f"{bare:.2g} and the four matrices take {whole - bare:.2g}"
        for tokens, (bare, whole) in counted.items()
    )
    return show(
        draw,
        "Bars of a layer's work, in times that of recurrence, whose bar is "
        f"1 long. Self-attention: {said}.",
    )


def waiting(lengths: Sequence[int], counted: Mapping) -> Picture:
    """Operations in a row by length, a line for each layer."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        ends = {name: numbers[-1] for name, numbers in counted.items()}
        most = ends["recurrent"]
        for name, numbers in counted.items():
            ax.plot(lengths, numbers, color=COLOURS[LOOKS[name]])
        middle = len(lengths) // 2
        each = (most - counted["recurrent"][middle]) / (
            lengths[-1] - lengths[middle]
        )
        told = f"recurrence waits for every word:\n{each:.0f} operations each"
        if narrow:
            told = f"recurrence waits:\n{each:.0f} for each word"
        ax.text(
            0.97 * lengths[middle],
            counted["recurrent"][middle] + 0.05 * most,
            told,
            color=COLOURS["recurrence"],
            ha="right",
            multialignment="left",
        )
        for name, height, side in (
            ("self-attention", 0.07, 1.0),
            ("convolutional", 0.07, 0.5),
        ):
            told = "convolution" if "conv" in name else name
            ax.text(
                side * lengths[-1],
                height * most,
                f"{told}: {ends[name]}",
                color=COLOURS[LOOKS[name]],
                ha="right",
            )
        ax.annotate(
            f"{most}",
            (lengths[-1], most),
            (6, 0),
            textcoords="offset points",
            va="center",
            weight="bold",
            color=COLOURS["recurrence"],
        )
        ax.set(xlabel="words in the sentence", ylim=(0, 1.08 * most))
        ax.set(xticks=[0, *lengths[1:]], xlim=(0, 1.1 * lengths[-1]))
        ax.set_ylabel("operations in a row")
        return figure

    return show(
        draw,
        "Operations that follow one another against the length: recurrence "
        f"rises in a straight line to {counted['recurrent'][-1]}, "
        "self-attention and convolution stay level near the bottom.",
    )


def path_lengths(
    lengths: tuple[int, int], paths: Mapping[str, tuple[int, int]]
) -> Picture:
    """Steps between both ends of a sentence, and of one twice as long."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        most = max(longer for _, longer in paths.values())
        for row, (name, (short, longer)) in enumerate(paths.items()):
            kind = next(look for part, look in PARTS.items() if part in name)
            ink = COLOURS[kind]
            ax.barh(-row, short, 0.5, color=ink)
            more = {"left": short, "color": ink, "alpha": 0.35}
            ax.barh(-row, longer - short, 0.5, **more)
            ax.text(0, 0.3 - row, name, va="bottom", color=ink)
            told = f"{short} → {longer}"
            ax.text(1.2 * most, -row, told, ha="right", va="center")
        told = "{} → {} words".format(*lengths)
        ax.text(1.2 * most, 0.3, told, ha="right", va="bottom", weight="bold")
        ax.set(title="steps from the first word to the last")
        ax.set(xlim=(0, 1.2 * most), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return figure

    said = ", ".join(
        f"{name} {short} and {longer}"
        for name, (short, longer) in paths.items()
    )
    return show(
        draw,
        f"Bars of the steps between the ends of a sentence of {lengths[0]} "
        f"words and of one of {lengths[1]}: {said}.",
    )


def race(raced: Mapping[str, Sequence[Run]]) -> Markdown:
    """The race on the test set: a row for each model, seeds in turn."""
    rows = []
    for kind, runs in raced.items():
        tests = [run.report["test"] for run in runs]
        result = runs[0].report["result"]
        rows.append(
            {
                "model": kind,
                "weights": result["parameters"],
                "steps": result["steps"],
                "nats per token": ", ".join(
                    f"{test['nats_per_token']:.2f}" for test in tests
                ),
                "BLEU": ", ".join(f"{test['bleu']:.1f}" for test in tests),
            }
        )
    return Markdown(markdown_table(rows))
