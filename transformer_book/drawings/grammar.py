"""What the page on the grammar shows."""

from collections.abc import Callable, Sequence

from matplotlib.patches import Rectangle

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    show,
)


def kept(
    nouns: Sequence[str],
    verbs: Sequence[str],
    adjectives: Sequence[str],
    held_out: Callable[[str, str], bool],
) -> Picture:
    """Which nouns and partners meet only in the test."""
    blocks = {"verbs": verbs, "adjectives": adjectives}
    side = 0.86
    looks = {True: (COLOURS["target"], 1), False: (COLOURS["muted"], 0.25)}

    def square(x: float, y: float, test: bool) -> Rectangle:
        ink, alpha = looks[test]
        corner = x - side / 2, y - side / 2
        return Rectangle(
            corner, side, side, color=ink, alpha=alpha, linewidth=0
        )

    figure, ax = chart(540)
    places = {}  # of partners, and of the headings
    at = 0.0
    for heading, partners in blocks.items():
        places[heading] = at
        at += 1
        for partner in partners:
            places[partner] = at
            for row, noun in enumerate(nouns):
                place = (row, at)
                test = held_out(noun, partner)
                ax.add_patch(square(*place, test))
            at += 1
        at += 0.6
    ends = -0.6, at - 1
    ax.set_xlim(-0.5, len(nouns) - 0.5)
    ax.set_ylim(ends[::-1])
    ax.set_xticks(range(len(nouns)), nouns, rotation=90)
    ax.set_yticks([*places.values()], places)
    for label in ax.get_yticklabels():
        if label.get_text() in blocks:
            label.set_weight("bold")
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.legend(
        [square(0, 0, True), square(0, 0, False)],
        ["in the test only", "in training, too"],
        ncols=2,
        loc="outside lower center",
        handlelength=1,
    )

    pairs = [
        f"{partner} and {noun}"
        for noun in nouns
        for partner in (*verbs, *adjectives)
        if held_out(noun, partner)
    ]
    return show(
        figure,
        f"A table of {len(nouns)} nouns, {len(verbs)} verbs and "
        f"{len(adjectives)} adjectives. {len(pairs)} of the combinations are "
        f"marked as kept for the test, among them {pairs[0]}; they form "
        "diagonals.",
    )
