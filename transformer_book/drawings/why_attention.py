"""What the chapter on attention, recurrence and convolution shows."""

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
from transformer_book.records import Run, markdown_table, with_powers

LOOKS = {
    "recurrent": "recurrence",
    "convolutional": "feed_forward",
    "dilated": "feed_forward",
    "self-attention": "attention",
    "restricted": "attention",
}


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
                for i in heard:
                    end = places[followed] + 3 * (i - followed), high + 11
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


def work(lengths: Sequence[int], counted: Mapping) -> Picture:
    """Each layer's operations by length, as multiples of recurrence's."""
    looks = {  # ink and dash
        "self-attention": ("attention", "-"),
        "convolution of three words": ("feed_forward", "-"),
        "recurrence": ("recurrence", "-"),
        "the same without its matrices": ("attention", "--"),
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.4)
        for name, (ink, dash) in looks.items():
            colour = COLOURS[ink]
            ax.plot(lengths, counted[name], dash, color=colour)
            if ink != "attention":
                height = counted[name][0] + 0.05
                ax.text(lengths[0], height, name, color=colour)
        told = "self-attention, with\nits four matrices"
        if not narrow:
            told = told.replace("\n", " ")
        look = {"color": COLOURS["attention"], "va": "bottom"}
        ax.text(lengths[0], 2.45, told, **look)
        told = "without its matrices,\nas table 1 counts it"
        ax.text(270, 0.06, told, **look)
        for n in (30, 512):
            times = counted["self-attention"][lengths.index(n)]
            ax.plot(n, times, "o", color=COLOURS["attention"])
            told = f"{times:.3g} times"
            ax.text(n + 6, times - 0.06, told, va="top", weight="bold")
        ax.set(xlabel="tokens in the sentence", ylim=(0, 3.4))
        ax.set_ylabel("work, in times that of recurrence")
        ax.set_xticks([30, 128, 256, 384, 512, 640])
        ax.set_yticks([0, 1, 2, 3], ["0", "1 ×", "2 ×", "3 ×"])
        return figure

    return show(
        draw,
        "Operations of a layer against the length of the sentence, in times "
        "those of recurrence, which is a level line at 1; convolution is one "
        "at 1.5. Self-attention starts at twice recurrence and rises to "
        "three times at 512. Without its matrices it starts near zero and "
        "crosses recurrence at 512.",
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


def path_lengths(lengths: Sequence[int], paths: Mapping) -> Picture:
    """Steps between both ends of a sentence, by kind of layer."""
    names = {
        "recurrent": "recurrence",
        "convolutional": "convolution",
        "restricted": "restricted attention",
        "dilated": "dilated convolution",
        "self-attention": "self-attention",
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for name, found in paths.items():
            colour = COLOURS[LOOKS[name]]
            dash = "--" if name in ("dilated", "restricted") else "-"
            ax.plot(lengths, found, dash, color=colour)
            words = f"{names[name]}: {found[-1]}"
            if narrow:
                words = words.replace(" ", "\n", words.count(" ") - 1)
            height, up = found[-1], "center"
            if narrow and name in ("dilated", "restricted"):
                up = "bottom"  # clear of one another
            elif name == "dilated":
                height += 0.6  # clear of self-attention
            ax.text(1.02 * lengths[-1], height, words, color=colour, va=up)
        ax.set(xlabel="words in the sentence", ylim=(0, None))
        ax.set_ylabel("steps from end to end")
        ax.spines["bottom"].set_bounds(0, lengths[-1])
        ax.set_xticks(lengths)
        return figure

    return show(
        draw,
        "Steps between both ends against the length, up to "
        f"{lengths[-1]} words. Recurrence rises most steeply, with a step "
        "from every word to the next; convolution and restricted attention "
        "rise less steeply, dilated convolution hardly, and self-attention "
        "stays at 1. In the end: "
        + ", ".join(
            f"{names[name]} {found[-1]}" for name, found in paths.items()
        )
        + ".",
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
