"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import COLOURS, Picture, legend, panels, show

Series = tuple[Sequence[int], Sequence[float]]  # steps, values


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
