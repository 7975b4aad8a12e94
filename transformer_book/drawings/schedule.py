"""What the chapter on the learning rate shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    Picture,
    log_ticks,
    panels,
    show,
)


def ramp_and_root(
    steps: Sequence[int],
    ramp: Sequence[float],
    root: Sequence[float],
    rates: Sequence[float],
    peak: tuple[int, float],
) -> Picture:
    """Equation 3 and the two curves of which it takes the lower."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.9 if narrow else 3.3)
        muted, loud = COLOURS["muted"], COLOURS["norm"]
        ax.loglog(steps, ramp, ":", color=muted)
        ax.loglog(steps, root, "--", color=muted)
        ax.loglog(steps, rates, color=loud, lw=3)
        ax.plot(*peak, "o", color=loud)
        ax.text(steps[4], 2.2 * root[4], "root")
        ax.text(steps[-1], 1.6 * ramp[-1], "ramp", ha="right")
        told = "equation 3:\nthe lower of the two"
        ax.text(steps[6], 0.4 * ramp[6], told, va="top")
        told = f"step {peak[0]:,}\nrate {peak[1]:.5f}"
        ax.annotate(
            told,
            peak,
            (0, 26),
            textcoords="offset points",
            ha="center",
            va="bottom",
        )
        ax.set(xlabel="step", ylabel="learning rate", ylim=(1e-7, 0.1))
        log_ticks(ax.xaxis)
        log_ticks(ax.yaxis)
        return figure

    return show(
        draw,
        "Learning rate against step, both on logarithmic axes. A rising "
        "straight line and a falling one, half as steep, cross at step "
        f"{peak[0]:,}. Equation 3 follows the lower of the two.",
    )


def rates(curves: Mapping[str, Sequence[float]]) -> Picture:
    """Learning rates from step 1 on: a given one, and what changes it.

    The first curve is dashed.
    """
    looks = [("--", "muted"), ("-", "norm"), ("-", "position")]
    effects = {
        "twice the warm-up": "\nthe peak comes later and is lower",
        "twice the width": ": all of it is lower",
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        for (name, values), (dash, colour) in zip(
            curves.items(), looks, strict=True
        ):
            steps = range(1, len(values) + 1)
            ax.plot(steps, values, dash, color=COLOURS[colour])
            top = max(range(len(values)), key=values.__getitem__)
            told = name if narrow else name + effects.get(name, "")
            if name == "twice the width":  # below its end, where there is room
                ax.text(20_000, values[-1] - 0.7e-4, told, ha="right")
            else:
                ax.text(top + 150, values[top] + 0.2e-4, told)
        ax.set(xlabel="step", ylabel="learning rate", ylim=(0, 8e-4))
        ticks = [0, 5_000, 10_000, 15_000, 20_000]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.set_yticks([0, 4e-4, 8e-4], ["0", "0.0004", "0.0008"])
        return figure

    peaks = ", ".join(
        f"{name} {max(values):.2e} at step {values.index(max(values)) + 1:,}"
        for name, values in curves.items()
    )
    return show(
        draw, f"Learning rate against step; each climbs in a line: {peaks}."
    )


def warm_ups(
    runs: Mapping[str, Sequence[float]], frequencies: float
) -> Picture:
    """The losses with and without a warm-up, named where they end."""
    looks = {
        "no warm-up": ("-", "bad"),
        "same peak, no ramp": ("-", "position"),
        "no warm-up, pre-norm": ("--", "norm"),
        "warm-up of 100": ("-", "attention"),
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        last = max(map(len, runs.values()))
        below = float("inf")
        ends = {name: sum(run[-10:]) / 10 for name, run in runs.items()}
        for name in sorted(runs, key=ends.__getitem__, reverse=True):
            dash, colour = looks[name]
            ax.plot(runs[name], dash, color=COLOURS[colour])
            apart = 1.15 if narrow else 0.62
            below = min(ends[name], below - apart)
            label = name.replace(", ", ",\n") if narrow else name
            ax.text(last + 2, below, label, va="center", color=COLOURS[colour])
        ax.plot([0, last], 2 * [frequencies], ":", color=COLOURS["muted"])
        ax.text(last, frequencies + 0.5, "frequencies alone", ha="right")
        ax.set(xlabel="step", ylabel="loss, nats per token", ylim=(0, 9))
        ax.set_xlim(0, last * (1.75 if narrow else 1.4))
        ax.set_xticks(range(0, last + 1, 40))
        return figure

    told = ", ".join(
        f"{name} {sum(run[-10:]) / 10:.1f}" for name, run in runs.items()
    )
    return show(
        draw,
        "Loss against step. The mean of the last ten steps, in nats: "
        f"{told}. A dotted line marks {frequencies:.1f}, the loss of a "
        "model that knows the tokens' frequencies alone.",
    )
