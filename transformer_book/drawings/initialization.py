"""What the initialization did to the same training.

Two chapters show it: `model`, which initializes the weights, and
`layers`, which says why it matters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, panels, show
from transformer_book.records import (
    Run,
    load_run,
    markdown_table,
    recorded_runs,
)

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
    "packed-nothing": "packed; `w_o` and `w_2` at nothing",
}
LOOKS = {
    "xavier": ("bad", "-"),
    "packed": ("muted", "-"),
    "packed-linear": ("decoder", "--"),
    "packed-quarter": ("good", "-"),
}
NAMES = {
    "xavier": "each matrix separately",
    "packed": "packed",
    "packed-linear": "packed, nn.Linear's feed-forward",
    "packed-quarter": "packed, w_o and w_2 at a quarter",
}


def learning(runs: Mapping[str, Run]) -> Picture:
    """Training loss by step, a line for each initialization."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for start, run in runs.items():
            colour, dash = LOOKS[start]
            steps, nats = run.series("nll")
            ax.plot(
                steps, nats, dash, color=COLOURS[colour], label=NAMES[start]
            )
        ax.set(xlabel="step", ylabel="training loss, nats per token")
        ax.set_ylim(bottom=2.5)
        ax.legend()
        return figure

    return show(
        draw,
        "Training loss over the first steps of the same training under "
        f"{len(runs)} initializations: with each matrix separately "
        "it lags behind from step 200 on; with small ends of the "
        "sub-layers it is the lowest.",
    )


def results(runs: Mapping[str, Run]) -> Markdown:
    """Every initialization: validation loss and BLEU, as a table."""
    rows = []
    for start, run in runs.items():
        steps, bleus = run.series("validation_bleu")
        losses = run.series("validation_loss")[1]
        row: dict[str, Any] = {"initialization": WHAT[start]}
        for step, score in zip(steps, bleus, strict=True):
            row[f"BLEU after {step}"] = f"{score:.1f}"
        row["nats per token"] = f"{losses[-1]:.2f}"
        rows.append(row)
    return Markdown(markdown_table(rows))


def other_tasks(starts: Sequence[str]) -> Markdown:
    """The best ones on other seeds, depths and tasks, as a table."""
    rows = []
    for start in starts:
        row = {"initialization": WHAT[start]}
        for seed in (0, 1):
            score = ""  # not each has a second seed
            if f"starts/{start}-{seed}" in recorded_runs():
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


def branches(runs: Mapping[str, Run], step: str = "0") -> Picture:
    """What each sub-layer adds beside its skip; each layer's gradient.

    `runs` by initialization, after `step` steps, in the order of the model.
    """

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=3.2)
        for start, run in runs.items():
            colour, dash = LOOKS[start]
            rows = run.report["sizes"][step]
            measured = shares(rows), layer_gradients(rows)
            for ax, numbers in zip(axes, measured, strict=True):
                ax.plot(
                    range(1, len(numbers) + 1),
                    numbers,
                    dash,
                    marker="o",
                    markersize=4,
                    color=COLOURS[colour],
                    label=NAMES[start],
                )
        looks = (
            ("what a sub-layer adds,\nshare of what passes beside it", 8, 20),
            ("gradient of a layer's weights", 4, 8),
        )
        for ax, (title, encoder, last) in zip(axes, looks, strict=True):
            ax.axvline(encoder + 0.5, color=COLOURS["muted"], linewidth=0.8)
            ax.set(title=title, xticks=[1, encoder, encoder + 1, last])
            ax.set_ylim(bottom=0)
        axes[0].set_xlabel("sub-layer: encoder's, then decoder's")
        axes[1].set_xlabel("layer: encoder's, then decoder's")
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            ncols=1 if narrow else 3,
            loc="outside lower center",
        )
        return figure

    return show(
        draw,
        f"After {step} steps. Left, by sub-layer, the size of what it adds "
        "divided by the size of what passes beside it: on average three "
        "quarters with each matrix separately, and an eighth with the "
        "last ones at a quarter. Right, by layer, the gradient of its "
        "weights: in the decoder it rises with the layers with each matrix "
        "separately, "
        "and is level with the last ones at a quarter.",
    )
