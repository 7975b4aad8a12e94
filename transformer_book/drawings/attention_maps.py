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

SHADES = {"encoder": "encoder", "decoder": "decoder", "cross": "key"}


def _fading(colour: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    ends = COLOURS[colour] + "00", COLOURS[colour]
    return LinearSegmentedColormap.from_list(colour, ends)


def _grid(ax: Any, numbers: Sequence, top: float, colour: str) -> None:
    """Shades from 0 to `top`, each with its number."""
    ax.imshow(numbers, vmin=0, vmax=top, cmap=_fading(colour), aspect="auto")
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            shown = f"{round(number, 2) + 0.0:.2f}"  # no negative zero
            ax.text(j, i, shown, ha="center", va="center")


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
                shades = dict(vmin=0, vmax=1, cmap=_fading(SHADES[kind]))
                ax.imshow(weights[head], aspect="auto", **shades)
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
    """Mean weight of every head on each kind of token, by kind."""
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
            _grid(ax, grid, top, SHADES[kind])
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
        "Mean weight of every head on the previous token, itself, the "
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
                    "tokens away": (
                        f"{told['offset']:+}: {told['offset_agrees']:.0%}"
                    ),
                    "head ahead by": f"{low:+.0%} to {high:+.0%}",
                    "head, with words between": "none apart"
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
            row[f"right both ways with {pronoun}"] = (
                f"{share * asked:.0f} of {asked}"
            )
        row["mean weight on a person, at most"] = f"{told['most_weight']:.1%}"
        rows.append(row)
    return Markdown(markdown_table(rows))


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
            _grid(ax, grid, top, "bad")
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
        "By how much the loss rises without each head, in nats per token, for "
        "encoder, decoder and encoder-decoder attention. The costliest: "
        f"{dear[0]} {dear[1]}, {top:.2f}.",
    )
