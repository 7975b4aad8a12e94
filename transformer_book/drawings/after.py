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
from transformer_book.ladder import steps_until
from transformer_book.records import Run
from transformer_book.tables import markdown_table

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
    "averaged": "the paper, averaged",
    "muon": "Muon",
    "cool-down": "rate down to zero",
    "adamw": "AdamW",
    "pre-norm": "norm first",
    "rms-norm": "RMSNorm",
    "rotary": "rotary positions",
    "gated": "gated feed-forward",
    "grouped": "shared keys, values",
    "short-first": "short sentences first",
    "together": "Muon and rotary",
    "all-three": "Muon, rotary, rate to zero",
}
COMBINED = "together", "all-three"  # more than one change
LOSSES = 1.2, 2.6  # that the curves' figure shows


def ladder_curves(level: float, *rungs: Sequence[Run]) -> Picture:
    """Loss against steps: the paper, and two rungs that are better.

    A line is the mean of the seeds, and its band has all of them. `level`
    is the loss of the paper with its mean of checkpoints, and a dot is where
    a better rung is as low.
    """
    inks = COLOURS["good"], "black", COLOURS["position"]
    curves = []
    for runs in rungs:
        each = [run.series("validation_loss") for run in runs]
        losses = np.array([losses for _, losses in each])
        name = RUNGS[runs[0].report["rung"]]
        curves.append((name, each[0][0], losses))
    steps, paper = curves[0][1], curves[0][2].mean(0)
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
            RUNGS["averaged"],
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
        f"{steps[-1]:,} steps: {ends}. The paper with its mean of "
        f"checkpoints ends at {level:.2f}, where the others are after "
        f" {', '.join(f'{step:,.0f}' for step in reached)} steps.",
    )


def ladder_gaps(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """How far each change is from the paper, seed by seed.

    Each small dot is a seed, beside the paper's same seed. Those that
    combine several changes have a block of their own, below. The paper with
    its mean of checkpoints is a line.
    """
    [mean] = [row for row in rows if row["rung"] == "averaged"]
    level = mean["validation_gap"].size
    rows = sorted(
        (row for row in rows if row["rung"] not in ("paper", "averaged")),
        key=lambda row: (row["rung"] in COMBINED, row["validation_gap"].size),
    )
    below = [row["rung"] in COMBINED for row in rows]
    places = [i + 0.7 * combined for i, combined in enumerate(below)]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.5 + 0.27 * len(rows))
        for i, row in zip(places, rows, strict=True):
            gap, ink = row["validation_gap"], COLOURS["muted"]
            if row["verdict"] in ("better", "worse"):
                ink = "black" if row["verdict"] == "better" else COLOURS["bad"]
            ends = gap.size - gap.within, gap.size + gap.within
            ax.plot(ends, [i, i], color=ink)
            twins = row["twins"]
            ax.plot(twins, [i] * len(twins), "o", color=ink, ms=4)
            ax.plot([gap.size] * 2, [i - 0.3, i + 0.3], color=ink)
            if not narrow:
                beside = {
                    "xycoords": ("axes fraction", "data"),
                    "va": "center",
                }
                ax.annotate(_judged(row), (1.02, i), color=ink, **beside)
        ax.axvline(0, color=COLOURS["good"], lw=1.2)
        ax.axvline(level, color=COLOURS["good"], lw=1.2, ls=":")
        for words, x in ((RUNGS["paper"], 0), (RUNGS["averaged"], level)):
            ax.annotate(
                words,
                (x, -1),
                (5 if x == 0 else -5, 0),
                textcoords="offset points",
                ha="left" if x == 0 else "right",
                va="center",
                weight="bold",
                annotation_clip=False,
            )
        ax.set_yticks(places, [RUNGS[row["rung"]] for row in rows])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(places[-1] + 0.6, -1.5)
        ticks = [-0.2, -0.1, 0] if narrow else [-0.2, -0.15, -0.1, -0.05, 0]
        ax.set_xticks(ticks, [_tick(tick) for tick in ticks])
        across = "nats per token from the paper's"
        ax.set_xlabel(across if narrow else f"loss at the end, {across}")
        return figure

    said = "; ".join(
        f"{RUNGS[row['rung']]}, {_gap(row['validation_gap'].size)} "
        f"\u00b1 {row['validation_gap'].within:.3f}, {_judged(row)}"
        for row in rows
    )
    return show(
        draw,
        "For each change, how many nats per token its model ends above the "
        "paper's, seed by seed, with the mean and its 99% interval, the best "
        f"first, and then those that combine changes. {said}. A dotted line "
        f"has the paper with its mean of checkpoints, {_gap(level)}.",
    )


def _tick(value: float) -> str:
    """A gap as an axis has it: "−0.05"."""
    return "0" if value == 0 else f"{value:+.2f}".replace("-", "\u2212")


def _judged(row: Mapping[str, Any]) -> str:
    """What the rule says of a rung, and p."""
    p = row["validation_gap"].p
    return f"{row['verdict']}, {'p < 0.001' if p < 0.001 else f'p = {p:.3f}'}"


# In the order of the table, which has a heading for each.
VERDICTS = "better", "no difference shown", "worse"


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What the records say of each rung, by verdict, the best first.

    In brackets are the lines of code that a reader writes for it.
    """
    [paper, mean] = rows[:2]
    change = "change (lines)"

    def told(row, lines=""):
        found = {change: f"{RUNGS[row['rung']]}{lines}"}
        for of in "validation", "test":
            gap = row[f"{of}_gap"]
            said = f"{_gap(gap.size)} \u00b1 {gap.within:.3f}"
            alone = f"{row[of]:.3f}"
            found[f"{of} loss"] = alone if row is paper else said
        found["BLEU"] = f"{row['bleu']:.1f}"
        found["steps / time, %"] = _until(row, mean)
        found["p / declared"] = ""
        if row is not paper:
            ps = row["validation_gap"].p, row["older"].p
            found["p / declared"] = " / ".join(map(_p, ps))
        return found

    table = [told(paper)]
    for verdict in VERDICTS:
        group = [row for row in rows if row["verdict"] == verdict]
        if group:
            table.append({change: f"**{verdict}**"})
        for row in sorted(group, key=lambda row: row["validation_gap"].size):
            lines = "" if row["rung"] == "averaged" else f" ({row['lines']})"
            table.append(told(row, lines))
    return Markdown(markdown_table(table))


def _p(p: float) -> str:
    """p with two figures, or that it is next to nothing."""
    return "<0.001" if p < 0.001 else f"{p:.2g}"


def _gap(nats: float) -> str:
    """Three decimals and a sign, but for none."""
    said = f"{nats:+.3f}".replace("-", "\u2212")
    return "0.000" if said.endswith("0.000") else said


def _until(row: Mapping[str, Any], mean: Mapping[str, Any]) -> str:
    """Steps and time until the loss of the paper, averaged; in percent."""
    if math.isnan(row["steps"]):
        return "never"
    steps = row["steps"] / mean["steps"]
    return f"{100 * steps:.0f} / {100 * steps * row['step_time']:.0f}"
