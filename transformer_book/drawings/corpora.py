"""What the chapter on corpora shows."""

from collections.abc import Sequence

from transformer_book.figures import (
    COLOURS,
    Picture,
    panels,
    show,
)


def lines(left: Sequence[str], right: Sequence[str], lost: int) -> Picture:
    """Two files joined line to line, whole and without line `lost`."""
    shorter = [*right[:lost], *right[lost + 1 :]]

    figures, axes = panels(2, 160)
    for ax, there in zip(axes, (right, shorter), strict=True):
        for row, word in enumerate(left):
            ax.text(0, -row, word, ha="right", va="center")
            if row < len(there):
                good = "good" if there[row] == right[row] else "bad"
                ax.text(1, -row, there[row], va="center")
                ax.plot([0.1, 0.9], [-row, -row], color=COLOURS[good])
            else:
                ax.text(1, -row, "—", va="center", color=COLOURS["bad"])
        ax.set(xlim=(-0.6, 1.8), ylim=(0.6 - len(left), 0.6))
        ax.axis("off")
    axes[0].set_title("all lines are there")
    axes[1].set_title(f"line {lost + 1} is lost")
    ink = COLOURS["bad"]
    axes[1].annotate(  # the gap, between two lines
        f"no {right[lost]}",
        (1, 0.5 - lost),
        (1.45, 0.5 - lost),
        va="center",
        color=ink,
        arrowprops={"arrowstyle": "->", "color": ink},
    )

    return show(
        figures,
        f"Two files of {len(left)} lines, line joined to line. First, all "
        f"pairs are right. Then the second file has lost line {lost + 1}, "
        "and all pairs from there on are wrong.",
    )
