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
        told = "root" if narrow else "root: falls as 1/√step"
        ax.text(steps[4], 2.2 * root[4], told)
        told = "ramp" if narrow else "ramp: grows with the step"
        ax.text(steps[-1], 1.9 * ramp[-1], told, ha="right")
        told = "the rate, equation 3:\nthe lower of the two"
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
        ax.set(ylabel="learning rate", ylim=(1e-7, 0.1))
        ax.set_xlabel("step (logarithmic)")
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

    The first curve is a broad line, on which the others may lie.
    """
    base, later, wider = curves.items()

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        steps = range(1, len(base[1]) + 1)
        wide = {"color": COLOURS["muted"], "lw": 6, "alpha": 0.4}
        ax.plot(steps, base[1], **wide)  # the others lie on it
        peaks = []
        for (_, values), colour in ((later, "norm"), (wider, "position")):
            ax.plot(steps, values, color=COLOURS[colour])
            height = max(values)
            peaks.append((values.index(height) + 1, height))
            ax.plot(*peaks[-1], "o", color=COLOURS[colour])
        top = max(base[1])
        at = base[1].index(top) + 1
        # from the base's peak down to both others
        way = [(at, top), *sorted(peaks)]
        ax.plot(*zip(*way, strict=True), ":", color="black", lw=1)
        height = 0.75 * peaks[0][1] + 0.25 * top
        ax.text(at + 200, height, "÷ √2", va="center")
        ax.text(at + 500, top, base[0], va="center")
        told = later[0] + (
            "" if narrow else ":\nlater and lower, then the same"
        )
        ink = COLOURS["norm"]
        ax.text(peaks[0][0] + 500, peaks[0][1], told, va="bottom", color=ink)
        told = wider[0] + ("" if narrow else ": all of it is lower")
        last, ink = len(base[1]), COLOURS["position"]
        below = wider[1][-1] - 0.4e-4
        ax.text(last, below, told, ha="right", va="top", color=ink)
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
    looks = {  # dash and ink
        "ten times the peak at once": ("-", "bad"),
        "the same peak at once": ("-", "position"),
        "ten times, but pre-norm": ("--", "norm"),
        "warm-up of 100 steps": ("-", "attention"),
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.4)
        last = max(map(len, runs.values()))
        below = float("inf")
        ends = {name: sum(run[-10:]) / 10 for name, run in runs.items()}
        known = {"color": "black", "lw": 1.2, "zorder": 3}
        ax.plot([0, last], 2 * [frequencies], ":", **known)
        told = "knows only\nfrequencies"
        if not narrow:
            told = "knows only how frequent each token is"
        ax.text(last, frequencies + 0.5, told, ha="right")
        for name in sorted(runs, key=ends.__getitem__, reverse=True):
            dash, colour = looks[name]
            told = name
            ax.plot(runs[name], dash, color=COLOURS[colour])
            apart = 1.2 if narrow else 0.6
            below = min(ends[name], below - apart)
            if narrow:
                told = told.replace(", ", ",\n").replace(" peak", "\npeak")
                told = told.replace(" the\n", "\nthe ").replace(" of", "\nof")
            ax.text(last + 2, below, told, va="center", color=COLOURS[colour])
        ax.set(xlabel="step", ylabel="loss, nats per token", ylim=(0, 7.8))
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
