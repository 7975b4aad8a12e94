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
    titles = "probability of the right token", "lead of its score"
    names = "no smoothing", "a tenth spread"
    ends = "never stops", "stops"

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
        for (share, loss), dash in zip(curves.items(), DASHES, strict=True):
            ax.plot(sure, loss, dash, color=COLOURS["loss"])
            name = f"a share of {share:g}" if share else "no smoothing"
            place = 0 if share else len(sure) // 4
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
        "0.1 or 0.2 it reaches its lowest point at about 0.9 and 0.8, well "
        "above zero, and climbs steeply beyond. At a share of 0.1 two dots, "
        f"at {equal[0][0]} and {equal[1][0]}, are equally high: "
        f"{equal[0][1]:.2f} nats.",
    )


def seeds_apart(
    seeds: Mapping[str, Mapping],
    intervals: Mapping[str, Mapping[str, tuple[float, float]]],
) -> Picture:
    """By share, what each seed measured, and how sure the change is.

    `intervals` are {measure: {share: (low, high)}}, the measures in the
    order of the panels.
    """
    titles = {
        "nats": "plain loss, nats: higher",
        "right": "tokens right: more",
        "sure": "certainty: less",
    }
    shares = list(seeds)

    def draw(narrow: bool):
        figure, axes = panels(len(intervals), narrow, height=2.5)
        for ax, (what, told) in zip(axes, intervals.items(), strict=True):
            table = [list(measured[what]) for measured in seeds.values()]
            for one in zip(*table, strict=True):
                ax.plot(one, "-", color=COLOURS["muted"], lw=0.8, alpha=0.7)
            means = [sum(row) / len(row) for row in table]
            ink = COLOURS["loss"] if what == "nats" else "black"
            ax.plot(means, "D-", color=ink)
            names = [
                share
                if share not in told
                else "{}\n{:+.3f}\nto {:+.3f}".format(share, *told[share])
                for share in shares
            ]
            names[0] = "none"
            names = [name.replace("-", "\u2212") for name in names]
            ax.set_xticks(range(len(shares)), names)
            ax.set(title=titles[what], xlim=(-0.4, len(shares) - 0.6))
        return figure

    changes = "; ".join(
        f"{titles[what]}: "
        + ", ".join(
            f"{low:+.3f} to {high:+.3f} at {share}"
            for share, (low, high) in told.items()
        )
        for what, told in intervals.items()
    )
    return show(
        draw,
        "Three charts with a thin line for each of eight seeds over the "
        "shares 0, 0.1 and 0.3, and their mean. The change from no "
        f"smoothing, 95%: {changes}.",
    )
