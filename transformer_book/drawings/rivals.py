"""What the appendix page on table 2's rivals shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    Picture,
    panels,
    show,
)
from transformer_book.records import Run, markdown_table

STACKS = {
    "recurrent": ("bad", "o--"),
    "convolutional": ("feed_forward", "s-."),
    "dilated": ("feed_forward", "^:"),
    "self-attention": ("query", "o-"),
}
LOOKS = {
    "transformer": ("query", "o-"),
    "recurrent": ("bad", "s--"),
    "convolutional": ("feed_forward", "^-."),
}


def seconds(each: Mapping[str, Mapping[str, float]]) -> Markdown:
    """Seconds per step of each model, by task."""
    names = {"multi30k": "the race"}
    return Markdown(
        markdown_table(
            [
                {
                    "batches": names.get(
                        task, task.replace("copying-", "copying, up to ")
                    )
                }
                | {model: f"{one:.2f}" for model, one in found.items()}
                for task, found in each.items()
            ]
        )
    )


def rates(tries: Mapping[str, Mapping[str, tuple[float, float]]]) -> Markdown:
    """Validation loss after a quarter of the steps and at the end."""
    return Markdown(
        markdown_table(
            [
                {"model": kind}
                | {
                    f"rate {rate}": f"{early:.2f} → {late:.2f}"
                    for rate, (early, late) in found.items()
                }
                for kind, found in tries.items()
            ]
        )
    )


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


def race_curves(runs: Sequence[Run], work: Mapping[str, float]) -> Picture:
    """Validation loss against minutes, and against operations.

    `work` is million operations per token, forwards, of each model.
    """

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=3.2, sharey=not narrow)
        for run in runs:
            kind = run.config["info"]["kind"]
            first = run.report["training"]["seed"] == 0
            colour, marks = LOOKS[kind]
            steps, losses = run.series("validation_loss")
            pieces = dict(zip(*run.series("tokens"), strict=True))
            each = run.report["result"]["seconds_a_step"]
            minutes = [step * each / 60 for step in steps]
            # backwards costs twice what forwards does
            counted = [3e-6 * work[kind] * pieces[step] for step in steps]
            for ax, x in zip(axes, (minutes, counted), strict=True):
                ax.plot(
                    x,
                    losses,
                    marks,
                    markersize=4,
                    color=COLOURS[colour],
                    label=kind if first else None,
                )
                ax.set_ylabel("validation loss, nats per token")
        axes[0].set_xlabel("minutes of one core")
        axes[1].set_xlabel("operations, $10^{12}$")
        if not narrow:
            axes[1].set_ylabel("")
        axes[1].legend()
        return figure

    ends = {}
    for run in runs:
        kind = run.config["info"]["kind"]
        loss = run.series("validation_loss")[1][-1]
        ends.setdefault(kind, []).append(f"{loss:.2f}")
    told = "; ".join(f"{k} {', '.join(x)}" for k, x in ends.items())
    return show(
        draw,
        "Validation loss of the three models, two seeds each, against "
        f"minutes of one core and operations counted. At the end: {told}.",
    )


def catching_up(
    runs: Sequence[Run], work: Mapping[str, float]
) -> list[dict[str, Any]]:
    """How soon one model is as good as another at its end.

    For each seed and each rival of the Transformer, the one that ended
    with the lower validation loss is "ahead". Its share of the other's
    minutes, and of its operations, is what it needed to get there.
    `work` is as in `race_curves`.
    """
    by_seed: dict[int, dict[str, Run]] = {}
    for run in runs:
        seed = run.report["training"]["seed"]
        by_seed.setdefault(seed, {})[run.config["info"]["kind"]] = run
    rows = []
    for seed, raced in sorted(by_seed.items()):
        ours = raced.pop("transformer")
        for kind, rival in sorted(raced.items(), reverse=True):
            pair = sorted((ours, rival), key=_last_loss)
            needed = _step_of(pair[0], _last_loss(pair[1]))
            steps = needed, pair[1].series("validation_loss")[0][-1]
            minutes, operations = [], []
            for run, step in zip(pair, steps, strict=True):
                pieces = np.interp(step, *run.series("tokens"))
                name = run.config["info"]["kind"]
                each = run.report["result"]["seconds_a_step"]
                minutes.append(step * each / 60)
                operations.append(float(3e-6 * work[name] * pieces))
            rows.append(
                {
                    "rival": kind,
                    "seed": seed,
                    "ahead": pair[0].config["info"]["kind"],
                    "minutes": minutes,
                    "operations": operations,
                }
            )
    return rows


def _last_loss(run: Run) -> float:
    return run.series("validation_loss")[1][-1]


def _step_of(run: Run, loss: float) -> float:
    """When a run's validation loss first fell to `loss`."""
    steps, losses = run.series("validation_loss")
    lowest = np.minimum.accumulate(losses)
    return float(np.interp(-loss, -lowest, steps))


def faster(rows: Sequence[Mapping[str, Any]], of: str) -> dict[str, str]:
    """The Transformer against each rival: faster, level or slower.

    It is faster if it was ahead with every seed and needed at most four
    fifths of the rival's `of`, "minutes" or "operations"; the other way
    round, it is slower.
    """
    found: dict[str, str] = {}
    for rival in dict.fromkeys(row["rival"] for row in rows):
        each = [row for row in rows if row["rival"] == rival]
        clear = all(row[of][0] <= 0.8 * row[of][1] for row in each)
        ahead = {row["ahead"] for row in each}
        found[rival] = "level"
        if clear and len(ahead) == 1:
            found[rival] = "slower" if rival in ahead else "faster"
    return found


def caught_up(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What `catching_up` found, and the verdicts in minutes."""
    verdicts, told = faster(rows, "minutes"), []
    for row in rows:
        line = {key: row[key] for key in ("rival", "seed", "ahead")}
        for of in "minutes", "operations":
            needed, whole = row[of]
            line[of] = f"{needed:.1f} of {whole:.1f}, {needed / whole:.0%}"
        line["the Transformer is"] = verdicts[row["rival"]]
        told.append(line)
    table = markdown_table(told)
    return Markdown(table.replace("operations", "$10^{12}$ operations"))


def copying(found: Sequence[Mapping[str, Any]]) -> Markdown:
    """Sequences copied whole, and nats, by length, seed and model."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for one in sorted(found, key=lambda one: (one["length"], one["seed"])):
        length, seed = one["length"], one["seed"]
        empty = {"symbols, up to": length, "seed": seed}
        empty |= dict.fromkeys(LOOKS, "")
        row = rows.setdefault((length, seed), empty)
        row[one["model"]] = f"{one['whole']:.1%}, {one['nats']:.2f}"
    return Markdown(markdown_table([*rows.values()]))


def of_length(
    found: Sequence[Mapping[str, Any]], kind: str, length: int
) -> list[Mapping[str, Any]]:
    """The records of one model and length, by seed."""
    chosen = [
        one for one in found if (one["model"], one["length"]) == (kind, length)
    ]
    return sorted(chosen, key=lambda one: one["seed"])


def copied(found: Sequence[Mapping[str, Any]]) -> Picture:
    """The share of sequences copied whole, a line for each seed."""
    lengths = sorted({one["length"] for one in found})
    shares = {
        kind: [
            [100 * one["whole"] for one in of_length(found, kind, length)]
            for length in lengths
        ]
        for kind in LOOKS
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.9)
        for kind, (colour, marks) in LOOKS.items():
            lines = ax.plot(
                lengths, shares[kind], marks, color=COLOURS[colour]
            )
            lines[0].set_label(kind)
        ax.set(xscale="log", ylim=(-4, 104))
        ax.set_xticks(lengths, lengths)
        ax.minorticks_off()
        ax.set_xlabel("symbols in a sequence, up to")
        ax.set_ylabel("sequences copied whole, %")
        ax.legend(loc="lower left")
        return figure

    told = "; ".join(
        f"{kind} "
        + ", ".join(
            " and ".join(f"{share:.0f}%" for share in seeds)
            for seeds in shares[kind]
        )
        for kind in LOOKS
    )
    return show(
        draw,
        "Share of new sequences copied without an error, of up to "
        f"{', '.join(map(str, lengths))} symbols, two seeds each: {told}.",
    )


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
