"""What the chapter on the full run shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    panels,
    show,
)
from transformer_book.records import Run, markdown_table

DASHES = "-", "--", ":"  # a seed each
SYSTEMS = {
    "copied": "the source, copied",
    "memory": "translation memory",
    "multi30k-en-de": "the recipe above, seed 0 (it ships)",
    "headline/en-de-1": "the recipe above, seed 1",
    "headline/en-de-2": "the recipe above, seed 2",
}


def curves(records: Mapping[str, Run]) -> Picture:
    """Loss, rate, perplexity and BLEU by step, a line a seed."""
    from matplotlib import pyplot

    looks = {
        "nll": ("training loss,\nnats per piece", "loss"),
        "learning_rate": ("learning rate", "muted"),
        "validation_perplexity": ("validation perplexity", "decoder"),
        "validation_bleu": ("validation BLEU", "good"),
    }

    def draw(narrow: bool):
        shape = (4, 1) if narrow else (2, 2)
        size = (PHONE, 8.4) if narrow else (PAGE, 5.2)
        figure, axes = pyplot.subplots(*shape, figsize=size, sharex=True)
        for ax, (what, (title, colour)) in zip(
            axes.flat, looks.items(), strict=True
        ):
            for (name, run), dash in zip(records.items(), DASHES, strict=True):
                ax.plot(
                    *run.series(what),
                    dash,
                    color=COLOURS[colour],
                    label=name,
                )
            ax.set(ylabel=title, ylim=(0, None))
        axes.flat[2].set(yscale="log", ylim=(1, None))
        axes.flat[2].set_yticks([1, 10, 100], ["1", "10", "100"])
        axes.flat[2].minorticks_off()
        for ax in axes.flat[-1:] if narrow else axes.flat[2:]:
            ax.set_xlabel("step")
        axes.flat[3].legend(loc="lower right")
        return figure

    run = next(iter(records.values()))
    steps, scores = run.series("validation_bleu")
    return show(
        draw,
        "The recorded trainings, one line per seed: training loss, learning "
        "rate, perplexity and BLEU of greedy translations on the "
        f"validation set. The first one's BLEU goes from {scores[0]:.1f} "
        f"at step {steps[0]} to {scores[-1]:.1f} at step {steps[-1]}.",
    )


def by_recipe(
    runs: Iterable[Run], step: int
) -> dict[tuple[int, int], list[float]]:
    """{(pieces, d_ff): validation BLEU at that step, of each seed}."""
    found: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        model = run.config["model"]
        sizes = model["vocab_size"], model["d_ff"]
        scores = dict(zip(*run.series("validation_bleu"), strict=True))
        if step in scores:
            found.setdefault(sizes, []).append(scores[step])
    return found


def neighbours(found: Mapping[tuple[int, int], Sequence[float]]) -> Markdown:
    """What `by_recipe` found, a row for each recipe."""
    rows = [
        {"pieces": pieces, "inner width": d_ff}
        | {f"seed {seed}": f"{score:.1f}" for seed, score in enumerate(scores)}
        for (pieces, d_ff), scores in found.items()
    ]
    return Markdown(markdown_table(rows))


def looked_at(run: Run, places: Sequence[int] = (0, 3, -1)) -> Markdown:
    """What was said to the first validation sentences, by step."""
    logged = [line for line in run.log if "samples" in line]
    rows = [
        {"sentence": number + 1, "after step": line["step"], "said": said}
        for number in range(3)
        for line in (logged[place] for place in places)
        for said in [line["samples"][number]]
    ]
    return Markdown(markdown_table(rows))


def scores(
    systems: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Run],
    literature: float,
) -> Markdown:
    """Every system on the test set, in both forms, as a table."""

    def title(name):
        if name.startswith("rivals/"):
            return f"recurrent rival, seed {name[-1]}"
        return SYSTEMS[name]

    def place(name):  # the floors, the rivals, then ours
        known = list(SYSTEMS)
        if name in known[:2]:
            return known.index(name)
        return 10 + known.index(name) if name in known else 5

    rows = []
    for name in sorted(systems, key=place):
        told = systems[name]
        low, high = told["interval"]
        rows.append(
            {
                "system": title(name),
                "cased, 13a": f"{told['bleu']:.1f} ({low:.1f} to {high:.1f})",
                "published form": f"{told['published']:.1f}",
                "start": runs[name].init if name in runs else "",
            }
        )
    rows.append(
        {
            "system": "fairseq `transformer_tiny`, as printed",
            "cased, 13a": "",
            "published form": f"{literature:.1f}",
            "start": "not said",
        }
    )
    return Markdown(markdown_table(rows))


def others(runs: Mapping[str, Run]) -> Markdown:
    """The other models that ship, each on its own test set."""
    return Markdown(
        markdown_table(
            [
                {
                    "corpus": run.report["test"]["corpus"].replace("_", " "),
                    "languages": " to ".join(run.report["test"]["languages"]),
                    "weights": run.report["result"]["parameters"],
                    "steps": run.report["result"]["steps"],
                    "test sentences": run.report["test"]["sentences"],
                    "BLEU": f"{run.report['test']['bleu']:.1f}",
                    "95% of resampled sets": "{:.1f} to {:.1f}".format(
                        *run.report["test"]["interval"]
                    ),
                    "start": run.init,
                }
                for run in runs.values()
            ]
        )
    )


def ways_to_decode(apart: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """BLEU of each way, and its difference from the paper's.

    `apart` is {training: {way: row of decoding.json}}.
    """

    def cell(row, paper):
        if row is None:
            return ""
        if row["p_value"] is None:
            return f"{row['bleu']:.2f}"
        difference = row["bleu"] - paper["bleu"]
        chance = f"p {row['p_value']:.3f}"
        return f"{row['bleu']:.2f} ({difference:+.2f}, {chance})"

    ways = max(apart.values(), key=len)
    rows = [
        {"way": way}
        | {
            name: cell(told.get(way), told["as in 6.1"])
            for name, told in apart.items()
        }
        for way in ways
    ]
    return Markdown(markdown_table(rows))


def mistakes(by_length: Sequence, by_rarity: Sequence) -> Picture:
    """BLEU by the source's length, words found by their rarity."""
    spans = ["{} to {}".format(*row["words"]) for row in by_length]
    bleus = [row["bleu"] for row in by_length]
    often = [row["seen"] for row in by_rarity]
    shares = [100 * row["found"] / row["words"] for row in by_rarity]

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.7)
        sides = (
            (spans, bleus, "words of the source", "BLEU"),
            (often, shares, "seen in training", "words found, %"),
        )
        for ax, (names, heights, across, up) in zip(axes, sides, strict=True):
            bars = ax.bar(names, heights, color=COLOURS["good"])
            ax.bar_label(bars, [f"{height:.0f}" for height in heights])
            ax.set(xlabel=across, ylabel=up)
            ax.margins(y=0.12)
        axes[1].tick_params(axis="x", rotation=20)
        return figure

    told = zip([*spans, *often], [*bleus, *shares], strict=True)
    return show(
        draw,
        "Left, the BLEU of each quarter of the test set, by the number of "
        "words in the source. Right, the share of the references' words "
        "found, by how often they were seen in training. "
        + "; ".join(f"{name}: {height:.0f}" for name, height in told),
    )


def worst(rows: Sequence[Mapping[str, Any]], said: Sequence[str]) -> Markdown:
    """What was said where least was right, and rare words it lacks."""
    return Markdown(
        markdown_table(
            [
                {
                    "sentence": row["sentence"] + 1,
                    "said": said[row["sentence"]],
                    "words of the reference found": f"{row['shared']:.0%}",
                    "among the missing": ", ".join(row["missing"]),
                }
                for row in rows
            ]
        )
    )


def by_minutes(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Picture:
    """Validation BLEU against minutes of work, a line a training."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.0)
        looks = ("good", "-"), ("good", "--"), ("query", "o-")
        for (name, points), (colour, dash) in zip(
            curves.items(), looks, strict=False
        ):
            if points:
                ax.plot(
                    *zip(*points, strict=True),
                    dash,
                    color=COLOURS[colour],
                    label=name,
                )
        ax.set(
            xlabel="minutes of one core",
            ylabel="validation BLEU",
            ylim=(0, None),
        )
        ax.legend(loc="lower right")
        return figure

    ends = [
        f"{name}: {points[-1][1]:.0f} after {points[-1][0]:.0f} minutes"
        for name, points in curves.items()
        if points
    ]
    return show(
        draw,
        "Greedy BLEU on the validation set against minutes of work: "
        "steep in the first half hour, then ever flatter. " + "; ".join(ends),
    )
