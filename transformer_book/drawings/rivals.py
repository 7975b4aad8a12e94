"""What the appendix page on table 2's rivals shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_book.figures import COLOURS, Picture, panels, show
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
    """What each swap does to the loss, seed by seed, and its BLEU.

    `swaps` is {"windows in the encoder": its runs}, by stack.
    """
    gaps = {
        what: [
            sentence_gap(run, base)
            for run, base in zip(runs, transformer, strict=True)
        ]
        for what, runs in swaps.items()
    }

    def bleus(runs: Sequence[Run]) -> list[str]:
        return [f"{run.report['test']['bleu']:.1f}" for run in runs]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.8)
        names = {0.0: "the Transformer"}  # and where each row is
        for seed, score in enumerate(bleus(transformer)):
            place = 0.2 - 0.4 * seed
            ax.plot(0, place, "o", color=COLOURS["attention"], ms=6)
            _score(ax, score, place, color=COLOURS["attention"])
        y, stack = 0.0, ""
        for what, seeds in gaps.items():
            layer, where = what.split(" in the ")
            if where != stack:
                stack = where
                y -= 0.9
                names[y] = f"in the {where}:"
            y -= 0.9
            names[y] = layer
            scores = bleus(swaps[what])
            for seed, ((gap, low, high), score) in enumerate(
                zip(seeds, scores, strict=True)
            ):
                place = y + 0.2 - 0.4 * seed
                ax.plot([low, high], [place] * 2, color="black")
                ax.plot(gap, place, "o", color="black", ms=5)
                _score(ax, score, place)
        ax.axvline(0, color=COLOURS["attention"], lw=1.2)
        _score(ax, "BLEU", 0.85, weight="bold")
        for words, x, side in (
            ("\u2190 better", -0.005, "right"),
            ("worse \u2192", 0.005, "left"),
        ):
            if narrow:  # no room for arrows
                words = words.strip("\u2190\u2192 ")
            ax.text(x, 0.85, words, ha=side, va="center", weight="bold")
        ax.set_ylim(y - 0.5, 1.2)
        ax.set_yticks([*names], names.values())
        for label in ax.get_yticklabels():
            if label.get_text().endswith(":"):
                label.set_weight("bold")
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(-0.095, 0.06)
        ticks = {-0.08: "\u22120.08", -0.04: "\u22120.04", 0: "0"}
        ticks |= {0.04: "+0.04"}
        ax.set_xticks([*ticks], ticks.values())
        across = "nats per token from the Transformer's"
        ax.set_xlabel(across if narrow else f"validation loss, {across}")
        return figure

    said = "; ".join(
        f"{what}: "
        + " and ".join(f"{gap:+.3f}" for gap, *_ in seeds)
        + f" nats, {', '.join(bleus(swaps[what]))} BLEU"
        for what, seeds in gaps.items()
    )
    return show(
        draw,
        "For each of four swaps and two seeds, a dot with an interval: how "
        f"many nats it is above the Transformer. {said}. The Transformer "
        f"itself: {', '.join(bleus(transformer))} BLEU.",
    )


def _score(ax: Any, words: str, y: float, **look: Any) -> None:
    """A figure of the column at the right."""
    place = {"xycoords": ("axes fraction", "data"), "ha": "right"}
    ax.annotate(words, (1.1, y), va="center", **place, **look)


def race_curves(runs: Sequence[Run]) -> Picture:
    """Validation loss against the minutes of one core."""
    # points by which a name is moved upwards from its line's end
    apart = {"recurrent": 8, "convolutional": 1, "transformer": -6}
    first = [run for run in runs if run.report["training"]["seed"] == 0]
    curves = {}  # by kind: minutes and losses of the first seed
    for run in first:
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

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        big = 6 if narrow else 8
        for run in runs:
            kind = run.config["info"]["kind"]
            ink, line, mark = LOOKS[kind]
            steps, losses = run.series("validation_loss")
            each = run.report["result"]["seconds_a_step"]
            minutes = [step * each / 60 for step in steps]
            ax.plot(minutes, losses, line, marker=mark, color=ink, ms=3)
            if run.report["training"]["seed"] == 0:
                name = "Transformer" if kind == "transformer" else kind
                ax.annotate(
                    f"{name}, {losses[-1]:.1f}",
                    (minutes[-1], losses[-1]),
                    (8, apart[kind]),
                    textcoords="offset points",
                    va="center",
                    color=ink,
                )
        for kind, minute in reached.items():
            ends, theirs = curves[kind]
            ink, level = LOOKS[kind][0], theirs[-1]
            ends = [minute, ends[-1]]
            ax.plot(ends, [level] * 2, ":", color=ink, lw=1.8, zorder=4)
            ax.plot(minute, level, "o", color=COLOURS["attention"], ms=big)
            if narrow:  # no room beside the dots
                continue
            ax.annotate(
                f"{minute:.0f} min",
                (minute, level),
                (-3, -5),
                textcoords="offset points",
                ha="right",
                va="top",
                color=COLOURS["attention"],
            )
        ax.set_xlabel("minutes of one core")
        ax.set_ylabel("validation loss, nats per token")
        ax.set_xlim(0, 27 if narrow else 18.8)
        ax.set_ylim(1.5, None)
        ax.set_xticks([0, 5, 10, 15])
        return figure

    told = "; ".join(
        f"{run.config['info']['kind']} "
        f"{run.series('validation_loss')[1][-1]:.2f}"
        for run in runs
    )
    return show(
        draw,
        "Validation loss of the three models, two seeds each, against "
        f"minutes of one core. At the end: {told}. The Transformer was there "
        + ", ".join(f"after {m:.1f} ({kind})" for kind, m in reached.items())
        + ".",
    )


def _named(ax: Any, words: str, end: tuple[float, float], kind: str) -> None:
    """Write what a line is beside its end, in its colour."""
    ax.annotate(
        words,
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


def by_length(races: Mapping[str, Sequence[Run]]) -> Picture:
    """BLEU of all captions with a beam; greedy, by the source's length."""
    parts = next(iter(races.values()))[0].report["by_length"]
    spans = [part["words"].replace(" to ", "\u2013") for part in parts]
    spans[-1] = parts[-1]["words"].split()[0] + " or more"
    greedy = {
        kind: [
            [run.report["by_length"][i]["bleu"] for run in runs]
            for i in range(len(spans))
        ]
        for kind, runs in races.items()
    }
    beam = {
        kind: [run.report["test"]["bleu"] for run in runs]
        for kind, runs in races.items()
    }
    scores = sum(beam.values(), [])
    spread = max(scores) - min(scores)

    def draw(narrow: bool):
        sides = {} if narrow else {"width_ratios": (1, 1.5), "sharey": True}
        figure, (whole, split) = panels(2, narrow, height=3, **sides)
        for number, (kind, each) in enumerate(beam.items()):
            ink, _, mark = LOOKS[kind]
            whole.plot([number] * len(each), each, mark, color=ink, ms=6)
            name = "Transformer" if kind == "transformer" else kind
            whole.text(number, 35, name, ha="center", color=ink)
        whole.text(
            1, 29.5, f"all within {spread:.1f} points", ha="center", va="top"
        )
        whole.set(title="all captions, with a beam", xticks=[])
        whole.set_xlim(-0.6, len(beam) - 0.4)
        places = [*range(len(spans))]
        for kind in races:
            means = _means(split, places, greedy[kind], kind)
            above = kind == "transformer"
            split.text(
                0,
                means[0] + (0.7 if above else -1.0),
                "Transformer" if above else kind,
                va="bottom" if above else "top",
                color=LOOKS[kind][0],
            )
        split.set(title="greedy, by length", xlabel="words of the caption")
        split.set_xticks(places, spans)
        for ax in whole, split:
            ax.set(ylim=(22, 38), yticks=range(22, 39, 4))
        whole.set_ylabel("BLEU")
        if narrow:
            split.set_ylabel("BLEU")
        return figure

    said = "; ".join(
        f"{kind}: with a beam {sum(beam[kind]) / len(beam[kind]):.1f}, greedy "
        + ", ".join(f"{sum(each) / len(each):.1f}" for each in greedy[kind])
        for kind in races
    )
    return show(
        draw,
        "Left, BLEU of all captions with a beam of four; right, of greedy "
        f"translations by the words of the source, {', '.join(spans)}; "
        f"means of two seeds. {said}.",
    )


def copying(found: Sequence[Mapping[str, Any]]) -> Picture:
    """The share of sequences copied whole, by length."""
    shares: dict[str, dict[int, list[float]]] = {}
    for one in sorted(found, key=lambda one: one["length"]):
        of_model = shares.setdefault(one["model"], {})
        of_model.setdefault(one["length"], []).append(100 * one["whole"])

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.9)
        for kind, told in shares.items():
            means = _means(ax, [*told], [*told.values()], kind)
            words = "Transformer" if kind == "transformer" else kind
            _named(ax, words, (max(told), means[-1]), kind)
        _distances(ax, [*next(iter(shares.values()))], narrow)
        ax.set_xlabel("trained on sequences of up to so many symbols")
        ax.set(ylabel="copied without an error, %", ylim=(-4, 104))
        return figure

    said = "; ".join(
        f"{kind}: "
        + ", ".join(f"{sum(x) / len(x):.0f}" for x in told.values())
        for kind, told in shares.items()
    )
    return show(
        draw,
        "Per cent of sequences copied without an error, for sequences of up "
        f"to 20, 50, 100 and 200 symbols, mean of two seeds. {said}.",
    )


def learnt(right: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """How often a stack gives the first symbol, by its distance.

    `right` is {kind of layer: {distance: a share for each seed}}.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        heights = {"recurrent": 16, "convolutional": 8}
        distances = [int(distance) for distance in right["self-attention"]]
        for name, shares in right.items():
            values = [[100 * x for x in each] for each in shares.values()]
            ink = LOOKS[name][0]
            if name == "dilated":  # a line would leap about
                for distance, each in zip(distances, values, strict=True):
                    seeds = [distance] * len(each)
                    ax.plot(seeds, each, "D", color=ink, mfc="none", ms=7)
                _named(ax, "dilated", (distances[-1], max(values[-1])), name)
                continue
            means = _means(ax, distances, values, name)
            height = heights.get(name, means[-1])
            _named(ax, name, (distances[-1], height), name)
        ax.axhline(100 / 8, color=COLOURS["muted"], ls=":", lw=1.2)
        ax.text(5, 3, "guessing", color=COLOURS["muted"], va="center")
        _distances(ax, distances, narrow)
        ax.set(xlabel="symbols back to the first", ylabel="right, %")
        ax.set(ylim=(-2, 105))
        return figure

    told = "; ".join(
        f"{name} "
        + ", ".join(f"{sum(x) / len(x):.2f}" for x in shares.values())
        for name, shares in right.items()
    )
    return show(
        draw,
        "How often the first symbol is given at the end, by the "
        f"distance, mean of the seeds: {told}. Guessing is right 0.12.",
    )


def _distances(ax: Any, places: Sequence[int], narrow: bool) -> None:
    """A logarithmic axis of distances, with room for names at its end."""
    ax.set_xscale("log")
    ax.set_xticks(places, map(str, places))
    ax.minorticks_off()
    room = 1 + (0.75 if narrow else 0.28)
    span = places[-1] / places[0]
    ax.set_xlim(places[0] / span**0.03, places[0] * span**room)
