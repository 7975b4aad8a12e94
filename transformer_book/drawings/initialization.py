"""What the initialization did to the same training.

The chapter `model` shows it, which initializes the weights.
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    show,
)
from transformer_book.records import Run, load_run
from transformer_book.tables import markdown_table

WHAT = {  # of each initialization, in the order of the table
    "xavier": "each matrix separately",
    "linear": "feed-forward as `nn.Linear` has it",
    "packed": "the authors' code: queries, keys and values as one matrix",
    "values": "only the values' matrices as small as in the row above",
    "packed-linear": "packed, and feed-forward as `nn.Linear` has it",
    "packed-linear-half": "packed, `nn.Linear`; and `w_o`, `w_2` at a half",
    "deepnorm": "DeepNet's factors for this depth, the residual unweighted",
    "packed-half": "packed; `w_o` and `w_2` at a half",
    "packed-quarter": "packed; `w_o` and `w_2` at a quarter",
    "packed-half-quarter": "packed; `w_o` at a half, `w_2` at a quarter",
    "packed-nothing": "packed; `w_o` and `w_2` at zero",
}


def added_and_bleu(runs: Mapping[str, Run]) -> Picture:
    """What sub-layers add at first against BLEU, a dot for each run."""
    named = {  # colour, what it is called, where beside the dot, and side
        "xavier": (
            "bad",
            "each matrix\nseparately",
            (4, -9),
            ("right", "top"),
        ),
        "packed": (
            "black",
            "the authors'\ncode",
            (9, 0),
            ("left", "center"),
        ),
        "packed-quarter": ("good", "this book", (0, 9), ("center", "bottom")),
        "packed-nothing": ("black", "zeros", (-4, 9), ("left", "bottom")),
    }

    figure, ax = chart(310)
    found = []
    for start, run in runs.items():
        added = mean(shares(run.report["sizes"]["0"]))
        score = run.series("validation_bleu")[1][-1]
        found.append((added, score))
        ink, words, away, (across, up) = named.get(
            start, ("muted", "", (0, 0), ("left", "top"))
        )
        colour = COLOURS.get(ink, ink)
        ax.plot(added, score, "o", color=colour, markersize=7)
        ax.annotate(
            words,
            (added, score),
            xytext=away,
            textcoords="offset points",
            ha=across,
            va=up,
            color=colour,
        )
    ax.set(xlim=(-0.03, 0.9), ylim=(0, 25), ylabel="BLEU after 800 steps")
    told = "what a sub-layer adds at first,\nas a share of what flows past it"
    ax.set_xlabel(told)
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8], "0% 20% 40% 60% 80%".split())

    return show(
        figure,
        f"{len(runs)} dots: the share that sub-layers add before training, "
        "and BLEU after 800 steps: "
        + "; ".join(f"{x:.2f}, {y:.0f}" for x, y in sorted(found))
        + ".",
    )


def other_tasks(starts: Sequence[str]) -> Markdown:
    """The best ones on other seeds, depths and tasks, as a table."""
    rows = []
    for start in starts:
        row = {"initialization": WHAT[start]}
        for seed in (0, 1):
            score = ""
            if (start, seed) != ("xavier", 1):  # which was not trained
                run = load_run(f"starts/{start}-{seed}")
                score = f"{run.series('validation_bleu')[1][-1]:.1f}"
            row[f"BLEU, seed {seed}"] = score
        run = load_run(f"starts/six-{start}-0")
        score = run.series("validation_bleu")[1][-1]
        row["BLEU, six layers"] = f"{score:.1f}"
        for rate, title in (("0.5", "half the rate"), ("1", "the whole rate")):
            run = load_run(f"starts/copying-{rate}-{start}-0")
            nats = run.report["result"]["validation_loss"]
            row[f"copying at {title}, nats"] = f"{nats:.2f}"
        rows.append(row)
    return Markdown(markdown_table(rows))


def shares(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """How much each sub-layer adds, as a share of what passes by it."""
    return [row["branch"] / row["skip"] for row in rows]
