"""What the chapter on layers shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    legend,
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
            sketch.box(across(x), y, words, part, width=width)

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
        box(64, 49, "attention", "query", 64)
        box(140, 105, "norm", "norm", 44)
        box(214, 49, "network", "feed_forward", 58)
        box(290, 105, "norm", "norm", 44)
        sketch.words(wide / 2, 166, "pre-norm, an option")
        thick(255)
        branch(255, 20, 162)
        branch(255, 180, 316)
        box(50, 199, "norm", "norm", 44)
        box(114, 199, "attention", "query", 64)
        box(210, 199, "norm", "norm", 44)
        box(270, 199, "network", "feed_forward", 58)
        return sketch

    return show(
        draw,
        "A layer, twice, as a thick line from left to right. Post-norm: "
        "attention is added, a norm lies on the line, the network is "
        "added, a norm lies on the line. Pre-norm: the line meets two "
        "sums and nothing else; each branch begins with a norm.",
    )


def normed(before: Sequence[float], after: Sequence[float]) -> Picture:
    """A row of numbers and what layer normalization makes of it."""

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.1)
        rows = {"before": before, "after": after}
        for ax, (title, row) in zip(axes, rows.items(), strict=True):
            ax.bar(range(1, len(row) + 1), row, color=COLOURS["norm"])
            mean = sum(row) / len(row)
            ax.axhline(mean, color=COLOURS["bad"], linestyle="--")
            ax.set(title=title, xlabel="number", xticks=range(1, len(row) + 1))
        return figure

    return show(
        draw,
        "Bars for the same numbers before and after, the mean dashed: "
        "first above zero, then at zero. The order of the bars and the "
        "ratios of their distances stay.",
    )


def what_arrives(
    start: Mapping[str, tuple[list[float], list[float]]],
) -> Picture:
    """By kind of layer, gradients and differences up the stack."""
    looks = {
        "post-norm": ("norm", "-"),
        "pre-norm": ("good", "-"),
        "no residual": ("bad", "--"),
        "no norm": ("muted", ":"),
    }

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.9)
        titles = (
            "gradient that arrives,\nshare of that at the top",
            "how much positions differ\nfrom their mean",
        )
        for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
            for kind, numbers in start.items():
                colour, dash = looks[kind]
                ax.plot(numbers[i], dash, color=COLOURS[colour], label=kind)
            ax.set(title=title, xlabel="layers passed")
            ax.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_yscale("log")
        log_ticks(axes[0].yaxis)
        legend(axes[0], 2 if narrow else 4)
        return figure

    return show(
        draw,
        "Left, the gradient at each of twelve layers relative to the "
        "top: about level with residual and norm; without norm it grows by "
        "powers of ten towards the bottom. Right, how much positions "
        "differ: without residuals nothing is left after a few layers.",
    )
