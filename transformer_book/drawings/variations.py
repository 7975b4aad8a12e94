"""What the chapter on table 3 shows."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, panels, show
from transformer_book.records import markdown_table


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


# What is written beside a row of the paper, and where: points to the
# right and upwards. The others are in the band.
NAMES = {
    "base": ("base", 0, 10),
    "big": ("big", -8, -3),
    "`h=1`": ("one head", -8, -3),
    "`d_k=16`": ("keys of 16", -8, -3),
    "`N=2`": ("two layers", -8, -3),
    "`d_model=256`": ("half the width", 8, -9),
    "`dropout=0.0`": ("no dropout", 8, 3),
    "`label_smoothing=0.0`": ("no smoothing", -9, -3),
    "`label_smoothing=0.2`": ("smoothing 0.2", 9, -3),
}


def fitted(rows: Sequence[tuple]) -> np.ndarray:
    """Slope and start of the line through BLEU against perplexity.

    Rows with another label smoothing are left out.
    """
    places = [row[3:5] for row in rows if "label_smoothing" not in row[2]]
    return np.polyfit(*zip(*places, strict=True), 1)


def printed_scores(rows: Sequence[tuple]) -> Picture:
    """Perplexity and BLEU of each row of table 3.

    The line is fitted to the rows with the base model's label smoothing.
    """
    base = next(score for name, *_, score, _ in rows if name == "base")
    line = fitted(rows)
    inside = [abs(score - base) < 0.51 for *_, score, _ in rows]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        ax.axhspan(
            base - 0.5, base + 0.5, color=COLOURS["muted"], alpha=0.15, lw=0
        )
        ends = [min(row[3] for row in rows), max(row[3] for row in rows)]
        look = {"color": COLOURS["muted"], "lw": 1.2, "ls": "--"}
        ax.plot(ends, np.polyval(line, ends), **look, zorder=1)
        count = f"{sum(inside) - 1} of {len(rows) - 1}"
        words = f"{count} changes are within\nhalf a point of the base"
        if narrow:
            words = f"{count}\nwithin 0.5"
        left = 5.75 if narrow else 5.3
        ax.text(left, base + 0.42, words, va="top")
        for name, of_model, of_training, perplexity, score, _ in rows:
            what = told(of_model | of_training)
            words, right, up = NAMES.get(name, NAMES.get(what, ("", 0, 0)))
            hollow = "label_smoothing" in of_training
            marker, size = ("o", 10) if hollow else ("o", 6)
            if name == "base":
                marker, size = "+", 15
                if narrow:
                    right, up = -9, -5  # above it are dots
            ax.plot(
                perplexity,
                score,
                marker,
                color="black" if words else COLOURS["muted"],
                fillstyle="none" if hollow else "full",
                markersize=size,
                zorder=3 if words else 2,
            )
            align = "left" if right > 0 else "right" if right else "center"
            ax.annotate(
                words,
                (perplexity, score),
                (right, up),
                textcoords="offset points",
                ha=align,
            )
        ax.set(xlabel="perplexity", ylabel="BLEU")
        ax.set_xlim(*((3.4, 6.8) if narrow else (4.2, 6.5)))
        return figure

    return show(
        draw,
        "Each row of table 3 by perplexity and BLEU. Nearly all lie along a "
        "falling line; the two rows with another smoothing, rings, lie beside "
        "it. Most are in a band of half a point above and below the base "
        "model, a cross. Outside are two layers, half the width, no "
        "dropout, one head and keys of 16 below, and the big model above.",
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

    def draw(narrow: bool):
        row = 0.35 if narrow else 0.27
        figure, ax = panels(1, narrow, height=1.1 + row * len(rows))
        for i, (_, (gap, low, high), verdict) in enumerate(rows):
            ink = INKS.get(verdict, "black")
            ax.plot([low, high], [i, i], color=ink)
            inside = "none" if verdict == "control" else "full"
            ax.plot(gap, i, "o", color=ink, ms=6, fillstyle=inside)
            words = f"{gap:+.2f}" if abs(gap) >= 0.005 else "0.00"
            words = words.replace("-", "\u2212")
            said = SIGNS.get(verdict, "")
            if not narrow:
                said = f"{said} {verdict}".strip()
            words = f"{words}  {said}"
            ax.text(0.27 if narrow else 0.29, i, words, va="center", color=ink)
        ax.axvline(0, color=COLOURS["muted"], linewidth=0.8)
        ax.text(-0.01, -1.05, "better", ha="right", va="center")
        ax.text(0.01, -1.05, "worse", ha="left", va="center")
        names = [fill(what, 18) if narrow else what for what, *_ in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.tick_params(axis="y", length=0)
        for i, label in enumerate(ax.get_yticklabels()):
            label.set_multialignment("right")
            if rows[i][-1] == "does not agree":
                label.set_weight("bold")
        ax.set_xlim(-0.2, 0.4 if narrow else 0.47)
        ax.set_ylim(len(rows) - 0.4, -1.6)
        ticks = {-0.1: "\u22120.1", 0: "base", 0.1: "+0.1", 0.2: "+0.2"}
        if narrow:
            ticks = {0: "base", 0.2: "+0.2"}
        ax.set_xticks([*ticks], ticks.values())
        ax.set_xlabel("nats above the base model", loc="right")
        return figure

    said = "; ".join(
        f"{what} {gap:+.3f} {verdict}" for what, (gap, *_), verdict in rows
    )
    return show(
        draw,
        "Every change by what it adds to the nats of the base model, the "
        f"dearest first, with an interval and what the paper says: {said}.",
    )


def vocabularies(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """Parameters, ours and printed, and the vocabulary that would fit."""
    return Markdown(
        markdown_table(
            [
                {
                    "row": row["row"],
                    "ours, million": f"{row['ours'] / 1e6:.1f}",
                    "printed": row["printed"],
                    "a vocabulary that would fit": "{:,} to {:,}".format(
                        *row["fits"]
                    ),
                }
                for row in rows
            ]
        )
    )
