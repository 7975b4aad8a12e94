"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

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
        count, down = len(reads), 36
        step = wide / (count + 1.25)
        high = 26
        sketch = Sketch(wide, 30 + down * count)
        sketch.words(2, 10, "it reads", "start", font_weight="bold")
        asked = wide - 2
        sketch.words(asked, 10, "is asked for", "end", font_weight="bold")
        for row, label in enumerate(labels):
            y = 24 + down * row + high / 2
            for place, word in enumerate(reads):
                x = step * (place + 0.5)
                box = {"width": step - 4, "height": high}
                if place <= row:
                    sketch.box(x, y, word, "target", **box)
                else:  # hidden by the mask
                    faint = {"fill_opacity": 0, "stroke_opacity": 0.25}
                    sketch.box(x, y, "", "muted", **box, **faint)
            x = wide - step / 2
            start = step * count - 2
            sketch.line((start, y), (x - step / 2, y), arrow=True)
            look = {"fill_opacity": 0, "stroke_width": 2}
            sketch.box(x, y, label, "target", step - 4, high, **look)
        return sketch

    rows = "; ".join(
        f"from {' '.join(reads[: place + 1])} to {label}"
        for place, label in enumerate(labels)
    )
    return show(
        draw,
        f"{len(labels)} rows, one for each position. What the decoder reads "
        "grows by a word from row to row, later words are hidden, and an "
        f"arrow leads to the word that is asked for: {rows}.",
    )


def normal(runs: Mapping[str, tuple[Series, Series]]) -> Picture:
    """By run, loss and BLEU against the share of its steps.

    A loss is a share of the run's first one. A curve that enters what
    is coloured is a sign that something is wrong.
    """
    inks = "muted", "attention", "position"

    def draw(narrow: bool):
        figure, (left, right) = panels(2, narrow, height=2.9)
        for (name, both), ink in zip(runs.items(), inks, strict=True):
            (steps, losses), (scored, bleus) = both
            colour = COLOURS[ink]
            shares = [100 * loss / losses[0] for loss in losses]
            left.plot(
                [100 * s / steps[-1] for s in steps], shares, color=colour
            )
            right.plot(
                [100 * s / scored[-1] for s in scored], bleus, color=colour
            )
            for ax, height in ((left, shares[-1]), (right, bleus[-1])):
                low = name == "Tatoeba" if ax is left else bleus[-1] < 45
                ax.annotate(
                    name,
                    (100, height),
                    (0, -3 if low else 3),
                    textcoords="offset points",
                    ha="right",
                    va="top" if low else "bottom",
                    color=colour,
                )
        for ax, zone, words in (
            (
                left,
                (25, 80, 75, 30),
                "still here after a\nquarter: not normal",
            ),
            (right, (50, -2, 50, 6), "still 0 halfway:\nnot normal"),
        ):
            x, y, width, height = zone
            ill = {"color": COLOURS["bad"], "alpha": 0.18, "lw": 0}
            ax.add_patch(Rectangle((x, y), width, height, **ill))
            at = (x + 2, y + height / 2) if ax is left else (x + 2, y + 15)
            ax.text(*at, words, va="center", color=COLOURS["bad"])
            ax.set(xlabel="% of the steps", xlim=(0, 102))
            ax.set_xticks([0, 25, 50, 75, 100])
        left.set(title="validation loss", ylabel="% of its first value")
        left.set_ylim(0, 110)
        right.set(title="BLEU on validation sentences", ylim=(-2, 110))
        return figure

    ends = ", ".join(
        f"{name}: loss {loss[1][-1] / loss[1][0]:.0%} of the first, "
        f"BLEU {bleu[1][-1]:.1f}"
        for name, (loss, bleu) in runs.items()
    )
    return show(
        draw,
        "Two charts over the share of a run's steps. The validation losses "
        "of all runs are below half of their first value after a quarter, "
        "and BLEU is far from 0 halfway. Coloured are the places where a "
        "healthy run is not: a loss that is still high after a quarter of "
        f"the steps, and a BLEU of 0 after half of them. In the end, {ends}.",
    )


def copying(nll: Series, copied: Series, longer: Series) -> Picture:
    """The loss of the copy task, and what is copied exactly.

    `copied` are sequences as long as those of the training.
    """
    begun = next(s for s, x in zip(*copied, strict=True) if x >= 10)
    never = "" if max(longer[1]) else ": never"

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.5)
        axes[0].plot(*nll, color=COLOURS["loss"])
        axes[0].set(title="loss", ylabel="nats per symbol", ylim=(0, None))
        axes[1].plot(*copied, "o-", color=COLOURS["attention"], ms=4)
        axes[1].plot(*longer, "o-", color=COLOURS["bad"], ms=4)
        axes[1].set(title="copied exactly", ylim=(-6, 108))
        axes[1].set_ylabel("% of the sequences")
        high = max(nll[1])
        end = copied[0][-1]
        beside = begun + 0.02 * end
        told = "from here on,\nsome copies are right"
        axes[0].text(beside, high, told, va="top")
        for height, words, ink in (
            (52, "2 to 6 symbols,\nas in training", "attention"),
            (8, f"8 to 10 symbols{never}", "bad"),
        ):
            axes[1].text(end, height, words, ha="right", color=COLOURS[ink])
        for ax in axes:
            ax.axvline(begun, color=COLOURS["muted"], ls=":", lw=1.2)
            ax.set(xlabel="step", xlim=(0, 1.04 * end))
        return figure

    return show(
        draw,
        f"First chart: the loss falls from {nll[1][0]:.1f} nats per symbol to "
        f"{nll[1][-1]:.2f} in {nll[0][-1]} steps. Second: of unseen sequences "
        f"of 2 to 6 symbols a tenth is copied exactly from step {begun} on, "
        f"and {copied[1][-1]:.0f} % in the end; of 8 to 10 symbols "
        f"{longer[1][-1]:.0f} %.",
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
                ends = {"both": max(ends.values())}
            for words, value in ends.items():
                ax.annotate(
                    f"{words} {value:.1f}",
                    (seen[0][-1], value),
                    (0, 14 if words == "both" else 6),
                    textcoords="offset points",
                    ha="right",
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
            told = f"both {old:.0f}%" if boat == old else ""
            if min(boat, old) > 60:  # the one that learns and keeps
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
