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
        "the lead of the right score",
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


def right_and_sure(seeds: Mapping[str, Mapping]) -> Picture:
    """By share, how many tokens are right, and how certain models are.

    `seeds` has both for each seed, as shares of one.
    """
    looks = {
        "right": ("-", "tokens right", (12, 7)),
        "sure": ("--", "certainty", (-5, -7)),
    }
    means = {
        what: [100 * told[what].mean() for told in seeds.values()]
        for what in looks
    }

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        for what, (dash, name, away) in looks.items():
            for place, told in enumerate(seeds.values()):
                each = 100 * told[what]
                look = {"ms": 4, "color": COLOURS["muted"]}
                ax.plot([place] * len(each), each, "o", **look)
                mean = means[what][place]
                ax.annotate(
                    f"{mean:.1f}%",
                    (place, mean),
                    away if place == 1 else (0, away[1]),
                    textcoords="offset points",
                    ha="right" if place == 1 else "center",
                    va="bottom" if away[1] > 0 else "top",
                )
            ax.plot(means[what], dash, color="black")
            ax.text(2.1, mean, name, va="center", weight="bold")
        shares = [f"with {share}" for share in list(seeds)[1:]]
        ax.set_xticks(range(len(seeds)), ["no smoothing", *shares])
        ax.set(xlim=(-0.25, 2.9), ylim=(70, 102))
        ax.spines["bottom"].set_bounds(0, 2)
        ax.set_yticks([70, 80, 90, 100], ["70%", "80%", "90%", "100%"])
        return figure

    told = "; ".join(
        f"{name} " + ", ".join(f"{mean:.1f}%" for mean in means[what])
        for what, (_, name, _) in looks.items()
    )
    return show(
        draw,
        "Two lines over no smoothing, a share of 0.1 and one of 0.3, means "
        f"of eight seeds: {told}. One rises a little, the other falls.",
    )
