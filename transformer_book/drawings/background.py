"""What the chapter on the paper's background shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)


def squeeze(source: Sequence[str], target: Sequence[str]) -> Picture:
    """What a target word can see: the last state, or every state."""

    def draw(narrow: bool) -> Sketch:
        half = PHONE * 96 if narrow else PAGE * 48
        sketch = Sketch(half if narrow else 2 * half, 500 if narrow else 240)
        titles = "one vector", "attention over all states"
        for number, title in enumerate(titles):
            left = 0 if narrow else half * number
            top = 255 * number if narrow else 0
            below = [
                left + half * (i + 0.8) / (len(source) + 0.6)
                for i in range(len(source))
            ]
            above = [
                left + half * (i + 0.5) / len(target)
                for i in range(len(target))
            ]
            sketch.words(left + half / 2, top + 14, title, font_weight="bold")
            for start, end in zip(below, below[1:], strict=False):
                start, end = start + 10, end - 10
                sketch.line((start, top + 190), (end, top + 190), arrow=True)
            for x, word in zip(above, target, strict=True):
                for state in below if number else below[-1:]:
                    sketch.line((state, top + 180), (x, top + 82))
                sketch.dot(x, top + 72, "decoder")
                sketch.words(x, top + 48, word)
            for x, word in zip(below, source, strict=True):
                sketch.dot(x, top + 190, "encoder")
                sketch.words(x, top + 218, word)
        return sketch

    return show(
        draw,
        "Twice, three source words are read in a row. With one vector all "
        "four target words hang on the state after the last. With "
        "attention every target word is joined to the state of every "
        "source word.",
    )


def recalled(words: Sequence[int], recall: Mapping) -> Picture:
    """Share of symbols recalled, by what the answer may look at."""
    looks = {"last state": ("bad", "o--"), "all states": ("query", "o-")}
    figure, ax = panels(1, narrow=False, height=3)
    for name, shares in recall.items():
        colour, marks = looks[name]
        ax.plot(words, shares, marks, color=COLOURS[colour], label=name)
    ax.axhline(1 / 8, color=COLOURS["muted"], linestyle=":")
    ax.text(words[0], 1 / 8 + 0.02, "guessing among eight")
    ax.set(xticks=words, xlabel="symbols read", ylim=(0, 1.05))
    ax.set_ylabel("share recalled")
    ax.legend(
        title="looks at",
        loc="lower left",
        bbox_to_anchor=(0, 0.2),
        frameon=False,
    )
    return show(
        figure,
        "Share of symbols recalled against the length read. With "
        "attention nearly all at every length; from the last state all "
        "of two, and fewer and fewer of more.",
    )


def routes(distance: int) -> Picture:
    """The way of a signal from one word to another, by kind of layer."""
    doubling = [2**i - 1 for i in range(20) if 2**i <= distance]
    ways = {  # word and layer at each step
        "recurrence": [(i, 1) for i in range(distance + 1)],
        "convolution": [(i, i) for i in range(distance + 1)],
        "dilated": [(w, i) for i, w in enumerate([*doubling, distance])],
        "self-attention": [(0, 0), (distance, 1)],
    }
    looks = {
        "recurrence": ("bad", "o--"),
        "convolution": ("feed_forward", "s-."),
        "dilated": ("feed_forward", "^:"),
        "self-attention": ("query", "o-"),
    }
    figure, ax = panels(1, narrow=False, height=3.4)
    for name, way in ways.items():
        words, layers = zip(*way, strict=True)
        colour, marks = looks[name]
        label = f"{name}: {len(way) - 1}"
        ax.plot(words, layers, marks, color=COLOURS[colour], label=label)
    ax.set(xlabel="word", ylabel="layer", xticks=range(distance + 1))
    ax.legend(title="steps", loc="upper left", frameon=False)
    return show(
        figure,
        f"The way of a signal from word 0 to word {distance}. Recurrence: "
        "a step for each word, within one layer. Convolution: up a layer "
        "for each word. Dilated: fewer layers, each reaching twice as "
        "far. Self-attention: one step.",
    )
