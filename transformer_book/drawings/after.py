"""What the last chapter shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import drawsvg
from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)
from transformer_book.ladder import SEEDS, steps_until
from transformer_book.records import Run, markdown_table

# What a layer of each machine holds, from the bottom to the top.
ENCODER = "self-attention", "feed-forward"
DECODER = "masked\nself-attention", "cross-attention", "feed-forward"
ALONE = "masked\nself-attention", "feed-forward"


def _stack(
    sketch: Sketch,
    x: float,
    bottom: float,
    parts: Sequence[str],
    part: str,
    reads: str,
    writes: str,
) -> list[float]:
    """A stack with its layer's parts; returns their heights."""
    width, step = 118, 52
    top = bottom - step * len(parts)
    middle = (top + bottom) / 2
    sketch.box(
        x,
        middle,
        part=part,
        width=width + 22,
        height=step * len(parts) + 10,
        fill_opacity=0.06,
    )
    places = []
    for number, words in enumerate(parts):
        y = bottom - step * (number + 0.5)
        inside = "attention" if "attention" in words else "feed_forward"
        sketch.box(x, y, words, inside, width, 40, solid=True)
        places.append(y)
    sketch.line((x, bottom + 36), (x, bottom + 6), arrow=True)
    sketch.words(x, bottom + 48, reads)
    sketch.line((x, top - 6), (x, top - 34), arrow=True)
    sketch.words(x, top - 46, writes)
    sketch.words(x + width / 2 + 8, top - 16, "\u00d7 N", "end")
    return places


def machines() -> Picture:
    """The Transformer, GPT and BERT as what is left of it."""

    def pair(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x + 86, 14, "the Transformer, 2017", font_weight="bold")
        _stack(sketch, x, bottom, ENCODER, "source", "source", "memory")
        places = _stack(
            sketch, x + 172, bottom, DECODER, "target", "so far", "next token"
        )
        y = places[1]
        sketch.line(
            (x + 20, 96), (x + 84, 96), (x + 84, y), (x + 112, y), arrow=True
        )

    def gpt(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x, bottom - 200, "GPT, 2018", font_weight="bold")
        _stack(sketch, x, bottom, ALONE, "target", "so far", "next token")

    def bert(sketch: Sketch, x: float, bottom: float) -> None:
        sketch.words(x, bottom - 200, "BERT, 2018", font_weight="bold")
        _stack(
            sketch, x, bottom, ENCODER, "source", "text with gaps", "the gaps"
        )

    def draw(narrow: bool) -> Sketch:
        if narrow:
            sketch = Sketch(PHONE * 96, 600)
            pair(sketch, 76, 250)
            gpt(sketch, 76, 538)
            bert(sketch, 246, 538)
            return sketch
        sketch = Sketch(PAGE * 96, 310)
        pair(sketch, 80, 250)
        gpt(sketch, 450, 250)
        bert(sketch, 630, 250)
        return sketch

    return show(
        draw,
        "Three machines. The Transformer has a stack of encoder layers with "
        "self-attention and a feed-forward network, whose memory goes into "
        "the second of the three parts of each decoder layer. GPT is the "
        "decoder without that second part. BERT is the encoder alone, and "
        "predicts what is hidden in its text.",
    )


def rotation() -> Picture:
    """Two places apart by three: vectors turn, their angle stays."""
    turn = math.radians(26)

    def clock(sketch: Sketch, x: float, y: float, place: int) -> None:
        radius = 58
        ring = {"fill": "none", "stroke": "currentColor"}
        sketch.append(drawsvg.Circle(x, y, radius, stroke_opacity=0.3, **ring))
        for idea, at, shift in ("query", place, 0.3), ("key", place - 3, 0.9):
            angle = shift + turn * at
            end = (
                x + radius * math.cos(angle),
                y - radius * math.sin(angle),
            )
            sketch.line((x, y), end, width=2.6, colour=idea, arrow=True)
            label = (
                x + (radius + 13) * math.cos(angle),
                y - (radius + 13) * math.sin(angle),
            )
            sketch.words(*label, str(at), colour=idea)
        sketch.words(
            x, y + radius + 34, f"query at {place}, key at {place - 3}"
        )

    def draw(narrow: bool) -> Sketch:
        if narrow:
            sketch = Sketch(PHONE * 96, 390)
            for number, place in enumerate((3, 8)):
                clock(sketch, PHONE * 48, 90 + 190 * number, place)
            return sketch
        sketch = Sketch(PAGE * 96, 200)
        for number, place in enumerate((3, 5, 8)):
            clock(sketch, 120 + 240 * number, 90, place)
        return sketch

    return show(
        draw,
        "A query and a key as two hands of a clock, at three places in a "
        "sentence, always three tokens apart. Both hands turn with their "
        "places, and the angle between them stays the same.",
    )


# What the rungs of the ladder are called on the page.
RUNGS = {
    "paper": "the paper",
    "muon": "Muon",
    "cool-down": "rate down to zero",
    "adamw": "AdamW",
    "pre-norm": "norm first",
    "rms-norm": "RMSNorm",
    "rotary": "rotary positions",
    "gated": "gated feed-forward",
    "grouped": "shared keys, values",
    "qk-norm": "normed queries, keys",
    "no-biases": "no biases",
    "no-smoothing": "no smoothing",
    "short-first": "short sentences first",
    "together": "Muon and rotary",
}


def ladder_curves(*rungs: Sequence[Run]) -> Picture:
    """Loss against steps: every seed of the paper, and of better rungs.

    A dot is where the first seed of a better one is as low as the paper's
    mean at the end, and below it is the step.
    """
    looks = (COLOURS["good"], "-"), ("black", "-"), ("black", "--")
    at = 13, 9, 21  # of a line's points, where its name is
    names = [RUNGS[runs[0].report["rung"]] for runs in rungs]
    drawn = [*zip(names, rungs, looks, at, strict=False)]
    last = rungs[0][0].log[-1]["step"]
    paper = [run.log[-1]["validation_loss"] for run in rungs[0]]
    level = sum(paper) / len(paper)
    reached = [
        steps_until(*runs[0].series("validation_loss"), level)
        for runs in rungs[1:]
    ]
    first, final = min(reached), max(reached)

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.4)
        ax.plot([first, last], [level] * 2, ":", color=COLOURS["good"])
        for step in reached:
            ax.plot([step] * 2, [1.3, level], ":", color="black", lw=1)
            ax.plot(step, level, "o", color="black", ms=5)
            ax.annotate(
                f"{round(step, -1):,.0f}",
                (step, 1.3),
                (4 if step == final else -4, 2),
                textcoords="offset points",
                ha="left" if step == final else "right",
                va="bottom",
            )
        for name, runs, (ink, line), index in drawn:
            for run in runs:
                losses = run.series("validation_loss")
                ax.plot(*losses, line, color=ink, lw=1.2)
            steps, losses = runs[0].series("validation_loss")
            above = runs is rungs[0]
            ax.annotate(
                name,
                (steps[index], losses[index]),
                (4, 14) if above else (-7, -8),
                textcoords="offset points",
                color=ink,
                ha="left" if above else "right",
                va="center",
            )
        ax.set_xlim(0, last)
        ax.set_ylim(1.3, 2.9)
        ax.set_xticks([0, 500, 1000, 1500, 2000])
        ax.set_xlabel("steps")
        ax.set_ylabel("validation loss, nats per token")
        return figure

    ends = "; ".join(
        f"{name}: "
        + ", ".join(f"{run.log[-1]['validation_loss']:.2f}" for run in runs)
        for name, runs, *_ in drawn
    )
    return show(
        draw,
        "Validation loss against training steps, a line for each seed. "
        f"After {last:,} steps: {ends}. The others are where the paper ends "
        f"after {', '.join(f'{step:,.0f}' for step in reached)} steps.",
    )


def ladder_gaps(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """How far each change is from the paper, with its interval."""
    rows = sorted(rows, key=lambda row: row["gap"])
    edge = max(abs(row["gap"]) + row["within"] for row in rows) + 0.01

    def draw(narrow: bool):
        row_height = 0.38 if narrow else 0.27
        figure, ax = panels(1, narrow, height=0.9 + row_height * len(rows))
        for i, row in enumerate(rows):
            judged = row["verdict"] in ("better", "worse")
            ink = "black" if judged else COLOURS["muted"]
            if row["verdict"] == "worse":
                ink = COLOURS["bad"]
            low, high = row["gap"] - row["within"], row["gap"] + row["within"]
            ax.plot([low, high], [i, i], color=ink)
            inside = ink if row["seeds"] >= SEEDS else "none"
            ax.plot(row["gap"], i, "o", color=ink, mfc=inside, ms=7)
            if narrow:
                ax.annotate(
                    _lines(row),
                    (0, i),
                    (-5, -11),
                    xycoords=("axes fraction", "data"),
                    textcoords="offset points",
                    color=COLOURS["muted"],
                    ha="right",
                    va="center",
                )
            else:
                ax.text(edge, i, _judged(row), va="center", color=ink)
        ax.axvline(0, color=COLOURS["good"], lw=1.2)
        names = [RUNGS[row["rung"]] for row in rows]
        if not narrow:
            each = zip(names, map(_lines, rows), strict=True)
            names = [f"{name}, {lines}" for name, lines in each]
        ax.set_yticks(range(len(rows)), names)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(-edge, edge if narrow else 1.7 * edge)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ticks = {-0.1: "\u22120.1", 0: "the paper", 0.1: "+0.1"}
        ax.set_xticks([*ticks], ticks.values())
        ax.set_xlabel("nats per token above the paper", loc="left")
        return figure

    said = "; ".join(
        f"{RUNGS[row['rung']]}, {_lines(row)}, {row['gap']:+.3f} "
        f"\u00b1 {row['within']:.3f}, {_judged(row)}"
        for row in rows
    )
    return show(
        draw,
        "For each change, how many nats per token its model ends above the "
        f"paper's, with a 95% interval, the best first. {said}.",
    )


def _judged(row: Mapping[str, Any]) -> str:
    """What the rule says of a rung, and p once it says something."""
    if row["seeds"] < SEEDS:
        return row["verdict"]
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.3f}"
    return f"{row['verdict']}, {p}"


def _lines(row: Mapping[str, Any]) -> str:
    """How much a reader writes for a rung."""
    return "1 line" if row["lines"] == 1 else f"{row['lines']} lines"


# In the order of the table, which has a heading for each.
VERDICTS = (
    "better",
    "no difference shown",
    "worse",
    "two seeds so far",
    "one seed so far",
)


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What the records say of each rung, by verdict, the best first."""
    [paper] = [row for row in rows if row["rung"] == "paper"]
    above = f"nats above the paper's {paper['nats']:.3f}"
    until = "steps / time / operations, %"
    told = [
        {
            "change": RUNGS["paper"],
            above: "",
            until: "100 / 100 / 100",
            "BLEU": f"{paper['bleu']:.1f}",
        }
    ]
    for verdict in VERDICTS:
        group = [row for row in rows if row["verdict"] == verdict]
        if group:
            told.append({"change": f"**{verdict}**"})
        for row in sorted(group, key=lambda row: row["gap"]):
            gap = f"{row['gap']:+.3f} \u00b1 {row['within']:.3f}"
            told.append(
                {
                    "change": RUNGS[row["rung"]],
                    above: gap.replace("-", "\u2212"),
                    until: _until(row, paper),
                    "BLEU": f"{row['bleu']:.1f}",
                }
            )
    return Markdown(markdown_table(told))


def _until(row: Mapping[str, Any], paper: Mapping[str, Any]) -> str:
    """Steps, time, operations until the paper's loss; in percent of its."""
    if math.isnan(row["steps"]):
        return "never"
    steps = row["steps"] / paper["steps"]
    shares = (
        steps,
        steps * row["step_time"],
        row["operations"] / paper["operations"],
    )
    return " / ".join(f"{100 * share:.0f}" for share in shares)
