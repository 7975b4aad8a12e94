"""What the chapter on evaluation shows."""

from collections.abc import Iterable, Mapping, Sequence
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


def _aligned(reference: Words, written: Words) -> list[tuple[int, int]]:
    """Places of the words that both have, in the same order."""
    matcher = SequenceMatcher(None, reference, written, autojunk=False)
    return [
        (run.a + step, run.b + step)
        for run in matcher.get_matching_blocks()
        for step in range(run.size)
    ]


def shared(
    reference: Words, candidates: Mapping[str, tuple[Words, str]]
) -> Picture:
    """Outputs below their reference, with lines between shared words.

    `candidates` has under each title the words and a line about them.
    """

    def ink(place: int, kept: Iterable[int]) -> str:
        return "currentColor" if place in kept else "bad"

    def across() -> Sketch:
        height = 136
        sketch = Sketch(PAGE * 96, height * len(candidates) - 8)
        most = max(len(written) for written, _ in candidates.values())
        step = PAGE * 96 / max(most, len(reference))
        for number, (title, (written, told)) in enumerate(candidates.items()):
            top = number * height
            pairs = _aligned(reference, written)
            sketch.words(0, top + 10, title, "start", font_weight="bold")
            for i, j in pairs:
                sketch.line(
                    (step * (i + 0.5), top + 45),
                    (step * (j + 0.5), top + 77),
                    colour="good",
                    width=2.4,
                )
            for place, word in enumerate(reference):
                x = step * (place + 0.5)
                colour = ink(place, [i for i, _ in pairs])
                sketch.words(x, top + 35, word, colour=colour)
            for place, word in enumerate(written):
                x = step * (place + 0.5)
                colour = ink(place, [j for _, j in pairs])
                sketch.words(x, top + 88, word, colour=colour)
            sketch.words(0, top + 112, told, "start")
        return sketch

    def down() -> Sketch:
        step = 21
        height = step * (len(reference) + 1) + 100
        sketch = Sketch(PHONE * 96, height * len(candidates))
        left, right = 96, PHONE * 96 - 96
        for number, (title, (written, told)) in enumerate(candidates.items()):
            top = number * height + 40
            pairs = _aligned(reference, written)
            sketch.words(0, top - 28, title, "start", font_weight="bold")
            for i, j in pairs:
                sketch.line(
                    (left, top + step * i),
                    (right, top + step * j),
                    colour="good",
                    width=2.4,
                )
            for place, word in enumerate(reference):
                colour = ink(place, [i for i, _ in pairs])
                y = top + step * place
                sketch.words(left - 6, y, word, "end", colour=colour)
            for place, word in enumerate(written):
                colour = ink(place, [j for _, j in pairs])
                y = top + step * place
                sketch.words(right + 6, y, word, "start", colour=colour)
            below = top + step * len(reference) + 8
            first, _, second = told.partition(": ")
            sketch.words(0, below, f"{first}:", "start")
            sketch.words(0, below + 18, second, "start")
        return sketch

    said = "; ".join(
        f"{title}: {' '.join(written)} ({told})"
        for title, (written, told) in candidates.items()
    )
    return show(
        lambda narrow: down() if narrow else across(),
        f"Outputs below the reference “{' '.join(reference)}”, with lines "
        f"between the words that they share. {said}.",
    )


def redrawn(
    draws: Mapping[str, Sequence[float]],
    intervals: Mapping[str, tuple[float, float]],
) -> Picture:
    """Histograms of redrawn scores, with the middle 95% as a bar."""
    everything = np.concatenate([list(each) for each in draws.values()])
    bins = np.linspace(everything.min(), everything.max(), 45)
    inks = ["black", COLOURS["muted"]]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.7)
        for (name, scores), ink in zip(draws.items(), inks, strict=True):
            heights, _, _ = ax.hist(
                scores, bins, color=ink, alpha=0.55, edgecolor="none"
            )
            low, high = intervals[name]
            ax.plot([low, high], [-4, -4], color=ink, linewidth=5)
            ax.annotate(
                f"{name}\n{low:.1f} to {high:.1f}",
                ((low + high) / 2, max(heights)),
                (0, 4),
                textcoords="offset points",
                ha="center",
                va="bottom",
            )
        ax.set_ylim(-8, 1.45 * ax.get_ylim()[1])
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("BLEU of a redrawn test set")
        return figure

    told = "; ".join(
        f"{name}: 95% from {low:.1f} to {high:.1f}"
        for name, (low, high) in intervals.items()
    )
    return show(
        draw,
        f"Two heaps of scores, of the same redrawn test sets. {told}.",
    )
