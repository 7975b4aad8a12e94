"""What the chapter on evaluation shows."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
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
    """Outputs, and below them each of their sequences of 1 to 4 words.

    `candidates` has under each title the words and, for each length,
    whether the sequence that begins at a place is in the reference.
    """

    def bars(sketch: Sketch, n: int, matches, at, level: float) -> None:
        """Sequences of n words, as bars around the height `level`."""
        for place, right in enumerate(matches):
            height = level + 7 * (place % n - (n - 1) / 2)
            near, far = at(place - 0.5) + 3, at(place + n - 0.5) - 3
            ends = [(near, height), (far, height)]
            if sketch.width < PAGE * 96:  # the phone has words in a column
                ends = [(y, x) for x, y in ends]
            look = {"colour": "bad", "width": 4.5}
            if right:
                look = {"colour": "good", "width": 4, "stroke_opacity": 0.5}
            sketch.line(*ends, **look)

    def counted(matches: Sequence[bool]) -> str:
        return f"{sum(matches)} of {len(matches)}"

    def wide() -> Sketch:
        height, left, right = 166, 56, 52
        sketch = Sketch(PAGE * 96, height * len(candidates) - 14)
        most = max(len(written) for written, _ in candidates.values())
        step = (PAGE * 96 - left - right) / most

        def at(place: float) -> float:
            return left + step * (place + 0.5)

        for number, (title, (written, found)) in enumerate(candidates.items()):
            top = number * height
            wrong, gaps = _mistakes(reference, written)
            sketch.words(0, top + 10, title, "start", font_weight="bold")
            sketch.words(PAGE * 96, top + 34, "shared", "end")
            for place, word in enumerate(written):
                colour = "bad" if place in wrong else "currentColor"
                sketch.words(at(place), top + 34, word, colour=colour)
            for place in gaps:
                x = at(place - 0.5)
                ends = (x, top + 24), (x, top + 44)
                sketch.line(*ends, colour="bad", width=2)
            levels = [top + below for below in (56, 74, 100, 133)]
            for n, (y, name, matches) in enumerate(
                zip(levels, LENGTHS, found, strict=True), 1
            ):
                sketch.words(0, y, name, "start")
                sketch.words(PAGE * 96, y, counted(matches), "end")
                bars(sketch, n, matches, at, y)
        return sketch

    def tall() -> Sketch:
        step, left = 21, 66
        most = max(len(written) for written, _ in candidates.values())
        height = step * most + 84
        sketch = Sketch(PHONE * 96, height * len(candidates))
        for number, (title, (written, found)) in enumerate(candidates.items()):
            top = number * height + 56
            wrong, gaps = _mistakes(reference, written)
            sketch.words(0, top - 46, title, "start", font_weight="bold")

            def at(place: float, top: float = top) -> float:
                return top + step * place

            for place, word in enumerate(written):
                colour = "bad" if place in wrong else "currentColor"
                sketch.words(left - 10, at(place), word, "end", colour=colour)
            for place in gaps:
                y = at(place - 0.5)
                ends = (left - 46, y), (left - 8, y)
                sketch.line(*ends, colour="bad", width=2)
            levels = 84, 152, 224, 302
            for n, (x, name, matches) in enumerate(
                zip(levels, LENGTHS, found, strict=True), 1
            ):
                sketch.words(x, top - 24, name)
                sketch.words(x, at(most) + 2, counted(matches))
                bars(sketch, n, matches, at, x)
        return sketch

    said = "; ".join(
        f"{title}: {' '.join(written)}, "
        + ", ".join(
            f"{counted(matches)} {name}"
            for name, matches in zip(LENGTHS, found, strict=True)
        )
        for title, (written, found) in candidates.items()
    )
    return show(
        lambda narrow: tall() if narrow else wide(),
        "Below two outputs their single words, pairs, triples and sequences "
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

    def draw(narrow: bool):
        figure, (left, right) = panels(2, narrow, height=2.8)
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
        return figure

    told = "; ".join(
        f"{name}: 95% from {low:.1f} to {high:.1f}"
        for name, (low, high) in middle.items()
    )
    return show(
        draw,
        f"Left, two heaps of scores that overlap. {told}. Right, one heap: "
        f"by how much {names[0]} are ahead in each redrawn test set. "
        f"They are ahead in {wins} of {len(ahead)}.",
    )
