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
    SIZE,
    Picture,
    Sketch,
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


def sheet(maps: Mapping[str, Sequence[Tensor]]) -> Picture:
    """Every head, a square each; those whose job has a name are framed.

    For each of `KINDS` a tensor (h, rows, columns) a layer.
    """
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap

    ends = COLOURS["attention"] + "00", COLOURS["attention"]
    fading = LinearSegmentedColormap.from_list("attention", ends)
    layers, h = len(maps["cross"]), len(maps["cross"][0])

    def block(part: Any, kind: str, narrow: bool) -> None:
        axes = part.subplots(layers, h)
        part.suptitle(KINDS[kind], weight="bold")
        names = [
            f"{head} {job}" for (at, head), job in NAMED.items() if at == kind
        ]
        if not narrow:  # all blocks end with three lines
            names += [""] * (3 - len(names))
        part.supxlabel("\n".join(names), size=SIZE * 0.75)
        for layer in range(layers):
            for head in range(h):
                ax = axes[layer][head]
                ax.imshow(
                    maps[kind][layer][head],
                    aspect="auto",
                    cmap=fading,
                    vmin=0,
                    vmax=1,
                )
                ax.set(xticks=[], yticks=[])
                name = f"{layer + 1}.{head + 1}"
                known = (kind, name) in NAMED
                ax.set_title(name, pad=2, weight="bold" if known else None)
                ax.spines[:].set_visible(True)
                ink = "black" if known else COLOURS["muted"]
                ax.spines[:].set(color=ink, linewidth=2.2 if known else 0.6)

    def draw(narrow: bool):
        shape = (3, 1) if narrow else (1, 3)
        size = (PHONE, 12.6) if narrow else (PAGE, 4)
        figure = pyplot.figure(figsize=size)
        for part, kind in zip(figure.subfigures(*shape), KINDS, strict=True):
            block(part, kind, narrow)
        return figure

    named = "; ".join(
        f"{KINDS[kind]} {head}: {job}" for (kind, head), job in NAMED.items()
    )
    return show(
        draw,
        f"Attention of {layers} layers with {h} heads each, three times: a "
        "square a head, for one sentence. Some are diagonals, some have a "
        "few dark columns, others spread out. Framed are the heads whose "
        f"job has a name: {named}.",
    )


def jobs(rows: Mapping[str, Mapping[str, float]], evenly: Mapping) -> Picture:
    """For each job the weight that each of 16 heads gives to it: dots.

    The head that gives most is named, with those that are level with it; a
    tick is an even spread.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.1)
        for y, (job, weights) in enumerate(rows.items()):
            best = max(weights, key=weights.get)
            leaders = [
                head
                for head, weight in weights.items()
                if weights[best] - weight < 0.01
            ]
            for head, weight in weights.items():
                ink = COLOURS["attention" if head in leaders else "muted"]
                ax.plot(weight, -y, "o", color=ink, alpha=0.8)
            ax.annotate(
                ", ".join(leaders),
                (weights[best], -y),
                (0, 7),
                textcoords="offset points",
                ha="center",
                weight="bold",
            )
            ax.plot(evenly[job], -y, "|", color="black", markersize=16)
        ax.set_yticks([-y for y in range(len(rows))], rows)
        ax.set(xlim=(0, 1), ylim=(0.6 - len(rows), 0.7))
        ax.set_xlabel("share of a head's weight")
        return figure

    said = []
    for job, weights in rows.items():
        best = max(weights, key=weights.get)
        said.append(f"{job}: head {best}, {weights[best]:.2f}")
    return show(
        draw,
        "What share of its weight each of sixteen heads gives to a job, and "
        f"the head that gives most. {'; '.join(said)}.",
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
    """What the loss rises by without each head: dots, the named ones named."""

    # the head without which translations lose most
    worst = max(
        ((kind, head) for kind in KINDS for head in told[kind]),
        key=lambda at: told[at[0]][at[1]]["bleu"],
    )

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.3)
        for y, kind in enumerate(KINDS):
            for head, row in told[kind].items():
                known = (kind, head) in NAMED
                ink = COLOURS["attention" if known else "muted"]
                ax.plot(row["nats"], -y, "o", color=ink, alpha=0.8)
            heads = told[kind]
            dear = max(heads, key=lambda head, rows=heads: rows[head]["nats"])
            named = {head for at, head in NAMED if at == kind}
            if kind == worst[0]:
                named.add(worst[1])
            for head in named | {dear}:
                if heads[head]["nats"] < 0.02 and head != dear:
                    continue
                job = NAMED.get((kind, head))
                wide = job and not narrow
                ax.annotate(
                    f"{head} {job}" if wide else head,
                    (heads[head]["nats"], -y),
                    (5 if wide else 0, 7),
                    textcoords="offset points",
                    ha="right" if wide else "center",
                    weight="bold" if job else None,
                )
        ax.set_yticks([-y for y in range(len(KINDS))], KINDS.values())
        ax.set_ylim(0.5 - len(KINDS), 0.7)
        ax.set_xlabel("nats lost without the head")
        return figure

    dear = max(
        ((kind, head) for kind in KINDS for head in told[kind]),
        key=lambda at: told[at[0]][at[1]]["nats"],
    )
    top = told[dear[0]][dear[1]]["nats"]
    return show(
        draw,
        "By how much the loss rises without each head, in nats per token, a "
        "row of sixteen dots for encoder, decoder and encoder-decoder "
        f"attention. The costliest: {dear[0]} {dear[1]}, {top:.2f}.",
    )
