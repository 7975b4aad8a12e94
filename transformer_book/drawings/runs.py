"""What the page on the recorded runs shows."""

from transformer_book.drawings.training import Series
from transformer_book.figures import COLOURS, Picture, panels, show


def losses(training: Series, validation: Series) -> Picture:
    """The losses that a training logged: a curve, and dots."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow)
        ax.plot(*training, color=COLOURS["loss"], label="training")
        ax.plot(*validation, "o", color=COLOURS["decoder"], label="validation")
        ax.set(xlabel="step", ylabel="nats per piece", ylim=(0, None))
        ax.legend()
        return figure

    return show(
        draw,
        f"The training loss falls from {training[1][0]:.1f} to "
        f"{training[1][-1]:.1f} nats per piece in {training[0][-1]} steps, "
        "and the validation loss with it, below the training loss throughout.",
    )
