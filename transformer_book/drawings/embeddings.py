"""What the chapter on embeddings shows."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    Picture,
    heatmap,
    panels,
    show,
)


def lookup(
    said: Sequence[str],
    names: Sequence[str],
    one_hot: Tensor,
    table: Tensor,
    vectors: Tensor,
) -> Picture:
    """One-hot rows, times a table, give the rows that were picked."""
    dims = range(table.size(1))
    across = [len(names), len(dims), len(dims)]

    def draw(narrow: bool):
        if narrow:
            figure, axes = panels(3, True, 2.6, height_ratios=[5, 10, 4])
        else:
            figure, axes = panels(3, False, 3.0, width_ratios=across)
        ends = (-2, 2)
        words = ("token of the sentence", "token of the vocabulary")
        heatmap(
            one_hot,
            said,
            names,
            "one-hot",
            ax=axes[0],
            cmap="encoder",
            axes=words,
        )
        dimension = ("", "dimension")
        heatmap(table, names, dims, "table", axes[1], ends, axes=dimension)
        heatmap(vectors, said, dims, "vectors", axes[2], ends, axes=dimension)
        for ax in axes[:2]:
            ax.images[0].colorbar.remove()
        return figure

    return show(
        draw,
        f"Three matrices. {len(said)} one-hot rows, for "
        f"{', '.join(said)}, times a table with a row for each of "
        f"{len(names)} tokens give as many vectors: the table's rows "
        "for these tokens, in this order.",
    )


def gradients_by_job(
    words: Sequence[str],
    gradients: Mapping[str, Tensor],
    labels: Collection[int],
) -> Picture:
    """By job of the table, how long the gradient of each row is."""
    looks = {"source": "encoder", "target": "decoder", "softmax": "muted"}

    def draw(narrow: bool):
        # below one another on both: the tokens are the same
        figure, axes = panels(3, True, height=1.35, sharex=True)
        if not narrow:
            figure.set_figwidth(PAGE)
        for ax, (job, gradient) in zip(axes, gradients.items(), strict=True):
            shades = [COLOURS[looks[job]]] * len(words)
            for i in labels if job == "softmax" else ():
                shades[i] = COLOURS["good"]
            force = gradient.norm(dim=1)
            ax.bar(range(len(words)), force, color=shades)
            ax.set_title(f"as the {job} table", loc="left")
            ax.set(ylim=(0, 1.15 * float(force.max())))
        axes[2].set_xticks(range(len(words)), words, rotation=50)
        figure.supylabel("length of the gradient", fontsize="medium")
        return figure

    return show(
        draw,
        f"Bars for {len(words)} tokens in three rows. From the source "
        "only its four tokens get a gradient; from the target only its "
        "four; from the softmax every token, the four that come next in "
        "green.",
    )
