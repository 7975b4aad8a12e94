"""What the chapter on layers shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    WIDTH,
    Picture,
    Sketch,
    log_ticks,
    panels,
    show,
)


def stream() -> Picture:
    """One position's vector on its way through a layer, both norms."""

    sketch = Sketch(WIDTH, 290)

    def box(x, y, words, width=54):
        part = {"self-attention": "attention", "norm": "norm"}
        part = part.get(words, "feed_forward")
        sketch.box(x, y, words, part, width=width)

    def stream(y, *branches):
        sketch.words(10, y, "x")
        sketch.line((24, y), (428, y), width=4)
        for leave, enter in branches:  # up from the line and down again
            way = (leave, y), (leave, y - 56), (enter, y - 56)
            sketch.line(*way, (enter, y - 11), arrow=True)
            sketch.plus(enter, y)

    sketch.words(WIDTH / 2, 16, "post-norm, as printed", font_weight="bold")
    stream(105, (30, 142), (224, 334))
    box(86, 49, "self-attention", 98)
    box(184, 105, "norm")
    box(279, 49, "feed-forward", 94)
    box(378, 105, "norm")
    sketch.words(WIDTH / 2, 166, "pre-norm, an option", font_weight="bold")
    stream(255, (30, 212), (230, 404))
    box(68, 199, "norm")
    box(152, 199, "self-attention", 98)
    box(265, 199, "norm")
    box(346, 199, "feed-forward", 94)
    return show(
        sketch,
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

    figures, axes = panels(2, 300)
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

    return show(
        figures,
        f"{len(names)} rows of bars, the same numbers times a factor: "
        f"{', '.join(names)}. Before the norm the first rows are nearly flat "
        "and the last one is huge; after it all look the same.",
    )


def what_arrives(
    measured: Mapping[str, tuple[list[float], list[float]]],
) -> Picture:
    """What goes wrong up a stack without the norm, or without the sum.

    By kind of layer, `measured` has gradients and differences.
    """
    both, small = measured["post-norm"], measured["post-norm, small"]
    good, bad, grey = COLOURS["good"], COLOURS["bad"], COLOURS["muted"]

    figures, (left, right) = panels(2, 270)
    layers = range(len(both[0]))
    for number, ax in enumerate((left, right)):
        missing = measured[("no norm", "no residual")[number]]
        ax.plot(layers, both[number], color=grey)
        ax.plot(layers, small[number], color=good)
        ax.plot(layers, missing[number], color=bad)
        ax.set_xlabel("layer")
        ax.xaxis.get_major_locator().set_params(integer=True)
    left.text(0.2, 1e3, "no norm:\nit explodes", color=bad)
    left.text(0.2, 4, "both", color=grey)
    left.text(2.4, 4, "both, as in this book", color=good)
    left.set(title="the gradient, from the top down", yscale="log")
    left.set_ylim(1e-1, 1e9)
    log_ticks(left.yaxis)
    left.set_ylabel("times that of the top layer")
    right.text(3.2, 0.05, "no sum: all\nwords are one", color=bad)
    right.text(3.6, 1.0, "both, as in this book", color=good)
    right.text(7.2, 0.45, "both", color=grey)
    right.set(title="how far words differ", ylim=(-0.02, 1.1))
    right.set_ylabel("share of a vector")
    right.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])

    return show(
        figures,
        f"Two charts over {len(layers)} layers. Left, the gradient as a "
        "multiple of the one at the top: with both it is level; without the "
        f"norm it grows to {measured['no norm'][0][0]:,.0f} times at the "
        "bottom. Right, how much of a vector is its position's own: without "
        "the sum nothing after three layers; with both it falls, but if "
        "initialized as in this book it stays.",
    )
