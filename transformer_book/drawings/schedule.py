"""What the chapter on the learning rate shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_book.figures import (
    COLOURS,
    Picture,
    altair,
    legend,
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
        muted, loud = COLOURS["muted"], COLOURS["good"]
        ax.loglog(steps, ramp, ":", color=muted, label="ramp")
        ax.loglog(steps, root, "--", color=muted, label="root")
        ax.loglog(steps, rates, color=loud, lw=3, label="equation 3")
        ax.plot(*peak, "o", color=loud)
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
        ax.legend(loc="lower right")
        return figure

    return show(
        draw,
        "Learning rate against step, both on logarithmic axes. A rising "
        "straight line and a falling one, half as steep, cross at step "
        f"{peak[0]:,}. Equation 3 follows the lower of the two.",
    )


def rate_to_move(d_model: int, warmup_steps: int) -> Any:
    """The rate of these settings, and one that sliders move: altair."""
    alt = altair()

    def knob(name, low, high, value):
        handle = alt.binding_range(
            min=low, max=high, step=low, name=f"{name} "
        )
        return alt.param(name=name, bind=handle, value=value)

    knobs = [
        knob("d_model", 128, 2048, d_model),
        knob("warmup_steps", 1000, 16_000, 2 * warmup_steps),
    ]
    equation_3 = (
        "pow({}, -0.5) * "
        "min(pow(datum.step, -0.5), datum.step * pow({}, -1.5))"
    )
    curve = alt.Chart(
        alt.sequence(1, 20_001, 50, as_="step"),
        width=360,
        height=240,
        description="The base model's learning rate, dashed, climbs in "
        f"a line to step {warmup_steps:,} and falls as an inverse root. "
        "A second curve follows two sliders: with twice the warm-up it "
        "peaks later and lower and then joins the first, with another "
        "width it does not.",
    )
    rate = alt.Y("rate:Q", title="learning rate").axis(format=".4f")
    given, moved = (
        curve.transform_calculate(rate=equation_3.format(*values))
        .mark_line(color=COLOURS[colour], strokeDash=dashes)
        .encode(x=alt.X("step:Q"), y=rate)
        for colour, dashes, values in (
            ("muted", [5, 4], (d_model, warmup_steps)),
            ("good", [1, 0], ("d_model", "warmup_steps")),
        )
    )
    chart = (given + moved).add_params(*knobs)
    return chart.configure_axis(labelFontSize=14, titleFontSize=14)


def warm_ups(
    runs: Mapping[str, Sequence[float]], frequencies: float
) -> Picture:
    """The losses with and without a warm-up."""
    looks = [("-", "bad"), ("--", "good"), ("-.", "norm")]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        for (name, losses), (dash, colour) in zip(
            runs.items(), looks, strict=True
        ):
            ax.plot(losses, dash, color=COLOURS[colour], label=name)
        ax.axhline(frequencies, color=COLOURS["muted"], linestyle=":")
        last = len(losses) - 1
        ax.text(last, frequencies + 0.7, "frequencies alone", ha="right")
        ax.set(xlabel="step", ylabel="loss, nats per token", ylim=(0, 9))
        legend(ax, 1 if narrow else 3)
        return figure

    return show(
        draw,
        "Loss against step. Without a warm-up the loss of the post-norm "
        "model falls to the dotted line of token frequencies and stays "
        "there. With 100 steps of warm-up it passes the line and keeps "
        "falling. The pre-norm model without a warm-up passes it too.",
    )
