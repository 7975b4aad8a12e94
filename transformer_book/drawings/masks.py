"""What the chapter on masks shows."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    Picture,
    heatmap,
    panels,
    show,
    style,
)


def stages(scores: Tensor, closed: Tensor, tokens: Sequence) -> Picture:
    """Scores, the scores that a mask leaves, and the weights."""
    left = scores.masked_fill(closed, -math.inf)
    matrices = {
        "scores": scores,
        "after the mask": left.masked_fill(closed, math.nan),
        "weights": left.softmax(-1),
    }

    def draw(narrow: bool):
        figure, axes = panels(3, narrow, height=3.1)
        for ax, (title, matrix) in zip(axes, matrices.items(), strict=True):
            is_weight = title == "weights"
            limits = (0, 1) if is_weight else (-4, 4)
            words = "query" if narrow or ax is axes[0] else "", "key"
            heatmap(matrix, tokens, tokens, title, ax, limits, axes=words)
            ax.images[0].colorbar.remove()
            for i, row in enumerate(matrix.tolist()):
                for j, number in enumerate(row):
                    shut = bool(closed[i, j]) and ax is not axes[0]
                    told = "−∞" if shut else f"{number:.1f}"
                    if is_weight:
                        told = "" if shut else f"{number:.2f}"
                    ax.text(j, i, told, ha="center", va="center")
        return figure

    return show(
        draw,
        "Three four by four grids. First all scores, positive and "
        "negative. Then the scores with minus infinity above the "
        "diagonal. Then the weights: empty above the diagonal, and each "
        "row sums to one.",
    )


def honest_and_leaking(
    honest: Sequence[float], leaking: Sequence[float], best: float
) -> Picture:
    """The losses of trainings on noise with and without causal mask."""
    with style():
        figure, ax = plt.subplots(figsize=(PAGE, 3))
        ax.plot(honest, color=COLOURS["good"], label="causal mask")
        colour = COLOURS["bad"]
        ax.plot(leaking, "--", color=colour, label="mask forgotten")
        ax.axhline(best, color=COLOURS["muted"], linestyle=":")
        place = {"x": len(honest) - 1, "y": best + 0.15, "ha": "right"}
        ax.text(**place, s="ln 20: the best possible", va="bottom")
        ax.set(xlabel="step", ylabel="loss, nats per symbol", ylim=(0, None))
        ax.legend(loc="lower left")
    return show(
        figure,
        "Loss against training steps on random sequences. With the "
        "causal mask it settles on the line of ln 20. Without it, it "
        "falls far below what is possible.",
    )
