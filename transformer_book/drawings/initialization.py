"""What the initialization did to the same training.

Two chapters show it: `model`, which initializes the weights, and
`layers`, which says why it matters.
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, legend, panels, show
from transformer_book.records import Run, load_run, markdown_table

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
LOOKS = {  # colour, dash and name of those that are drawn
    "xavier": ("bad", "-", "each matrix separately"),
    "packed": ("muted", "-", "packed"),
    "packed-linear": ("decoder", "--", "packed, nn.Linear's feed-forward"),
    "packed-quarter": ("good", "-", "packed, w_o and w_2 at a quarter"),
}


def _plot(ax: Any, start: str, x: Sequence, y: Sequence, **look: Any) -> None:
    colour, dash, name = LOOKS[start]
    ax.plot(x, y, dash, color=COLOURS[colour], label=name, **look)


def learning(runs: Mapping[str, Run]) -> Picture:
    """Training loss by step, a line for each initialization."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for start, run in runs.items():
            _plot(ax, start, *run.series("nll"))
        ax.set(xlabel="step", ylabel="training loss, nats")
        ax.set_ylim(bottom=2.5)
        legend(ax, 1 if narrow else 2)
        return figure

    return show(
        draw,
        f"Training loss of {len(runs)} initializations: highest with each "
        "matrix separately, lowest with small ends of the sub-layers.",
    )


def added_and_bleu(runs: Mapping[str, Run]) -> Picture:
    """What sub-layers add at first against BLEU, a dot for each run."""
    named = {  # colour, what it is called, and where beside the dot
        "xavier": ("bad", "each matrix separately", (6, -16), "right"),
        "packed": ("muted", "packed", (8, -4), "left"),
        "packed-linear": (
            "decoder",
            "nn.Linear's feed-forward",
            (8, 2),
            "left",
        ),
        "packed-quarter": ("good", "w_o, w_2 at a quarter", (8, 3), "left"),
        "packed-nothing": ("black", "at zero", (-4, -18), "left"),
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for start, run in runs.items():
            added = mean(shares(run.report["sizes"]["0"]))
            score = run.series("validation_bleu")[1][-1]
            ink, words, away, side = named.get(
                start, ("muted", "", (0, 0), "left")
            )
            colour = COLOURS.get(ink, ink)
            ax.plot(added, score, "o", color=colour, markersize=7)
            ax.annotate(
                words,
                (added, score),
                xytext=away,
                textcoords="offset points",
                ha=side,
                color=colour,
            )
        ax.set(xlim=(-0.03, 0.85), ylim=(0, 25), ylabel="BLEU")
        ax.set_xlabel("share that a sub-layer adds at first")
        return figure

    return show(
        draw,
        f"{len(runs)} dots: the share that sub-layers add before training "
        "against BLEU after 800 steps. Six dots with shares below 0.3 lie "
        "between 20 and 22; from 0.4 on the dots fall from 16 to 7.",
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


def layer_gradients(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The gradient's norm by layer, the encoder's layers first."""
    squares: dict[str, float] = {}
    for row in rows:
        layer = row["name"].rpartition(".")[0]  # such as encoder.0
        squares[layer] = squares.get(layer, 0.0) + row["gradient"] ** 2
    return [square**0.5 for square in squares.values()]


def branches(runs: Mapping[str, Run]) -> Picture:
    """What each sub-layer adds at first, and each layer's gradient.

    `runs` by initialization; both in the order of the model.
    """

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=3.2)
        for start, run in runs.items():
            rows = run.report["sizes"]["0"]
            measured = shares(rows), layer_gradients(rows)
            for ax, numbers in zip(axes, measured, strict=True):
                places = range(1, len(numbers) + 1)
                _plot(ax, start, places, numbers, marker="o", markersize=4)
        added = "what a sub-layer adds,\nshare of what passes beside it"
        gradient = "gradient of a layer's weights"
        looks = (added, "sub-layer", 8, 20), (gradient, "layer", 4, 8)
        for ax, (title, of, encoder, last) in zip(axes, looks, strict=True):
            ax.axvline(encoder + 0.5, color=COLOURS["muted"], linewidth=0.8)
            ax.set(title=title, xticks=[1, encoder, encoder + 1, last])
            ax.set_xlabel(f"{of}: encoder's, then decoder's")
            ax.set_ylim(bottom=0)
        legend(axes[0], 1 if narrow else 3)
        return figure

    return show(
        draw,
        "Left, the share that each sub-layer adds: on average three "
        "quarters with each matrix separately, an eighth with the last ones "
        "at a quarter. Right, the gradient of each layer's weights: in the "
        "decoder it rises with the first, and is level with the second.",
    )
