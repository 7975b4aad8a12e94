"""What the chapter on cost shows."""

from collections.abc import Mapping

from transformer_book.figures import COLOURS, Picture, log_ticks, panels, show


def parts(operations: Mapping[str, float]) -> Picture:
    """Operations of a forward pass, by part of the model."""

    def colour(name):
        words = ("encoder self", "encoder feed", "decoder", "cross")
        looks = ("encoder", "encoder", "decoder", "key")
        for start, look in zip(words, looks, strict=True):
            if name.startswith(start):
                return COLOURS[look]
        return COLOURS["loss"]

    names = list(operations)[::-1]
    billions = [operations[name] / 1e9 for name in names]

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=2.8)
        bars = ax.barh(names, billions, color=[colour(n) for n in names])
        ax.bar_label(bars, [f"{work:.2f}" for work in billions], padding=3)
        ax.set_xlabel("billion operations, forward")
        ax.margins(x=0.14)
        return figure

    told = "; ".join(
        f"{name} {work / 1e9:.2f} billion" for name, work in operations.items()
    )
    return show(draw, f"Operations of a forward pass by part: {told}.")


def table_2(systems: Mapping[str, tuple[float, float]]) -> Picture:
    """BLEU against the cost of training; {system: (BLEU, operations)}."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.6)
        for name, (score, work) in systems.items():
            own = name.startswith("Transformer")
            ax.scatter(work, score, color=COLOURS["good" if own else "muted"])
            left = work > 1e20
            below = -28 if narrow else -14
            up = below if name.startswith("GNMT + RL, e") else 4
            ax.annotate(
                name,
                (work, score),
                (-6 if left else 6, up),
                textcoords="offset points",
                ha="right" if left else "left",
            )
        ax.set(xscale="log", xlim=(2e18, 4e20), ylim=(24, 29))
        ax.set(xlabel="operations, by time", ylabel="BLEU")
        log_ticks(ax.xaxis)
        return figure

    return show(
        draw,
        "Table 2 as a picture: BLEU against training cost for English to "
        "German. The two Transformers lie above all rivals; the base "
        "model is also the cheapest of all.",
    )
