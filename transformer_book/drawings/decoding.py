"""What the chapter on decoding shows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap

from transformer_book.figures import COLOURS, Picture, panels, show


def choices(
    steps: Sequence[tuple[list[int], list[int], list[float]]],
    pieces: Callable[[list[int]], list[str]],
) -> Any:
    """The output so far, the chosen token and its rivals: a pandas table.

    A step is the ids so far, the likeliest next ids and their shares.
    """
    import pandas as pd

    rows = []
    for ids, best, shares in steps:
        rivals = [
            f"{piece.strip('▁') or '▁'} {share:.1%}"
            for piece, share in zip(pieces(best), shares, strict=True)
        ]
        begin, *written = pieces(ids)
        text = "".join(written).replace("▁", " ")
        rows.append([f"{begin} {text}", *rivals])
    ranks = ["2nd", "3rd", *(f"{rank}th" for rank in range(4, 10))]
    head = ["so far", "chosen", *ranks][: len(rows[0])]
    return pd.DataFrame(rows, range(1, len(rows) + 1), head)


def what_is_computed(steps: int) -> Picture:
    """Positions that go through the decoder, with and without cache."""
    newest = np.eye(steps)
    ways = {
        "without a cache": np.tril(np.ones((steps, steps))),
        "with a cache": np.tril(np.ones((steps, steps))) / 2 + newest / 2,
    }
    looks = ["#00000000", COLOURS["muted"] + "aa", COLOURS["decoder"]]
    counts = [int((cells == 1).sum()) for cells in ways.values()]

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=3.1)
        for ax, (title, cells), count in zip(
            axes, ways.items(), counts, strict=True
        ):
            ax.pcolormesh(
                cells,
                cmap=ListedColormap(looks),
                vmin=0,
                vmax=1,
                lw=1.5,
                edgecolors="#ffffff00",
            )
            ax.invert_yaxis()
            middles, names = np.arange(steps) + 0.5, range(1, steps + 1)
            ax.set_xticks(middles, names)
            ax.set_yticks(middles, names)
            ax.set(title=f"{title}:\n{count} positions")
            ax.set(xlabel="position", ylabel="step")
        return figure

    return show(
        draw,
        f"{steps} steps by {steps} positions. Without a cache every "
        f"position up to the step is computed at each step, {counts[0]} "
        f"in all; with a cache only the newest, {counts[1]} in all.",
    )


def sure(shares: Sequence[float], taught: float) -> Picture:
    """How likely the chosen token was, everywhere, and what was taught."""
    low = min(0.88, min(shares)) - 0.005
    middle, top = float(np.median(shares)), max(shares)
    above = sum(share > taught for share in shares)

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.5)
        bins = np.arange(0.1, 1.0001, 0.005)
        heights, _, _ = ax.hist(shares, bins, color=COLOURS["target"])
        most = max(heights)
        ax.annotate(
            f"{above} of {len(shares)} lie\nabove {taught:.1f}",
            (middle, most),
            (0, 5),
            textcoords="offset points",
            ha="center",
        )
        for place, told in (
            (taught, f"taught: {taught:.1f}"),
            (1, "certain"),
        ):
            ax.axvline(place, color="black", linewidth=1.5, linestyle=":")
            ax.annotate(
                told,
                (place, 1.25 * most),
                (-5, 0),
                textcoords="offset points",
                ha="right",
            )
        if not narrow:
            for share in shares:
                if share < taught:
                    ax.annotate(
                        "one lies below",
                        (share, 1),
                        (0, 16),
                        textcoords="offset points",
                        ha="left",
                        arrowprops={"arrowstyle": "-"},
                    )
        ax.set(xlim=(low, 1.001), ylim=(0, 1.4 * most))
        ax.set(xlabel="probability of the likeliest next token")
        ax.set_ylabel("positions")
        return figure

    return show(
        draw,
        f"A histogram of {len(shares)} probabilities. {above} are above "
        f"{taught:.1f}, which was taught. Their median is {middle:.2f}, and "
        f"none is above {top:.2f}.",
    )
