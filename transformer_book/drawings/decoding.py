"""What the chapter on decoding shows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.ticker import PercentFormatter

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    panels,
    show,
)


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

    figures, axes = panels(2, 300)
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

    return show(
        figures,
        f"{steps} steps by {steps} positions. Without a cache every "
        f"position up to the step is computed at each step, {counts[0]} "
        f"in all; with a cache only the newest, {counts[1]} in all.",
    )


def sure(shares: Sequence[float], taught: float) -> Picture:
    """How likely the chosen token was, everywhere, and what was taught."""
    middle, top = float(np.median(shares)), max(shares)
    above = sum(share > taught for share in shares)
    low, high = np.percentile(shares, [10, 90])

    figure, ax = chart(210)
    bins = np.arange(taught, 1.0001, 0.005)
    heights, _, _ = ax.hist(shares, bins, color=COLOURS["target"])
    most = max(heights)
    for place, told, side in (
        (taught, f"taught: {taught:.0%}", "left"),
        (1, "certain: 100%", "right"),
    ):
        ax.axvline(place, color="black", ls=":")
        away = 0.001 if side == "left" else -0.001
        ax.text(place + away, 1.25 * most, told, ha=side)
    ax.text(
        middle,
        1.05 * most,
        f"mostly {low:.1%} to {high:.1%}: surer than taught",
        ha="center",
    )
    ax.set(xlim=(taught - 0.006, 1.002), ylim=(0, 1.4 * most))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(xlabel="probability of the likeliest next token", yticks=[])
    ax.spines["left"].set_visible(False)

    return show(
        figure,
        f"A heap of {len(shares)} probabilities. {above} are above "
        f"{taught:.1f}, which was taught. Their median is {middle:.2f}, and "
        f"the highest is {top:.3f}.",
    )
