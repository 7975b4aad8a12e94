"""What the chapter on the learning rate shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    panels,
    show,
)

BROAD = {"color": COLOURS["muted"], "lw": 6, "alpha": 0.45}  # under a line


def ramp_and_root(
    steps: Sequence[int],
    ramp: Sequence[float],
    root: Sequence[float],
    rates: Sequence[float],
    peak: tuple[int, float],
) -> Picture:
    """Equation 3 and the two curves of which it takes the lower."""
    at, top = peak

    figure, ax = chart(280)
    ax.plot(steps, rates, **BROAD)
    ax.plot(steps, ramp, ":", color="black")
    ax.plot(steps, root, "--", color="black")
    ax.plot(*peak, "o", color="black")
    ax.text(1.3 * at, top, f"step {at:,}: {top:.5f}", va="center")
    ax.text(1.85 * at, 1.6 * top, "ramp: grows with the step")
    ax.text(0.5 * at, 1.8 * top, "root:\n1/√step", va="top")
    told = "the rate: the lower of the two"
    ax.text(steps[-1], 0.38 * top, told, ha="right", va="top")
    ax.set_ylim(0, 1.85 * top)
    _name(ax)

    return show(
        figure,
        "Learning rate against step. A straight line that rises from zero "
        f"and a curve that falls cross at step {at:,}, where the rate is "
        f"{top:.5f}. A broad line, equation 3, is on the lower of the two.",
    )


def _name(ax: Any) -> None:
    """Name the axes of a rate over 20,000 steps, and their numbers."""
    ticks = [0, 10_000, 20_000]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_yticks([0, 5e-4, 1e-3], ["0", "0.0005", "0.0010"])
    ax.set(xlabel="step", ylabel="learning rate")


def rates(curves: Mapping[str, Sequence[float]]) -> Picture:
    """Learning rates from step 1 on: a given one, and two changes of it.

    Each change has a panel; the given one is the broad line in both.
    """
    (base, given), *changes = curves.items()
    steps = range(1, len(given) + 1)
    top = max(given)
    told = "later and lower,\nthen the same", "all of it lower"

    figures, axes = panels(2, 250)
    for ax, (name, values), what in zip(axes, changes, told, strict=True):
        ax.plot(steps, given, **BROAD)
        ax.plot(steps, values, color="black")
        peak = max(values)
        at = values.index(peak) + 1
        ax.plot(at, peak, "o", color="black")
        ax.annotate(
            f"{base}'s peak, ÷ √2",
            (at, peak),
            (given.index(top) + 1_900, 1.02 * top),
            va="center",
            arrowprops={"arrowstyle": "-", "linestyle": ":"},
        )
        ax.text(len(given), 0.1 * top, what, ha="right")
        _name(ax)
        ax.set(title=name, ylim=(0, 1.1 * top))

    peaks = ", ".join(
        f"{name} {max(values):.2e} at step {values.index(max(values)) + 1:,}"
        for name, values in curves.items()
    )
    return show(
        figures,
        "Two charts of the learning rate against the step, with a broad line "
        f"for {base}. Each line climbs straight to a peak: {peaks}.",
    )


def warm_ups(
    runs: Mapping[str, Sequence[float]], frequencies: float
) -> Picture:
    """The losses with and without a warm-up, named where they end."""
    looks = {  # dash and ink
        "ten times the peak": ("-", "bad"),
        "the same peak": ("-", "position"),
        "the same, pre-norm": ("--", "norm"),
        "with a warm-up": ("-", "attention"),
    }

    figure, ax = chart(330)
    last = max(map(len, runs.values()))
    place = -float("inf")
    ends = {name: sum(run[-10:]) / 10 for name, run in runs.items()}
    known = {"color": "black", "lw": 1.2, "zorder": 3}
    ax.plot([0, last], 2 * [frequencies], ":", **known)
    told = "dotted: frequencies alone"
    ax.text(last, frequencies + 0.5, told, ha="right")
    for name in sorted(runs, key=ends.__getitem__):
        dash, colour = looks[name]
        ax.plot(runs[name], dash, color=COLOURS[colour])
        place = max(ends[name], place + 0.5)
        ax.text(last + 2, place, name, va="center", color=COLOURS[colour])
    ax.set(xlabel="step", ylabel="loss, nats per token", ylim=(0, 7.8))
    ax.set_xlim(0, 1.55 * last)
    ax.set_xticks(range(0, last + 1, 40))

    told = ", ".join(f"{name} {end:.1f}" for name, end in ends.items())
    return show(
        figure,
        "Loss against step. The mean of the last ten steps, in nats: "
        f"{told}. A dotted line marks {frequencies:.1f}, the loss of a "
        "model that knows the tokens' frequencies alone.",
    )
