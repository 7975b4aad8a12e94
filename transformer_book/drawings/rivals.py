"""What the page on table 2's rivals shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    show,
)
from transformer_book.ladder import steps_until
from transformer_book.records import Run

# The ink, the line and the mark of each kind of layer.
LOOKS = {
    "transformer": (COLOURS["attention"], "-", "o"),
    "self-attention": (COLOURS["attention"], "-", "o"),
    "recurrent": (COLOURS["recurrence"], "--", "s"),
    "convolutional": (COLOURS["feed_forward"], "-.", "^"),
    "dilated": (COLOURS["feed_forward"], ":", "D"),
}


def sentence_gap(run: Run, than: Run) -> tuple[float, float, float]:
    """Nats per token above another run; 95% over sentences.

    Each sentence of the validation set is compared with itself.
    """
    told, other = (one.report["sentences"] for one in (run, than))
    gap = np.subtract(told["nats"], other["nats"])
    pieces = np.array(told["pieces"])
    drawn = np.random.default_rng(0).integers(len(gap), size=(2000, len(gap)))
    means = gap[drawn].sum(1) / pieces[drawn].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return gap.sum() / pieces.sum(), low, high


def swapped(
    transformer: Sequence[Run], swaps: Mapping[str, Sequence[Run]]
) -> Picture:
    """What each swap does to the loss, seed by seed.

    `swaps` is {"windows in the encoder": its runs}, by stack.
    """
    gaps = {
        what: [
            sentence_gap(run, base)
            for run, base in zip(runs, transformer, strict=True)
        ]
        for what, runs in swaps.items()
    }
    inks = {
        "recurrence": COLOURS["recurrence"],
        "windows": COLOURS["feed_forward"],
    }

    figure, ax = chart(300)
    names, y, stack = {}, 0.0, ""  # names: where each row is
    for what, seeds in gaps.items():
        layer, where = what.split(" in the ")
        if where != stack:
            stack = where
            y -= 0.9
            names[y] = f"in the {where}:"
        y -= 0.9
        names[y] = layer
        for seed, (gap, low, high) in enumerate(seeds):
            place = y + 0.2 - 0.4 * seed
            ax.plot([low, high], [place] * 2, color=inks[layer])
            ax.plot(gap, place, "o", color=inks[layer], ms=6)
    ax.axvline(0, color=COLOURS["attention"], lw=1.8)
    heads = (
        ("\u2190 better", "right", -0.005),
        ("worse \u2192", "left", 0.005),
    )
    for words, side, x in heads:
        ax.text(x, -0.15, words, ha=side, va="center", weight="bold")
    ax.set_ylim(y - 0.5, 0.2)
    ax.set_yticks([*names], names.values())
    for label in ax.get_yticklabels():
        if label.get_text().endswith(":"):
            label.set_weight("bold")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(-0.095, 0.06)
    ticks = {-0.08: "\u22120.08", -0.04: "\u22120.04", 0: "0"}
    ticks |= {0.04: "+0.04"}
    ax.set_xticks([*ticks], ticks.values())
    ax.set_xlabel("nats per token from the Transformer's")

    said = "; ".join(
        f"{what}: " + " and ".join(f"{gap:+.3f}" for gap, *_ in seeds)
        for what, seeds in gaps.items()
    )
    return show(
        figure,
        "For each of four swaps and two seeds, a dot with an interval: how "
        "many nats per token the loss is above the Transformer's, which is "
        f"a line. {said}.",
    )


def race_curves(runs: Sequence[Run]) -> Picture:
    """Validation loss against the minutes of one core, for each model."""
    curves = {}  # by kind: minutes and losses
    for run in runs:
        steps, losses = run.series("validation_loss")
        a_step = run.report["result"]["seconds_a_step"]
        minutes = [step * a_step / 60 for step in steps]
        curves[run.config["info"]["kind"]] = minutes, losses
    minutes, losses = curves["transformer"]
    reached = {  # when the Transformer was where a rival ends
        kind: steps_until(minutes, losses, theirs[-1])
        for kind, (_, theirs) in curves.items()
        if kind != "transformer"
    }

    figure, ax = chart(310)
    for kind, (minutes, losses) in curves.items():
        ink, line, _ = LOOKS[kind]
        ax.plot(minutes, losses, line, color=ink)
        end = minutes[-1], losses[-1]
        ax.plot(*end, "o", color=ink, ms=7)
        _named(ax, kind, end)
    for kind, minute in reached.items():
        ends, theirs = curves[kind]
        ax.annotate(
            "",
            (minute, theirs[-1]),
            (ends[-1], theirs[-1]),
            arrowprops={
                "arrowstyle": "-|>",
                "color": LOOKS[kind][0],
                "linestyle": ":",
                "linewidth": 1.6,
                "shrinkA": 4,
                "shrinkB": 0,
            },
        )
        ax.annotate(
            f"{minute:.1f} min",
            (minute, theirs[-1]),
            (-4, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            color=COLOURS["attention"],
        )
    ax.set_xlabel("minutes of one core")
    ax.set_ylabel("validation loss, nats per token")
    ax.set_xlim(4, 21)
    ax.set_ylim(1.75, 3)
    ax.set_xticks([5, 10, 15])

    told = "; ".join(
        f"{kind} {losses[-1]:.2f}" for kind, (_, losses) in curves.items()
    )
    return show(
        figure,
        "Validation loss of the three models against minutes of one core, "
        f"from the fourth. At the end: {told}. The Transformer was there "
        + ", ".join(f"after {m:.1f} ({kind})" for kind, m in reached.items())
        + ".",
    )


def _named(ax: Any, kind: str, end: tuple[float, float]) -> None:
    """Write what a line is beside its end, in its colour."""
    ax.annotate(
        "Transformer" if kind == "transformer" else kind,
        end,
        (10, 0),
        textcoords="offset points",
        va="center",
        color=LOOKS[kind][0],
    )


def _means(ax: Any, places: Sequence[float], seeds: Any, kind: str) -> list:
    """The mean of the seeds as a line, each seed as a dot."""
    ink, line, mark = LOOKS[kind]
    means = [sum(each) / len(each) for each in seeds]
    ax.plot(places, means, line, color=ink)
    for place, each in zip(places, seeds, strict=True):
        ax.plot([place] * len(each), each, mark, color=ink, ms=4, alpha=0.7)
    return means


def copying(found: Sequence[Mapping[str, Any]]) -> Picture:
    """The share of sequences copied whole, by length."""
    shares: dict[str, dict[int, list[float]]] = {}
    for one in sorted(found, key=lambda one: one["length"]):
        of_model = shares.setdefault(one["model"], {})
        of_model.setdefault(one["length"], []).append(100 * one["whole"])

    figure, ax = chart(280)
    for kind, told in shares.items():
        means = _means(ax, [*told], [*told.values()], kind)
        _named(ax, kind, (max(told), means[-1]))
    _distances(ax, [*next(iter(shares.values()))])
    ax.set_xlabel("symbols of the longest sequences")
    ax.set(ylabel="copied without an error, %", ylim=(-4, 104))

    said = "; ".join(
        f"{kind}: "
        + ", ".join(f"{sum(x) / len(x):.0f}" for x in told.values())
        for kind, told in shares.items()
    )
    return show(
        figure,
        "Per cent of sequences copied without an error, for sequences of up "
        f"to 20, 50, 100 and 200 symbols, mean of two seeds. {said}.",
    )


def learnt(right: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """How often a stack gives the first symbol, by its distance.

    `right` is {kind of layer: {distance: a share for each seed}}.
    """

    figure, ax = chart(290)
    heights = {"recurrent": 16, "convolutional": 8}
    distances = [int(distance) for distance in right["self-attention"]]
    for name, shares in right.items():
        values = [[100 * x for x in each] for each in shares.values()]
        ink = LOOKS[name][0]
        if name == "dilated":  # a line would leap about
            for distance, each in zip(distances, values, strict=True):
                seeds = [distance] * len(each)
                ax.plot(
                    seeds, each, "D", color=ink, mfc="none", ms=7, zorder=3
                )
            _named(ax, name, (distances[-1], max(values[-1])))
            continue
        means = _means(ax, distances, values, name)
        height = heights.get(name, means[-1])
        _named(ax, name, (distances[-1], height))
    ax.axhline(100 / 8, color=COLOURS["muted"], ls=":", lw=1.2)
    ax.text(5, 3, "guessing", color=COLOURS["muted"], va="center")
    _distances(ax, distances)
    ax.set(xlabel="symbols back to the first", ylabel="right, %")
    ax.set(ylim=(-2, 105))

    told = "; ".join(
        f"{name} "
        + ", ".join(f"{sum(x) / len(x):.2f}" for x in shares.values())
        for name, shares in right.items()
    )
    return show(
        figure,
        "How often the first symbol is given at the end, by the "
        f"distance, mean of the seeds: {told}. Guessing is right 0.12.",
    )


def _distances(ax: Any, places: Sequence[int]) -> None:
    """A logarithmic axis of distances, with room for names at its end."""
    ax.set_xscale("log")
    ax.set_xticks(places, map(str, places))
    ax.minorticks_off()
    span = places[-1] / places[0]
    ax.set_xlim(places[0] / span**0.03, places[0] * span**1.5)
