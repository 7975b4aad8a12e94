"""What the chapter on the full run shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    panels,
    show,
)
from transformer_book.records import Run
from transformer_book.tables import clock, markdown_table

SYSTEMS = {  # floors first, ours last
    "copied": "the source, copied",
    "memory": "translation memory",
    "tatoeba-de-en": "the small model, one CPU core",
    "gpu/base-de-en-0": "the base model, one H100",
    "multi30k-en-de": "ours, seed 0 (it ships)",
    "headline/en-de-1": "ours, seed 1",
    "headline/en-de-2": "ours, seed 2",
}
WAYS = {  # of the record, as the table has them
    "train, bf16": "`train`, steps replayed",
    "Hugging Face": "Hugging Face, Marian",
    "nn.Transformer": "`nn.Transformer`",
}
LONGEST = 80  # characters of an output shown


def by_clock(runs: Mapping[str, Run]) -> Picture:
    """Validation BLEU against the seconds of the log."""
    looks = ("good", "o-"), ("muted", "o-")

    figure, ax = chart(290)
    for (name, run), (colour, dash) in zip(runs.items(), looks, strict=True):
        ink = COLOURS[colour]
        points = [
            (line["seconds"], line["validation_bleu"])
            for line in run.log
            if "validation_bleu" in line
        ]
        ax.plot(*zip(*points, strict=True), dash, color=ink, ms=3.5)
        end = run.log[-1]
        what = name.replace(", ", "\n")
        ax.annotate(
            f"{what}\ndone: {clock(end['seconds'])}",
            (end["seconds"], end["validation_bleu"]),
            (0, 7),
            textcoords="offset points",
            ha="center" if colour == "good" else "right",
            color=ink if colour == "good" else "black",
        )
    ax.set(xlabel="time", ylabel="validation BLEU", xscale="log")
    ax.set_ylim(0, 74)
    ax.set_xlim(10, 10_000)
    marks = {10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h"}
    ax.set_xticks([*marks], [*marks.values()])
    ax.minorticks_off()

    ends = [
        f"{name}: {run.log[-1]['validation_bleu']:.1f} BLEU after "
        f"{run.log[-1]['seconds']:.0f} seconds"
        for name, run in runs.items()
    ]
    return show(
        figure,
        "Validation BLEU by the clock; the curves of the GPU and of the CPU "
        "core have the same shape, far apart. " + "; ".join(ends),
    )


def turns(run: Run) -> Picture:
    """Held-out loss and BLEU by step; the turn of the loss is marked."""
    steps, losses = run.series("validation_loss")
    _, bleus = run.series("validation_bleu")
    turn = losses.index(min(losses))
    lowest, highest = min(bleus[turn:]), max(bleus[turn:])

    figures, axes = panels(2, 280)
    sides = (
        (losses, "loss", "validation loss, nats per token", 1.3),
        (bleus, "target", "validation BLEU", 66),
    )
    for ax, (values, ink, title, top) in zip(axes, sides, strict=True):
        ax.plot(steps, values, color=COLOURS[ink])
        ax.plot(steps[turn], values[turn], "o", color=COLOURS[ink])
        ax.axvline(steps[turn], color=COLOURS["muted"], linestyle=":")
        ax.set(xlabel="step", ylabel=title, ylim=(0, top))
        ax.set_xlim(1000, steps[-1] + 100)
        ax.set_xticks(range(1000, steps[-1] + 1, 1000))
    loss, bleu = axes
    loss.set_title("the loss rises again")
    bleu.set_title("BLEU goes up and down")
    band = {"color": COLOURS["target"], "alpha": 0.15, "lw": 0}
    bleu.fill_between(steps[turn:], lowest, highest, **band)
    beside = {"textcoords": "offset points", "ha": "right"}
    for ax, step, value, shift, words in (
        (loss, turn, losses[turn], (-6, -14), f"{losses[turn]:.2f}"),
        (loss, -1, losses[-1], (0, 8), f"{losses[-1]:.2f}: worse"),
        (bleu, turn, bleus[turn], (-6, 4), f"{bleus[turn]:.1f}"),
        (bleu, -1, highest, (0, 4), f"up to {highest:.1f}"),
        (bleu, -1, lowest, (0, -14), f"down to {lowest:.1f}"),
    ):
        ax.annotate(words, (steps[step], value), shift, **beside)

    return show(
        figures,
        f"Left, the loss on held-out sentences: it falls to "
        f"{losses[turn]:.2f} at step {steps[turn]:,} and rises to "
        f"{losses[-1]:.2f}. Right, BLEU of the same sentences: "
        f"{bleus[turn]:.1f} at that step, then between {lowest:.1f} and "
        f"{highest:.1f}, and {bleus[-1]:.1f} at the end.",
    )


def _shortened(text: str) -> str:
    short = text if len(text) <= LONGEST else text[:LONGEST].rstrip() + " …"
    return short or "(nothing)"


def on_the_way(
    pairs: Sequence[Sequence[str]], run: Run, steps: Sequence[int]
) -> Markdown:
    """The first validation sentences, as translated after some steps."""
    lines = {line["step"]: line for line in run.log}
    rows = []
    for number, (source, reference) in enumerate(pairs):
        row = {"source": source, "reference": reference}
        for step in steps:
            name = f"step {step:,} ({lines[step]['seconds']:.0f}\u00a0s)"
            row[name] = _shortened(lines[step]["samples"][number])
        rows.append(row)
    return Markdown(markdown_table(rows))


def everyday(systems: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """Every system on Tatoeba's test set, with its interval."""
    rows = [
        {
            "German to English": SYSTEMS[name],
            "BLEU": f"{found['bleu']:.1f}",
            "95% of resampled test sets": "{:.1f} to {:.1f}".format(
                *found["interval"]
            ),
        }
        for name, found in systems.items()
    ]
    return Markdown(markdown_table(rows))


def outputs(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> Markdown:
    """Test sentences, and what the models with these names made of them."""
    names = {"source": "source", "reference": "reference"} | dict(names)
    table = [
        {name: row[run] or "(nothing)" for run, name in names.items()}
        for row in rows
    ]
    return Markdown(markdown_table(table))


def tried(
    meanings: Mapping[str, str], small: Sequence[str], base: Sequence[str]
) -> Markdown:
    """What two translators made of sentences whose meaning is known."""
    columns = [*meanings], [*meanings.values()], small, base
    names = "source", "it means", "small", "base"
    rows = [
        dict(zip(names, map(_shortened, row), strict=True))
        for row in zip(*columns, strict=True)
    ]
    return Markdown(markdown_table(rows))


def speeds(rows: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """Steps a second of ours and its peers."""
    table = []
    for way in WAYS:
        row = {"steps a second": WAYS[way]}
        for name in "tiny 8192", "base 25000":
            row[f"{name} tokens"] = f"{rows[f'{name} {way}']['late']:.1f}"
        table.append(row)
    return Markdown(markdown_table(table))


def scores(
    systems: Mapping[str, Mapping[str, Any]], literature: float
) -> Markdown:
    """Every system on Multi30k's test set, in both forms."""
    rows = [
        {
            "system": SYSTEMS[name],
            "cased, 13a": "{:.1f} ({:.1f} to {:.1f})".format(
                systems[name]["bleu"], *systems[name]["interval"]
            ),
            "published form": f"{systems[name]['published']:.1f}",
        }
        for name in SYSTEMS
        if name in systems
    ]
    printed = {"system": "fairseq `transformer_tiny`, as printed"}
    printed |= {"cased, 13a": "", "published form": f"{literature:.1f}"}
    return Markdown(markdown_table([*rows, printed]))


def others(runs: Mapping[str, Run]) -> Markdown:
    """The models that ship, each on its own test set."""
    rows = []
    for run in runs.values():
        test = run.report["test"]
        rows.append(
            {
                "corpus": test["corpus"].replace("_", " "),
                "languages": " to ".join(test["languages"]),
                "weights": run.report["result"]["parameters"],
                "steps": run.report["result"]["steps"],
                "test sentences": test["sentences"],
                "BLEU": "{:.1f} ({:.1f} to {:.1f})".format(
                    test["bleu"], *test["interval"]
                ),
            }
        )
    return Markdown(markdown_table(rows))


def ways_to_decode(apart: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """BLEU of each way, and its difference from the paper's.

    `apart` is {run: {way: row of decoding.json}}.
    """

    def cell(row, paper):
        if row is None:
            return ""
        if row["p_value"] is None:
            return f"{row['bleu']:.2f}"
        difference = f"{row['bleu'] - paper['bleu']:+.2f}"
        difference = difference.replace("-", "\u2212")
        chance = f"p {row['p_value']:.3f}"
        return f"{row['bleu']:.2f} ({difference}, {chance})"

    names = max(apart.values(), key=len)
    rows = [
        {"way": way}
        | {
            name: cell(ways.get(way), ways["as in 6.1"])
            for name, ways in apart.items()
        }
        for way in names
    ]
    return Markdown(markdown_table(rows))
