"""What the chapter on tokenization shows."""

from collections.abc import Sequence

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)


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
    sizes: Sequence[int], tokens: Sequence[float], words: float
) -> Picture:
    """Tokens of a German sentence by size of vocabulary, and `words`."""
    at = dict(zip(sizes, tokens, strict=True))
    first, early, late, last = sizes[0], 1000, 4000, sizes[-1]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        ink = COLOURS["encoder"]
        ax.plot(sizes, tokens, color=ink)
        ax.plot([early, late], [at[early], at[late]], "o", color=ink)
        told = (
            f"from {first} to {early:,}, with {early - first} merges:\n"
            f"from {at[first]:.0f} tokens to {at[early]:.0f}"
        )
        ax.text(early + 250, (at[first] + at[early]) / 2, told)
        told = (
            f"with the last {last - late:,} merges:\n"
            f"from {at[late]:.0f} to {at[last]:.0f}"
        )
        ax.text((late + last) / 2, at[late] + 3, told, ha="center")
        ax.axhline(words, color=COLOURS["muted"], linestyle=":")
        ax.text(last, words - 1.5, f"{words:.1f} words", ha="right", va="top")
        ticks = [early, late, 7000, last]
        ax.set_xticks(ticks, [f"{size:,}" for size in ticks])
        ax.set(xlabel="tokens in the vocabulary", ylim=(0, None))
        ax.set_ylabel("tokens per German sentence")
        return figure

    return show(
        draw,
        "Tokens per German test sentence against the size of the vocabulary. "
        f"The curve falls like a cliff, from {at[first]:.0f} tokens to "
        f"{at[early]:.0f} at {early:,}, and is then nearly level: "
        f"{at[late]:.0f} at {late:,}, {at[last]:.0f} at {last:,}. It stays "
        f"above a dotted line: a sentence has {words:.1f} words.",
    )
