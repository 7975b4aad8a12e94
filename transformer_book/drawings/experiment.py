"""What the chapter on a recorded experiment shows."""

from collections.abc import Sequence

from IPython.display import Markdown

from transformer_book.figures import (
    WIDTH,
    Picture,
    Sketch,
    show,
)
from transformer_book.records import Run
from transformer_book.tables import clock, markdown_table

Row = tuple[int, float, float, str]


def learning(rows: Sequence[Row], right: str) -> Picture:
    """By step the loss, the share that is right, and what one becomes.

    A row has the step, the loss, the share of sentences exactly right,
    and what the model writes for the sentence whose translation is
    `right`.
    """
    highest = max(loss for _, loss, *_ in rows)

    rise = 44
    sketch = Sketch(WIDTH, rise * len(rows) + 26)
    places = 52, 240  # of both bars
    room = 130  # for a bar
    text, most = 52, 48
    sketch.words(36, 12, "step", "end")
    for x, name in zip(places, ("loss", "exactly right"), strict=True):
        sketch.words(x, 12, name, "start", font_weight="bold")
    for number, (step, loss, share, written) in enumerate(rows):
        y = 26 + rise * number + 12
        sketch.words(36, y, str(step), "end")
        for x, part, size, told in (
            (places[0], "loss", loss / highest, f"{loss:.2f}"),
            (places[1], "target", share, f"{share:.0%}"),
        ):
            end = x + room * size
            if size > 0.01:
                sketch.line((x, y), (end, y), width=11, colour=part)
            sketch.words(end + 6, y, told, "start")
        if len(written) > most:
            written = written[: most - 1] + "\u2026"
        look = {}
        if written == right:
            look = {"font_weight": "bold", "colour": "target"}
        sketch.words(text, y + 18, written or "(nothing)", "start", **look)

    said = "; ".join(
        f"step {step}: loss {loss:.2f}, {share:.0%} right, "
        f"{written[:40] or 'nothing'}"
        for step, loss, share, written in rows
    )
    return show(
        sketch,
        "A row for each of some steps, with a bar for the loss, a bar for "
        "the share of sentences exactly right, and what the model writes "
        f"for a sentence whose translation is {right}. {said}.",
    )


def wrong(rows: Sequence[tuple[str, str, str]]) -> Markdown:
    """Sentences with their right translation and the model's, if any."""
    if not rows:
        return Markdown("*There are none this time.*")
    names = "English", "right", "the model's"
    return Markdown(
        markdown_table([dict(zip(names, row, strict=True)) for row in rows])
    )


def recipes(runs: Sequence[Run]) -> Markdown:
    """How recorded runs were trained, how long, and what came of it."""
    rows = []
    for run in runs:
        model, info = run.config["model"], run.config["info"]
        training, result = run.report["training"], run.report["result"]
        tokens = training["tokens_per_batch"]
        rows.append(
            {
                "model": f"`{run.name}`",
                "pairs": f"{info['pairs']:,}",
                "vocabulary": f"{model['vocab_size']:,}",
                "dropout": model["dropout"],
                "steps × tokens": f"{result['steps']:,} × {tokens:,}",
                "time": clock(result["seconds"]),
                "validation loss": f"{result['validation_loss']:.2f}",
                "test BLEU": f"{run.report['test']['bleu']:.1f}",
            }
        )
    return Markdown(markdown_table(rows))
