"""What the chapter on table 3 shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

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
    "base": ("base", 0, 9),
    "big": ("big", 8, -3),
    "`h=1`": ("one head", 8, -3),
    "`d_k=16`": ("keys of 16", 8, -1),
    "`N=2`": ("two layers", -8, -3),
    "`d_model=256`": ("half the width", 8, -9),
    "`dropout=0.0`": ("no dropout", 8, 3),
    "`label_smoothing=0.0`": ("no smoothing", -4, -17),
    "`label_smoothing=0.2`": ("smoothing 0.2", 8, -3),
}


def printed_scores(rows: Sequence[tuple]) -> Picture:
    """Perplexity and BLEU of each row of table 3."""
    base = next(score for name, *_, score, _ in rows if name == "base")

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        ax.axhspan(
            base - 0.5, base + 0.5, color=COLOURS["muted"], alpha=0.15, lw=0
        )
        ax.text(6.9, base + 0.4, "base ± 0.5", ha="right", va="top")
        for name, of_model, of_training, perplexity, score, _ in rows:
            what = told(of_model | of_training)
            words, right, up = NAMES.get(name, NAMES.get(what, ("", 0, 0)))
            smoothed = bool(of_training.get("label_smoothing") is not None)
            ax.plot(
                perplexity,
                score,
                "X" if smoothed else "o",
                color="black" if words else COLOURS["muted"],
                markersize=8 if smoothed else 6,
                zorder=3 if words else 2,
            )
            if narrow and name == "base":
                right, up = 9, -1  # above it are dots
            align = "left" if right > 0 else "right" if right else "center"
            ax.annotate(
                words,
                (perplexity, score),
                (right, up),
                textcoords="offset points",
                ha=align,
            )
        ax.set(xlabel="perplexity", ylabel="BLEU")
        ax.set_xlim(3.3 if narrow else 4.2, 7)
        return figure

    return show(
        draw,
        "Each row of table 3 by perplexity and BLEU. Nearly all lie along a "
        "falling line; the two rows with another smoothing lie beside it. "
        "Most are in a band of half a point above and below the base model. "
        "Outside are two layers, half the width, no dropout, one head and "
        "keys of 16 below, and the big model above.",
    )


Row = tuple[str, float | None, tuple[float, float, float], str]
INKS = {
    "agrees": COLOURS["good"],
    "does not agree": COLOURS["bad"],
    "undecided": COLOURS["muted"],
    "": "black",
}


def differences(rows: Sequence[Row]) -> Picture:
    """Each change's nats above the base model: ours and the paper's.

    A row has the change, the paper's perplexity, our nats with their
    interval, and the verdict on the paper's claim.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.0 + 0.27 * len(rows))
        for i, (_, perplexity, (gap, low, high), verdict) in enumerate(rows):
            ink = INKS[verdict]
            if perplexity:
                nats = math.log(perplexity / 4.92)
                ax.plot(nats, i, "o", mfc="none", color="black", ms=9, mew=1)
            ax.plot([low, high], [i, i], color=ink)
            ax.plot(gap, i, "o", color=ink, ms=5)
            words = f"{gap:+.2f}" if abs(gap) >= 0.005 else "0.00"
            words = words.replace("-", "\u2212")
            if verdict and not narrow:
                words += f"  {verdict}"
            ax.text(0.29, i, words, va="center", color=ink)
        ax.axvline(0, color=COLOURS["muted"], linewidth=0.8)
        ax.set_yticks(range(len(rows)), [what for what, *_ in rows])
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(-0.2, 0.36 if narrow else 0.42)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ticks = {-0.1: "\u22120.1", 0: "base", 0.1: "+0.1", 0.2: "+0.2"}
        if narrow:
            ticks = {0: "base", 0.2: "+0.2"}
        ax.set_xticks([*ticks], ticks.values())
        ax.set_xlabel("nats above the base model", loc="right")
        return figure

    said = "; ".join(
        f"{what} {gap:+.3f} {verdict}".strip()
        for what, _, (gap, *_), verdict in rows
    )
    return show(
        draw,
        "Every change by what it adds to the nats of the base model, the "
        f"dearest first: rings for the paper, dots for ours. Ours: {said}.",
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
