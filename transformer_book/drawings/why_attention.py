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
from transformer_book.records import Run, markdown_table

LOOKS = {
    "recurrent": ("recurrence", "o--"),
    "convolutional": ("feed_forward", "s-."),
    "dilated": ("feed_forward", "^:"),
    "self-attention": ("attention", "o-"),
    "restricted": ("attention", "s--"),
}


def printed(rows: str) -> Markdown:
    """Table 2 as the paper prints it, from lines of commas."""
    measured = "BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr"
    head = ["model", *measured]
    table = [
        dict(zip(head, row.split(","), strict=True))
        for row in rows.splitlines()
    ]
    return Markdown(markdown_table(table))


def three_layers(words: Sequence[str]) -> Picture:
    """How a word hears of the others, in each of three layers.

    The last word but one is followed: recurrence brings it what lies
    before, a window its neighbours, attention all words.
    """
    titles = "recurrence", "convolution", "self-attention"
    looks = "recurrence", "feed_forward", "attention"
    followed = len(words) - 2

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        column = wide if narrow else wide / 3
        height = 190
        sketch = Sketch(wide, 3 * height if narrow else height)
        for number, (title, look) in enumerate(
            zip(titles, looks, strict=True)
        ):
            left = 0 if narrow else column * number
            top = height * number if narrow else 0
            places = [
                left + column * (i + 0.6) / (len(words) + 0.2)
                for i in range(len(words))
            ]
            low, high = top + 142, top + 62
            middle = left + column / 2
            sketch.words(middle, top + 14, title, font_weight="bold")
            arrow = dict(colour=look, arrow=True)
            if title == "recurrence":
                for x in places[: followed + 1]:
                    sketch.line((x, low - 11), (x, high + 11), **arrow)
                for start, end in zip(
                    places[:followed], places[1 : followed + 1], strict=True
                ):
                    sketch.line((start + 11, high), (end - 11, high), **arrow)
            else:
                near = range(followed - 1, followed + 2)
                heard = near if title == "convolution" else range(len(words))
                for i in heard:
                    end = places[followed] + 3 * (i - followed), high + 11
                    sketch.line((places[i], low - 11), end, **arrow)
            for i, (x, word) in enumerate(zip(places, words, strict=True)):
                kept = title == "recurrence" and i <= followed
                shown = 1 if kept or i == followed else 0.25
                sketch.dot(x, high, look, fill_opacity=shown)
                sketch.dot(x, low, "muted")
                sketch.words(x, low + 26, word)
        return sketch

    word = words[followed]
    return show(
        draw,
        f"Three layers over the same {len(words)} words; arrows show how "
        f"the vector of {word!r} is made. Recurrence: a state is handed "
        "on from word to word. Convolution: from the word and its two "
        "neighbours. Self-attention: from all words at once.",
    )


def work(lengths: Sequence[int], counted: Mapping) -> Picture:
    """Millions of operations per token by length, a line for each layer."""
    looks = ("attention", "-"), ("recurrence", "-"), ("attention", "--")
    # where each line's name begins, as shares of the axes
    spots = (0.05, 0.88), (0.05, 0.34), (0.42, 0.04)

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.4)
        lines = zip(counted.items(), looks, spots, strict=True)
        for (name, numbers), (ink, dash), spot in lines:
            colour = COLOURS[ink]
            ax.plot(lengths, numbers, dash, color=colour)
            words = name.replace(", as", ",\nas")
            ax.text(*spot, words, color=colour, transform=ax.transAxes)
        ax.set(xlabel="length of the sentence, n")
        ax.set_ylabel("million operations\nper token")
        ax.set_xticks([30, 128, 256, 512])
        ax.set_ylim(bottom=0)
        return figure

    return show(
        draw,
        "Operations per token against the length of the sentence. "
        "Recurrence is a level line. Attention without projections starts "
        "near zero and crosses it where n equals d, at 512. Attention with "
        "its projections starts at twice recurrence and rises to three "
        "times at 512.",
    )


def waiting(lengths: Sequence[int], counted: Mapping) -> Picture:
    """Operations in a row by length, a line for each layer."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        for name, numbers in counted.items():
            ax.plot(lengths, numbers, "o-", color=COLOURS[LOOKS[name][0]])
        last = counted["recurrent"][-1]
        waits = "" if narrow else " waits for every word"
        ax.text(
            0.7 * lengths[-1],
            0.86 * last,
            f"recurrence{waits}: {last}",
            color=COLOURS["recurrence"],
            ha="right",
        )
        flat = counted["self-attention"][-1], counted["convolutional"][-1]
        always = "" if narrow else ", at every length"
        ax.text(
            lengths[-1],
            0.08 * last,
            f"self-attention: {flat[0]}, convolution: {flat[1]}{always}",
            color=COLOURS["attention"],
            ha="right",
        )
        ax.set(xticks=lengths, xlabel="length n", ylim=(0, 1.08 * last))
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
            ink, marks = LOOKS[name]
            colour = COLOURS[ink]
            ax.plot(lengths, found, marks, color=colour, markersize=5)
            words = f"{names[name]}: {found[-1]}"
            if narrow:
                words = words.replace(" ", "\n", words.count(" ") - 1)
            place = lengths[-1] * (1.15 if narrow else 1.08), found[-1]
            ax.text(*place, words, color=colour, va="center")
        ax.set(xscale="log", yscale="log", xlabel="length n")
        ax.set_ylabel("steps between the ends")
        ax.set_xticks(lengths, lengths)
        ax.minorticks_off()
        ax.set_yticks([1, 3, 10, 30], [1, 3, 10, 30])
        return figure

    return show(
        draw,
        "Steps between both ends against the length: self-attention "
        "stays at 1, dilated convolutions climb by one for each factor "
        "of three, restricted attention and plain convolutions grow in "
        "proportion, recurrence has as many steps as positions.",
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
