"""What the chapter on training shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    panels,
    show,
)

Series = tuple[Sequence[int], Sequence[float]]  # steps, values


def normal(healthy: Mapping[str, Series], sick: Series) -> Picture:
    """Losses against the share of a run's steps, as shares of the first."""

    def part(series: Series) -> tuple[list[float], list[float]]:
        steps, losses = series
        return (
            [100 * step / steps[-1] for step in steps],
            [100 * loss / losses[0] for loss in losses],
        )

    figure, ax = chart(300)
    bad = COLOURS["bad"]
    below = 100.0
    runs = {name: part(series) for name, series in healthy.items()}
    for name, run in sorted(runs.items(), key=lambda pair: -pair[1][1][-1]):
        ax.plot(*run, color=COLOURS["good"])
        below = min(run[1][-1], below - 8)
        ax.text(103, below, name, va="center", color=COLOURS["good"])
    ax.plot(*part(sick), color=bad)
    ax.text(103, part(sick)[1][-1], "rate too high", va="center", color=bad)
    ax.axvline(25, color=COLOURS["muted"], ls=":")
    ax.text(27, 70, "a quarter of the steps")
    ax.set(xlabel="% of the steps", xlim=(0, 132), ylim=(0, 110))
    ax.set(xticks=[0, 25, 50, 75, 100])
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_ylabel("validation loss,\n% of its first value")
    ends = ", ".join(f"{name} {run[1][-1]:.0f}%" for name, run in runs.items())
    return show(
        figure,
        f"{len(healthy)} curves of the validation loss fall below half of "
        "its first value in the first quarter of the steps, and end at "
        f"{ends}; another stays up, at {part(sick)[1][-1]:.0f}%.",
    )


def copying(copied: Mapping[int, float], trained: int) -> Picture:
    """Per cent that are copied exactly, by length; `trained` the longest."""

    figure, ax = chart(230)
    for length, share in copied.items():
        known = length <= trained
        ink = COLOURS["good" if known else "muted"]
        bar = ax.bar(length, share, 0.7, color=ink)
        ax.bar_label(bar, [f"{share:.0f}"], padding=3, color=ink)
    ax.axvline(trained + 0.5, color=COLOURS["muted"], ls=":")
    ax.text(trained + 0.65, 75, "longer than\nany in training")
    ax.set(xlabel="symbols in the sequence", ylim=(0, 115), yticks=[])
    ax.set_xticks([*copied])
    ax.spines["left"].set_visible(False)
    ax.set_title("% copied without an error")

    said = ", ".join(
        f"{share:.0f}% of {length}" for length, share in copied.items()
    )
    return show(
        figure,
        "Bars of the random sequences that are copied without an error, by "
        f"their number of symbols, in training up to {trained}: {said}.",
    )


def illnesses(curves: Mapping[str, tuple[Series, Series]]) -> Picture:
    """By case, the losses in training and in validation: four panels."""

    figures, axes = panels(len(curves), 210, abreast=2)
    for ax, (case, (seen, unseen)) in zip(axes, curves.items(), strict=True):
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
        ax.set_ylabel("nats per token")

    said = "; ".join(
        f"{case}: {seen[1][-1]:.1f} in training, {unseen[1][-1]:.1f} unseen"
        for case, (seen, unseen) in curves.items()
    )
    return show(
        figures,
        "Four pairs of curves over the steps. Healthy: both fall together. "
        "Not shifted: the training loss drops to almost nothing and the "
        "validation loss rises. Rate too high: both stop falling while they "
        "are high. Too little data: the training loss keeps falling, and the "
        f"validation loss stops early, far above. In the end, {said}.",
    )


def boats(found: Mapping[str, Sequence[float]]) -> Picture:
    """For each translator the per cent right, with boats and without."""
    inks = "target", "muted"

    figure, ax = chart(330)
    for row, (name, shares) in enumerate(found.items()):
        ax.text(0, -row + 0.42, name, weight="bold", va="center")
        for place, part, share in zip((0.12, -0.2), inks, shares, strict=True):
            what = "with a boat" if part == "target" else "without"
            look = {"height": 0.28, "color": COLOURS[part]}
            ax.barh(place - row, share, **look)
            told = f"{what}: {share:.0f}%"
            ax.text(share + 1, place - row, told, va="center")
    ax.set(xlim=(0, 125), xticks=[0, 50, 100], yticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("% translated exactly")
    said = "; ".join(
        f"{name}: {boat:.0f} with a boat, {old:.0f} without"
        for name, (boat, old) in found.items()
    )
    return show(figure, f"Per cent of sentences translated exactly. {said}.")
