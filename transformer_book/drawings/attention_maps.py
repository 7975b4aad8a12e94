"""What the chapter on heads shows."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from IPython.display import Markdown
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    altair,
    panels,
    show,
)
from transformer_book.records import markdown_table

KINDS = {
    "encoder": "encoder",
    "decoder": "decoder, on itself",
    "cross": "decoder, on the source",
}
# The heads whose job has a name here: kind, layer.head, the name.
NAMED = {
    ("encoder", "1.3"): "articles",
    ("encoder", "4.3"): "next token",
    ("encoder", "4.4"): "previous token",
    ("cross", "1.4"): "where am I?",
    ("cross", "2.1"): "what comes next?",
}


def _places(*rows: Sequence[str], width: float) -> list[float]:
    """The middles of columns in which the words of all rows have room."""
    columns = zip_longest(*rows, fillvalue="")
    sizes = [7.5 * max(map(len, words)) + 8 for words in columns]
    gap = (width - sum(sizes)) / max(1, len(sizes) - 1)
    places, left = [], 0.0
    for size in sizes:
        places.append(left + size / 2)
        left += size + gap
    return places


def turns(
    target: Sequence[str],
    source: Sequence[str],
    panels: Mapping[str, Tensor],
) -> Picture:
    """Where two heads look, from each token that was just written.

    A panel is a title and one head's weights (target_len, source_len),
    whose row i is that of the written token `target[i]`.
    """
    written = [word.strip("▁") for word in target]
    there = [word.strip("▁") for word in source]

    def across() -> Sketch:
        height = 190
        sketch = Sketch(PAGE * 96, height * len(panels) - 10)
        columns = _places(there, written, width=PAGE * 96 - 10)
        for number, (title, weights) in enumerate(panels.items()):
            top = number * height
            sketch.words(0, top + 12, title, "start", font_weight="bold")
            for word, x in zip(there, columns, strict=False):
                sketch.words(x, top + 46, word, colour="source")
            for i, word in enumerate(written):
                sketch.words(columns[i], top + 156, word, colour="target")
                j = int(weights[i].argmax())
                sketch.line(
                    (columns[i], top + 144),
                    (columns[j], top + 58),
                    colour="attention",
                    width=0.8 + 3.2 * float(weights[i, j]),
                )
        return sketch

    def down() -> Sketch:
        step = 21
        height = 40 + step * max(len(written), len(there)) + 14
        sketch = Sketch(PHONE * 96, height * len(panels))
        left, right = 116, PHONE * 96 - 100
        for number, (title, weights) in enumerate(panels.items()):
            top = number * height + 40
            sketch.words(0, top - 28, title, "start", font_weight="bold")
            for j, word in enumerate(there):
                y = top + step * j
                sketch.words(right + 6, y, word, "start", colour="source")
            for i, word in enumerate(written):
                y = top + step * i
                sketch.words(left - 6, y, word, "end", colour="target")
                j = int(weights[i].argmax())
                sketch.line(
                    (left, y),
                    (right, top + step * j),
                    colour="attention",
                    width=0.8 + 3.2 * float(weights[i, j]),
                )
        return sketch

    said = []
    for title, weights in panels.items():
        pairs = ", ".join(
            f"{word} to {there[int(weights[i].argmax())]}"
            for i, word in enumerate(written)
        )
        said.append(f"{title} {pairs}")
    return show(
        lambda narrow: down() if narrow else across(),
        "From each German token just written, a line to the English token "
        f"at which a head looks most. {'. '.join(said)}.",
    )


def walk(
    target: Sequence[str],
    source: Sequence[str],
    heads: Mapping[str, Tensor],
    moment: str,
) -> Picture:
    """Two heads in one drawing, at every moment of a translation.

    `heads` has what each of the two asks, and its weights (target_len,
    source_len), whose row i is that of the written token `target[i]`.
    `moment` is the written token whose lines are strong and have words.
    """
    written = [word.strip("▁") for word in target]
    there = [word.strip("▁") for word in source]
    asks = [*heads]
    looks = [  # the written token, what is asked, where the head looks
        (i, ask, int(weights[i].argmax()))
        for ask, weights in heads.items()
        for i in range(len(written))
    ]
    now = written.index(moment)

    def line(sketch: Sketch, start: tuple, end: tuple, strong: bool) -> None:
        sketch.line(
            start,
            end,
            colour="attention",
            width=4 if strong else 1.6,
            stroke_opacity=1 if strong else 0.45,
        )

    def across() -> Sketch:
        top, bottom = 38, 200
        sketch = Sketch(PAGE * 96, bottom + 14)
        columns = _places(there, written, width=PAGE * 96 - 10)
        for word, x in zip(there, columns, strict=False):
            sketch.words(x, top, word, colour="source")
        for i, (word, x) in enumerate(zip(written, columns, strict=False)):
            weight = "bold" if i == now else "normal"
            sketch.words(x, bottom, word, colour="target", font_weight=weight)
        for i, _, j in looks:
            start, end = (columns[i], bottom - 12), (columns[j], top + 12)
            line(sketch, start, end, strong=i == now)
        here, ahead = (j for i, _, j in looks if i == now)
        for ask, x, side in (
            (asks[0], columns[here] + 22, "end"),
            (asks[1], columns[ahead] - 12, "start"),
        ):
            sketch.words(x, 12, ask, side, "attention", font_weight="bold")
        return sketch

    def down() -> Sketch:
        step, top = 27, 14
        left, right = 68, 164  # and the questions beside the words
        rows = max(len(written), len(there))
        sketch = Sketch(PHONE * 96, step * rows + 4)
        for j, word in enumerate(there):
            y = top + step * j
            sketch.words(right + 6, y, word, "start", colour="source")
        for i, word in enumerate(written):
            weight = "bold" if i == now else "normal"
            sketch.words(
                left - 6,
                top + step * i,
                word,
                "end",
                colour="target",
                font_weight=weight,
            )
        for i, _, j in looks:
            start, end = (left, top + step * i), (right, top + step * j)
            line(sketch, start, end, strong=i == now)
        bold = {"font_weight": "bold"}
        for i, ask, j in looks:
            if i == now:
                place = right + 58, top + step * j
                sketch.words(*place, ask, "start", "attention", **bold)
        return sketch

    said = "; ".join(f"{ask} {there[j]}" for i, ask, j in looks if i == now)
    return show(
        lambda narrow: down() if narrow else across(),
        "From each German token just written two lines to the English "
        "sentence, one for each of two heads: to the token's counterpart, "
        "and on to the token that is translated next. Together they run "
        f"through the sentence in a zigzag. When {moment} is written: {said}.",
    )


def sheet(
    maps: Mapping[str, Sequence[Tensor]], behind: Mapping[str, int]
) -> Picture:
    """Every head, a square each; above, large, those whose job has a name.

    For each of `KINDS` a tensor (h, rows, columns) a layer. `behind` says
    by how many places a token's row comes after its column.
    """
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap

    ends = COLOURS["attention"] + "00", COLOURS["attention"]
    fading = LinearSegmentedColormap.from_list("attention", ends)
    layers, h = len(maps["cross"]), len(maps["cross"][0])

    def square(ax: Any, kind: str, name: str) -> Tensor:
        layer, head = (int(number) - 1 for number in name.split("."))
        weights = maps[kind][layer][head]
        look = {"aspect": "auto", "cmap": fading, "vmin": 0, "vmax": 1}
        ax.imshow(weights, **look)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
        return weights

    def named(part: Any, narrow: bool) -> None:
        axes = part.subplots(*((3, 2) if narrow else (1, 5))).flat
        for ax, ((kind, name), job) in zip(axes, NAMED.items(), strict=False):
            rows, columns = square(ax, kind, name).shape
            if job != "articles":
                first = behind[kind]
                ends = [0, rows - 1 - first], [first, rows - 1]
                ax.plot(*ends, color="black", lw=1, ls=":")
            ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
            ax.set_title(f"{name} {job}", pad=4)
        axes[0].set(xlabel="looked at", ylabel="asking")
        for ax in axes[len(NAMED) :]:
            ax.axis("off")

    def block(part: Any, kind: str) -> None:
        axes = part.subplots(layers, h)
        part.suptitle(KINDS[kind], weight="bold")
        for layer in range(layers):
            for head in range(h):
                ax = axes[layer][head]
                name = f"{layer + 1}.{head + 1}"
                square(ax, kind, name)
                known = (kind, name) in NAMED
                ax.set_title(name, pad=2, weight="bold" if known else None)
                ink = "black" if known else COLOURS["muted"]
                ax.spines[:].set(color=ink, linewidth=2.2 if known else 0.6)

    def draw(narrow: bool):
        size = (PHONE, 16) if narrow else (PAGE, 5.3)
        figure = pyplot.figure(figsize=size)
        heights = (4.4, 11.6) if narrow else (1.7, 3.6)
        above, below = figure.subfigures(2, 1, height_ratios=heights)
        named(above, narrow)
        shape = (3, 1) if narrow else (1, 3)
        for part, kind in zip(below.subfigures(*shape), KINDS, strict=True):
            block(part, kind)
        return figure

    jobs = "; ".join(
        f"{KINDS[kind]} {head}: {job}" for (kind, head), job in NAMED.items()
    )
    return show(
        draw,
        "Above, five heads as large squares: 1.3 has dark columns; along a "
        "dotted diagonal 4.3 is often one place to the right and 4.4 one to "
        "the left, 1.4 is on it and 2.1 one to the right. Below, attention of "
        f"{layers} layers with {h} heads each, three times, a small square a "
        "head. Some are diagonals, some have a few dark columns, others "
        f"spread out. Framed are the five: {jobs}.",
    )


def jobs(rows: Mapping[str, Mapping[str, float]], evenly: Mapping) -> Picture:
    """For each job the weight of 16 heads on it, the largest first: bars.

    Coloured and counted are those above a dotted line: 2.5 times as much
    as an even spread would give.
    """
    shared = {
        job: [
            head
            for head in sorted(weights, key=weights.get, reverse=True)
            if weights[head] > 2.5 * evenly[job]
        ]
        for job, weights in rows.items()
    }

    def draw(narrow: bool):
        figure, axes = panels(
            len(rows), narrow, height=1.45 if narrow else 2.6, sharey=True
        )
        for ax, (job, weights) in zip(axes, rows.items(), strict=True):
            mine = shared[job]
            inks = [COLOURS["attention"]] * len(mine)
            inks += [COLOURS["muted"]] * (len(weights) - len(mine))
            heights = sorted(weights.values(), reverse=True)
            ax.bar(range(len(weights)), heights, color=inks)
            ax.axhline(2.5 * evenly[job], color="black", linewidth=1, ls=":")
            heads = f"{len(mine)} heads" if len(mine) > 1 else "one head"
            above, below = (0.95, 0.68) if narrow else (1.02, 0.91)
            ax.text(
                len(weights) - 0.5,
                above,
                heads,
                ha="right",
                weight="bold",
                color=COLOURS["attention"],
            )
            which = ", ".join(mine) if len(mine) < 5 else f"{mine[0]} first"
            ax.text(len(weights) - 0.5, below, which, ha="right")
            ax.set_title(job.replace("\n", " ") if narrow else job)
            ax.set(xticks=[], yticks=[0, 0.5, 1], ylim=(0, 1.12))
        axes[0].set_ylabel("share of weight")
        return figure

    said = []
    for job, weights in rows.items():
        best = max(weights, key=weights.get)
        told = f"{len(shared[job])}, the first {best}, {weights[best]:.2f}"
        said.append(f"{job}: {told}".replace("\n", " "))
    return show(
        draw,
        "Five rows of sixteen bars: what share of its weight each head gives "
        "to a job, and how many heads give more than 2.5 times as much as "
        f"an even spread would. {'; '.join(said)}.",
    )


def verdict(told: Mapping[str, Any]) -> str:
    """What the interval of head minus distance says."""
    low, high = told["interval"]
    if low > 0:
        return "the head"
    return "the distance" if high < 0 else "undecided"


def syntax(counted: Mapping[str, Mapping[str, Mapping]]) -> Markdown:
    """The best head against the best fixed distance, as a table."""
    names = {"multi30k-en-de": "captions", "little-spanish": "little Spanish"}
    rows = []
    for model, name in names.items():
        for kind, told in counted[model].items():
            low, high = told["interval"]
            rows.append(
                {
                    "sentences": name,
                    "from": kind,
                    "best head": f"{told['head']}: {told['agrees']:.0%}",
                    "best distance": (
                        f"{told['offset']:+}: {told['offset_agrees']:.0%}"
                    ).replace("-", "\u2212"),
                    "difference": (
                        f"{low:+.0%} to {high:+.0%}".replace("-", "\u2212")
                    ),
                }
            )
    return Markdown(markdown_table(rows))


def persons(pronouns: Mapping[str, Any]) -> Markdown:
    """The head chosen for each pronoun, asked about both."""
    rows = []
    for chosen in ("her", "his"):
        told = pronouns[chosen]
        row = {"chosen for": chosen, "head": told["head"]}
        for pronoun, share in told["right_both_ways"].items():
            asked = told["sentences"][pronoun]
            row[f"right both ways with {pronoun}"] = (
                f"{share * asked:.0f} of {asked}"
            )
        rows.append(row)
    return Markdown(markdown_table(rows))


def prices(told: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Any:
    """What is lost without each head: dots to point at, by altair.

    A dot is a head; from left to right the loss rises, upwards BLEU falls.
    """
    alt = altair()
    heads = [
        {
            "head": head,
            "name": f"{head} {NAMED.get((kind, head), '')}".strip(),
            "where": KINDS[kind],
            "nats": round(row["nats"], 4),
            "bleu": round(row["bleu"], 2),
        }
        for kind in KINDS
        for head, row in told[kind].items()
    ]
    ink = COLOURS["muted"]
    plain = {"grid": False, "domainColor": ink, "tickColor": ink}
    places = {
        "x": alt.X("nats:Q", title="nats per token lost")
        .scale(domain=[-0.01, 0.09], nice=False)
        .axis(format=".2f", tickCount=6, **plain),
        "y": alt.Y("bleu:Q", title="BLEU points lost").axis(**plain),
    }
    inks = [COLOURS[part] for part in ("encoder", "decoder", "attention")]
    legend = {"orient": "bottom-right", "labelColor": "currentColor"}
    chart = (
        alt.Chart(alt.Data(values=heads))
        .mark_circle(size=80, opacity=0.8)
        .encode(
            **places,
            color=alt.Color("where:N", title=None)
            .scale(domain=[*KINDS.values()], range=inks)
            .legend(**legend),
            tooltip=[
                alt.Tooltip("name:N", title="head"),
                alt.Tooltip("where:N"),
                alt.Tooltip("nats:Q", title="nats lost"),
                alt.Tooltip("bleu:Q", title="BLEU points lost"),
            ],
        )
    )
    dearest = {}
    for cost, misses, align in (
        ("nats", "the loss", "right"),
        ("bleu", "BLEU", "center"),
    ):
        head = max(heads, key=lambda head, cost=cost: head[cost])
        dearest[cost] = f"{head['head']}, {head['where']}"
        named = head | {"words": f"{head['head']}, missed most by {misses}"}
        chart += (
            alt.Chart(alt.Data(values=[named]))
            .mark_text(color="currentColor", fontSize=12, dy=-12, align=align)
            .encode(**places, text="words:N")
        )
    return chart.properties(
        width=540,
        height=300,
        description=(
            f"A dot for each of {len(heads)} heads: by how much the loss "
            "rises without it, and by how much BLEU falls. Most are near "
            f"zero. Farthest to the right is {dearest['nats']}; highest is "
            f"{dearest['bleu']}."
        ),
    )
