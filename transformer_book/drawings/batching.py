"""What the chapter on batches shows."""

from collections.abc import Mapping, Sequence

from matplotlib.colors import ListedColormap

from transformer_book.figures import (
    COLOURS,
    Picture,
    panels,
    show,
)


def four_ways(
    examples: Mapping[str, Sequence[tuple[int, int]]],
    width: Mapping[str, int],
    padding: Mapping[str, float],
    batches: Mapping[str, int],
) -> Picture:
    """One batch of each way: text and padding, a row for each pair.

    `examples` are lengths of source and target, `width` the least
    width of a side; `padding` and `batches` are those of an epoch.
    """
    inks = COLOURS["muted"] + "40", COLOURS["source"], COLOURS["target"]
    three = ListedColormap(inks)
    figures, axes = panels(len(examples), 290)
    for ax, (way, rows) in zip(axes, examples.items(), strict=True):
        wide = [max(width[way], *side) for side in zip(*rows, strict=True)]
        gap = max(1, sum(wide) // 30)
        cells = [
            [1.0 * (x < source) for x in range(wide[0])]
            + [float("nan")] * gap
            + [2.0 * (x < target) for x in range(wide[1])]
            for source, target in rows
        ]
        look = {"aspect": "auto", "interpolation": "none"}
        ax.imshow(cells, three, vmin=0, vmax=2, **look)
        ax.set_title(f"{way}\n{padding[way]:.0%} padding", weight="bold")
        middles = wide[0] / 2, wide[0] + gap + wide[1] / 2
        ax.set_xticks(middles, ["source", "target"])
        ax.tick_params(length=0)
        ax.set(xlabel=f"{batches[way]:,} batches", yticks=[])
    shares = ", ".join(f"{way} {padding[way]:.0%}" for way in examples)
    return show(
        figures,
        "One batch of each way, a row for each pair, its source on the "
        "left and its target on the right, text in one colour and "
        f"padding in another. The share of padding in the epoch: {shares}.",
    )
