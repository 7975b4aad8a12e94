"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence

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


def shift(reads: Sequence[str], labels: Sequence[str]) -> Picture:
    """What the decoder reads, and below it what it is asked for."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        left = 4 if narrow else 110
        step = (wide - left) / len(reads)
        top = 24 if narrow else 0
        sketch = Sketch(wide, 110 + 2 * top)
        at = (0, 12) if narrow else (0, 22)
        sketch.words(*at, "it reads", "start")
        below = (0, 128) if narrow else (0, 88)
        sketch.words(*below, "is asked for", "start")
        high, low = (46, 96) if narrow else (22, 88)
        for place, (word, label) in enumerate(zip(reads, labels, strict=True)):
            x = left + step * (place + 0.5)
            box = {"width": step - 6, "height": 30}
            sketch.box(x, high, word, "target", **box)
            sketch.box(x, low, label, "target", fill_opacity=0, **box)
            if place:  # the same word, one position on
                start = x - step, low - 15
                sketch.line(start, (x, high + 15), colour="target", arrow=True)
        return sketch

    pairs = ", ".join(
        f"{word} and {label}"
        for word, label in zip(reads, labels, strict=True)
    )
    return show(
        draw,
        "Two rows of boxes: what the decoder reads, and below it what it is "
        f"asked for. In columns: {pairs}. An arrow leads from each label to "
        "the same word in the column to its right.",
    )


def normal(runs: Mapping[str, tuple[Series, Series]]) -> Picture:
    """By run, validation loss and BLEU against the share of its steps."""
    inks = "muted", "attention", "position"

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.9)
        for (name, both), ink in zip(runs.items(), inks, strict=True):
            for ax, (steps, values) in zip(axes, both, strict=True):
                shares = [100 * step / steps[-1] for step in steps]
                ax.plot(shares, values, color=COLOURS[ink])
                low = name != "tatoeba-de-en" and ax is axes[1]
                align = "top" if low else "bottom"
                ax.text(102, values[-1], name, va=align, color=COLOURS[ink])
        axes[0].set(title="validation loss", ylabel="nats per token")
        axes[1].set(title="BLEU on validation sentences")
        top = max(max(loss[1]) for loss, _ in runs.values())
        axes[0].text(54, top, "halfway: nearly\ndone falling", va="top")
        axes[1].text(54, 3, "halfway: still\nrising a little")
        for ax in axes:
            ax.axvline(50, color=COLOURS["muted"], ls=":", lw=1.2)
            ax.set(xlabel="% of the steps", ylim=(0, None), xlim=(0, 160))
            ax.set_xticks([0, 50, 100])
        return figure

    ends = ", ".join(
        f"{name}: loss {loss[1][-1]:.2f}, BLEU {bleu[1][-1]:.1f}"
        for name, (loss, bleu) in runs.items()
    )
    return show(
        draw,
        "Two charts over the share of a run's steps. The validation loss "
        "falls early, BLEU rises later and longer. In the end, "
        f"{ends}.",
    )


def copying(nll: Series, copied: Series, longer: Series) -> Picture:
    """The loss of the copy task, and what is copied exactly.

    `copied` are sequences as long as those of the training.
    """
    begun = next(s for s, x in zip(*copied, strict=True) if x >= 10)

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.5)
        axes[0].plot(*nll, color=COLOURS["loss"])
        axes[0].set(title="loss", ylabel="nats per symbol", ylim=(0, None))
        axes[1].plot(*copied, "o-", color=COLOURS["attention"], ms=4)
        axes[1].plot(*longer, "o-", color=COLOURS["bad"], ms=4)
        axes[1].set(title="copied exactly", ylabel="%", ylim=(-6, 108))
        high = max(nll[1])
        end = copied[0][-1]
        beside = begun + 0.02 * end
        axes[0].text(beside, high, "the first right copies", va="top")
        for height, words, ink in (
            (52, "2 to 6 symbols", "attention"),
            (8, "8 to 10 symbols", "bad"),
        ):
            axes[1].text(end, height, words, ha="right", color=COLOURS[ink])
        for ax in axes:
            ax.axvline(begun, color=COLOURS["muted"], ls=":", lw=1.2)
            ax.set_xlabel("step")
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
            height=1.9 if narrow else 2.5,
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
                    (0, 6),
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
        "validation loss rises. Rate 20 times: both stop falling while they "
        "are high. Sixty sentences: the training loss keeps falling, and the "
        f"validation loss stops early, far above. In the end, {said}.",
    )


def boats(found: Mapping[str, Sequence[float]]) -> Picture:
    """For each translator the per cent right, with boats and without."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.3)
        for row, (boat, old) in enumerate(found.values()):
            ax.plot([boat, old], [-row, -row], color=COLOURS["muted"], lw=1)
            ax.plot(old, -row, "o", color=COLOURS["muted"], ms=7)
            ax.plot(boat, -row, "o", color=COLOURS["target"], ms=7)
            if row == 0:
                for place, words, ink in (
                    (boat, "with a boat", "target"),
                    (old, "without", "muted"),
                ):
                    ax.annotate(
                        words,
                        (place, 0),
                        (0, 9),
                        textcoords="offset points",
                        ha="left" if place < 50 else "right",
                        color=COLOURS[ink],
                    )
        names = [
            name.replace(" and ", "\nand ").replace(", ", ",\n")
            if narrow
            else name
            for name in found
        ]
        ax.set_yticks([-row for row in range(len(found))], names)
        ax.tick_params(axis="y", length=0)
        ax.set(xlim=(-4, 104), ylim=(0.6 - len(found), 0.8))
        ax.set_xlabel("% translated exactly")
        return figure

    said = "; ".join(
        f"{name}: {boat:.0f} with a boat, {old:.0f} without"
        for name, (boat, old) in found.items()
    )
    return show(draw, f"Per cent of sentences translated exactly. {said}.")
