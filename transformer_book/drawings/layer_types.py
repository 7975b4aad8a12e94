"""What the chapter on kinds of layers shows."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from IPython.display import Markdown
from matplotlib.colors import ListedColormap
from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    log_ticks,
    panels,
    show,
    style,
)
from transformer_book.records import markdown_table

LOOKS = {
    "recurrent": ("bad", "o--"),
    "convolutional": ("feed_forward", "s-."),
    "dilated": ("feed_forward", "^:"),
    "self-attention": ("query", "o-"),
    "restricted": ("query", "s--"),
}


def dependencies(connections: Mapping[str, Tensor]) -> Picture:
    """By kind of layer, which outputs depend on which inputs."""

    def draw(narrow: bool):
        shape = (3, 2) if narrow else (2, 3)
        size = (PHONE, 5.6) if narrow else (PAGE, 4.8)
        figure, axes = plt.subplots(*shape, figsize=size)
        last = len(connections) - 1
        for i, (name, matrix) in enumerate(connections.items()):
            ax = axes.flat[i]
            cmap = ListedColormap(["#00000000", COLOURS[LOOKS[name][0]]])
            ax.imshow(matrix, cmap, vmin=0, vmax=1)
            ax.set_title(name)
            ax.set(xticks=[], yticks=[], xlabel="input", ylabel="output")
        for ax in axes.flat[last + 1 :]:
            ax.axis("off")
        return figure

    return show(
        draw,
        "Five squares show which of 14 outputs depend on which of 14 "
        "inputs. Recurrent: the lower triangle. Convolutional: three "
        "diagonals side by side. Dilated: three diagonals apart. "
        "Self-attention: all. Restricted: a band of seven diagonals.",
    )


def path_lengths(lengths: Sequence[int], paths: Mapping) -> Picture:
    """Steps between both ends of a sentence, by kind of layer."""
    with style():
        figure, ax = plt.subplots(figsize=(PAGE, 3.6))
        for name, found in paths.items():
            colour, marks = LOOKS[name]
            ax.plot(lengths, found, marks, color=COLOURS[colour], label=name)
        ax.set(xscale="log", yscale="log", xlabel="length n")
        ax.set_ylabel("steps between the ends")
        ax.set_xticks(lengths, lengths)
        ax.minorticks_off()
        ax.set_yticks([1, 3, 10, 30], [1, 3, 10, 30])
        ax.legend(loc="upper left")
    return show(
        figure,
        "Steps between both ends against the length: self-attention "
        "stays at 1, dilated convolutions climb by one for each factor "
        "of three, restricted attention and plain convolutions grow in "
        "proportion, recurrence has as many steps as positions.",
    )


def fading(sizes: Mapping[str, Tensor]) -> Picture:
    """The gradient from the last output to inputs at each distance."""
    with style():
        figure, ax = plt.subplots(figsize=(PAGE, 3.2))
        for name, size in sizes.items():
            colour, marks = LOOKS[name]
            line, colour = marks.lstrip("o"), COLOURS[colour]
            ax.semilogy(size / size.max(), line, color=colour, label=name)
        ax.set_xlabel("distance from the last position")
        ax.set_ylabel("gradient, largest = 1")
        log_ticks(ax.yaxis)
        ax.legend(loc="center right")
    return show(
        figure,
        "Size of the gradient against distance, logarithmic. Recurrent: "
        "it falls along a straight line. Self-attention: level.",
    )


def learnt(right: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """How often a stack says the first symbol, by its distance.

    `right` is {kind of layer: {distance: a share for each seed}}.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.3)
        for name, shares in right.items():
            colour, marks = LOOKS[name]
            distances = [int(distance) for distance in shares]
            means = [sum(each) / len(each) for each in shares.values()]
            colour = COLOURS[colour]
            ax.plot(distances, means, marks, color=colour, label=name)
            for i in range(len(next(iter(shares.values())))):
                seed = [each[i] for each in shares.values()]
                ax.scatter(distances, seed, s=10, color=colour, alpha=0.5)
        ax.axhline(1 / 8, color=COLOURS["muted"], linestyle=":")
        ax.text(distances[1], 0.02, "guessing among eight", va="bottom")
        ax.set(xscale="log", xlabel="distance", ylim=(0, 1.05))
        ax.set_xticks(distances, distances)
        ax.minorticks_off()
        ax.set_ylabel("share of rows right")
        figure.legend(ncols=2 if narrow else 4, loc="outside lower center")
        return figure

    told = "; ".join(
        f"{name} "
        + ", ".join(f"{sum(x) / len(x):.2f}" for x in shares.values())
        for name, shares in right.items()
    )
    return show(
        draw,
        "Share of rows whose first symbol is said at the end, by the "
        f"distance, mean of the seeds: {told}.",
    )


def sentence_lengths(corpora: Sequence[Mapping]) -> Markdown:
    """How long the sentences of each corpus are, in pieces."""
    names = {"multi30k": "Multi30k", "tatoeba": "Tatoeba"}
    names["little_spanish"] = "little Spanish"
    return Markdown(
        markdown_table(
            [
                {
                    "corpus": names[told["corpus"]],
                    "sentences": told["sentences"],
                    "pieces, mean": f"{told['mean']:.1f}",
                    "pieces, longest": told["longest"],
                    f"shorter than d = {told['d_model']}": (
                        f"{told['shorter'] / told['sentences']:.0%}"
                    ),
                }
                for told in corpora
            ]
        )
    )
