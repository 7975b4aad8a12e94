"""What the chapter on checkpoints shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    show,
)


def amnesia(start: int, losses: Mapping[str, Sequence[float]]) -> Picture:
    """Losses from a checkpoint on, "with" Adam's means and "without".

    Each has the losses of every other step.
    """

    figure, ax = chart(270)
    steps = [start + 2 * i for i in range(len(losses["with"]))]
    last, ink = steps[-1], COLOURS["loss"]
    first = losses["with"][0]
    ax.axhline(first, ls=":", color=COLOURS["muted"])
    ax.plot(steps, losses["without"], "--", color=ink)
    ax.plot(steps, losses["with"], color=ink)
    height = losses["without"][2]  # on its way down
    ax.text(steps[4], height, "without Adam's means", color=ink)
    height, beside = losses["with"][-1], last + 1
    ax.text(beside, height, "with them", va="center", color=ink)
    ax.plot(start, first, "o", color=ink)
    told = f"as at step {start}"
    ax.text(beside, first, told, va="bottom")
    ax.set(xlabel="step", ylabel="loss on unseen sentences")
    ax.set_xlim(start - 0.5, last + (last - start) * 0.32)
    ax.set_xticks(range(start, last + 1, 5))

    said = "; ".join(
        f"{name} from {values[0]:.2f} by way of {max(values):.2f} to "
        f"{values[-1]:.2f}"
        for name, values in losses.items()
    )
    return show(
        figure,
        "Two curves from one checkpoint on, with Adam's means and without: "
        f"{said} nats.",
    )


def means(mean: Sequence[float], alone: Sequence[float]) -> Picture:
    """Perplexity of the last checkpoints alone, and of means of them."""
    best = min(range(len(mean)), key=mean.__getitem__)
    figure, ax = chart(290)
    counts = range(1, len(mean) + 1)
    ink, span = COLOURS["loss"], max(alone) - min(mean)
    ax.axhline(mean[0], ls=":", color=COLOURS["muted"])
    earlier = range(2, len(alone) + 1)
    ax.plot(earlier, alone[1:], "o", color=COLOURS["muted"])
    ax.plot(counts, mean, "o-", color=ink)
    ax.set_ylim(min(mean) - 0.2 * span, max(alone) + 0.1 * span)
    ax.annotate(
        f"mean of {best + 1}: {mean[best]:.2f}",
        (best + 1, mean[best]),
        (0, -18),
        textcoords="offset points",
        ha="center",
        weight="bold",
        color=ink,
    )
    told = f"the last one alone: {mean[0]:.2f}"
    ax.text(len(mean), mean[0] + 0.04 * span, told, ha="right")
    ax.text(len(alone) + 0.3, alone[-1], "by themselves", va="center")
    ax.set_xticks(counts)
    ax.set_xlabel("checkpoints from the end")
    ax.set_ylabel("perplexity")
    return show(
        figure,
        "Perplexity of the mean of the last one to "
        f"{len(mean)} checkpoints: it falls from {mean[0]:.2f} to "
        f"{mean[best]:.2f} at {best + 1} and rises to {mean[-1]:.2f}. Alone, "
        f"the last has {alone[0]:.2f}, and the {len(alone)}th from the end "
        f"{alone[-1]:.2f}.",
    )
