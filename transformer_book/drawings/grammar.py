"""What the page on the grammar shows."""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt

from transformer_book.figures import COLOURS, PAGE, PHONE, Picture, show


def kept(
    nouns: Sequence[str],
    partners: Sequence[str],
    held_out: Callable[[str, str], bool],
) -> Picture:
    """Which nouns and partners meet only in the test."""

    def draw(narrow: bool):
        rows, columns = (partners, nouns) if narrow else (nouns, partners)
        size = (PHONE, 4.6) if narrow else (PAGE, 4.4)
        figure, ax = plt.subplots(figsize=size)
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                noun, partner = (column, row) if narrow else (row, column)
                test = held_out(noun, partner)
                side = 0.86
                ax.add_patch(
                    plt.Rectangle(
                        (x - side / 2, y - side / 2),
                        side,
                        side,
                        color=COLOURS["bad"] if test else COLOURS["muted"],
                        alpha=1 if test else 0.25,
                        linewidth=0,
                    )
                )
        ax.set_xlim(-0.5, len(columns) - 0.5)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xticks(range(len(columns)), columns, rotation=90)
        ax.set_yticks(range(len(rows)), rows)
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        return figure

    pairs = [
        f"{partner} and {noun}"
        for noun in nouns
        for partner in partners
        if held_out(noun, partner)
    ]
    return show(
        draw,
        f"A table of {len(nouns)} nouns and {len(partners)} verbs and "
        f"adjectives. {len(pairs)} of the combinations are marked as kept "
        f"for the test, among them {pairs[0]}; they form diagonals.",
    )
