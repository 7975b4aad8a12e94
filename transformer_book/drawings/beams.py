"""What the chapter on beam search shows."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill

from transformer_book.figures import (
    COLOURS,
    WIDTH,
    Picture,
    Sketch,
    chart,
    show,
    width_of,
)

Ids = Sequence[int]


def ranks(
    outputs: Mapping[str, tuple[int, float]],
    divisor: Callable[[int, float], float],
    alphas: Sequence[float],
) -> Picture:
    """The rank of each output for some values of alpha, the best at the top.

    `outputs` has the tokens and the log-probability of each text. The
    longest output and the shortest have inks of their own.
    """

    def ranked(alpha: float) -> list[str]:
        def score(text: str) -> float:
            length, total = outputs[text]
            return total / divisor(length, alpha)

        return sorted(outputs, key=score, reverse=True)

    orders = [ranked(alpha) for alpha in alphas]
    longest = max(outputs, key=lambda text: outputs[text][0])
    shortest = min(outputs, key=lambda text: outputs[text][0])
    inks = {longest: COLOURS["target"], shortest: "black"}

    figure, ax = chart(380)
    for text, (length, _) in outputs.items():
        heights = [order.index(text) + 1 for order in orders]
        bold = text in inks
        ax.plot(
            heights,
            "o-",
            color=inks.get(text, COLOURS["muted"]),
            linewidth=3 if bold else 1.2,
            markersize=7 if bold else 4,
            zorder=3 if bold else 2,
        )
        told = f"{text} ({length}\u00a0tokens)"
        ax.annotate(
            fill(told, 24),
            (len(orders) - 1, heights[-1]),
            (10, 0),
            textcoords="offset points",
            va="center",
            color=inks.get(text, "black"),
            weight="bold" if bold else None,
        )
    ax.set_xlim(-0.2, 2.1 * len(orders) - 1.2)
    ax.set_xticks([])
    ax.set_ylim(len(outputs) + 0.5, 0)
    places = range(2, len(outputs) + 1)
    ax.set_yticks([0.1, 1, *places], ["α", "best", *map(str, places)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for place, alpha in enumerate(alphas):
        ax.text(place, 0.1, str(alpha), ha="center", va="center")

    said = " ".join(
        f"For {alpha}: {' '.join(order)}"
        for alpha, order in zip(alphas, orders, strict=True)
    )
    return show(
        figure,
        f"The order of {len(outputs)} outputs for each alpha, the best "
        f"first; lines join them from one alpha to the next. {said}",
    )


# What a box of a beam search is, in both of its pictures.
GOES_ON, ENDED = "target", "good"


def candidates(
    rows: Sequence[tuple[str, float, bool]], beam_size: int
) -> Picture:
    """The 2b best candidates of a step, and what becomes of each.

    A row is the words, the log-probability, and whether eos was added.
    """
    fates, going = [], 0
    for rank, (_, _, ends) in enumerate(rows):
        if ends:
            fates.append("ended" if rank < beam_size else "too late")
        elif going < beam_size:
            going += 1
            fates.append(f"goes on, {going} of {beam_size}")
        else:
            fates.append("dropped")
    inks = [
        ENDED if fate == "ended" else GOES_ON if "goes" in fate else "muted"
        for fate in fates
    ]

    step, top = 30, 40
    sketch = Sketch(WIDTH, top + step * len(rows) + 24)
    left, room = 34, 250  # of the boxes
    sketch.words(0, 12, "rank", "start")
    sketch.words(left + 6, 12, "candidate", "start")
    sketch.words(left + room + 14, 12, "fate", "start")
    for rank, (words, _, _) in enumerate(rows):
        y = top + step * rank + (28 if rank >= beam_size else 0)
        part = inks[rank]
        if len(words) > 36:
            words = "\u2026" + words[-35:]
        style = {} if part != "muted" else {"stroke_dasharray": "4 3"}
        sketch.words(22, y, str(rank + 1), "end")
        sketch.box(left + room / 2, y, "", part, room, 24, **style)
        sketch.words(left + 10, y, words, "start")
        sketch.words(
            left + room + 14,
            y,
            fates[rank],
            "start",
            colour=part if part != "muted" else "currentColor",
            font_weight="bold" if part != "muted" else "normal",
        )
    y = top + step * beam_size - 1
    ends = (0, y), (WIDTH, y)
    sketch.line(*ends, colour="muted", stroke_dasharray="2 4")
    told = "below this line an <eos> ends nothing"
    sketch.words(left + 6, y, told, "start")

    said = "; ".join(
        f"{rank}. {words}: {fate}"
        for rank, ((words, _, _), fate) in enumerate(
            zip(rows, fates, strict=True), 1
        )
    )
    return show(
        sketch,
        f"The {len(rows)} best candidates of one step of a beam of "
        f"{beam_size}, with a line below the first {beam_size}. {said}.",
    )


def tree(
    survivors: Sequence[Ids],
    ended: Mapping[tuple[int, ...], tuple[float, float]],
    best: Ids,
    pieces: Callable[[Ids], list[str]],
) -> Picture:
    """The tree of a beam search: what survived a step, what ended.

    `ended` has the log-probability of each hypothesis that closed with an
    eos, and what it is divided by.
    """
    best = tuple(best)
    nodes = dict.fromkeys([*map(tuple, survivors), *ended])
    last = len(survivors[-1])  # of tokens, when the search stopped
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
    depth = max(map(len, heights))

    def number(value: float) -> str:
        return f"{value:.2f}".replace("-", "\u2212")

    def text(node: Ids) -> str:
        return "".join(pieces(node)[:-1]).replace("▁", " ").strip()

    gap, room, down = 5, 9, 29
    widths = [0.0] * (depth + 1)
    for node in heights:
        length = width_of(names[node]) + room
        widths[len(node)] = max(widths[len(node)], length)
    middles = [
        sum(widths[:i]) + gap * i + widths[i] / 2 + 2 for i in range(depth + 1)
    ]
    sketch = Sketch(sum(widths) + gap * depth + 88, leaves * down + 4)

    def at(node):
        return middles[len(node)], (heights[node] + 0.5) * down + 2

    for node in sorted(heights, key=lambda n: n == best[: len(n)]):
        won = node == best[: len(node)]
        bold = {"font_weight": "bold" if won else "normal"}
        x, y = at(node)
        half = widths[len(node)] / 2
        if node:
            px, py = at(node[:-1])
            start = px + widths[len(node) - 1] / 2
            turn = x - half - gap / 2
            sketch.line(
                (start - 4, py),
                (turn, py),
                (turn, y),
                (x, y),
                width=3 if won else 1.2,
                colour="currentColor" if won else "muted",
            )
        part = ENDED if node in ended else GOES_ON if node else "muted"
        sketch.box(x, y, names[node], part, 2 * half, 23)
        beside = x + half + 8
        if node in ended:
            total, divisor = ended[node]
            score = f"score {number(total / divisor)}"
            sketch.words(beside, y, score, "start", **bold)
        elif node not in children:
            open_still = len(node) == last
            fate = "still open" if open_still else "crowded out"
            sketch.words(beside, y, fate, "start")

    return show(
        sketch,
        f"The tree of a beam search. Of {len(nodes) - len(ended)} "
        f"hypotheses that survived a step and {len(ended)} that ended, one "
        f"path leads to the best hypothesis: {text(best)}. The other "
        "branches ended with a lower score, were crowded out, or were still "
        "open at the end.",
    )
