"""What the chapter on heads shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from IPython.display import Markdown
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    GAP,
    WIDE,
    WIDTH,
    Picture,
    Sketch,
    chart,
    show,
    width_of,
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


def _looks(
    target: Sequence[str],
    source: Sequence[str],
    lines: Iterable[tuple[int, int, dict]],
    width: float,
    top: float = 12,
    aside: float = 0,
    lit: int | None = None,
) -> tuple[Sketch, float, list[float]]:
    """Both sentences in columns; a line has two places and a look.

    Returns the edge of the source and the heights of the tokens, too.
    `aside` is the room to the right of the source.
    """
    rows = max(len(target), len(source))
    heights = [top + 23 * i for i in range(rows)]
    sketch = Sketch(width, heights[-1] + 14)
    left = max(map(width_of, target)) + 10
    right = width - aside - max(map(width_of, source)) - 10
    for y, word in zip(heights, source, strict=False):
        sketch.words(right + 6, y, word, "start", "source")
    for i, word in enumerate(target):
        bold = {"font_weight": "bold"} if i == lit else {}
        sketch.words(left - 6, heights[i], word, "end", "target", **bold)
    for i, j, look in lines:
        sketch.line((left, heights[i]), (right, heights[j]), **look)
    return sketch, right, heights


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
    pieces, said = [], []
    for title, (weights, errs) in panels.items():
        most = weights.argmax(-1).tolist()
        lines = [
            (
                i,
                j,
                {
                    "colour": "bad" if written[i] == errs else "attention",
                    "width": 0.8 + 3.2 * float(weights[i, j]),
                },
            )
            for i, j in enumerate(most)
        ]
        width = (WIDE - GAP) / 2
        sketch, *_ = _looks(written, there, lines, width, top=44)
        sketch.words(0, 12, title, "start", font_weight="bold")
        pieces.append(sketch)
        pairs = zip(written, most, strict=True)
        told = ", ".join(f"{word} to {there[j]}" for word, j in pairs)
        said.append(f"{title} {told}; wrong, in pink, from {errs}")
    return show(
        pieces,
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
    now = written.index(moment)
    strong = {"colour": "attention", "width": 4}
    weak = {"colour": "attention", "width": 1.6, "stroke_opacity": 0.45}
    lines = [
        (i, j, strong if i == now else weak)
        for weights in heads.values()
        for i, j in enumerate(weights.argmax(-1).tolist())
    ]
    lines.sort(key=lambda line: line[0] == now)  # the strong ones in front
    sketch, right, heights = _looks(
        written, there, lines, WIDTH, aside=110, lit=now
    )
    said = []
    for ask, weights in heads.items():
        j = int(weights[now].argmax())
        x = right + width_of(there[j]) + 18
        bold = {"font_weight": "bold"}
        sketch.words(x, heights[j], ask, "start", "attention", **bold)
        said.append(f"{ask} {there[j]}")
    return show(
        sketch,
        "From each German token just written, two lines to the English "
        "sentence: one head looks at the token's counterpart, the other at "
        "the token that is translated next. When "
        f"{moment} is written: {'; '.join(said)}.",
    )


def sheet(
    maps: Mapping[str, Sequence[Tensor]], source: Sequence[str]
) -> Picture:
    """Every head, a square each; those whose job has a name are framed.

    For each of `KINDS` a tensor (h, rows, columns) a layer. Below the head
    of the articles stand the articles of `source`.
    """
    from matplotlib import pyplot

    from transformer_book.figures import fading

    layers, h = len(maps["cross"]), len(maps["cross"][0])
    articles = [
        i for i, word in enumerate(source) if word.strip("▁").lower() == "a"
    ]

    def square(ax: Any, weights: Tensor, job: str, head: int) -> None:
        look = {"aspect": "auto", "vmin": 0, "vmax": 1}
        ax.imshow(weights, cmap=fading("attention"), **look)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=COLOURS["muted"], linewidth=0.6)
        if not job:
            return
        ax.spines[:].set(color="black", linewidth=2.2)
        x, side = (1, "right") if head == h - 1 else (0, "left")
        look = {"transform": ax.transAxes, "in_layout": False}
        words = job.removesuffix(" token")
        ax.text(x, 1.08, words, ha=side, weight="bold", **look)
        if job == "articles":
            ax.set_xticks(articles, [""] * len(articles))
            ax.text(0, -0.15, "each “a”", va="top", **look)

    pieces = []
    for kind, title in KINDS.items():
        figure, axes = pyplot.subplots(layers, h, figsize=(2.25, 3.6))
        figure.get_layout_engine().set(h_pad=0.13, hspace=0)  # for names
        figure.suptitle(f"{title}\n", weight="bold")
        for layer, row in enumerate(axes):
            row[0].set_ylabel(f"layer {layer + 1}")
            for head, ax in enumerate(row):
                job = NAMED.get((kind, f"{layer + 1}.{head + 1}"), "")
                square(ax, maps[kind][layer][head], job, head)
        pieces.append(figure)
    jobs = "; ".join(
        f"{KINDS[kind]} {head}: {job}" for (kind, head), job in NAMED.items()
    )
    return show(
        pieces,
        f"Attention of {layers} layers with {h} heads each, three times, a "
        "square a head. Some are diagonals, some have a few dark columns, "
        f"others spread out. Framed are five: {jobs}. The dark columns of "
        "the articles' head have a tick below them.",
    )


def jobs(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """For each job the weight that each of 16 heads gives to it: dots.

    The head that gives most is named.
    """
    figure, ax = chart(270)
    said = []
    for y, (job, weights) in enumerate(rows.items()):
        ax.axhline(y, color=COLOURS["muted"], lw=0.6, zorder=0)
        look = {"color": COLOURS["attention"], "ms": 9, "alpha": 0.5}
        ax.plot(weights.values(), [y] * len(weights), "o", mew=0, **look)
        first, second, *_ = sorted(weights, key=weights.get, reverse=True)
        told = f"head {first}" if y == 0 else first
        place = weights[first], y - 0.17
        ax.text(*place, told, ha="center", va="bottom")
        shares = [f"{head} {weights[head]:.0%}" for head in (first, second)]
        said.append(f"{job}: {', then '.join(shares)}")
    ax.set_yticks(range(len(rows)), rows)
    ax.get_yticklabels()[0].set_weight("bold")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set(xlim=(0, 0.88), ylim=(len(rows) - 0.6, -0.8))
    marks = [0, 0.2, 0.4, 0.6, 0.8]
    ax.set_xticks(marks, [f"{mark:.0%}" for mark in marks])
    ax.set_xlabel("share of a head's weight")
    return show(
        figure,
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
            low, high = (f"{end:+.0%}" for end in told["interval"])
            apart = f"{low} to {high}" if low != high else "none"
            rows.append(
                {
                    "sentences": name,
                    "from": kind,
                    "encoder's best head": (
                        f"{told['head']}: {told['agrees']:.0%}"
                    ),
                    "best distance": (
                        f"{told['offset']:+}: {told['offset_agrees']:.0%}"
                    ).replace("-", "\u2212"),
                    "difference (95%)": apart.replace("-", "\u2212"),
                }
            )
    return Markdown(markdown_table(rows))


def persons(pronouns: Mapping[str, Any]) -> Markdown:
    """The head chosen for each pronoun, asked about both."""
    rows = []
    for chosen in ("her", "his"):
        told = pronouns[chosen]
        row = {"chosen for": chosen, "encoder's head": told["head"]}
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
        .mark_text(color="currentColor", fontSize=14, dx=10, align="left")
        .encode(x=across, y=up, text="name:N")
    )
    cheap = sum(head["nats"] < 0.01 for head in heads)
    return show(
        (bars + name).properties(width=350, height=220),
        f"A bar for each of {len(heads)} heads, the longest first: by how "
        "much the loss rises without it. By far the longest is "
        f"{dearest['name']}, {dearest['where']}: {dearest['nats']:.2f} "
        f"nats per token. {cheap} are below 0.01.",
    )
