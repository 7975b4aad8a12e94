"""What the chapter on embeddings shows."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    PAGE,
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
    """Tokens and their nearest ones, on a line from 0.6 to -0.3."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        step = 30 if narrow else 44
        rows = len(near)
        high = 140 if narrow else step
        sketch = Sketch(wide, (high + 16) * rows + 6)
        for row, (token, found) in enumerate(near.items()):
            top = (high + 16) * row + 20
            other, cosine = translations[token]
            said = [(name.strip("▁"), x, "") for name, x in found]
            said.append((other.strip("▁"), cosine, "target"))
            if narrow:
                sketch.box(46, top, token.strip("▁"), "embedding", width=88)
                for k, (name, x, ink) in enumerate(said):
                    y = top + 24 * k
                    number = f"{x:.2f}".replace("-", "−")
                    colour = ink or "currentColor"
                    sketch.words(112, y, name, "start", colour=colour)
                    sketch.words(250, y, number, "end", colour=colour)
                continue
            sketch.box(50, top, token.strip("▁"), "embedding", width=94)
            for k, (name, x, ink) in enumerate(said):
                left = 158 + 104 * k
                number = f"{x:.2f}".replace("-", "−")
                colour = ink or "currentColor"
                sketch.words(left, top - 8, name, colour=colour)
                sketch.words(left, top + 9, number, colour=colour, size=12)
        return sketch

    told = "; ".join(
        f"{token.strip('▁')}: "
        + ", ".join(f"{name.strip('▁')} {x:.2f}" for name, x in found)
        + f"; its translation {translations[token][0].strip('▁')} "
        + f"{translations[token][1]:.2f}"
        for token, found in near.items()
    )
    return show(draw, f"Nearest tokens. {told}.".replace(" -", " −"))


def lookup(
    said: Sequence[str],
    names: Sequence[str],
    ids: Sequence[int],
    table: Tensor,
) -> Picture:
    """One-hot columns beside a table whose picked rows light up."""

    def draw(narrow: bool) -> Sketch:
        wide = (PHONE if narrow else PAGE) * 96
        line = 24
        sketch = Sketch(wide, 36 + line * len(names) + 4)
        cell = 15 if narrow else 36
        first = 40 if narrow else 60
        number = 22 if narrow else 46
        body = first + cell * len(said) + (6 if narrow else 24)
        result = body + number * table.size(1) + (26 if narrow else 60)
        for k, (word, place) in enumerate(zip(said, ids, strict=True)):
            x = first + cell * (k + 0.5)
            if not narrow:
                sketch.words(x, 14, word)
            for i in range(len(names)):
                y = 36 + line * (i + 0.5)
                lit = i == place
                look = dict(width=cell - 2, height=line - 5)
                strength = 0.8 if lit else 0.04
                sketch.box(x, y, "", "source", fill_opacity=strength, **look)
                if lit:
                    sketch.words(x, y, "1", size=12)
        if narrow:
            sketch.words(first, 14, "one-hot", "start")
            sketch.words(body - 3, 14, "× table", "start")
        else:
            sketch.words(body, 14, "table", "start")
            level = 36 + line * len(names) / 2
            sketch.words(body - 14, level, "×", size=17)
            sketch.words(result - 30, 36 + line * 1.5, "=", size=17)
        sketch.words(result, 14, "vectors", "start")

        def numbers(row, left, y, lit):
            for column, value in enumerate(row.tolist()):
                x = left + number * (column + 0.5)
                look = dict(width=number - 2, height=line - 5)
                strength = 0.45 if lit else 0.06
                value = round(value, 1) or 0.0  # and no "−0.0"
                words = "" if narrow else f"{value:.1f}".replace("-", "−")
                sketch.box(
                    x, y, "", "embedding", fill_opacity=strength, **look
                )
                if words:
                    sketch.words(x, y, words, size=12)

        for i, name in enumerate(names):
            y = 36 + line * (i + 0.5)
            sketch.words(first - 6, y, name, "end")
            numbers(table[i], body, y, i in ids)
        right = body + number * table.size(1)
        for k, place in enumerate(ids):
            y = 36 + line * (k + 2.5)
            from_ = 36 + line * (place + 0.5)
            sketch.line(
                (right + 1, from_), (result - 2, y), colour="embedding"
            )
            numbers(table[place], result, y, True)
            after = result + number * table.size(1) + 4
            if after + 30 < wide:
                sketch.words(after, y, said[k], "start")
        return sketch

    return show(
        draw,
        f"Beside a table with a row for each of {len(names)} tokens, a "
        f"column for each of {', '.join(said)}, with a single 1. The rows "
        "beside the ones are lit; in the order of the sentence they are "
        "the vectors.",
    )


def gradients_by_job(
    words: Sequence[str],
    gradients: Mapping[str, Tensor],
    labels: Collection[int],
) -> Picture:
    """By job of the table, how long the gradient of each row is."""
    looks = {"source": "source", "target": "target", "softmax": "muted"}
    forces = {job: rows.norm(dim=1) for job, rows in gradients.items()}
    most = max(force.max().item() for force in forces.values())

    def draw(narrow: bool):
        # below one another on both: the tokens are the same
        figure, axes = panels(3, True, height=1.35, sharex=True)
        if not narrow:
            figure.set_figwidth(PAGE)
        for ax, (job, force) in zip(axes, forces.items(), strict=True):
            shades = [COLOURS[looks[job]]] * len(words)
            for i in labels if job == "softmax" else ():
                shades[i] = COLOURS["target"]
            ax.bar(range(len(words)), force, color=shades)
            ax.set_title(f"as the {job} table", loc="left")
            ax.set(ylim=(0, 1.15 * most))
        tilt = 50 if narrow else 0
        axes[2].set_xticks(range(len(words)), words, rotation=tilt)
        figure.supylabel("length of the gradient", fontsize="medium")
        return figure

    return show(
        draw,
        f"Bars for {len(words)} tokens in three rows. From the source "
        "only its four tokens get a gradient; from the target only its "
        "four; from the softmax every token, the four that come next in "
        "purple.",
    )
