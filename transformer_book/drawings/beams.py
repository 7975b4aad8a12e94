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
    named: tuple[str, str],
) -> Picture:
    """The rank of each output as alpha grows.

    `outputs` has the tokens and the log-probability of each text. Of the
    two that are `named`, the first overtakes the second.
    """
    alphas = [step / 50 for step in range(101)]

    def ranked(alpha: float) -> list[str]:
        def score(text: str) -> float:
            length, total = outputs[text]
            return total / divisor(length, alpha)

        return sorted(outputs, key=score, reverse=True)

    orders = [ranked(alpha) for alpha in alphas]
    climbs, sinks = named
    ahead = [order.index(climbs) < order.index(sinks) for order in orders]
    meet = ahead.index(True)
    height = (orders[meet].index(climbs) + orders[meet].index(sinks)) / 2 + 1
    inks = {climbs: COLOURS["target"], sinks: "black"}

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=4.0 if narrow else 3.0)
        for text, (length, _) in outputs.items():
            ranks = [order.index(text) + 1 for order in orders]
            known = text in named
            told = f"{text} ({length}\u00a0tokens)"
            ax.plot(
                alphas,
                ranks,
                color=inks.get(text, COLOURS["muted"]),
                linewidth=3 if known else 1.2,
                zorder=3 if known else 2,
            )
            ax.annotate(
                fill(told, 22) if narrow else told,
                (alphas[-1], ranks[-1]),
                (8, 0),
                textcoords="offset points",
                va="center",
                color=inks.get(text, "black"),
                weight="bold" if known else None,
            )
        ax.text(
            alphas[meet] + 0.16,
            height,
            "overtakes" if narrow else "the longer one overtakes",
            va="center",
        )
        ax.axvline(0.6, color="black", linewidth=1, linestyle=":")
        below = len(outputs) + 0.55
        ax.text(0.64, below, "the paper's 0.6", va="center")
        ax.set_yticks(range(1, len(outputs) + 1))
        ax.set_ylim(len(outputs) + 0.8, 0.4)
        ax.set(xlim=(0, 4.8 if narrow else 3.7), ylabel="rank")
        ax.set_xticks([0, 1, 2] if narrow else [0, 0.5, 1, 1.5, 2])
        ax.spines["bottom"].set_bounds(0, 2)
        ax.set_xlabel("α", x=1 / ax.get_xlim()[1])
        return figure

    first, last = orders[0], orders[-1]
    return show(
        draw,
        "Lines of rank as alpha grows from 0 to 2. At 0 the order is "
        f"{'; '.join(first)} At 2 it is {'; '.join(last)} At "
        f"{alphas[meet]:.1f} {climbs} overtakes {sinks}",
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

    def draw(narrow: bool) -> Sketch:
        step = 30
        width = (PHONE if narrow else PAGE) * 96
        head = 0 if narrow else 24
        sketch = Sketch(width, head + step * len(rows) + 38)
        room = width - (126 if narrow else 250)
        if not narrow:
            sketch.words(room + 22, 10, "log-probability", "start")
        for rank, (words, total, _) in enumerate(rows):
            y = head + 18 + step * rank + (32 if rank >= beam_size else 0)
            part = inks[rank]
            if narrow and len(words) > 26:
                words = "\u2026" + words[-25:]
            style = {} if part != "muted" else {"stroke_dasharray": "4 3"}
            sketch.box(room / 2 + 28, y, words, part, room - 30, 24, **style)
            sketch.words(6, y, str(rank + 1), "start")
            place = room + 22
            told = f"{total:.2f}".replace("-", "\u2212")
            if not narrow:
                sketch.words(place, y, told, "start")
                place += 110
            sketch.words(
                place,
                y,
                fates[rank],
                "start",
                colour=part if part != "muted" else "currentColor",
                font_weight="bold" if part != "muted" else "normal",
            )
        y = head + 18 + step * beam_size
        sketch.line((0, y), (width, y), colour="muted", stroke_dasharray="2 4")
        told = "only above this line does an eos end a sentence"
        if narrow:
            told = "only above this line an eos ends"
        sketch.words(room / 2 + 28, y, told, font_style="italic")
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
        width = sum(widths) + gap * depth + (54 if narrow else 4)
        top = 0 if narrow else 20
        if not narrow:  # beside what has ended stands its sentence
            needed = [
                middles[len(node)] + 0.52 * SIZE * len(text(node))
                for node in ended
            ]
            width = max(width, PAGE * 96, *(each + 150 for each in needed))
        sketch = Sketch(width, top + leaves * down + 4)
        totals = width - 58  # the right end of a column
        if not narrow:
            sketch.words(totals, 10, "log-probability", "end")
            sketch.words(width, 10, "score", "end")

        def at(node):
            y = (heights[node] + 0.5) * down + 2
            return middles[len(node)], top + y

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
                score = number(total / divisor)
                if narrow:
                    sketch.words(beside, y, score, "start", **bold)
                    continue
                sketch.words(totals, y, number(total), "end", **bold)
                sketch.words(width, y, score, "end", **bold)
                bold["font_style"] = "italic"
                sketch.words(beside, y, text(node), "start", **bold)
            elif node not in children and not narrow:
                open_still = len(node) == last
                fate = "still open" if open_still else "crowded out"
                sketch.words(beside, y, fate, "start")
        return sketch

    return show(
        draw,
        f"The tree of a beam search. Of {len(nodes) - len(ended)} "
        f"hypotheses that survived a step and {len(ended)} that ended, one "
        f"path leads to the best hypothesis: {text(best)}. The other "
        "branches were crowded out, or were still open at the end.",
    )
