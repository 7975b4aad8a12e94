"""What the chapter on beam search shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_book.figures import (
    COLOURS,
    SIZE,
    Picture,
    Sketch,
    altair,
    show,
)

Ids = Sequence[int]


def ranks_to_move(rows: Sequence[tuple[str, int, float]], alpha: float) -> Any:
    """Hypotheses (text, tokens, log-probability) by score: altair.

    A slider sets alpha, from 0 to 2.
    """
    import pandas as pd

    alt = altair()

    head = ["hypothesis", "tokens", "log_probability"]
    slider = alt.param(
        name="alpha",
        value=alpha,
        bind=alt.binding_range(min=0, max=2, step=0.1, name="alpha "),
    )
    return (
        alt.Chart(
            pd.DataFrame(rows, columns=head),
            width=230,
            description="Bars with the scores of several hypotheses. A "
            "slider sets alpha; as it grows, longer ones move up.",
        )
        .mark_bar(color=COLOURS["decoder"])
        .encode(
            x=alt.X("score:Q", title="score").axis(tickCount=6),
            y=alt.Y("hypothesis:N", title=None, sort="-x").axis(
                labelLimit=220
            ),
            tooltip=[*head, "score:Q"],
        )
        .transform_calculate(
            score="datum.log_probability / pow((5 + datum.tokens) / 6, alpha)"
        )
        .add_params(slider)
    )


def tree(
    survivors: Sequence[Ids],
    ended: Mapping[tuple[int, ...], float],
    best: Ids,
    pieces: Callable[[Ids], list[str]],
) -> Picture:
    """The tree of a beam search: what survived a step, what ended.

    `ended` has the score of each hypothesis that closed with an eos.
    """
    best = tuple(best)
    nodes = dict.fromkeys([*map(tuple, survivors), *ended])
    children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for node in nodes:
        children.setdefault(node[:-1], []).append(node)
    heights: dict[tuple[int, ...], float] = {}
    leaves = 0

    def place(node: tuple[int, ...]) -> float:
        nonlocal leaves
        below = [place(child) for child in children.get(node, [])]
        if not below:
            below, leaves = [leaves], leaves + 1
        heights[node] = sum(below) / len(below)
        return heights[node]

    place(())
    names = {(): "<bos>"}
    for node in nodes:
        names[node] = pieces(node)[-1].strip("▁") or "▁"
        if node in ended:
            names[node] = f"{ended[node]:.2f}".replace("-", "−")
    depth = max(map(len, heights))
    widths = [0.0] * (depth + 1)
    for node in heights:
        length = 0.56 * SIZE * len(names[node]) + 16
        widths[len(node)] = max(widths[len(node)], length)
    gap, down = 12, 29
    middles = [
        sum(widths[:i]) + gap * i + widths[i] / 2 + 2 for i in range(depth + 1)
    ]
    sketch = Sketch(sum(widths) + gap * depth + 4, leaves * down + 4)

    def at(node):
        return middles[len(node)], (heights[node] + 0.5) * down + 2

    for node in sorted(heights, key=lambda node: node == best[: len(node)]):
        won = node == best[: len(node)]
        x, y = at(node)
        if node:
            px, py = at(node[:-1])
            start = px + widths[len(node) - 1] / 2
            turn, end = x - widths[len(node)] / 2 - gap / 2, x
            colour = "good" if won else "muted"
            sketch.line(
                (start - 4, py),
                (turn, py),
                (turn, y),
                (end, y),
                width=2.4 if won else 1.2,
                colour=colour,
            )
        part = "decoder" if node in ended else "muted"
        width = widths[len(node)]
        sketch.box(x, y, names[node], "good" if won else part, width, 23)
    return show(
        sketch,
        f"The tree of a beam search. Of {len(nodes) - len(ended)} "
        f"hypotheses that survived a step and {len(ended)} that ended, one "
        "path leads to the best hypothesis: "
        f"{''.join(pieces(best)[:-1]).replace('▁', ' ')}.",
    )
