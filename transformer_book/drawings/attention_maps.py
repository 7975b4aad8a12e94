"""What the chapter on heads shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    panels,
    show,
)
from transformer_book.records import markdown_table

SHADES = {"encoder": "encoder", "decoder": "decoder", "cross": "value"}


def _fading(colour: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    ends = COLOURS[colour] + "00", COLOURS[colour]
    return LinearSegmentedColormap.from_list(colour, ends)


def every_head(maps: Sequence[Tensor], kind: str, axes: tuple) -> Picture:
    """A small picture for each head; a tensor (h, rows, columns) a layer.

    `axes` says what the rows and what the columns are.
    """
    from matplotlib import pyplot

    layers, h = len(maps), len(maps[0])

    def draw(narrow: bool):
        wide = PHONE if narrow else PAGE * 0.8
        figure, grid = pyplot.subplots(
            layers, h, figsize=(wide, wide * layers / h)
        )
        for layer, weights in enumerate(maps):
            for head in range(h):
                ax = grid[layer][head]
                ax.imshow(
                    weights[head],
                    vmin=0,
                    vmax=1,
                    cmap=_fading(SHADES[kind]),
                    aspect="auto",
                )
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(True)
                ax.spines[:].set_color(COLOURS["muted"])
                if head == 0:
                    ax.set_ylabel(f"layer {layer + 1}")
                if layer == 0:
                    ax.set_title(f"head {head + 1}")
        figure.supylabel(f"{axes[0]}, downwards")
        figure.supxlabel(f"{axes[1]}, from left to right")
        return figure

    return show(
        draw,
        f"Attention of {layers} layers with {h} heads each ({kind}), a "
        "square a head: some are diagonals, some look at neighbours or at "
        "a few columns, others spread out.",
    )


def tasks(measured: Mapping[str, Mapping[str, Mapping]]) -> Picture:
    """Mean weight of every head on each kind of piece, by kind."""
    from matplotlib import pyplot

    columns = {
        "encoder": ["previous", "itself", "next", "punctuation", "<eos>"],
        "cross": ["counterpart", "punctuation", "<eos>"],
    }
    top = max(
        weight
        for kind in columns
        for row in measured[kind].values()
        for weight in row.values()
    )

    def draw(narrow: bool):
        heads = list(measured["encoder"])
        size = (PHONE, 9.6) if narrow else (PAGE, 5.4)
        shape = (2, 1) if narrow else (1, 2)
        figure, axes = pyplot.subplots(*shape, figsize=size)
        for ax, (kind, names) in zip(axes, columns.items(), strict=True):
            grid = [[measured[kind][h][name] for name in names] for h in heads]
            ax.imshow(
                grid,
                vmin=0,
                vmax=top,
                cmap=_fading(SHADES[kind]),
                aspect="auto",
            )
            for i, row in enumerate(grid):
                for j, weight in enumerate(row):
                    place = dict(ha="center", va="center")
                    ax.text(j, i, f"{weight:.2f}", **place)
            ax.set_xticks(range(len(names)), names, rotation=35)
            ax.set_yticks(range(len(heads)), heads)
            ax.set(title=kind, ylabel="layer.head")
        return figure

    said = []
    for kind, names in columns.items():
        for name in names:
            head = max(measured[kind], key=lambda h: measured[kind][h][name])
            weight = measured[kind][head][name]
            said.append(f"{kind}, most on {name}: {head}, {weight:.2f}")
    return show(
        draw,
        "Mean weight of every head on the previous piece, itself, the "
        "next, punctuation and the end (encoder), and on the counterpart, "
        "punctuation and the end (cross-attention). " + "; ".join(said),
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
            between = told["agrees_between"]
            rows.append(
                {
                    "sentences": name,
                    "from": kind,
                    "pairs": told["pairs"],
                    "head": f"{told['head']}: {told['agrees']:.0%}",
                    "pieces away": (
                        f"{told['offset']:+}: {told['offset_agrees']:.0%}"
                    ),
                    "head ahead by": f"{low:+.0%} to {high:+.0%}",
                    "head, with words between": ""
                    if between is None
                    else f"{between:.0%} of {told['words_between']}",
                    "better": verdict(told),
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
            row[f"right both ways with {pronoun}"] = f"{share:.0%} of {asked}"
        row["weight on a person"] = f"{told['most_weight']:.1%} at most"
        rows.append(row)
    return Markdown(markdown_table(rows))


def by_gender(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the model makes of "it": a row for each right pronoun.

    A row counts the sentences, those in which that pronoun is
    preferred and written, and has the mean nats that "er" and "sie"
    cost above "es".
    """
    rows = []
    for right in ("er", "sie", "es"):
        here = [row for row in told if row["right"] == right]
        row = {"right": right, "sentences": len(here)}
        for kind in ("preferred", "written"):
            row[kind] = sum(one[kind] == right for one in here)
        for other in ("er", "sie"):
            above = [one["nats"][other] - one["nats"]["es"] for one in here]
            row[other] = sum(above) / len(here)
        rows.append(row)
    return rows


def it_by_gender(rows: Sequence[Mapping[str, Any]]) -> Markdown:
    """What the model makes of "it", by the pronoun that is right."""
    return Markdown(
        markdown_table(
            [
                {
                    "right would be": f"*{row['right']}*",
                    "sentences": row["sentences"],
                    "preferred rightly": row["preferred"],
                    "written rightly": row["written"],
                    "nats that *er* costs above *es*": row["er"],
                    "nats that *sie* costs above *es*": row["sie"],
                }
                for row in rows
            ]
        )
    )


def prices(told: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Picture:
    """What the loss rises by without each head, by kind."""
    top = max(row["nats"] for kind in SHADES for row in told[kind].values())

    def draw(narrow: bool):
        figure, axes = panels(3, narrow, height=2.8)
        for ax, kind in zip(axes, SHADES, strict=True):
            places = [tuple(map(int, head.split("."))) for head in told[kind]]
            layers, h = max(places)
            grid = [
                [told[kind][f"{i + 1}.{j + 1}"]["nats"] for j in range(h)]
                for i in range(layers)
            ]
            ax.imshow(grid, vmin=0, vmax=top, cmap=_fading("bad"))
            for i, row in enumerate(grid):
                for j, nats in enumerate(row):
                    place = dict(ha="center", va="center")
                    ax.text(j, i, f"{round(nats, 2) + 0.0:.2f}", **place)
            ax.set(title=kind, xlabel="head")
            ax.set_xticks(range(h), range(1, h + 1))
            ax.set_yticks(range(layers), range(1, layers + 1))
            ax.set_ylabel("layer" if narrow or kind == "encoder" else "")
        return figure

    dear = max(
        ((kind, head) for kind in SHADES for head in told[kind]),
        key=lambda at: told[at[0]][at[1]]["nats"],
    )
    return show(
        draw,
        "By how much the loss rises without each head, in nats per piece, for "
        "encoder, decoder and encoder-decoder attention. The dearest: "
        f"{dear[0]} {dear[1]}, {top:.2f}.",
    )


def together(told: Mapping[str, Any]) -> Markdown:
    """The last layer's prices on the source, one by one and at once."""
    nats = [row["nats"] for kind in SHADES for row in told[kind].values()]
    cheap = sum(price < 0.01 for price in nats)
    layers = max(int(head.split(".")[0]) for head in told["cross"])
    last = [
        row["nats"]
        for head, row in told["cross"].items()
        if head.startswith(f"{layers}.")
    ]
    return Markdown(
        f"Of {len(nats)} heads, {cheap} cost less than 0.01 nats per piece "
        f"each. The last layer's {len(last)} heads on the source cost "
        f"{sum(last):.2f} nats when their single prices are added up, but "
        f"{told['last_cross_together']:.2f} when they are taken away "
        "together."
    )


def two_prices(told: Mapping[str, Mapping[str, Mapping]]) -> Picture:
    """Every head by what its removal costs in nats and in BLEU points."""
    marks = {"encoder": "o", "decoder": "s", "cross": "^"}

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.3)
        for kind, colour in SHADES.items():
            rows = told[kind].values()
            ax.scatter(
                [row["nats"] for row in rows],
                [row["bleu"] for row in rows],
                s=26,
                marker=marks[kind],
                color=COLOURS[colour],
                label=kind,
            )
        ax.axhline(0, color=COLOURS["muted"], linewidth=0.8)
        ax.set(xlabel="nats per piece lost", ylabel="BLEU points lost")
        ax.legend(loc="upper left")
        return figure

    return show(
        draw,
        "Every head by what its removal costs in nats and in BLEU points: "
        "the few dearest in nats are among the dearest in BLEU, the many "
        "cheap ones lie around zero.",
    )


def plane(words: Sequence[str], places: Tensor) -> Picture:
    """Words where their embeddings lie along two directions."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6 if narrow else 4.6)
        for word, (x, y) in zip(words, places.tolist(), strict=True):
            ax.scatter(x, y, s=18, color=COLOURS["embedding"])
            ax.annotate(word, (x, y), (4, 3), textcoords="offset points")
        ax.set(xticks=[], yticks=[])
        ax.set(xlabel="first direction", ylabel="second direction")
        ax.margins(x=0.15)
        return figure

    return show(draw, "Embeddings of words of both languages in a plane.")
