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
    }
    named = {"N": (2,), "dropout": (0.0,), "d_model": (256, 1024), "h": (1,)}

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.8)
        labelled = set()
        for name, of_model, of_training, perplexity, score, _ in rows:
            kind = (
                "smoothing"
                if of_training.get("label_smoothing", 1) < 1
                else name
            )
            colour, mark = letters.get(kind, ("loss", "X"))
            ax.scatter(
                perplexity,
                score,
                s=34,
                marker=mark,
                color=COLOURS[colour],
                label=None if kind in labelled else kind,
            )
            labelled.add(kind)
            words = [
                f"{key} {value:g}"
                for key, value in of_model.items()
                if value in named.get(key, ()) and name != "big"
            ]
            if kind == "smoothing":
                words = [f"smoothing {of_training['label_smoothing']:g}"]
            ax.annotate(
                " ".join(words),
                (perplexity, score),
                (6, -14 if "d_model 256" in words else -4),
                textcoords="offset points",
            )
        ax.set(xlabel="perplexity", ylabel="BLEU", xlim=(4.2, 6.9))
        figure.legend(
            *ax.get_legend_handles_labels(),
            ncols=4 if narrow else 8,
            columnspacing=0.9,
            handletextpad=0.1,
            loc="outside lower center",
        )
        return figure

    return show(
        draw,
        "Each row of table 3 by perplexity and BLEU. Nearly all lie "
        "along a falling line; the two rows with another smoothing lie "
        "beside it.",
    )


def results(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """Each change: the paper's nats, ours, and what follows."""
    arrows = {"worse": "↑", "better": "↓", "equal": "="}
    table = []
    for row in rows:
        perplexity = row["perplexity"]
        of_paper = f"{math.log(perplexity / 4.92):+.2f}" if perplexity else ""
        gap, low, high = row["gap"] or (0.0, 0.0, 0.0)
        table.append(
            {
                "change": row["what"],
                "the paper": arrows.get(row["claim"], ""),
                "paper's nats": of_paper,
                "our nats": f"{gap:+.3f}",
                "95%": f"{low:+.3f} to {high:+.3f}" if row["gap"] else "",
                "BLEU, one per seed": ", ".join(
                    f"{score:.1f}" for score in row["bleus"]
                ),
                "verdict": row["verdict"],
            }
        )
    return Markdown(markdown_table(table))


def differences(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Each change's nats above the base model: the paper's and ours."""
    rows = [row for row in rows if row["gap"]]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.1 + 0.3 * len(rows))
        for i, row in enumerate(rows):
            gap, low, high = row["gap"]
            if row["perplexity"]:
                ax.scatter(
                    math.log(row["perplexity"] / 4.92),
                    i,
                    s=40,
                    facecolors="none",
                    edgecolors=COLOURS["key"],
                    zorder=3,
                    label="the paper" if i == 0 else None,
                )
            colour = COLOURS["good"]
            ax.plot([low, high], [i, i], color=colour)
            label = "ours, 95%" if i == 0 else None
            ax.scatter(gap, i, s=18, color=colour, label=label)
        ax.axvline(0, color=COLOURS["muted"], linewidth=0.8)
        names = [row["what"].replace("`", "") for row in rows]
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel("nats per token above the base model")
        figure.legend(ncols=2, loc="outside lower center")
        return figure

    said = [f"{row['what']} {row['gap'][0]:+.3f}" for row in rows]
    return show(
        draw,
        "Every change by what it adds to the nats of the base model: "
        "rings for the paper, dots with intervals for ours. Ours: "
        + "; ".join(said).replace("`", ""),
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


def vocabulary_ranges(
    rows: Sequence[Mapping[str, Any]], common: tuple[int, int]
) -> Picture:
    """By row, the vocabularies that would give its printed figure."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        for i, row in enumerate(rows):
            colour = "bad" if row["row"] == "big" else "embedding"
            ax.plot(row["fits"], [i, i], color=COLOURS[colour], linewidth=6)
        ax.axvspan(*common, color=COLOURS["good"], alpha=0.4)
        ax.axvline(37_000, color=COLOURS["muted"], linestyle=":")
        ax.set_yticks(range(len(rows)), [row["row"] for row in rows])
        ax.invert_yaxis()
        ax.set_xlabel("size of the vocabulary")
        ax.xaxis.get_major_locator().set_params(nbins=4)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        return figure

    low, high = common
    return show(
        draw,
        "For each printed row the range of vocabulary sizes that would "
        f"give its figure. Ten ranges share the band {low:,} to {high:,}; "
        "that of the big model lies near 36,000. A dotted line marks "
        "37,000.",
    )
