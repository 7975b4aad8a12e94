"""What the last chapter shows."""

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import drawsvg
import numpy as np
from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    WIDTH,
    Picture,
    Sketch,
    chart,
    columns,
    show,
)
from transformer_book.ladder import CUBE, steps_until
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
    width, step = 124, 46
    top = bottom - step * len(parts)
    frame = {"width": width + 22, "height": step * len(parts) + 8}
    sketch.box(x, (top + bottom) / 2, "", part, fill_opacity=0.06, **frame)
    places = [bottom - step * (number + 0.5) for number in range(len(parts))]
    for y, words in zip(places, parts, strict=True):
        inside = "attention" if "attention" in words else "feed_forward"
        sketch.box(x, y, words, inside, width, 38, solid=True)
    sketch.line((x, bottom + 30), (x, bottom + 5), arrow=True)
    sketch.words(x, bottom + 42, reads)
    sketch.line((x, top - 5), (x, top - 28), arrow=True)
    sketch.words(x, top - 40, writes)
    sketch.words(x + width / 2 + 10, top - 14, "\u00d7 N", "end")
    return places


def machines() -> Picture:
    """The Transformer, and below each half what is left of it."""
    sketch = Sketch(WIDTH, 554)
    encoder, decoder = 100, 316
    bold = {"font_weight": "bold"}
    sketch.words(WIDTH / 2, 12, "the Transformer, 2017", **bold)
    _stack(sketch, encoder, 238, ENCODER, "source", "source", "memory")
    machine = DECODER, "target", "so far", "next token"
    places = _stack(sketch, decoder, 238, *machine)
    turn, y = decoder - 92, places[1]
    way = (encoder + 34, 106), (turn, 106), (turn, y), (decoder - 63, y)
    sketch.line(*way, arrow=True, width=2.5)
    sketch.words(encoder, 342, "BERT, 2018", **bold)
    machine = ENCODER, "source", "text with gaps", "the gaps"
    _stack(sketch, encoder, 498, *machine)
    sketch.words(decoder, 342, "GPT, 2018", **bold)
    _stack(sketch, decoder, 498, ALONE, "target", "so far", "next token")
    return show(
        sketch,
        "Three machines. The Transformer has a stack of encoder layers with "
        "self-attention and a feed-forward network, whose memory goes into "
        "the second of the three parts of each decoder layer. Below its "
        "encoder is BERT, the encoder alone, which predicts what is hidden "
        "in its text. Below its decoder is GPT, the decoder without that "
        "second part.",
    )


def rotation() -> Picture:
    """Two places apart by three: vectors turn, their angle stays."""
    turn = math.radians(26)
    apart = 3 * turn - 0.6  # the query's hand is so far ahead
    sketch = Sketch(WIDTH, 176)
    y, radius, inner = 76, 54, 28
    places = 3, 5, 8
    for x, place in zip(columns(3, 0, WIDTH), places, strict=True):

        def at(angle: float, far: float, x: float = x) -> tuple[float, float]:
            return x + far * math.cos(angle), y - far * math.sin(angle)

        sketch.dot(x, y, "none", radius, stroke=COLOURS["muted"])
        sketch.free.children.pop()  # the hands lie on it
        query = 0.3 + turn * place
        key = query - apart
        arc = drawsvg.Path().M(*at(key, inner))
        arc.A(inner, inner, 0, 0, 0, *at(query, inner))
        sketch.stroke(arc, width=3, colour="attention", arrow=False)
        for idea, angle, number in (
            ("query", query, place),
            ("key", key, place - 3),
        ):
            end = at(angle, radius)
            sketch.line((x, y), end, width=2.6, colour=idea, arrow=True)
            sketch.words(*at(angle, radius + 13), str(number), colour=idea)
        told = f"query at {place}, key at {place - 3}"
        sketch.words(x, y + radius + 34, told)
    return show(
        sketch,
        "A query and a key as two hands of a clock, at several places in a "
        "sentence, always three tokens apart. Both hands turn with their "
        "places, and an arc between them is as long each time.",
    )


# What the rungs of the ladder are called on the page.
RUNGS = {
    "paper": "the paper",
    "averaged": "the paper, averaged",
    "muon": "Muon",
    "cool-down": "rate to zero",
    "adamw": "AdamW",
    "pre-norm": "norm first",
    "rms-norm": "RMSNorm",
    "rotary": "rotary positions",
    "gated": "gated feed-forward",
    "grouped": "shared keys, values",
    "short-first": "short sentences first",
    "together": "Muon and rotary",
    "muon-cool-down": "Muon, rate to zero",
    "rotary-cool-down": "rotary, rate to zero",
    "all-three": "Muon, rotary, rate to zero",
}
LOSSES = 1.2, 2.6  # that the curves' figure shows


def ladder_curves(*rungs: Sequence[Run]) -> Picture:
    """Loss against steps: the paper, and two rungs that are better.

    A line is the mean of the seeds, and its band has all of them. A diamond
    is each rung's mean of checkpoints, and a dot is where a better rung's last
    weights are as low as the paper's.
    """
    inks = COLOURS["good"], "black", COLOURS["position"]
    curves = []
    for runs in rungs:
        each = [run.series("validation_loss") for run in runs]
        losses = np.array([losses for _, losses in each])
        name = RUNGS[runs[0].report["rung"]]
        curves.append((name, each[0][0], losses))
    ends = [
        np.mean([run.report["result"]["validation_loss"] for run in runs])
        for runs in rungs
    ]
    steps, paper, level = curves[0][1], curves[0][2].mean(0), ends[0]
    reached = [
        steps_until(steps, [*losses.mean(0)], level)
        for _, steps, losses in curves[1:]
    ]

    figure, ax = chart(330)
    bottom = LOSSES[0]
    dotted = {"ls": ":", "lw": 1.2}
    aside = {"textcoords": "offset points"}
    ax.axhline(level, color=inks[0], **dotted)
    ax.annotate(RUNGS["averaged"], (0, level), (6, 4), color=inks[0], **aside)
    for (_, at, losses), ink in zip(curves, inks, strict=True):
        low, high = losses.min(0), losses.max(0)
        ax.fill_between(at, low, high, color=ink, alpha=0.25, lw=0)
        ax.plot(at, losses.mean(0), color=ink)
    mean = {"marker": "D", "facecolors": "none", "clip_on": False, "zorder": 3}
    ax.scatter([steps[-1]] * len(ends), ends, 30, edgecolors=inks, **mean)
    for (name, *_), ink, step in zip(
        curves[1:], inks[1:], reached, strict=True
    ):
        ax.plot([step] * 2, [bottom, level], color=ink, **dotted)
        ax.plot(step, level, "o", color=ink, ms=6)
        first = step == min(reached)
        told = f"{round(step, -1):,.0f} steps"
        ax.annotate(
            f"{name}\n{told}" if first else told,
            (step, bottom),
            (-5 if first else 5, 3),
            color=ink,
            ha="right" if first else "left",
            **aside,
        )
    place = steps[15], paper[15]
    ax.annotate(RUNGS["paper"], place, (5, 12), color=inks[0], **aside)
    place = steps[-1], ends[1]
    ax.annotate(curves[1][0], place, (9, -4), color=inks[1], **aside)
    ax.set(xlim=(0, steps[-1]), ylim=LOSSES)
    ax.set_xticks([0, 500, 1000, 1500, 2000])
    ax.set(xlabel="steps", ylabel="validation loss, nats per token")
    told = "; ".join(
        f"{name}: "
        + ", ".join(f"{loss:.2f}" for loss in losses[:, -1])
        + f", and by their means {end:.2f}"
        for (name, _, losses), end in zip(curves, ends, strict=True)
    )
    return show(
        figure,
        "Validation loss against training steps, a line for the mean of "
        "each model's seeds in a band that holds them all. After "
        f"{steps[-1]:,} steps: {told}. The paper with its mean of "
        f"checkpoints ends at {level:.2f}, where the others are after "
        f"{', '.join(f'{step:,.0f}' for step in reached)} steps.",
    )


def ladder_gaps(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """How far each change is from the paper, each with its mean.

    The best is first, and changes that combine several have a block of their
    own, below. Each small dot is a seed, beside the paper's same seed; a
    stroke is their mean, and a bar its interval. A ring has the last weights,
    also of the paper, which is the first row.
    """
    paper, *rows = rows
    several = [*CUBE.values()][4:]
    rows = sorted(rows, key=lambda row: row["rung"] in several)
    figure, ax = chart(130 + 26 * len(rows))
    inks = {"better": "black", "worse": COLOURS["bad"]}
    places = [i + 0.7 * (row["rung"] in several) for i, row in enumerate(rows)]
    for i, row in zip(places, rows, strict=True):
        gap, twins = row["test_gap"], row["twins"]
        ink = inks.get(row["verdict"], COLOURS["muted"])
        ends = gap.size - gap.within, gap.size + gap.within
        ax.plot(ends, [i, i], color=ink)
        ax.plot(twins, [i] * len(twins), "o", color=ink, ms=4)
        ax.plot([gap.size] * 2, [i - 0.3, i + 0.3], color=ink)
        ax.plot(row["last"], i + 0.3, "o", color=ink, ms=6, mfc="none")
    ax.axvline(0, color=COLOURS["good"], lw=1.2)
    ring = {"color": COLOURS["good"], "mfc": "none", "clip_on": False}
    ax.plot(paper["last"], -1, "o", ms=6, **ring)
    look = {"ha": "right", "va": "center", "weight": "bold"}
    look |= {"textcoords": "offset points", "annotation_clip": False}
    ax.annotate(RUNGS["averaged"], (0, -1), (-5, 0), **look)
    names = [
        RUNGS[row["rung"]]
        + " (rules disagree)" * (row["verdict"] == VERDICTS[1])
        for row in rows
    ]
    ax.set_yticks(places, names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(places[-1] + 0.6, -1.5)
    ticks = [-0.2, -0.1, 0, 0.1]
    ax.set_xticks(ticks, [_gap(tick, 1) for tick in ticks])
    told = "nats per token (test) from the paper's, averaged\n"
    ax.set_xlabel(f"{told}ring: last weights; grey: may be luck")
    said = "; ".join(
        f"{RUNGS[row['rung']]}, {_gap(row['test_gap'].size)} "
        f"\u00b1 {row['test_gap'].within:.3f}, {row['verdict']}, by last "
        f"weights {_gap(row['last'])}"
        for row in rows
    )
    return show(
        figure,
        "For each change, how many nats per token the mean of its checkpoints "
        "ends above the paper's mean on the test set, seed by seed, with the "
        "average and its 99% interval, the best first, and then those that "
        f"combine changes. {said}. The paper itself, by last weights, "
        f"{_gap(paper['last'])}.",
    )


# The edges of the cube: what is added, how far to the right, in which ink.
EDGES = {
    "Muon": (-1.2, "black"),
    "rotary": (0.4, COLOURS["position"]),
    "rate to zero": (1.4, COLOURS["muted"]),
}


def ladder_cube(levels: Mapping[str, float]) -> Picture:
    """All combinations of three changes: a cube, hung by its test loss.

    An edge is a change that is added, in its own colour. Where the gains
    add up, edges of a colour are parallel. `levels` has each rung's loss.
    """
    figure, ax = chart(400)
    at = {  # each corner's place and its changes
        cell: (
            sum(EDGES[name][0] for name in compress(EDGES, cell)),
            levels[rung],
        )
        for cell, rung in CUBE.items()
    }
    for number, (_, ink) in enumerate(EDGES.values()):
        for cell in (each for each in CUBE if each[number]):
            less = (*cell[:number], False, *cell[number + 1 :])
            ax.plot(*zip(at[less], at[cell], strict=True), color=ink)
    ax.plot(*zip(*at.values(), strict=True), "o", color="black", ms=5)
    words = {
        (False,) * 3: (f"the paper, {levels['paper']:.2f}", "center", 0, 8),
        (True,) * 3: (
            f"all three, {levels['all-three']:.2f}",
            "center",
            0,
            -18,
        ),
    }
    for cell, name in zip(
        [c for c in CUBE if sum(c) == 1], EDGES, strict=True
    ):
        side, away = ("right", -8) if name == "Muon" else ("left", 8)
        words[cell] = name, side, away, 2
    for cell, (said, side, *away) in words.items():
        ink = EDGES.get(said, (0, "black"))[1]
        look = {"textcoords": "offset points", "ha": side, "color": ink}
        ax.annotate(said, at[cell], away, **look)
    ax.margins(0.2, 0.14)
    ax.set_xticks([])
    ax.set_ylabel("test loss, nats per token")
    told = "; ".join(
        f"{', '.join(compress(EDGES, cell)) or 'the paper'}: {loss:.3f}"
        for cell, (_, loss) in at.items()
    )
    return show(
        figure,
        "The test loss of all eight combinations of Muon, rotary positions "
        f"and the rate to zero, as the corners of a cube. {told}.",
    )


# What saves steps, from the weakest to the strongest.
SAVERS = {
    "cool-down": COLOURS["muted"],
    "muon": "black",
    "all-three": COLOURS["position"],
}


def ladder_savings(
    found: Mapping[str, Mapping[int, Any]],
    narrow: Mapping[str, Mapping[int, Any]],
) -> Picture:
    """How many times as many steps the paper takes, against its steps.

    `found` has what each rung saves at each length, with 99% intervals, and
    `narrow` the same with those of another rule, which are thick.
    """
    figure, ax = chart(340)
    look = {"color": COLOURS["good"], "lw": 1.2, "ls": ":"}
    ax.axhline(1, label=RUNGS["averaged"], **look)
    ticks = sorted({steps for savings in found.values() for steps in savings})
    told = []
    for number, (rung, ink) in enumerate(SAVERS.items()):
        at = [steps * 1.05 ** (number - 1) for steps in found[rung]]
        factors = [saving.factor for saving in found[rung].values()]
        ax.plot(at, factors, "o-", color=ink, ms=5, label=RUNGS[rung])
        for x, (steps, saving) in zip(at, found[rung].items(), strict=True):
            ax.plot([x, x], saving.ends, color=ink, lw=1)
            ax.plot([x, x], narrow[rung][steps].ends, color=ink, lw=3)
        told += [
            f"{RUNGS[rung]} at {steps:,} steps: {saving.factor:.2f} "
            f"({saving.ends[0]:.2f} to {saving.ends[1]:.2f}; thick "
            "{:.2f} to {:.2f})".format(*narrow[rung][steps].ends)
            for steps, saving in found[rung].items()
        ]
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("steps of the paper")
    ax.set_ylabel("paper's steps / change's steps")
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], names[::-1], labelcolor="linecolor")
    return show(
        figure,
        "How many times as many steps the paper with its mean of checkpoints "
        "takes as each change does for the same test loss, against the steps "
        f"of the paper, with 99% intervals. {'; '.join(told)}.",
    )


# In the order of the table, which has a heading for each.
VERDICTS = "better", "the rules disagree", "no difference shown", "worse"


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What the records say of each rung, by verdict, the best first."""
    paper, *changes = rows
    within = changes[0]  # of all changes, which have as many seeds
    change, step = "change", "a step's time, %"
    loss = f"test loss, \u00b1\u00a0{within['test_gap'].within:.3f}"
    bleu = f"BLEU, \u00b1\u00a0{within['bleu_gap'].within:.1f}"
    table = [
        {
            change: RUNGS["averaged"],
            loss: f"{paper['test']:.3f}",
            bleu: f"{paper['bleu']:.1f}",
            step: "100",
            "p": "",
            "Dunnett's p": "",
            "p, older rule": "",
        }
    ]
    for verdict in VERDICTS:
        group = [row for row in changes if row["verdict"] == verdict]
        if group:
            table.append({change: f"**{verdict}**"})
        table += [
            {
                change: RUNGS[row["rung"]],
                loss: _gap(row["test_gap"].size),
                bleu: _gap(row["bleu_gap"].size, 1),
                step: f"{100 * row['step_time']:.0f}",
                "p": _p(row["test_gap"].p),
                "Dunnett's p": _p(row["dunnett"]),
                "p, older rule": _p(row["older"].p),
            }
            for row in group
        ]
    return Markdown(markdown_table(table))


def _p(p: float) -> str:
    """p with two figures, or that it is next to nothing."""
    return "<0.001" if p < 0.001 else f"{p:#.2g}"


def _gap(nats: float, decimals: int = 3) -> str:
    """So many decimals and a sign, but for none."""
    said = f"{nats:+.{decimals}f}".replace("-", "\u2212")
    return said if said.strip("+\u22120.") else said[1:]
