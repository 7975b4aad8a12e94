"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)

Series = tuple[Sequence[int], Sequence[float]]  # steps, values


def tasks(reads: Sequence[str], labels: Sequence[str]) -> Picture:
    """A row for each position: what it may read, and what is asked."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        high, down = 26, 36
        letters = [len(word) + 3 for word in reads]
        widest = max(map(len, labels)) + 3
        letter = wide / (sum(letters) + widest + 2)  # 2: the last arrow
        ends = [letter * end for end in accumulate(letters)]
        sketch = Sketch(wide, 30 + down * len(reads))
        sketch.words(2, 10, "it reads", "start", font_weight="bold")
        asked = wide - 2
        sketch.words(asked, 10, "is asked for", "end", font_weight="bold")
        for row, label in enumerate(labels):
            y = 24 + down * row + high / 2
            for place, word in enumerate(reads[: row + 1]):
                width = letter * letters[place]
                x = ends[place] - width / 2
                sketch.box(x, y, word, "target", width - 4, high)
            width = letter * widest
            x = wide - width / 2
            sketch.line((ends[row] - 2, y), (x - width / 2, y), arrow=True)
            look = {"fill_opacity": 0, "stroke_width": 2}
            sketch.box(x, y, label, "target", width - 4, high, **look)
        return sketch

    rows = "; ".join(
        f"from {' '.join(reads[: place + 1])} to {label}"
        for place, label in enumerate(labels)
    )
    return show(
        draw,
        f"{len(labels)} rows, one for each position. What the decoder reads "
        "grows by a word from row to row, and an "
        f"arrow leads to the word that is asked for: {rows}.",
    )


def normal(healthy: Sequence[Series], sick: Series) -> Picture:
    """Losses against the share of a run's steps, as shares of the first."""

    def part(series: Series) -> tuple[list[float], list[float]]:
        steps, losses = series
        return (
            [100 * step / steps[-1] for step in steps],
            [100 * loss / losses[0] for loss in losses],
        )

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        good, bad = COLOURS["good"], COLOURS["bad"]
        for run in healthy:
            ax.plot(*part(run), color=good)
        ax.plot(*part(sick), color=bad)
        ax.text(100, 88, "not normal", ha="right", va="top", color=bad)
        ax.text(100, 44, "normal", ha="right", color=good)
        ax.axvline(25, color=COLOURS["muted"], ls=":")
        ax.text(27, 70, "a quarter of\nthe steps")
        ax.set(xlabel="% of the steps", xlim=(0, 101), ylim=(0, 110))
        ax.set(xticks=[0, 25, 50, 75, 100])
        ax.set_ylabel("validation loss,\n% of its first value")
        return figure

    ends = ", ".join(f"{part(run)[1][-1]:.0f}%" for run in healthy)
    return show(
        draw,
        f"{len(healthy)} curves of the validation loss fall below half of "
        "its first value in the first quarter of the steps, and end at "
        f"{ends} of it; another stays up, at {part(sick)[1][-1]:.0f}%.",
    )


def copying(copied: Mapping[int, float], trained: int) -> Picture:
    """Per cent that are copied exactly, by length; `trained` the longest."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.4)
        for length, share in copied.items():
            known = length <= trained
            ink = COLOURS["good" if known else "bad"]
            bar = ax.bar(length, share, 0.7, color=ink)
            ax.bar_label(bar, [f"{share:.0f}"], padding=3, color=ink)
        ax.axvline(trained + 0.5, color=COLOURS["muted"], ls=":")
        ax.text(trained + 0.65, 75, "longer than\nany in training")
        ax.set(xlabel="symbols in the sequence", ylim=(0, 115), yticks=[])
        ax.set_xticks([*copied])
        ax.spines["left"].set_visible(False)
        ax.set_title("% copied without an error")
        return figure

    said = ", ".join(
        f"{share:.0f}% of {length}" for length, share in copied.items()
    )
    return show(
        draw,
        "Bars of the random sequences that are copied without an error, by "
        f"their number of symbols, in training up to {trained}: {said}.",
    )


def illnesses(curves: Mapping[str, tuple[Series, Series]]) -> Picture:
    """By case, the losses in training and in validation: four panels."""

    def draw(narrow: bool):
        figure, axes = panels(
            len(curves),
            narrow,
            height=2 if narrow else 2.5,
            sharey=True,
            squeeze=False,
        )
        for ax, (case, (seen, unseen)) in zip(
            axes.flat, curves.items(), strict=True
        ):
            ax.plot(*seen, color=COLOURS["loss"])
            ax.plot(*unseen, "--", color=COLOURS["loss"])
            ends = {"training": seen[1][-1], "unseen": unseen[1][-1]}
            if abs(ends["training"] - ends["unseen"]) < 1:
                ends = {"training and\nunseen": max(ends.values())}
            for words, value in ends.items():
                ax.annotate(
                    f"{words} {value:.1f}",
                    (seen[0][-1], value),
                    (0, 14 if len(ends) == 1 else 6),
                    textcoords="offset points",
                    ha="right",
                    multialignment="right",
                )
            ax.set(ylim=(0, 10.5), xlabel="step")
            ax.set_title(case, weight="bold")
            if narrow or ax is axes.flat[0]:
                ax.set_ylabel("nats per token")
        return figure

    said = "; ".join(
        f"{case}: {seen[1][-1]:.1f} in training, {unseen[1][-1]:.1f} unseen"
        for case, (seen, unseen) in curves.items()
    )
    return show(
        draw,
        "Four pairs of curves over the steps. Healthy: both fall together. "
        "Not shifted: the training loss drops to almost nothing and the "
        "validation loss rises. Rate too high: both stop falling while they "
        "are high. Too little data: the training loss keeps falling, and the "
        f"validation loss stops early, far above. In the end, {said}.",
    )


def boats(found: Mapping[str, Sequence[float]]) -> Picture:
    """For each translator the per cent right, with boats and without."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.9)
        new, grey = COLOURS["target"], COLOURS["muted"]
        for row, (name, (boat, old)) in enumerate(found.items()):
            ax.text(-3, -row + 0.26, name, weight="bold")
            ax.plot([boat, old], [-row, -row], color=grey, lw=1)
            ring = {"ms": 11, "mfc": "none", "mew": 2, "color": grey}
            ax.plot(old, -row, "o", **ring)
            ax.plot(boat, -row, "o", color=new, ms=7)
            told = ""
            if abs(boat - old) < 20:  # the dots lie on one another
                told = f"{boat:.0f}% and {old:.0f}%"
            left = boat < 50
            ax.annotate(
                told,
                (min(boat, old), -row),
                (12 if left else -12, -4),
                textcoords="offset points",
                ha="left" if left else "right",
            )
        ax.text(102, 0.26, "○ without a boat", ha="right", color=grey)
        before = 58 if narrow else 78
        ax.text(before, 0.26, "● with a boat", ha="right", color=new)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.set(xlim=(-4, 104), ylim=(0.6 - len(found), 0.7))
        ax.set_xlabel("% translated exactly")
        return figure

    said = "; ".join(
        f"{name}: {boat:.0f} with a boat, {old:.0f} without"
        for name, (boat, old) in found.items()
    )
    return show(draw, f"Per cent of sentences translated exactly. {said}.")
