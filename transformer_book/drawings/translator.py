"""What the chapter on the translator shows."""

from collections.abc import Sequence

from torch import Tensor

from transformer_book.figures import (
    WIDTH,
    Picture,
    Sketch,
    columns,
    show,
    width_of,
)


def looks(
    predicted: Sequence[str],
    source: Sequence[str],
    weights: Tensor,
    strong: tuple[str, str],
) -> Picture:
    """Where the decoder looks when it chooses each token.

    `weights` is (target_len, source_len); row i chose `predicted[i]`.
    Of the two tokens that are `strong`, written and read, the first has
    strong lines. Weights below a tenth are not drawn.
    """
    there = [word.strip("▁") for word in source]
    chosen = [word.strip("▁") for word in predicted]
    shown = weights.where(weights >= 0.1, 0.0).tolist()
    rows = [word == strong[0] for word in chosen]
    lit = rows.index(True)
    down = 27
    sketch = Sketch(WIDTH, down * max(len(chosen), len(there)) + 4)
    height = sketch.height - 4
    left = max(map(width_of, chosen)) + 12
    right = WIDTH - max(map(width_of, there)) - 12
    here = columns(len(chosen), 2, height)
    beyond = columns(len(there), 2, height)
    ends = left, right
    sketch.ribbons(here, beyond, shown, ends, 18, lit, sideways=True)
    for i, (y, word) in enumerate(zip(here, chosen, strict=True)):
        bold = {"font_weight": "bold"} if i == lit else {}
        sketch.words(left - 6, y, word, "end", "target", **bold)
    for y, word in zip(beyond, there, strict=True):
        bold = {"font_weight": "bold"} if word == strong[1] else {}
        sketch.words(right + 6, y, word, "start", "source", **bold)
    pairs = ", ".join(
        f"{word} {weight:.0%}"
        for word, weight in zip(there, shown[lit], strict=True)
        if weight
    )
    return show(
        sketch,
        "From each token of the translation lines to the tokens of the "
        f"source at which the decoder looked, {strong[0]}'s lines strong: "
        f"{pairs}.",
    )
