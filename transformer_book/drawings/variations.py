"""What the chapter on table 3 shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    show,
)
from transformer_book.tables import markdown_table


def told(changes: Mapping[str, Any]) -> str:
    """Changes as code: `h=1`."""
    return ", ".join(f"`{key}={value}`" for key, value in changes.items())


def printed(rows: Sequence[tuple]) -> Markdown:
    """Table 3 as the paper prints it, with our names for the changes."""
    return Markdown(
        markdown_table(
            [
                {
                    "row": name,
                    "changes": told(of_model | of_training),
                    "perplexity": f"{perplexity:.2f}",
                    "BLEU": f"{score:.1f}",
                    "parameters, million": size or "",
                }
                for name, of_model, of_training, perplexity, score, size in (
                    rows
                )
            ]
        )
    )


# The rows of the paper outside of the band, from the left, and how many
# lines above the dots each name is written, on which side.
NAMES = {
    "`N=2`": ("two layers", 1, "center"),
    "`d_model=256`": ("half the width", 2, "right"),
    "`dropout=0.0`": ("no dropout", 3, "right"),
    "`h=1`": ("one head", 4, "right"),
    "`d_k=16`": ("keys of 16", 5, "right"),
    "base": ("base", 4, "center"),
    "big": ("big", 2, "center"),
}


def printed_scores(rows: Sequence[tuple]) -> Picture:
    """BLEU of each row of table 3: dots, and a band around the base."""
    base = next(score for name, *_, score, _ in rows if name == "base")
    inside = [abs(score - base) < 0.51 for *_, score, _ in rows]
    base_last = sorted(rows, key=lambda row: row[0] == "base")
    count = f"{sum(inside) - 1} of {len(rows) - 1} changes"

    figure, ax = chart(250)
    ax.axvspan(
        base - 0.55, base + 0.55, color=COLOURS["muted"], alpha=0.15, lw=0
    )
    ax.text(base, 8.4, count, ha="center", weight="bold")
    piled: dict[float, int] = {}  # dots so far, by their score
    for name, of_model, of_training, _, score, _ in base_last:
        height = piled.get(score, 0)
        piled[score] = height + 1
        ax.plot(
            score,
            height,
            "o",
            color="black" if name == "base" else COLOURS["muted"],
            markersize=7,
        )
        what = told(of_model | of_training)
        words, lines, side = NAMES.get(name, NAMES.get(what, ("", 0, "")))
        if words:
            top = height + 1.2 * lines
            look = {"color": COLOURS["muted"], "lw": 1}
            ax.plot([score] * 2, [height + 0.4, top - 0.2], **look)
            ax.text(score, top, words, ha=side, va="bottom")
    ax.set(ylim=(-0.6, 9.6), yticks=[], xlabel="BLEU")
    ax.set_xlim(23.2, 26.9)
    ax.spines["left"].set_visible(False)

    outside = ", ".join(words for words, *_ in NAMES.values())
    return show(
        figure,
        "A dot for each row of table 3, by its BLEU, piled where they have "
        f"the same. {count} are in a band of half a point below and above "
        f"the base model. Named, from the left: {outside}.",
    )


Row = tuple[str, tuple[float, float, float], str]
INKS = {
    "agrees": COLOURS["good"],
    "does not agree": COLOURS["bad"],
    "undecided": COLOURS["muted"],
}
SIGNS = {"agrees": "✓", "does not agree": "✗", "undecided": "?"}


def differences(rows: Sequence[Row]) -> Picture:
    """Each change's nats above the base model, and what the paper says.

    A row has the change, our nats with their interval, and the verdict
    on the paper's claim, or why there is none.
    """

    figure, ax = chart(110 + 28 * len(rows))
    for i, (_, (gap, low, high), verdict) in enumerate(rows):
        ink = INKS.get(verdict, "black")
        if verdict == "control":
            ink = COLOURS["muted"]
        ax.plot([low, high], [i, i], color=ink)
        inside = "none" if verdict == "control" else "full"
        ax.plot(gap, i, "o", color=ink, ms=6, fillstyle=inside)
        words = f"{gap:+.2f}" if abs(gap) >= 0.005 else "0.00"
        words = words.replace("-", "\u2212")
        words = f"{words}  {SIGNS.get(verdict, '')}"
        ax.text(0.3, i, words, va="center", color=ink)
    ax.axvline(0, color=COLOURS["muted"], linewidth=0.8)
    ax.text(-0.01, -1.05, "better", ha="right", va="center")
    ax.text(0.01, -1.05, "worse", ha="left", va="center")
    ax.set_yticks(range(len(rows)), [what for what, *_ in rows])
    ax.tick_params(axis="y", length=0)
    for i, label in enumerate(ax.get_yticklabels()):
        if rows[i][-1] == "does not agree":
            label.set_weight("bold")
    ax.set_xlim(-0.2, 0.43)
    ax.set_ylim(len(rows) - 0.4, -1.6)
    ticks = {0: "base", 0.2: "+0.2"}
    ax.set_xticks([*ticks], ticks.values())
    ax.spines["bottom"].set_bounds(-0.2, 0.25)
    ax.set_xlabel("nats above the base model", x=0.2 / ax.get_xlim()[1])

    said = "; ".join(
        f"{what} {gap:+.3f} {verdict}" for what, (gap, *_), verdict in rows
    )
    return show(
        figure,
        "Every change by what it adds to the nats of the base model, the "
        f"dearest first, with an interval and what the paper says: {said}.",
    )
