"""What the last chapter shows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import drawsvg
import numpy as np
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
    """The Transformer, BERT and GPT as what is left of it."""

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
            bert(sketch, 76, 538)
            gpt(sketch, 246, 538)
            return sketch
        sketch = Sketch(PAGE * 96, 310)
        pair(sketch, 80, 250)
        bert(sketch, 450, 250)
        gpt(sketch, 630, 250)
        return sketch

    return show(
        draw,
        "Three machines. The Transformer has a stack of encoder layers with "
        "self-attention and a feed-forward network, whose memory goes into "
        "the second of the three parts of each decoder layer. BERT is the "
        "encoder alone, and predicts what is hidden in its text. GPT is the "
        "decoder without that second part.",
    )


def rotation() -> Picture:
    """Two places apart by three: vectors turn, their angle stays."""
    turn = math.radians(26)
    apart = 3 * turn - 0.6  # the query's hand is so far ahead

    def clock(sketch: Sketch, x: float, y: float, place: int) -> None:
        radius, inner = 78, 40

        def at(angle: float, distance: float) -> tuple[float, float]:
            return (
                x + distance * math.cos(angle),
                y - distance * math.sin(angle),
            )

        ring = {"fill": "none", "stroke": "currentColor"}
        sketch.append(drawsvg.Circle(x, y, radius, stroke_opacity=0.3, **ring))
        query = 0.3 + turn * place
        key = query - apart
        arc = drawsvg.Path().M(*at(key, inner))
        arc.A(inner, inner, 0, 0, 0, *at(query, inner))
        sketch.stroke(arc, width=3, colour="attention", arrow=False)
        hands = ("query", query, place), ("key", key, place - 3)
        for idea, angle, number in hands:
            end = at(angle, radius)
            sketch.line((x, y), end, width=2.6, colour=idea, arrow=True)
            label = at(angle, radius + 13)
            sketch.words(*label, str(number), colour=idea)
        sketch.words(
            x, y + radius + 34, f"query at {place}, key at {place - 3}"
        )

    def draw(narrow: bool) -> Sketch:
        if narrow:
            sketch = Sketch(PHONE * 96, 450)
            for number, place in enumerate((3, 8)):
                clock(sketch, PHONE * 48, 100 + 225 * number, place)
            return sketch
        sketch = Sketch(PAGE * 96, 225)
        for number, place in enumerate((3, 5, 8)):
            clock(sketch, 120 + 240 * number, 100, place)
        return sketch

    return show(
        draw,
        "A query and a key as two hands of a clock, at several places in a "
        "sentence, always three tokens apart. Both hands turn with their "
        "places, and an arc between them is as long each time.",
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
    "all-three": "Muon, rotary, rate to zero",
}
COMBINED = "together", "all-three"  # more than one change
LOSSES = 1.2, 2.6  # that the curves' figure shows


def ladder_curves(*rungs: Sequence[Run]) -> Picture:
    """Loss against steps: the paper, and two rungs that are better.

    A line is the mean of the seeds, and its band has all of them. A dot is
    where a better rung is as low as the paper at its end.
    """
    inks = COLOURS["good"], "black", COLOURS["position"]
    curves = []
    for runs in rungs:
        each = [run.series("validation_loss") for run in runs]
        losses = np.array([losses for _, losses in each])
        name = RUNGS[runs[0].report["rung"]]
        curves.append((name, each[0][0], losses))
    steps, paper = curves[0][1], curves[0][2].mean(0)
    level = paper[-1]
    reached = [
        steps_until(steps, [*losses.mean(0)], level)
        for _, steps, losses in curves[1:]
    ]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.4)
        bottom = LOSSES[0]
        dotted = {"ls": ":", "lw": 1.2}
        ax.axhline(level, color=inks[0], **dotted)
        ax.annotate(
            "where the paper ends",
            (0, level),
            (6, 4),
            textcoords="offset points",
            color=inks[0],
        )
        for (_, at, losses), ink in zip(curves, inks, strict=True):
            ax.fill_between(
                at, losses.min(0), losses.max(0), color=ink, alpha=0.25, lw=0
            )
            ax.plot(at, losses.mean(0), color=ink)
        for (name, *_), ink, step in zip(
            curves[1:], inks[1:], reached, strict=True
        ):
            before = step == min(reached)
            ax.plot([step] * 2, [bottom, level], color=ink, **dotted)
            ax.plot(step, level, "o", color=ink, ms=6)
            ax.annotate(
                f"{name}\n{round(step, -1):,.0f} steps",
                (step, bottom),
                (-5 if before else 5, 3),
                textcoords="offset points",
                color=ink,
                ha="right" if before else "left",
                va="bottom",
            )
        ax.annotate(
            RUNGS["paper"],
            (steps[15], paper[15]),
            (5, 12),
            textcoords="offset points",
            color=inks[0],
        )
        ax.set_xlim(0, steps[-1])
        ax.set_ylim(*LOSSES)
        ax.set_xticks([0, 500, 1000, 1500, 2000])
        ax.set_xlabel("steps")
        ax.set_ylabel("validation loss, nats per token")
        return figure

    ends = "; ".join(
        f"{name}: " + ", ".join(f"{loss:.2f}" for loss in losses[:, -1])
        for name, _, losses in curves
    )
    return show(
        draw,
        "Validation loss against training steps, a line for the mean of "
        "each model's seeds in a band that holds them all. After "
        f"{steps[-1]:,} steps: {ends}. The others are where the paper ends "
        f"after {', '.join(f'{step:,.0f}' for step in reached)} steps.",
    )


def ladder_gaps(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """How far each change is from the paper, with its interval.

    Those that combine several have a block of their own, below.
    """
    rows = sorted(rows, key=lambda row: (row["rung"] in COMBINED, row["gap"]))
    below = [row["rung"] in COMBINED for row in rows]
    places = [i + 0.7 * combined for i, combined in enumerate(below)]
    low = min(row["gap"] - row["within"] for row in rows) - 0.01
    high = max(row["gap"] + row["within"] for row in rows) + 0.01
    apart = 0.05 if high - low < 0.35 else 0.1  # of two ticks

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.3 + 0.27 * len(rows))
        for i, row in zip(places, rows, strict=True):
            judged = row["verdict"] in ("better", "worse")
            ink = "black" if judged else COLOURS["muted"]
            if row["verdict"] == "worse":
                ink = COLOURS["bad"]
            ends = row["gap"] - row["within"], row["gap"] + row["within"]
            ax.plot(ends, [i, i], color=ink)
            inside = ink if row["seeds"] >= SEEDS else "none"
            ax.plot(row["gap"], i, "o", color=ink, mfc=inside, ms=7)
            if not narrow:
                beside = {
                    "xycoords": ("axes fraction", "data"),
                    "va": "center",
                }
                ax.annotate(_judged(row), (1.02, i), color=ink, **beside)
        ax.axvline(0, color=COLOURS["good"], lw=1.2)
        for words, x, side in (
            ("\u2190 better", -5, "right"),
            ("worse \u2192", 5, "left"),
        ):
            ax.annotate(
                words,
                (0, -1),
                (x, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                weight="bold",
                annotation_clip=False,
            )
        ax.set_yticks(places, [RUNGS[row["rung"]] for row in rows])
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(low, high)
        ax.set_ylim(places[-1] + 0.6, -1.5)
        first, last = math.ceil(low / apart), math.floor(high / apart)
        wide = -first if narrow and first < 0 else 1  # the labels' room
        ticks = [i * apart for i in range(first, last + 1) if i % wide == 0]
        ax.set_xticks(ticks, [_tick(tick) for tick in ticks])
        across = "nats per token from the paper's"
        if not narrow:
            across = f"loss at the end, {across}"
        elif any(row["seeds"] < SEEDS for row in rows):
            across += "\n\u25cb fewer than three seeds"
        ax.set_xlabel(across)
        return figure

    said = "; ".join(
        f"{RUNGS[row['rung']]}, {_gap(row['gap'])} "
        f"\u00b1 {row['within']:.3f}, {_judged(row)}"
        for row in rows
    )
    return show(
        draw,
        "For each change, how many nats per token its model ends above the "
        f"paper's, with a 99% interval, the best first, and then those that "
        f"combine changes. {said}.",
    )


def _tick(value: float) -> str:
    """A gap as an axis has it: "−0.05", "the paper" for none."""
    if abs(value) < 1e-9:
        return "the paper"
    return f"{value:+.2f}".replace("-", "\u2212")


def _judged(row: Mapping[str, Any]) -> str:
    """What the rule says of a rung, and p once it says something."""
    if row["seeds"] < SEEDS:
        return row["verdict"]
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.3f}"
    return f"{row['verdict']}, {p}"


# In the order of the table, which has a heading for each.
VERDICTS = (
    "better",
    "no difference shown",
    "worse",
    "two seeds so far",
    "one seed so far",
)


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What the records say of each rung, by verdict, the best first.

    In brackets are the lines of code that a reader writes for it.
    """
    [paper] = [row for row in rows if row["rung"] == "paper"]
    above = f"nats from the paper's {paper['nats']:.3f}"
    until = "steps / time / operations, %"
    told = [
        {
            "change (lines)": RUNGS["paper"],
            above: "",
            until: "100 / 100 / 100",
            "BLEU": f"{paper['bleu']:.1f}",
        }
    ]
    for verdict in VERDICTS:
        group = [row for row in rows if row["verdict"] == verdict]
        if group:
            told.append({"change (lines)": f"**{verdict}**"})
        for row in sorted(group, key=lambda row: row["gap"]):
            told.append(
                {
                    "change (lines)": f"{RUNGS[row['rung']]} ({row['lines']})",
                    above: f"{_gap(row['gap'])} \u00b1 {row['within']:.3f}",
                    until: _until(row, paper),
                    "BLEU": f"{row['bleu']:.1f}",
                }
            )
    return Markdown(markdown_table(told))


def _gap(nats: float) -> str:
    """Three decimals and a sign, but for none."""
    said = f"{nats:+.3f}".replace("-", "\u2212")
    return "0.000" if said.endswith("0.000") else said


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
