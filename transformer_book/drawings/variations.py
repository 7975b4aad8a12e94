"""What the chapter on table 3 shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import COLOURS, Picture, legend, panels, show
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


def printed_scores(rows: Sequence[tuple]) -> Picture:
    """Perplexity and BLEU of each row of table 3."""
    letters = {
        "base": ("good", "s"),
        "big": ("good", "D"),
        "(A)": ("query", "o"),
        "(B)": ("key", "o"),
        "(C)": ("encoder", "o"),
        "(D)": ("decoder", "o"),
        "(E)": ("position", "o"),
        "smoothing": ("loss", "X"),
    }
    named = {"N": (2,), "dropout": (0.0,), "d_model": (256, 1024), "h": (1,)}

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.8)
        labelled = set()
        for name, of_model, of_training, perplexity, score, _ in rows:
            smoothing = of_training.get("label_smoothing")
            kind = name if smoothing is None else "smoothing"
            colour, mark = letters[kind]
            look = dict(s=34, marker=mark, color=COLOURS[colour])
            look["zorder"] = 3 if name == "base" else 2
            label = None if kind in labelled else kind
            ax.scatter(perplexity, score, label=label, **look)
            labelled.add(kind)
            words = "" if smoothing is None else f"smoothing {smoothing:g}"
            for key, value in of_model.items():
                if name != "big" and value in named.get(key, ()):
                    words = f"{key} {value:g}"
            place = 6, -14 if words == "d_model 256" else -4
            side = "left"
            if words == "smoothing 0":  # its neighbours are on the right
                place, side = (18, -14), "right"
            at = perplexity, score
            ax.annotate(words, at, place, textcoords="offset points", ha=side)
        ax.set(xlabel="perplexity", ylabel="BLEU", xlim=(3.7, 6.9))
        legend(ax, 2 if narrow else 4)
        return figure

    return show(
        draw,
        "Each row of table 3 by perplexity and BLEU. Nearly all lie "
        "along a falling line; the two rows with another smoothing lie "
        "beside it.",
    )


Row = tuple[str, str, float | None, tuple | None, list[float], str]


def results(rows: Sequence[Row]) -> Markdown:
    """Each change: the paper's nats, ours, and what follows.

    A row has the change, the paper's claim and perplexity, our nats
    above the base model with their interval, BLEU and the verdict.
    """
    arrows = {"": "", "worse": "↑", "better": "↓", "equal": "="}
    table = []
    for what, claim, perplexity, measured, bleus, verdict in rows:
        of_paper = f"{math.log(perplexity / 4.92):+.2f}" if perplexity else ""
        gap, low, high = measured or (0.0, 0.0, 0.0)
        table.append(
            {
                "change": what,
                "verdict": verdict,
                "the paper": arrows[claim],
                "paper's nats": of_paper,
                "our nats": f"{gap:+.3f}",
                "95%": f"{low:+.3f} to {high:+.3f}" if measured else "",
                "BLEU, one per seed": ", ".join(f"{x:.1f}" for x in bleus),
            }
        )
    return Markdown(markdown_table(table))


def differences(rows: Sequence[Row]) -> Picture:
    """Each change's nats above the base model: the paper's and ours."""
    rows = [row for row in rows if row[3]]
    names = [what.replace("`", "") for what, *_ in rows]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.1 + 0.3 * len(rows))
        ours, papers = COLOURS["good"], COLOURS["key"]
        for i, (_, _, perplexity, (gap, low, high), *_) in enumerate(rows):
            if perplexity:
                nats = math.log(perplexity / 4.92)
                ring = dict(facecolors="none", edgecolors=papers, zorder=3)
                ring["label"] = None if i else "the paper"
                ax.scatter(nats, i, s=40, **ring)
            ax.plot([low, high], [i, i], color=ours)
            label = None if i else "ours, 95%"
            ax.scatter(gap, i, s=18, color=ours, label=label)
        ax.axvline(0, color=COLOURS["muted"], linewidth=0.8)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel("nats above the base model", loc="right")
        figure.legend(ncols=2, loc="outside lower center")
        return figure

    gaps = [row[3][0] for row in rows]
    said = [f"{a} {b:+.3f}" for a, b in zip(names, gaps, strict=True)]
    return show(
        draw,
        "Every change by what it adds to the nats of the base model: "
        f"rings for the paper, dots with intervals for ours. Ours: "
        f"{'; '.join(said)}.",
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
