"""What the chapter on the translator shows."""

from collections.abc import Sequence

from torch import Tensor

from transformer_book.figures import PAGE, PHONE, Picture, Sketch, show


def looks(
    predicted: Sequence[str],
    source: Sequence[str],
    weights: Tensor,
    strong: tuple[str, str],
    least: float = 0.1,
) -> Picture:
    """Where the decoder looks when it chooses each token.

    `weights` is (target_len, source_len); row i chose `predicted[i]`.
    Of the two tokens that are `strong`, written and read, the first has
    strong lines. Weights below `least` are not drawn.
    """
    there = [word.strip("▁") for word in source]
    chosen = [word.strip("▁") for word in predicted]
    lines = [
        (i, j, float(weights[i, j]))
        for i in range(len(chosen))
        for j in range(len(there))
        if weights[i, j] >= least
    ]

    def draw(narrow: bool) -> Sketch:
        if narrow:
            step = 26
            sketch = Sketch(PHONE * 96, step * len(chosen) + 8)
            left, right = 100, PHONE * 96 - 90
            across = step * len(chosen) / len(there)

            def start(i: int) -> tuple[float, float]:
                return left, step * (i + 0.5)

            def end(j: int) -> tuple[float, float]:
                return right, across * (j + 0.5)
        else:
            width = PAGE * 96
            sketch = Sketch(width, 170)

            def start(i: int) -> tuple[float, float]:
                return width * (i + 0.5) / len(chosen), 136

            def end(j: int) -> tuple[float, float]:
                return width * (j + 0.5) / len(there), 30

        for i, j, weight in lines:
            sketch.line(
                start(i),
                end(j),
                colour="attention",
                width=0.6 + 6 * weight,
                stroke_opacity=1 if chosen[i] == strong[0] else 0.2,
            )
        for i, word in enumerate(chosen):
            x, y = start(i)
            look = {"colour": "target"}
            look["font_weight"] = "bold" if word == strong[0] else "normal"
            place = (x - 6, y, word, "end") if narrow else (x, y + 14, word)
            sketch.words(*place, **look)
        for j, word in enumerate(there):
            x, y = end(j)
            place = (x + 6, y, word, "start") if narrow else (x, y - 14, word)
            look = {"colour": "source"}
            look["font_weight"] = "bold" if word == strong[1] else "normal"
            sketch.words(*place, **look)
        return sketch

    pairs = ", ".join(
        f"{chosen[i]} at {there[j]} ({weight:.0%})" for i, j, weight in lines
    )
    return show(
        draw,
        "From each token of the translation lines to the tokens of the "
        f"source at which the decoder looked, {strong[0]}'s lines strong: "
        f"{pairs}.",
    )
