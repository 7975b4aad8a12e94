"""What the chapter on tokenization shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    WIDTH,
    Picture,
    Sketch,
    chart,
    show,
)


def staircase(states: Sequence[Sequence[str]]) -> Picture:
    """The symbols of a word after each merge, the new one coloured."""

    gap, left, down = 4, (4), 28
    letters = sum(map(len, states[0]))
    room = WIDTH - left - 4 - gap * (len(states[0]) - 1)
    letter = min(36, room / letters)
    sketch = Sketch(WIDTH, len(states) * down + 4)
    before: Sequence[str] = states[0]
    for row, state in enumerate(states):
        x, y, rest = left, (row + 0.5) * down + 2, list(before)
        for symbol in state:
            is_new = symbol not in rest
            if not is_new:
                rest.remove(symbol)
            width = letter * len(symbol) + gap * (len(symbol) - 1)
            part = "good" if is_new else "muted"
            look = {} if is_new else {"fill_opacity": 0.08}
            sketch.box(x + width / 2, y, symbol, part, width, 22, **look)
            x += width + gap
        before = state

    steps = "; ".join(" ".join(state) for state in states)
    return show(sketch, f"A word merged, a row for each step: {steps}.")


def lengths_by_merges(lengths: Mapping[int, float], words: float) -> Picture:
    """Tokens of a German sentence by merges made, and its `words`."""
    bars = {"no merge": lengths[0]}
    bars |= {f"{m:,} merges": length for m, length in lengths.items() if m}
    bars["words"] = words

    figure, ax = chart(250)
    inks = [COLOURS["encoder"]] * len(lengths) + [COLOURS["muted"]]
    drawn = ax.barh([*bars], bars.values(), 0.7, color=inks)
    numbers = [f"{length:.0f}" for length in bars.values()]
    ax.bar_label(drawn, numbers, padding=5)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.spines["bottom"].set_visible(False)
    ax.set(xticks=[], title="tokens in a German sentence")

    said = ", ".join(f"{name} {length:.0f}" for name, length in bars.items())
    return show(figure, f"Bars of the tokens in a German sentence: {said}.")
