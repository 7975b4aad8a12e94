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
    panels,
    show,
)
from transformer_book.tables import markdown_table

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
    panels: Mapping[str, tuple[Tensor, str]],
) -> Picture:
    """Where two heads look, from each token that was just written.

    A panel is a title, one head's weights (target_len, source_len), whose
    row i is that of the written token `target[i]`, and the written token
    from which the head looks at the wrong place.
    """
    written = [word.strip("▁") for word in target]
    there = [word.strip("▁") for word in source]

    def across() -> Sketch:
        height = 190
        sketch = Sketch(PAGE * 96, height * len(panels) - 10)
        columns = _places(there, written, width=PAGE * 96 - 10)
        for number, (title, (weights, errs)) in enumerate(panels.items()):
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
                    colour="bad" if word == errs else "attention",
                    width=0.8 + 3.2 * float(weights[i, j]),
                )
        return sketch

    def down() -> Sketch:
        step = 21
        height = 40 + step * max(len(written), len(there)) + 14
        sketch = Sketch(PHONE * 96, height * len(panels))
        left, right = 116, PHONE * 96 - 100
        for number, (title, (weights, errs)) in enumerate(panels.items()):
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
                    colour="bad" if word == errs else "attention",
                    width=0.8 + 3.2 * float(weights[i, j]),
                )
        return sketch

    said = []
    for title, (weights, errs) in panels.items():
        pairs = ", ".join(
            f"{word} to {there[int(weights[i].argmax())]}"
            for i, word in enumerate(written)
        )
        said.append(f"{title} {pairs}; wrong, in pink, from {errs}")
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
    maps: Mapping[str, Sequence[Tensor]], source: Sequence[str]
) -> Picture:
    """Every head, a square each; those whose job has a name are framed.

    For each of `KINDS` a tensor (h, rows, columns) a layer. Below the head
    of the articles stand the articles of `source`.
    """
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap

    ends = COLOURS["attention"] + "00", COLOURS["attention"]
    fading = LinearSegmentedColormap.from_list("attention", ends)
    layers, h = len(maps["cross"]), len(maps["cross"][0])

    def square(ax: Any, kind: str, layer: int, head: int) -> None:
        weights = maps[kind][layer][head]
        look = {"aspect": "auto", "cmap": fading, "vmin": 0, "vmax": 1}
        ax.imshow(weights, **look)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=COLOURS["muted"], linewidth=0.6)
        job = NAMED.get((kind, f"{layer + 1}.{head + 1}"))
        if not job:
            return
        ax.spines[:].set(color="black", linewidth=2.2)
        last, middle = weights.shape[1] - 0.5, weights.shape[1] / 2 - 0.5
        x, side = (-0.5, "left") if head == 0 else (last, "right")
        if "?" not in job:
            job, x, side = job.removesuffix(" token"), middle, "center"
        look = {"va": "bottom", "in_layout": False}
        ax.text(x, -1.4, job, ha=side, weight="bold", **look)
        if job == "articles":
            look["va"] = "top"
            for place, word in enumerate(source):
                if word.strip("\u2581").lower() == "a":
                    ax.text(place, len(weights), "a", ha="center", **look)

    def block(part: Any, kind: str, first: bool) -> None:
        axes = part.subplots(layers, h)
        part.suptitle(f"{KINDS[kind]}\n", weight="bold")
        for layer in range(layers):
            for head in range(h):
                square(axes[layer][head], kind, layer, head)
            if first:
                axes[layer][0].set_ylabel(f"layer {layer + 1}")

    def draw(narrow: bool):
        size = (PHONE, 13) if narrow else (PAGE, 4.3)
        figure = pyplot.figure(figsize=size)
        # between rows there are names
        figure.get_layout_engine().set(h_pad=0.13, hspace=0)
        shape = (3, 1) if narrow else (1, 3)
        look = {} if narrow else {"width_ratios": [1.09, 1, 1]}
        for part, kind in zip(
            figure.subfigures(*shape, **look), KINDS, strict=True
        ):
            block(part, kind, first=narrow or kind == "encoder")
        return figure

    jobs = "; ".join(
        f"{KINDS[kind]} {head}: {job}" for (kind, head), job in NAMED.items()
    )
    return show(
        draw,
        f"Attention of {layers} layers with {h} heads each, three times, a "
        "square a head. Some are diagonals, some have a few dark columns, "
        f"others spread out. Framed are five: {jobs}. The dark columns of "
        "the articles' head have an a below them.",
    )


def jobs(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """For each job the weight that each of 16 heads gives to it: dots.

    The head that gives most is named.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.7)
        for y, weights in enumerate(rows.values()):
            ax.axhline(y, color=COLOURS["muted"], lw=0.6, zorder=0)
            shares = [*weights.values()]
            look = {"color": COLOURS["attention"], "ms": 9, "alpha": 0.5}
            ax.plot(shares, [y] * len(shares), "o", mew=0, **look)
            best = max(weights, key=weights.get)
            place = weights[best], y - 0.15
            ax.text(*place, best, ha="center", va="bottom")
        ax.set_yticks(range(len(rows)), rows)
        ax.get_yticklabels()[0].set_weight("bold")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set(xlim=(0, 0.88), ylim=(len(rows) - 0.6, -0.8))
        marks = [0, 0.2, 0.4, 0.6, 0.8]
        ax.set_xticks(marks, [f"{mark:.0%}" for mark in marks])
        ax.set_xlabel("share of a head's weight")
        return figure

    said = []
    for job, weights in rows.items():
        first, second, *_ = sorted(weights, key=weights.get, reverse=True)
        shares = [f"{head} {weights[head]:.0%}" for head in (first, second)]
        said.append(f"{job}: {', then '.join(shares)}")
    return show(
        draw,
        "Five rows of sixteen dots: what share of its weight each head gives "
        f"to a job. The two that give most: {'; '.join(said)}.",
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


def prices(told: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Picture:
    """What the loss rises by without each head: bars to point at, by altair.

    The dearest head comes first, and is named.
    """
    import altair as alt

    heads = [
        {
            "name": f"{head} {NAMED.get((kind, head), '')}".strip(),
            "where": KINDS[kind],
            "nats": row["nats"],
            "says": f"{head} {NAMED.get((kind, head), '')}".strip()
            + f", {KINDS[kind]}: {row['nats']:+.4f} nats per token "
            f"and {-row['bleu']:+.2f} BLEU points without it",
        }
        for kind in KINDS
        for head, row in told[kind].items()
    ]
    heads.sort(key=lambda head: -head["nats"])
    for rank, head in enumerate(heads):
        head["rank"] = rank
    dearest = heads[0]
    ink = COLOURS["muted"]
    plain = {"grid": False, "domainColor": ink, "tickColor": ink}
    inks = [COLOURS[part] for part in ("encoder", "decoder", "attention")]
    across = alt.X("rank:O", title=f"the {len(heads)} heads").axis(
        labels=False, ticks=False, domain=False
    )
    up = (
        alt.Y("nats:Q", title="nats per token lost without it")
        .scale(domain=[-0.002, 0.09], nice=False)
        .axis(format=".2f", tickCount=5, **plain)
    )
    bars = (
        alt.Chart(alt.Data(values=heads))
        .mark_bar()
        .encode(
            x=across,
            y=up,
            description="says:N",  # what it says when it is pointed at
            color=alt.Color("where:N", title=None)
            .scale(domain=[*KINDS.values()], range=inks)
            .legend(orient="top-right", labelColor="currentColor"),
        )
    )
    name = (
        alt.Chart(alt.Data(values=[dearest]))
        .mark_text(color="currentColor", fontSize=12, dx=10, align="left")
        .encode(x=across, y=up, text="name:N")
    )
    cheap = sum(head["nats"] < 0.01 for head in heads)
    return show(
        (bars + name).properties(width=540, height=220),
        f"A bar for each of {len(heads)} heads, the longest first: by how "
        "much the loss rises without it. By far the longest is "
        f"{dearest['name']}, {dearest['where']}: {dearest['nats']:.2f} "
        f"nats per token. {cheap} are below 0.01.",
    )
