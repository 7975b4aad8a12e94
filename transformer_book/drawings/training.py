"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    legend,
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
            sketch.box(x, low, label, "muted", **box)
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
                low = name == "multi30k-de-en" and ax is axes[1]
                align = "top" if low else "bottom"
                ax.text(102, values[-1], name, va=align, color=COLOURS[ink])
        axes[0].set(title="validation loss", ylabel="nats per token")
        axes[1].set(title="BLEU on validation sentences")
        for ax in axes:
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


def copying(nll: Series, copied: Series) -> Picture:
    """The loss of the copy task, and what is copied exactly."""

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.6)
        axes[0].plot(*nll, color=COLOURS["loss"])
        axes[0].set(title="loss", ylabel="nats per symbol", ylim=(0, None))
        axes[1].plot(*copied, "o-", color=COLOURS["good"])
        axes[1].set(title="copied exactly", ylabel="%", ylim=(0, 105))
        for ax in axes:
            ax.set_xlabel("step")
        return figure

    return show(
        draw,
        f"First chart: the loss falls from {nll[1][0]:.1f} nats per symbol to "
        f"{nll[1][-1]:.2f} in {nll[0][-1]} steps. Second: the share of "
        "unseen sequences that are copied exactly is zero at first and "
        f"climbs, with setbacks, to {copied[1][-1]:.0f} %.",
    )


def illnesses(curves: Mapping[str, tuple[Series, Series]]) -> Picture:
    """By case, the losses in training and in validation: four panels."""

    def draw(narrow: bool):
        figure, axes = panels(
            len(curves), narrow, height=2.6, sharey=True, squeeze=False
        )
        for ax, (case, losses) in zip(axes.flat, curves.items(), strict=True):
            seen, unseen = losses
            ax.plot(*seen, color=COLOURS["loss"], label="training")
            ax.plot(
                *unseen, "--", color=COLOURS["decoder"], label="validation"
            )
            ax.set(title=case, ylim=(0, 10), xlabel="step")
            if narrow or ax is axes.flat[0]:
                ax.set_ylabel("nats per token")
        legend(axes.flat[0], 2)
        return figure

    return show(
        draw,
        "Four pairs of curves. Healthy: training and validation loss fall "
        "together. Not shifted: the training loss drops to almost nothing "
        "and the validation loss rises. Rate 20 times: both stop falling "
        "while they are high. Sixty sentences: the training loss keeps "
        "falling, and the validation loss stops early, far above.",
    )
