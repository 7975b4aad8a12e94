"""What the chapter on the translator shows."""

from collections.abc import Sequence

from torch import Tensor

from transformer_book.figures import PAGE, PHONE, Picture, Sketch, show


def looks(
    predicted: Sequence[str], source: Sequence[str], weights: Tensor
) -> Picture:
    """Where the decoder looks most when it chooses each token.

    `weights` is (target_len, source_len); row i chose `predicted[i]`.
    """
    there = [word.strip("▁") for word in source]
    chosen = [word.strip("▁") for word in predicted]
    best = weights.argmax(-1).tolist()

    def draw(narrow: bool) -> Sketch:
        if narrow:
            step = 24
            sketch = Sketch(PHONE * 96, step * len(chosen) + 8)
            left, right = 100, PHONE * 96 - 90
            across = step * len(chosen) / len(there)

            def start(i: int) -> tuple[float, float]:
                return left, step * (i + 0.5)

            def end(j: int) -> tuple[float, float]:
                return right, across * (j + 0.5)
        else:
            width = PAGE * 96
            sketch = Sketch(width, 150)

            def start(i: int) -> tuple[float, float]:
                return width * (i + 0.5) / len(chosen), 116

            def end(j: int) -> tuple[float, float]:
                return width * (j + 0.5) / len(there), 30

        for i, word in enumerate(chosen):
            x, y = start(i)
            sketch.line(
                (x, y),
                end(best[i]),
                colour="attention",
                width=0.8 + 3.6 * float(weights[i, best[i]]),
            )
            place = (x - 6, y, word, "end") if narrow else (x, y + 12, word)
            sketch.words(*place, colour="target")
        for j, word in enumerate(there):
            x, y = end(j)
            place = (x + 6, y, word, "start") if narrow else (x, y - 12, word)
            sketch.words(*place, colour="source")
        return sketch

    pairs = ", ".join(
        f"{word} at {there[j]}" for word, j in zip(chosen, best, strict=True)
    )
    return show(
        draw,
        "From each token of the translation a line to the token of the "
        f"source at which the decoder looked most: {pairs}.",
    )
