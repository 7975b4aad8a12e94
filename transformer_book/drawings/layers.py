"""What the chapter on layers shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    log_ticks,
    panels,
    show,
)


def stream() -> Picture:
    """One position's vector on its way through a layer, both norms."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(wide, 290)

        def across(x):  # the phone's places, pulled apart for the page
            return x * wide / 336

        def box(x, y, words, part, width):
            width = across(width) if narrow else 1.6 * width
            if narrow:
                words = words.replace("-", "-\n")
            high = 36 if "\n" in words else 30
            sketch.box(across(x), y, words, part, width=width, height=high)

        def thick(y):
            sketch.words(across(8), y, "x")
            sketch.line((across(18), y), (across(334), y), width=4)

        def branch(y, leave, enter):  # up from the line and down again
            top, arrive = y - 56, y - 11
            corners = [(leave, y), (leave, top), (enter, top)]
            path = [(across(x), y) for x, y in corners]
            sketch.line(*path, (across(enter), arrive), arrow=True)
            sketch.plus(across(enter), y)

        sketch.words(wide / 2, 16, "post-norm, as printed")
        thick(105)
        branch(105, 22, 106)
        branch(105, 172, 256)
        box(64, 49, "self-attention", "attention", 64)
        box(140, 105, "norm", "norm", 44)
        box(214, 49, "feed-forward", "feed_forward", 58)
        box(290, 105, "norm", "norm", 44)
        sketch.words(wide / 2, 166, "pre-norm, an option")
        thick(255)
        branch(255, 20, 162)
        branch(255, 180, 316)
        box(50, 199, "norm", "norm", 44)
        box(114, 199, "self-attention", "attention", 64)
        box(210, 199, "norm", "norm", 44)
        box(270, 199, "feed-forward", "feed_forward", 58)
        return sketch

    return show(
        draw,
        "A layer, twice, as a thick line from left to right. Post-norm: "
        "self-attention is added, a norm lies on the line, feed-forward is "
        "added, a norm lies on the line. Pre-norm: the line meets two "
        "sums and nothing else; each branch begins with a norm.",
    )


def strips(
    names: Sequence[str],
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
) -> Picture:
    """Vectors as rows of bars, before and after layer normalization."""
    rise = 6.5  # from row to row, in the numbers' own unit

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=3.1, sharey=True)
        titles = "before", "after layer normalization"
        for ax, title, rows in zip(axes, titles, (before, after), strict=True):
            for i, row in enumerate(rows):
                level = -rise * i
                places = range(len(row))
                ax.bar(places, row, bottom=level, color=COLOURS["norm"])
                ax.axhline(level, color=COLOURS["muted"], linewidth=0.6)
            ax.set_title(title)
            ax.set_xticks([])
            ax.set_yticks([-rise * i for i in range(len(names))], names)
            ax.tick_params(axis="y", length=0)
            ax.spines[:].set_visible(False)
            ax.set_ylim(-rise * (len(names) - 0.05), rise * 0.6)
        return figure

    return show(
        draw,
        "Five rows of bars, the same sixteen numbers times 0.1, 0.3, 1, 2 "
        "and 4. Before the norm the first rows are nearly flat and the last "
        "one is huge; after it all five look the same.",
    )


def what_arrives(
    measured: Mapping[str, tuple[list[float], list[float]]],
) -> Picture:
    """What goes wrong up a stack without the norm, or without the sum.

    By kind of layer, `measured` has gradients and differences.
    """
    both = measured["post-norm, small"]
    good, bad = COLOURS["good"], COLOURS["bad"]

    def draw(narrow: bool):
        figure, (left, right) = panels(2, narrow, height=2.8)
        layers = range(len(both[0]))
        for number, ax in enumerate((left, right)):
            missing = measured[("no norm", "no residual")[number]]
            ax.plot(layers, both[number], color=good)
            ax.plot(layers, missing[number], color=bad)
            ax.set_xlabel("layer")
            ax.xaxis.get_major_locator().set_params(integer=True)
        grown = measured["no norm"][0][0]
        told = f"no norm:\n{grown / 1e6:,.0f} million times"
        left.text(0.2, 1e3, told, color=bad)
        left.text(0.2, 4, "both, as in this book", color=good)
        left.set(title="the gradient, from the top down", yscale="log")
        left.set_ylim(1e-1, 1e9)
        log_ticks(left.yaxis)
        left.set_ylabel("times that of the top layer")
        right.text(3.6, 0.05, "no sum: all words are one", color=bad)
        right.text(3.6, 1.0, "both, as in this book", color=good)
        right.set(title="how far words differ", ylim=(-0.02, 1.1))
        right.set_ylabel("share of a vector")
        right.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
        return figure

    return show(
        draw,
        "Two charts over twelve layers. Left, the gradient as a multiple of "
        "the one at the top: with both, initialized as in this book, it is "
        "level; without the norm it grows to more than 100,000 times at the "
        "bottom. Right, how much of a vector is its position's own: with "
        "both nearly all; without the sum nothing after three layers.",
    )
