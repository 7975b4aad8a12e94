"""What the chapter on checkpoints shows."""

from transformer_book.figures import COLOURS, Picture, panels, show


def sizes(megabytes: float) -> Picture:
    """A checkpoint of so many megabytes: three parts of one size."""
    parts = {
        "weights": "good",
        "Adam's m": "muted",
        "Adam's v": "norm",
    }
    width = megabytes / len(parts)

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=1.4)
        for place, (name, colour) in enumerate(parts.items()):
            ax.barh(0, width, left=place * width, color=COLOURS[colour])
            ax.text((place + 0.5) * width, 0, name, ha="center", va="center")
        ax.set(xlabel="MB", yticks=[])
        return figure

    return show(
        draw,
        f"A bar of {megabytes:.1f} MB in three equal parts: the weights, "
        "and Adam's running means m and v.",
    )
