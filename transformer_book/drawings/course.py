"""What the page on the course shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, chart, show
from transformer_book.tables import markdown_table

# Which mistakes the picture names, with which words, and where these are
# put: points to the right of the dot and above it.
NAMED = {
    "no factor √d_model": ("embeddings\nwithout √d", 0, 7, "center"),
    "no cross-attention": ("no cross-attention", 0, 46, "left"),
    "a ramp that does not meet the root": (
        "warm-up too steep",
        0,
        62,
        "left",
    ),
    "no residual connection": ("no residual connection", 0, 78, "left"),
    "no root": ("scores not divided by the root", 8, -2, "left"),
    "the share not taken from the right token": (
        "smoothed labels that add up to more than 1",
        8,
        -2,
        "left",
    ),
}
LEAKS = [
    "labels shown to the decoder",
    "an open future",
    "heads cut along the words",
    "heads joined without moving their axis back",
    "0 for a forbidden score",
]


def trained(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of mistakes in a training that came to its end."""
    return [
        row
        for row in rows
        if row["sitting"] < 11 and row.get("last") and row["last"] < 4
    ]


def losses_and_translations(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Each mistake's loss at the end, and what its model translates."""
    shown = trained(rows)

    figure, ax = chart(330)
    for row in shown:
        look = {"color": COLOURS["muted"], "ms": 6, "alpha": 0.8}
        if row["mistake"] in LEAKS:  # rings, because they overlap
            look |= {"color": COLOURS["bad"], "mfc": "none", "ms": 7}
        elif row["mistake"] == "none":
            look |= {"color": "black", "ms": 15, "zorder": 3}
        mark = "+" if row["mistake"] == "none" else "o"
        ax.plot(row["last"], row["right"], mark, **look)
        if row["mistake"] in NAMED:
            words, x, y, side = NAMED[row["mistake"]]
            words = words.replace(" that ", "\nthat ")
            led = y > 20  # to its dot, by a line
            line = {"arrowstyle": "-", "color": COLOURS["muted"]}
            line |= {"relpos": (0, 0), "shrinkA": 0}
            ax.annotate(
                words,
                (row["last"], row["right"]),
                (x, y),
                textcoords="offset points",
                ha=side,
                va="center" if y < 0 else "baseline",
                arrowprops=line if led else None,
            )
    leaks = [row["last"] for row in shown if row["mistake"] in LEAKS]
    ax.annotate(
        "five leaks",
        (max(leaks), 0),
        (1.2, 20),
        color=COLOURS["bad"],
        arrowprops={
            "arrowstyle": "-",
            "color": COLOURS["muted"],
            "shrinkB": 6,
        },
        va="center",
    )
    words = "no mistake (+), or one\nthat doesn't show"
    ax.text(1.28, 97, words, va="center")
    ax.set(
        xlabel="training loss at the end, nats per token",
        ylabel="right, of 100",
        xlim=(0.9, 3.55),
        ylim=(-6, 110),
    )

    said = "; ".join(
        f"{row['mistake']}: loss {row['last']:.2f}, {row['right']} right"
        for row in shown
    )
    return show(
        figure,
        "Mistakes as dots, by the loss at the end of training and by how "
        f"many of 100 sentences are right. {said}.",
    )


def key(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """A teacher's table: how each mistake shows."""

    def loss(value: float | None) -> str:
        return "nan" if value is None else f"{value:,.2f}"

    table = []
    for row in rows:
        shown = {"sitting": row["sitting"] or "", "mistake": row["mistake"]}
        if "error" in row:
            said = f"stops: {row['error'].partition(':')[0]}"
        else:
            shown["first loss"] = loss(row["first"])
            shown["last loss"] = loss(row["last"])
            shown["right"] = f"{row['right'] / row['of']:.0%}"
            said = row["trees"].strip() or "nothing"
        shown["“I like trees”"] = said[:25] + "…" * (len(said) > 25)
        table.append(shown)
    return Markdown(markdown_table(table))
