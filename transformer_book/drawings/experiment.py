"""What the chapter on a recorded experiment shows."""

from collections.abc import Sequence

from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, panels, show
from transformer_book.records import markdown_table

Series = tuple[Sequence[int], Sequence[float]]


def learning(training: Series, validation: Series, exact: Series) -> Picture:
    """The loss by step, and the share of sentences exactly right."""

    # the first time that one sentence in ten is right
    enough = [i for i, share in enumerate(exact[1]) if share >= 0.1]
    late = enough[0] if enough else -1
    step, share = exact[0][late], exact[1][late]
    loss = validation[1][list(validation[0]).index(step)]

    def draw(narrow: bool):
        figure, (left, right) = panels(
            2, narrow, height=2.9, sharex=not narrow
        )
        for ax, height, words, at in (
            (left, loss, f"{loss:.1f} nats left", (8, 8)),
            (right, share, f"{share:.0%} right", (8, -4)),
        ):
            ax.axvline(step, color=COLOURS["muted"], ls=":")
            ax.annotate(
                words,
                (step, height),
                at,
                textcoords="offset points",
                va="center",
                weight="bold",
            )
        left.plot(*training, color=COLOURS["loss"])
        left.plot(*validation, "o", color=COLOURS["loss"], mfc="none")
        left.set(xlabel="step", ylabel="nats per token", ylim=(0, None))
        labels = {
            "training, with dropout": (training, 2, 0.85),
            "validation": (validation, 1, 0.6),
        }
        for words, ((steps, losses), place, height) in labels.items():
            left.annotate(
                words,
                (steps[place], losses[place]),
                (0.42, height),
                textcoords="axes fraction",
                va="center",
                arrowprops={"arrowstyle": "-", "color": COLOURS["muted"]},
            )
        right.plot(*exact, "o-", color=COLOURS["target"])
        right.set(xlabel="step", ylabel="exactly right", ylim=(0, 1.02))
        right.set_xlim(0, None)
        return figure

    return show(
        draw,
        f"Two curves over {training[0][-1]} steps. The loss falls steeply "
        "at first and then flattens. The share of sentences exactly right "
        "begins to rise when much of the loss is gone; at the end it is "
        f"{exact[1][-1]:.0%}.",
    )


def wrong(rows: Sequence[tuple[str, str, str]]) -> Markdown:
    """Sentences with their right translation and the model's, if any."""
    if not rows:
        return Markdown("*There are none this time.*")
    names = "English", "right", "the model's"
    return Markdown(
        markdown_table([dict(zip(names, row, strict=True)) for row in rows])
    )
