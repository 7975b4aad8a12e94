"""What the chapter on embeddings shows."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
    PAPER,
    PHONE,
    Picture,
    Sketch,
    panels,
    show,
)


def neighbours(
    near: Mapping[str, Sequence[tuple[str, float]]],
    translations: Mapping[str, tuple[str, float]],
) -> Picture:
    """Tokens, and where their nearest and their translation lie.

    Each has a line of cosines, from -0.35 to 0.6.
    """
    low, high = -0.35, 0.6

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        step = 92 if narrow else 58
        left, right = (8, wide - 8) if narrow else (122, wide - 12)
        top = 88 if narrow else 66
        bottom = top + step * (len(near) - 1) + 30
        sketch = Sketch(wide, bottom + 48)

        def place(cosine: float) -> float:
            return left + (right - left) * (cosine - low) / (high - low)

        ring = {"stroke": "currentColor", "stroke_width": 1.4}
        edge = {"stroke": PAPER, "stroke_width": 1}
        zero = place(0)
        sketch.line(
            (zero, 24), (zero, bottom), colour="muted", stroke_dasharray="3 4"
        )
        told = "its five nearest, in order"
        sketch.words(right, 12, told, "end")
        # the legend's dot has the dots' ink
        sketch.dot(right - 5.3 * len(told) - 10, 12, "embedding", 4)
        sketch.words(zero, 12, "○ its translation")
        for row, (token, found) in enumerate(near.items()):
            y = top + step * row
            other, cosine = translations[token]
            # from left to right, as their dots are
            names = [name.strip("▁") for name, _ in reversed(found)]
            sketch.line((left, y), (right, y), colour="muted")
            at = (46, y - 38) if narrow else (50, y)
            sketch.box(*at, token.strip("▁"), "embedding", width=88)
            lines = [", ".join(names)]
            if narrow:
                lines = [", ".join(names[:3]) + ",", ", ".join(names[3:])]
            for number, line in enumerate(reversed(lines)):
                sketch.words(right, y - 18 - 18 * number, line, "end")
            for _, x in found:
                sketch.dot(place(x), y, "embedding", 4, **edge)
            sketch.dot(place(cosine), y, "none", 5, **ring)
            sketch.words(place(cosine), y + 18, other.strip("▁"))
        sketch.line((left, bottom), (right, bottom))
        for tick in (-0.3, 0, 0.3, 0.6):
            x = place(tick)
            sketch.line((x, bottom), (x, bottom + 5))
            name = f"{tick:g}".replace("-", "−")
            sketch.words(x, bottom + 16, name, size=12)
        sketch.words((left + right) / 2, bottom + 36, "cosine")
        return sketch

    told = "; ".join(
        f"{token.strip('▁')}: "
        + ", ".join(f"{name.strip('▁')} {x:.2f}" for name, x in found)
        + f"; its translation {translations[token][0].strip('▁')} "
        + f"{translations[token][1]:.2f}"
        for token, found in near.items()
    )
    return show(
        draw,
        f"A line of cosines for each of {len(near)} tokens, with dots for its "
        "five nearest, far on the right, and a ring for its translation, "
        f"far to the left of them. {told}.".replace(" -", " −"),
    )


def lookup(
    said: Sequence[str],
    names: Sequence[str],
    ids: Sequence[int],
    table: Tensor,
) -> Picture:
    """One-hot rows times a table, whose picked rows are the product."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        line, head = 24, 46
        sketch = Sketch(wide, head + line * len(names) + 4)
        cell = 9 if narrow else 22
        first = 40 if narrow else 50
        number = 17 if narrow else 40
        body = first + cell * len(names) + (54 if narrow else 76)
        gap = 16 if narrow else 46
        result = body + number * table.size(1) + gap
        level = head + line * len(names) / 2
        rows = [
            level + line * (k + 0.5 - len(said) / 2) for k in range(len(said))
        ]
        edge = first + cell * len(names)
        sketch.words((first + edge) / 2, 12, "one-hot", font_weight="bold")
        middle = body + number * table.size(1) / 2
        sketch.words(middle, 12, "table", font_weight="bold")
        middle = result + number * table.size(1) / 2
        sketch.words(middle, 12, "vectors", font_weight="bold")
        sketch.words((edge + body) / 2, 12, "×", size=17)
        sketch.words(result - gap / 2, 12, "=", size=17)
        for y, word, place in zip(rows, said, ids, strict=True):
            sketch.words(first - 6, y, word, "end")
            for j in range(len(names)):
                x = first + cell * (j + 0.5)
                lit = j == place
                sketch.box(
                    x,
                    y,
                    "",
                    "source",
                    width=cell - 1,
                    height=line - 4,
                    fill_opacity=0.8 if lit else 0.04,
                    stroke_opacity=1 if lit else 0.4,
                )
                if lit and not narrow:
                    sketch.words(x, y, "1", size=12)
                    sketch.words(x, rows[0] - line, names[j], size=12)

        def numbers(row, left, y, lit):
            for column, value in enumerate(row.tolist()):
                x = left + number * (column + 0.5)
                look = dict(width=number - 2, height=line - 5)
                strength = 0.45 if lit else 0.06
                value = round(value, 1) or 0.0  # and no "−0.0"
                sketch.box(
                    x, y, "", "embedding", fill_opacity=strength, **look
                )
                if lit and not narrow:
                    words = f"{value:.1f}".replace("-", "−")
                    sketch.words(x, y, words, size=12)

        for i, name in enumerate(names):
            y = head + line * (i + 0.5)
            sketch.words(body - 6, y, name, "end", size=12)
            numbers(table[i], body, y, i in ids)
        right = body + number * table.size(1)
        for y, place in zip(rows, ids, strict=True):
            start = right, head + line * (place + 0.5)
            sketch.line(start, (result - 1, y), colour="embedding")
            numbers(table[place], result, y, True)
        return sketch

    return show(
        draw,
        f"A one-hot matrix with a row for each of {', '.join(said)}, in "
        f"which a single 1 names a token, times a table with a row for each "
        f"of {len(names)} tokens. The rows of the table that the ones name "
        "are lit, and in the order of the sentence they are the product.",
    )


def gradients_by_job(
    words: Sequence[str],
    gradients: Mapping[str, Tensor],
    labels: Collection[int],
) -> Picture:
    """By job of the table, how long the gradient of each row is.

    Before the softmax, bars of `labels` go up and all others down.
    """
    told = {
        "source": "as the source table: the four tokens that were read",
        "target": "as the target table: the four tokens that were read",
        "softmax": "as the softmax table: all",
    }
    forces = {job: rows.norm(dim=1) for job, rows in gradients.items()}
    most = 1.15 * max(force.max().item() for force in forces.values())

    def draw(narrow: bool):
        # below one another on both: the tokens are the same
        figure, axes = panels(
            3,
            True,
            height=1.45,
            sharex=True,
            gridspec_kw={"height_ratios": [1, 1, 1.6]},
        )
        if not narrow:
            figure.set_figwidth(PAGE)
        for ax, (job, force) in zip(axes, forces.items(), strict=True):
            heights = force.tolist()
            if job == "softmax":
                heights = [
                    height if i in labels else -height
                    for i, height in enumerate(heights)
                ]
                ax.axhline(0, color="black", linewidth=0.8)
                ax.text(-0.4, 0.6 * most, "pulled nearer")
                ax.text(-0.4, -0.85 * most, "pushed away")
            ax.bar(range(len(words)), heights, color=COLOURS["embedding"])
            ax.set_title(told[job], loc="left")
            ax.set(ylim=(-most if job == "softmax" else 0, most))
            ax.set_yticks([-1, 0, 1] if job == "softmax" else [0, 1])
            ax.set_yticklabels("101" if job == "softmax" else "01")
        tilt = 50 if narrow else 0
        axes[2].set_xticks(range(len(words)), words, rotation=tilt)
        figure.supylabel("length of the gradient", fontsize="medium")
        return figure

    return show(
        draw,
        f"Bars for {len(words)} tokens in three rows. As the source table "
        "only four rows get a gradient, and as the target table only four. "
        "As the softmax table every row does: the four tokens that come "
        "next have long bars upwards, all others bars downwards.",
    )
