"""What the chapter on checkpoints shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import COLOURS, Picture, panels, show


def amnesia(start: int, losses: Mapping[str, Sequence[float]]) -> Picture:
    """Losses from a checkpoint on, "with" Adam's means and "without".

    Each has the losses of every other step.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        steps = [start + 2 * i for i in range(len(losses["with"]))]
        last, ink = steps[-1], COLOURS["loss"]
        first = losses["with"][0]
        ax.axhline(first, ls=":", color=COLOURS["muted"])
        ax.plot(steps, losses["without"], "--", color=ink)
        ax.plot(steps, losses["with"], color=ink)
        height = losses["without"][2]  # on its way down
        ax.text(steps[4], height, "without Adam's means", color=ink)
        height, beside = losses["with"][-1], last + (1 if narrow else 0.4)
        ax.text(beside, height, "with them", va="center", color=ink)
        ax.plot(start, first, "o", color=ink)
        told = f"as at step {start}"
        ax.text(beside, first, told, va="bottom")
        ax.set(xlabel="step", ylabel="loss on unseen sentences")
        ax.set_xlim(start - 0.5, last + (last - start) * 0.3)
        ax.set_xticks(range(start, last + 1, 5))
        return figure

    said = "; ".join(
        f"{name} from {values[0]:.2f} by way of {max(values):.2f} to "
        f"{values[-1]:.2f}"
        for name, values in losses.items()
    )
    return show(
        draw,
        "Two curves from one checkpoint on, with Adam's means and without: "
        f"{said} nats.",
    )


def means(alone: Sequence[float], mean: Sequence[float]) -> Picture:
    """Perplexity by how many of the last checkpoints are averaged.

    `alone` is that of each, from the newest on; `mean` of all so far.
    """
    best = min(range(len(mean)), key=mean.__getitem__)

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        counts = range(1, len(mean) + 1)
        ink, grey = COLOURS["loss"], COLOURS["muted"]
        ax.axhline(mean[0], ls=":", color=grey)
        ax.plot(counts, alone, "o-", color=grey)
        ax.plot(counts, mean, "o-", color=ink)
        span = max(mean) - min(mean)
        ax.set_ylim(min(mean) - 0.6 * span, max(mean) + 2.2 * span)
        below = {"xytext": (0, -18), "textcoords": "offset points"}
        ax.annotate(
            f"mean of {best + 1}: {mean[best]:.2f}",
            (best + 1, mean[best]),
            ha="center",
            weight="bold",
            color=ink,
            **below,
        )
        ax.text(
            len(mean),
            mean[0] + 0.07 * span,
            f"the last one alone: {mean[0]:.2f}",
            ha="right",
        )
        top = ax.get_ylim()[1]
        ax.text(
            best + (1.7 if narrow else 1.3),
            top,
            f"the oldest of them alone:\n{alone[best]:.2f} at {best + 1}, "
            f"{alone[-1]:.2f} at {len(alone)}",
            va="top",
            color=grey,
        )
        ax.set_xticks(counts)
        ax.set_xlabel("how many of the last checkpoints are averaged")
        ax.set_ylabel("perplexity")
        return figure

    return show(
        draw,
        "Perplexity of the mean of the last one to "
        f"{len(mean)} checkpoints: it falls from {mean[0]:.2f} to "
        f"{mean[best]:.2f} at {best + 1} and rises to {mean[-1]:.2f}. The "
        "oldest checkpoint that is in the mean has by itself "
        f"{alone[best]:.2f} at {best + 1} and {alone[-1]:.2f} in the end, "
        "which is beyond the picture.",
    )
