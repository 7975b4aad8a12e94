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
    """What each swap does to the loss, seed by seed, and its BLEU."""
    gaps = {
        what: [
            sentence_gap(run, base)
            for run, base in zip(runs, transformer, strict=True)
        ]
        for what, runs in swaps.items()
    }
    scores = {
        what: ", ".join(f"{run.report['test']['bleu']:.1f}" for run in runs)
        for what, runs in swaps.items()
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.6)
        for row, (what, seeds) in enumerate(gaps.items()):
            for seed, (gap, low, high) in enumerate(seeds):
                y = -row + 0.15 - 0.3 * seed
                ink = COLOURS["muted"] if low < 0 < high else "black"
                if low > 0:
                    ink = COLOURS["bad"]
                ax.plot([low, high], [y, y], color=ink)
                ax.plot(gap, y, "o", color=ink, ms=5)
            words = f"{scores[what]} BLEU"
            ax.text(0.05, -row, words, va="center")
        ax.axvline(0, color=COLOURS["attention"], lw=1.2)
        for words, x, side in (
            ("\u2190 better", -0.005, "right"),
            ("worse \u2192", 0.005, "left"),
        ):
            ax.text(x, 0.65, words, ha=side, va="center", weight="bold")
        ax.set_ylim(0.4 - len(gaps), 0.95)
        names = [
            what.replace(" in the", "\nin the") if narrow else what
            for what in gaps
        ]
        ax.set_yticks([-row for row in range(len(gaps))], names)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(-0.1, 0.14 if narrow else 0.11)
        ticks = {-0.08: "\u22120.08", -0.04: "\u22120.04", 0: "same"}
        ax.set_xticks([*ticks], ticks.values())
        if narrow:
            ax.set_xticks([-0.08, 0], ["\u22120.08", "same"])
        ax.set_xlabel("nats per token above the Transformer", loc="left")
        return figure

    said = "; ".join(
        f"{what}: "
        + " and ".join(f"{gap:+.3f}" for gap, *_ in seeds)
        + f" nats, {scores[what]} BLEU"
        for what, seeds in gaps.items()
    )
    return show(
        draw,
        "For each of four swaps and two seeds, a dot with an interval: how "
        f"many nats it is above the Transformer. {said}.",
    )


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
            ax.plot([minute, ends[-1]], [level] * 2, ":", color=ink, lw=1.2)
            ax.plot(minute, level, "o", color=COLOURS["attention"], ms=6)
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
        ax.set_xlim(0, 27 if narrow else 20)
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
    """Greedy BLEU by the length of the source, and all with a beam."""
    parts = next(iter(races.values()))[0].report["by_length"]
    names = [part["words"] for part in parts]
    names[-1] = f"{names[-1].split()[0]} or\nmore words"
    greedy = {
        kind: [
            [run.report["by_length"][i]["bleu"] for run in runs]
            for i in range(len(names))
        ]
        for kind, runs in races.items()
    }
    beam = {
        kind: [run.report["test"]["bleu"] for run in runs]
        for kind, runs in races.items()
    }
    last = len(names) + 0.3

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        places = [*range(len(names))]
        for number, kind in enumerate(races):
            ink, _, mark = LOOKS[kind]
            means = _means(ax, places, greedy[kind], kind)
            lift = {"transformer": 0.9, "convolutional": -0.5}.get(kind, 0)
            name = "Transformer" if kind == "transformer" else kind
            # a phone has no room beside the lines, but below them
            at = (
                (-0.1, 27 - 2 * number) if narrow else (-0.15, means[0] + lift)
            )
            side = "left" if narrow else "right"
            ax.text(*at, name, ha=side, va="center", color=ink)
            aside = last + 0.12 * (number - 1)
            ax.plot([aside] * 2, beam[kind], mark, color=ink, ms=5)
        ax.axvline(last - 0.65, color=COLOURS["muted"], lw=0.8, ls=":")
        scores = sum(beam.values(), [])
        spread = max(scores) - min(scores)
        ax.text(1.5, 38.4, "greedy, by length", ha="center", weight="bold")
        ax.text(last, 38.4, "beam", ha="center", weight="bold")
        ax.text(
            last,
            min(scores) - 1,
            f"all within\n{spread:.1f} points",
            ha="center",
            va="top",
        )
        labels = [*names, "all, with\na beam"]
        if narrow:
            labels = [name.replace(" to ", "\u2013") for name in names]
            labels[-1:] = [labels[-1].split()[0] + "+", "beam"]
            ax.set_xlabel("words")
        ax.set_xticks([*places, last], labels)
        ax.set(ylabel="BLEU", ylim=(21, 39.5), yticks=range(22, 39, 4))
        ax.set_xlim(-0.4 if narrow else -1.1, last + 0.4)
        return figure

    said = "; ".join(
        f"{kind}: "
        + ", ".join(f"{sum(each) / len(each):.1f}" for each in greedy[kind])
        + f", with a beam {sum(beam[kind]) / len(beam[kind]):.1f}"
        for kind in races
    )
    return show(
        draw,
        f"BLEU of greedy translations by the words of the source, {names}, "
        f"and of all with a beam of four, means of two seeds. {said}.",
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
            means = _means(ax, [*range(len(told))], [*told.values()], kind)
            words = "Transformer" if kind == "transformer" else kind
            _named(ax, words, (len(told) - 1, means[-1]), kind)
        lengths = [*next(iter(shares.values()))]
        ax.set_xticks(range(len(lengths)), lengths)
        ax.set_xlim(-0.2, len(lengths) + (0.5 if narrow else -0.2))
        ax.set(xlabel="symbols, up to", ylabel="% copied", ylim=(-4, 104))
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
        for name, shares in right.items():
            places = [*range(len(shares))]
            values = [[100 * x for x in each] for each in shares.values()]
            means = _means(ax, places, values, name)
            words, height = name, means[-1]
            if name == "recurrent":
                words, height = "recurrent and\nconvolutional", 12
            if name != "convolutional":
                _named(ax, words, (places[-1], height), name)
        distances = [*next(iter(right.values()))]
        ax.set_xticks(range(len(distances)), distances)
        ax.set_xlim(-0.2, len(distances) + (1 if narrow else 0.1))
        ax.set(xlabel="distance", ylabel="% right", ylim=(0, 105))
        return figure

    told = "; ".join(
        f"{name} "
        + ", ".join(f"{sum(x) / len(x):.2f}" for x in shares.values())
        for name, shares in right.items()
    )
    return show(
        draw,
        "How often the first symbol is given at the end, by the "
        f"distance, mean of the seeds: {told}.",
    )
