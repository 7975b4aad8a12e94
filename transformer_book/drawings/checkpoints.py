"""What the chapter on checkpoints shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import COLOURS, Picture, panels, show


def amnesia(start: int, losses: Mapping[str, Sequence[float]]) -> Picture:
    """Validation losses from a checkpoint on, every other step."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        last = 0
        for (name, values), dash in zip(
            losses.items(), ("-", "--"), strict=True
        ):
            steps = [start + 2 * i for i in range(len(values))]
            last = steps[-1]
            ax.plot(steps, values, dash, color=COLOURS["loss"])
            ax.text(last + 0.4, values[-1], name, va="center")
        first = next(iter(losses.values()))[0]
        ax.plot([start, last], [first, first], ":", color=COLOURS["muted"])
        ax.plot(start, first, "o", color=COLOURS["loss"])
        span = last - start
        ax.set_xlabel(f"step, resumed at {start}")
        ax.set_ylabel("loss on unseen sentences")
        ax.set_xlim(start - 0.5, last + span * (0.65 if narrow else 0.3))
        ax.set_xticks(range(start, last + 1, 5))
        return figure

    said = "; ".join(
        f"{name} from {values[0]:.2f} by way of {max(values):.2f} to "
        f"{values[-1]:.2f}"
        for name, values in losses.items()
    )
    return show(draw, f"Two curves from one checkpoint on: {said} nats.")


def fan(
    last: int, every: int, alone: Sequence[float], mean: Sequence[float]
) -> Picture:
    """Perplexities of checkpoints, and of means of all from there on.

    Both begin with the newest checkpoint.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        steps = [last - every * back for back in range(len(alone))]
        ax.plot(steps, alone, "o-", color=COLOURS["muted"])
        ax.plot(steps, mean, "o-", color=COLOURS["loss"])
        ax.plot(
            [steps[0], steps[-1]], 2 * [alone[0]], ":", color=COLOURS["muted"]
        )
        best = min(range(len(mean)), key=mean.__getitem__)
        ax.annotate(
            f"mean of {best + 1}: {mean[best]:.2f}",
            (steps[best], mean[best]),
            (0, -17),
            textcoords="offset points",
            ha="center",
            weight="bold",
            color=COLOURS["loss"],
        )
        ax.annotate(
            f"the last one: {alone[0]:.2f}",
            (steps[-1], alone[0]),
            (0, 4),
            textcoords="offset points",
        )
        ax.annotate(
            "each checkpoint alone",
            (steps[-2], alone[-2]),
            (12, 6),
            textcoords="offset points",
        )
        ax.annotate(
            "the mean of all from here on",
            (steps[-1], min(mean)),
            (0, -34 if narrow else -17),
            textcoords="offset points",
            color=COLOURS["loss"],
        )
        room = (0.32 if narrow else 0.16) * (max(alone) - min(mean))
        ax.set(xlabel="step of the checkpoint", ylabel="perplexity")
        ax.set_ylim(min(mean) - room, None)
        ax.set_xticks(sorted(steps)[:: 2 if not narrow else 3])
        return figure

    return show(
        draw,
        "Two lines over the checkpoints' steps that meet at the last one, at "
        f"{alone[0]:.2f}. Backwards, the checkpoints alone get worse, up to "
        f"{alone[-1]:.2f}, while the means get better, to {min(mean):.2f}, "
        f"and then slowly worse, to {mean[-1]:.2f}.",
    )
