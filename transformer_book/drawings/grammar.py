"""What the page on the grammar of little Spanish shows."""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt

from transformer_book.figures import COLOURS, Picture, show, style


def split(
    nouns: Sequence[str],
    partners: Sequence[str],
    held_out: Callable[[str, str], bool],
) -> Picture:
    """Which noun meets which partner in the test alone."""
    kept = 0
    with style():
        figure, ax = plt.subplots(figsize=(5.2, 4.3))
        for y, noun in enumerate(nouns):
            for x, partner in enumerate(partners):
                if held_out(noun, partner):
                    kept += 1
                    ax.plot(x, y, "s", markersize=7, color=COLOURS["bad"])
                else:
                    ax.plot(x, y, "o", markersize=3, color=COLOURS["muted"])
        ax.set_xticks(range(len(partners)), partners, rotation=60)
        ax.set_yticks(range(len(nouns)), nouns)
        ax.invert_yaxis()
        ax.set_title("■ kept for the test     • met in training")
    return show(
        figure,
        f"A grid of {len(nouns)} nouns against {len(partners)} verbs and "
        f"adjectives. {kept} squares, in slanting lines, mark the "
        "combinations kept for the test; dots mark all others.",
    )
