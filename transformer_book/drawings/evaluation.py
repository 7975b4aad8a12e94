"""What the chapter on evaluation shows."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np

from transformer_book.figures import (
    COLOURS,
    GAP,
    WIDE,
    Picture,
    Sketch,
    panels,
    show,
)

Words = Sequence[str]
LENGTHS = "words", "pairs", "triples", "fours"


def _mistakes(reference: Words, written: Words) -> tuple[set, set]:
    """Places of wrong words, and places before which words are missing."""
    matcher = SequenceMatcher(None, reference, written, autojunk=False)
    wrong, gaps = set(), set()
    for what, _, _, start, end in matcher.get_opcodes():
        if what == "delete":
            gaps.add(start)
        elif what != "equal":
            wrong.update(range(start, end))
    return wrong, gaps


def spoiled(
    reference: Words,
    candidates: Mapping[str, tuple[Words, Sequence[Sequence[bool]]]],
) -> Picture:
    """Outputs, and beside them each of their sequences of 1 to 4 words.

    `candidates` has under each title the words and, for each length,
    whether the sequence that begins at a place is in the reference.
    """

    def counted(matches: Sequence[bool]) -> str:
        return f"{sum(matches)} of {len(matches)}"

    step, left, top = 22, 70, 58
    most = max(len(written) for written, _ in candidates.values())
    pieces = []
    for title, (written, found) in candidates.items():
        sketch = Sketch((WIDE - GAP) / 2, step * most + 80)
        wrong, gaps = _mistakes(reference, written)
        sketch.words(0, 12, title, "start", font_weight="bold")
        for place, word in enumerate(written):
            colour = "bad" if place in wrong else "currentColor"
            y = top + step * place
            sketch.words(left - 10, y, word, "end", colour=colour)
        for place in gaps:
            y = top + step * (place - 0.5)
            ends = (left - 46, y), (left - 8, y)
            sketch.line(*ends, colour="bad", width=2)
        for n, (x, name, matches) in enumerate(
            zip((90, 158, 230, 310), LENGTHS, found, strict=True), 1
        ):
            look = {"font_weight": "bold"} if name == LENGTHS[-1] else {}
            sketch.words(x, top - 24, name, **look)
            end = top + step * most + 2
            sketch.words(x, end, counted(matches), **look)
            for place, right in enumerate(matches):
                beside = x + 7 * (place % n - (n - 1) / 2)
                y = top + step * (place - 0.5) + 3
                ends = (beside, y), (beside, y + step * n - 6)
                look = {"colour": "bad", "width": 4.5}
                if right:
                    look = {"colour": "good", "stroke_opacity": 0.5}
                    look["width"] = 4
                sketch.line(*ends, **look)
        pieces.append(sketch)
    said = "; ".join(
        f"{title}: {' '.join(written)}, "
        + ", ".join(
            f"{counted(matches)} {name}"
            for name, matches in zip(LENGTHS, found, strict=True)
        )
        for title, (written, found) in candidates.items()
    )
    return show(
        pieces,
        "Beside two outputs their single words, pairs, triples and sequences "
        "of four as bars, in one colour where the reference has them and in "
        f"another where not: {said} are in the reference.",
    )


def redrawn(draws: Mapping[str, Sequence[float]]) -> Picture:
    """Scores of redrawn test sets by two systems, and how they differ.

    The differences are the first system's minus the second's; a bar
    holds the middle 95%.
    """
    names = [*draws]
    first, second = (np.array(each) for each in draws.values())
    inks = "black", COLOURS["muted"]
    heaps = [*zip(names, (first, second), inks, strict=True)]
    ahead = first - second
    middle = {
        name: np.quantile(scores, [0.025, 0.975]) for name, scores, _ in heaps
    }
    wins = int((ahead > 0).sum())

    def heap(ax, scores, bins, ink, words, level):
        style = {"histtype": "step", "lw": 1.6} if ink == "black" else {}
        heights, _, _ = ax.hist(scores, bins, color=ink, **style)
        low, high = np.quantile(scores, [0.025, 0.975])
        ax.plot([low, high], [level, level], color=ink, linewidth=4)
        ax.annotate(
            f"{words}\n95%: {low:.1f} to {high:.1f}",
            ((low + high) / 2, max(heights)),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
        )

    figures, (left, right) = panels(2, 270)
    both = np.concatenate([first, second])
    bins = np.linspace(both.min(), both.max(), 36)
    for level, (name, scores, ink) in zip((-6, -13), heaps, strict=True):
        heap(left, scores, bins, ink, name, level)
    left.set(title="each memory alone", xlabel="BLEU")
    bins = np.arange(0, ahead.max() + 0.25, 0.25)
    told = f"ahead in {wins:,} of {len(ahead):,} draws"
    heap(right, ahead, bins, "black", told, -6)
    right.axvline(0, color="black", linewidth=1.5, linestyle=":")
    right.annotate(
        "equal",
        (0, 0.8 * right.get_ylim()[1]),
        (5, 0),
        textcoords="offset points",
    )
    right.set(title=f"{names[0]} against {names[1]}, draw by draw")
    right.set_xlabel("BLEU points ahead")
    right.set_xlim(min(-0.6, ahead.min()), None)
    for ax in (left, right):
        ax.set_ylim(-20, 1.5 * ax.get_ylim()[1])
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)

    told = "; ".join(
        f"{name}: 95% from {low:.1f} to {high:.1f}"
        for name, (low, high) in middle.items()
    )
    return show(
        figures,
        f"Left, two heaps of scores that overlap. {told}. Right, one heap: "
        f"by how much {names[0]} are ahead in each redrawn test set. "
        f"They are ahead in {wins} of {len(ahead)}.",
    )
