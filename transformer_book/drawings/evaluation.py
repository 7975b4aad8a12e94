"""What the chapter on evaluation shows."""

from collections import Counter
from collections.abc import Sequence

from transformer_book.figures import COLOURS, Picture, panels, show


def matches(hypothesis: Sequence[str], reference: Sequence[str]) -> Picture:
    """A bar for every n-gram of a hypothesis, thick where it counts.

    An n-gram counts at most as often as the reference has it.
    """
    good: dict[int, list[bool]] = {}
    for n in range(1, 5):
        allowed = Counter(
            zip(*(reference[i:] for i in range(n)), strict=False)
        )
        good[n] = []
        for start in range(len(hypothesis) - n + 1):
            ngram = tuple(hypothesis[start : start + n])
            good[n].append(allowed[ngram] > 0)
            allowed[ngram] -= 1
    counts = {n: f"{sum(each)} of {len(each)}" for n, each in good.items()}

    def draw(narrow: bool):
        figure, axes = panels(1, narrow, height=3.9)
        bottoms = {4: 0, 3: 5, 2: 9, 1: 12}  # n bars high, and a gap
        for n, bottom in bottoms.items():
            for start, counted in enumerate(good[n]):
                height = bottom + start % n
                axes.plot(
                    [start - 0.35, start + n - 0.65],
                    [height, height],
                    color=COLOURS["good" if counted else "muted"],
                    linewidth=5 if counted else 2,
                )
        middles = [bottom + (n - 1) / 2 for n, bottom in bottoms.items()]
        names = [f"n = {n}\n{counts[n]}" for n in bottoms]
        axes.set_yticks(middles, names)
        axes.set_xticks(
            range(len(hypothesis)), hypothesis, rotation=60 if narrow else 0
        )
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        return figure

    told = "; ".join(f"n = {n}: {count}" for n, count in counts.items())
    return show(
        draw,
        "A bar for every n-gram of the hypothesis. Thick ones are in the "
        f"reference as well: {told}.",
    )
