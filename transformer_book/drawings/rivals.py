"""What the appendix page on table 2's rivals shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, panels, show
from transformer_book.records import Run, markdown_table

STACKS = {
    "recurrent": ("bad", "o--"),
    "convolutional": ("feed_forward", "s-."),
    "dilated": ("value", "^:"),
    "self-attention": ("query", "o-"),
}
LOOKS = {
    "transformer": ("query", "o-"),
    "recurrent": ("bad", "s--"),
    "convolutional": ("feed_forward", "^-."),
}


def race(runs: Sequence[Run]) -> Markdown:
    """Each run of the race on the test set."""
    rows = []
    for run in runs:
        test, result = run.report["test"], run.report["result"]
        low, high = test["interval"]
        row = {
            "model": run.config["info"]["kind"],
            "seed": run.report["training"]["seed"],
            "steps": result["steps"],
            "nats": f"{test['nats_per_token']:.2f}",
            "BLEU": f"{test['bleu']:.1f} ({low:.1f} to {high:.1f})",
        }
        for part in run.report["by_length"]:
            row[f"{part['words']} words"] = f"{part['bleu']:.1f}"
        rows.append(row)
    return Markdown(markdown_table(rows))


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
) -> Markdown:
    """The Transformer and those with one layer swapped, seed by seed."""
    rows = []
    for what, runs in {"the Transformer": transformer, **swaps}.items():
        gaps = []
        for run, base in zip(runs, transformer, strict=True):
            gap, low, high = sentence_gap(run, base)
            if run is not base:
                gaps.append(f"{gap:+.3f} ({low:+.3f} to {high:+.3f})")
        tests = [run.report["test"] for run in runs]
        rows.append(
            {
                "model": what,
                "weights": f"{runs[0].report['result']['parameters']:,}",
                "gap on the validation set": ", ".join(gaps),
                "test": ", ".join(
                    f"{test['nats_per_token']:.3f}" for test in tests
                ),
                "BLEU": ", ".join(f"{test['bleu']:.1f}" for test in tests),
            }
        )
    return Markdown(markdown_table(rows))


def race_curves(runs: Sequence[Run]) -> Picture:
    """Validation loss against the minutes of one core."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for run in runs:
            kind = run.config["info"]["kind"]
            first = run.report["training"]["seed"] == 0
            colour, marks = LOOKS[kind]
            steps, losses = run.series("validation_loss")
            each = run.report["result"]["seconds_a_step"]
            minutes = [step * each / 60 for step in steps]
            look = dict(color=COLOURS[colour], markersize=4)
            look["label"] = kind if first else None
            ax.plot(minutes, losses, marks, **look)
        ax.set_xlabel("minutes of one core")
        ax.set_ylabel("validation loss, nats per token")
        ax.legend()
        return figure

    told = "; ".join(
        f"{run.config['info']['kind']} "
        f"{run.series('validation_loss')[1][-1]:.2f}"
        for run in runs
    )
    return show(
        draw,
        "Validation loss of the three models, two seeds each, against "
        f"minutes of one core. At the end: {told}.",
    )


def copying(found: Sequence[Mapping[str, Any]]) -> Markdown:
    """Sequences copied without an error, and nats per symbol."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for one in sorted(found, key=lambda one: (one["length"], one["seed"])):
        length, seed = one["length"], one["seed"]
        empty = {"symbols, up to": length, "seed": seed}
        empty |= dict.fromkeys(LOOKS, "")
        row = rows.setdefault((length, seed), empty)
        row[one["model"]] = f"{one['whole']:.1%}, {one['nats']:.2f}"
    return Markdown(markdown_table([*rows.values()]))


def learnt(right: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """How often a stack gives the first symbol, by its distance.

    `right` is {kind of layer: {distance: a share for each seed}}.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.3)
        for name, shares in right.items():
            colour, marks = STACKS[name]
            distances = [int(distance) for distance in shares]
            means = [sum(each) / len(each) for each in shares.values()]
            colour = COLOURS[colour]
            ax.plot(distances, means, marks, color=colour, label=name)
            for i in range(len(next(iter(shares.values())))):
                seed = [each[i] for each in shares.values()]
                ax.scatter(distances, seed, s=10, color=colour, alpha=0.5)
        ax.axhline(1 / 8, color=COLOURS["muted"], linestyle=":")
        ax.text(distances[1], 0.02, "guessing among eight", va="bottom")
        ax.set(xscale="log", xlabel="distance", ylim=(0, 1.05))
        ax.set_xticks(distances, distances)
        ax.minorticks_off()
        ax.set_ylabel("share right")
        figure.legend(ncols=2 if narrow else 4, loc="outside lower center")
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
