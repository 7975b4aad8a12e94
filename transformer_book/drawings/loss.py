"""What the chapter on the loss shows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from transformer_book.figures import COLOURS, Picture, panels, show

DASHES = "-", "--", ":"  # from no smoothing to the most


def targets(tokens: Sequence[str], kinds: Mapping[str, Tensor]) -> Picture:
    """Bars for goals over the same tokens, a panel for each kind."""

    def draw(narrow: bool):
        figure, axes = panels(
            len(kinds), narrow, height=2.5, sharex=True, squeeze=False
        )
        places = [-place for place in range(len(tokens))]
        for ax, (kind, goal) in zip(axes.flat, kinds.items(), strict=True):
            looks = [COLOURS["muted"]] * len(tokens)
            looks[int(goal.argmax())] = COLOURS["target"]
            bars = ax.barh(places, goal, color=looks)
            numbers = [f"{share:.3g}" for share in goal.tolist()]
            ax.bar_label(bars, numbers, padding=4)
            ax.set_title(kind)
            ax.set_yticks(places, tokens)
            ax.tick_params(axis="y", length=0)
            ax.spines["bottom"].set_visible(False)
            ax.set(xticks=[], xlim=(0, 1.15))
        return figure

    said = "; ".join(
        f"{kind}: {tokens[int(t.argmax())]} {t.max():.3f}, "
        f"each other {t.min():.3f}"
        for kind, t in kinds.items()
    )
    return show(draw, f"Bars for a goal over {len(tokens)} tokens. {said}.")


def learning(learnt: Mapping[float, Sequence]) -> Picture:
    """By share, the probability and the lead of the right token."""
    titles = (
        "probability of the right token",
        "its score's lead over the others",
    )
    names = "no smoothing", "smoothed with 0.1"
    ends = "still climbing", "at rest"

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.4)
        for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
            for steps, dash, name, end in zip(
                learnt.values(), DASHES, names, ends, strict=False
            ):
                values = [step[i] for step in steps]
                ax.plot(values, dash, color="black")
                above = i == 1 or dash == "-"  # room beside both
                told = f"{values[-1]:.3g}" if i == 0 else end
                ax.annotate(
                    f"{name}: {told}",
                    (len(values), values[-1]),
                    (0, 5 if above else -6),
                    textcoords="offset points",
                    ha="right",
                    va="bottom" if above else "top",
                )
            ax.set(title=title, xlabel="step", ylim=(0, 11))
        axes[0].set(ylim=(0, 1.2), yticks=[0, 0.5, 1])
        axes[1].set_yticks([0, 5, 10])
        return figure

    return show(
        draw,
        "Two curves over the steps, twice. The probability of the right "
        "token rises towards 1 without smoothing and stops near 0.9 with "
        "it. The lead of its score grows for ever without smoothing and "
        "becomes level with it.",
    )


def price(
    sure: Sequence[float],
    curves: Mapping[float, Sequence[float]],
    equal: Sequence[tuple[float, float]],
) -> Picture:
    """By share, the loss of a model that is as sure as `sure`.

    `equal` are two points (probability, loss) of the same price.
    """

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3.2)
        for (share, loss), dash in zip(curves.items(), DASHES, strict=False):
            ax.plot(sure, loss, dash, color=COLOURS["loss"])
            name = f"smoothed with {share:g}" if share else "no smoothing"
            place = len(sure) // 20 if share else len(sure) // 4
            ax.annotate(
                name,
                (sure[place], loss[place]),
                (8, 4),
                textcoords="offset points",
            )
        ax.plot(*zip(*equal, strict=True), "-", color=COLOURS["muted"], lw=1)
        for p, loss in equal:
            ax.plot(p, loss, "o", color=COLOURS["loss"])
            ax.annotate(
                f"{p:.1%}".replace(".0%", "%"),
                (p, loss),
                (0, 7) if p < 0.9 else (-6, 6),
                textcoords="offset points",
                ha="center" if p < 0.9 else "right",
                weight="bold",
            )
        lowest = min(curves[0.1])
        best = sure[list(curves[0.1]).index(lowest)]
        ax.plot(best, lowest, "o", color=COLOURS["loss"], mfc="none")
        ax.annotate(
            f"{best:.0%}",
            (best, lowest),
            (0, -16),
            textcoords="offset points",
            ha="center",
            weight="bold",
        )
        ax.set_xlabel("probability of the right token")
        ax.set_ylabel("loss, nats")
        ax.set_xticks([0.3, 0.5, 0.7, 0.9, 1], "30% 50% 70% 90% 100%".split())
        ax.set_ylim(0, None)
        return figure

    return show(
        draw,
        "Loss against the probability given to the right token. Without "
        "smoothing the curve falls all the way to zero. With a share of "
        "0.1 it reaches its lowest point at about 0.9, well above zero, and "
        f"climbs steeply beyond. Two dots, at {equal[0][0]} and "
        f"{equal[1][0]}, are equally high: {equal[0][1]:.2f} nats.",
    )


def seeds_apart(
    seeds: Mapping[str, Mapping],
    intervals: Mapping[str, Mapping[str, tuple[float, float]]],
) -> Picture:
    """By share, what each seed measured, and how sure the change is.

    `intervals` are {measure: {share: (low, high)}}, the measures in the
    order of the panels.
    """
    rows = {  # what it is called, its scale and its unit
        "right": ("more tokens right", 100, "percentage points"),
        "sure": ("less certainty", 100, "percentage points"),
        "nats": ("a higher plain loss", 1, "nats"),
    }
    shares = list(seeds)[1:]

    def draw(narrow: bool):
        figure, axes = panels(len(intervals), narrow, height=2.2)
        for ax, (what, told) in zip(axes, intervals.items(), strict=True):
            name, scale, unit = rows[what]
            ink = COLOURS["loss"] if what == "nats" else "black"
            for y, share in enumerate(shares):
                change = scale * (seeds[share][what] - seeds["0.0"][what])
                below = [-y - 0.16] * len(change)
                ax.plot(change, below, "o", ms=4, color=COLOURS["muted"])
                low, high = (scale * end for end in told[share])
                ax.plot([low, high], [-y, -y], color=ink, lw=3)
                middle = (low + high) / 2
                ax.plot(middle, -y, "o", color=ink, ms=7)
                words = f"{middle:+.1f}" if scale > 1 else f"{middle:+.2f}"
                if low < 0 < high:
                    words += ", undecided"
                ax.annotate(
                    words.replace("-", "\u2212"),
                    (low, -y),
                    (5 if low < 0 < high else 0, 7),
                    textcoords="offset points",
                    color=ink,
                    weight="bold",
                )
            ax.axvline(0, color=COLOURS["muted"], lw=1.2, ls=":")
            first = narrow or ax is axes[0]
            names = [f"with {share}" for share in shares] if first else []
            ax.set_yticks([-y for y in range(len(names))], names)
            ax.set(ylim=(0.5 - len(shares), 0.5), title=name, xlabel=unit)
            ax.margins(x=0.14)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
        return figure

    changes = "; ".join(
        f"{rows[what][0]}: "
        + ", ".join(
            f"{low:+.3f} to {high:+.3f} at {share}"
            for share, (low, high) in told.items()
        )
        for what, told in intervals.items()
    )
    return show(
        draw,
        "Three charts with a row for each of two shares, 0.1 and 0.3; dots "
        "are the changes of eight seeds from no smoothing. The mean change, "
        f"95%: {changes}.",
    )
