"""What the chapter on beam search shows."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    SIZE,
    Picture,
    Sketch,
    panels,
    show,
)

Ids = Sequence[int]


def overtaking(
    outputs: Mapping[str, tuple[int, float]],
    divisor: Callable[[int, float], float],
    named: Sequence[str],
) -> Picture:
    """The rank of each output as alpha grows; two of them stand out.

    `outputs` has the tokens and the log-probability of each text.
    """
    alphas = [step / 50 for step in range(101)]

    def ranked(alpha: float) -> list[str]:
        def score(text: str) -> float:
            length, total = outputs[text]
            return total / divisor(length, alpha)

        return sorted(outputs, key=score, reverse=True)

    orders = [ranked(alpha) for alpha in alphas]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6 if narrow else 3.0)
        for text in outputs:
            ranks = [order.index(text) + 1 for order in orders]
            known = text in named
            ink = COLOURS["target" if known else "muted"]
            ax.plot(alphas, ranks, color=ink, linewidth=3 if known else 1.5)
            ax.annotate(
                fill(text, 20) if narrow else text,
                (alphas[-1], ranks[-1]),
                (8, 0),
                textcoords="offset points",
                va="center",
                weight="bold" if known else None,
            )
        ax.axvline(0.6, color="black", linewidth=1, linestyle=":")
        ax.text(0.56, len(outputs) + 0.5, "0.6 ", ha="right", va="center")
        ax.set_yticks(range(1, len(outputs) + 1))
        ax.set_ylim(len(outputs) + 0.8, 0.4)
        ax.set(xlim=(0, 4.6 if narrow else 3.5), ylabel="rank")
        ax.set_xticks([0, 1, 2] if narrow else [0, 0.5, 1, 1.5, 2])
        ax.set_xlabel("α", loc="left")
        return figure

    first, last = orders[0], orders[-1]
    return show(
        draw,
        "Lines of rank as alpha grows from 0 to 2. At 0 the order is "
        f"{'; '.join(first)} At 2 it is {'; '.join(last)}",
    )


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
            fates.append("goes on")
        else:
            fates.append("dropped")
    inks = {"goes on": "target", "ended": "good"}

    def draw(narrow: bool) -> Sketch:
        step = 30
        width = (PHONE if narrow else PAGE) * 96
        sketch = Sketch(width, step * len(rows) + 34)
        room = width - (108 if narrow else 220)
        for rank, (words, total, _) in enumerate(rows):
            y = 20 + step * rank + (22 if rank >= beam_size else 0)
            part = inks.get(fates[rank], "muted")
            if narrow and len(words) > 29:
                words = "\u2026" + words[-28:]
            style = {} if part != "muted" else {"stroke_dasharray": "4 3"}
            sketch.box(room / 2 + 28, y, words, part, room - 30, 24, **style)
            sketch.words(6, y, str(rank + 1), "start")
            place = room + 22
            told = f"{total:.2f}".replace("-", "\u2212")
            if not narrow:
                sketch.words(place, y, told, "start")
                place += 56
            sketch.words(
                place,
                y,
                fates[rank],
                "start",
                colour=part if part != "muted" else "currentColor",
                font_weight="bold" if part != "muted" else "normal",
            )
        y = 20 + step * beam_size - 4
        sketch.line((0, y), (width, y), colour="muted", stroke_dasharray="2 4")
        return sketch

    said = "; ".join(
        f"{rank}. {words}: {fate}"
        for rank, ((words, _, _), fate) in enumerate(
            zip(rows, fates, strict=True), 1
        )
    )
    return show(
        draw,
        f"The {len(rows)} best candidates of one step of a beam of "
        f"{beam_size}, with a line below the first {beam_size}. {said}.",
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

    def draw(narrow: bool) -> Sketch:
        gap, room, down = (8, 7, 29) if narrow else (12, 16, 29)
        widths = [0.0] * (depth + 1)
        for node in heights:
            length = 0.56 * SIZE * len(names[node]) + room
            widths[len(node)] = max(widths[len(node)], length)
        middles = [
            sum(widths[:i]) + gap * i + widths[i] / 2 + 2
            for i in range(depth + 1)
        ]
        width = sum(widths) + gap * depth + 4
        if not narrow:  # beside what has ended stands its sentence
            width = max(width, PAGE * 96)
        sketch = Sketch(width, leaves * down + 4)

        def at(node):
            return middles[len(node)], (heights[node] + 0.5) * down + 2

        for node in sorted(heights, key=lambda n: n == best[: len(n)]):
            won = node == best[: len(node)]
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
                    width=2.4 if won else 1.2,
                    colour="good" if won else "muted",
                )
            part = "decoder" if node in ended else "muted"
            sketch.box(
                x, y, names[node], "good" if won else part, 2 * half, 23
            )
            if node in ended and not narrow:
                text = "".join(pieces(node)[:-1]).replace("▁", " ")
                weight = "bold" if won else "normal"
                style = {"font_style": "italic", "font_weight": weight}
                sketch.words(x + half + 8, y, text, "start", **style)
        return sketch

    return show(
        draw,
        f"The tree of a beam search. Of {len(nodes) - len(ended)} "
        f"hypotheses that survived a step and {len(ended)} that ended, one "
        "path leads to the best hypothesis: "
        f"{''.join(pieces(best)[:-1]).replace('▁', ' ')}.",
    )
