"""What the chapter on tokenization shows."""

from collections.abc import Mapping, Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)

NAMES = {"de": "German", "en": "English", "es": "Spanish"}


def staircase(states: Sequence[Sequence[str]]) -> Picture:
    """The symbols of a word after each merge, the new one coloured."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        gap, left, down = 4, (4 if narrow else 90), 28
        letters = sum(map(len, states[0]))
        room = wide - left - 4 - gap * (len(states[0]) - 1)
        letter = min(36, room / letters)
        sketch = Sketch(wide, len(states) * down + 4)
        before: Sequence[str] = states[0]
        for row, state in enumerate(states):
            x, y, rest = left, (row + 0.5) * down + 2, list(before)
            if not narrow:
                name = f"merge {row}" if row else "bytes"
                sketch.words(0, y, name, "start")
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
        return sketch

    steps = "; ".join(" ".join(state) for state in states)
    return show(draw, f"A word merged, a row for each step: {steps}.")


def lengths_by_size(
    sizes: Sequence[int],
    tokens: Mapping[str, Sequence[float]],
    words: float,
) -> Picture:
    """Tokens per sentence by size of vocabulary; `words` are German."""
    looks = {0: ("encoder", "o-"), 1: ("decoder", "s-")}

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        for number, (language, lengths) in enumerate(tokens.items()):
            colour, marks = looks[number]
            ax.plot(sizes, lengths, marks, color=COLOURS[colour])
            place, lift = (1, 3) if number == 0 else (3, -7)
            ax.text(
                sizes[place] * (1.06 if number == 0 else 1),
                lengths[place] + lift,
                NAMES.get(language, language),
                color=COLOURS[colour],
                ha="left" if number == 0 else "right",
            )
        ax.axhline(words, color=COLOURS["muted"], linestyle=":")
        ax.text(sizes[0], words - 1.5, "German, in words", va="top")
        ax.set_xscale("log")
        ticks = [
            size for size in (300, 1000, 3000, 10_000) if size <= sizes[-1]
        ]
        ax.set_xticks(ticks, [f"{size:,}" for size in ticks])
        ax.minorticks_off()
        ax.set(xlabel="tokens in the vocabulary", ylim=(0, None))
        ax.set_ylabel("tokens per sentence")
        return figure

    return show(
        draw,
        "Tokens per test sentence against the size of the vocabulary, on "
        "a logarithmic scale. Both curves fall steeply and then become level "
        f"above a dotted line: a German sentence has {words:.1f} words.",
    )
