"""What the chapter on the loss shows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from transformer_book.figures import (
    COLOURS,
    Picture,
    chart,
    panels,
    show,
)

DASHES = "-", "--", ":"  # from no smoothing to the most


def targets(tokens: Sequence[str], kinds: Mapping[str, Tensor]) -> Picture:
    """Bars for goals over the same tokens, a panel for each kind."""

    figures, axes = panels(len(kinds), 240)
    places = [-place for place in range(len(tokens))]
    for ax, (kind, goal) in zip(axes, kinds.items(), strict=True):
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

    said = "; ".join(
        f"{kind}: {tokens[int(t.argmax())]} {t.max():.3f}, "
        f"each other {t.min():.3f}"
        for kind, t in kinds.items()
    )
    return show(figures, f"Bars for a goal over {len(tokens)} tokens. {said}.")


def learning(learnt: Mapping[float, Sequence]) -> Picture:
    """By share, the lead of the right token's score over the steps."""
    names = "no smoothing: still climbing", "smoothed with 0.1: at rest"
    figure, ax = chart(260)
    for steps, dash, name in zip(learnt.values(), DASHES, names, strict=False):
        leads = [lead for _, lead in steps]
        ax.plot(leads, dash, color="black")
        ax.annotate(
            f"{name}; probability {steps[-1][0]:.3f}",
            (len(leads), leads[-1]),
            (0, 6),
            textcoords="offset points",
            ha="right",
        )
    ax.set(xlabel="step", ylim=(0, 12), yticks=[0, 5, 10])
    ax.set_ylabel("lead of the right score")
    return show(
        figure,
        "Two curves over the steps. The lead of the right token's score "
        "grows for ever without smoothing and becomes level with it.",
    )


def price(
    sure: Sequence[float],
    curves: Mapping[float, Sequence[float]],
    equal: Sequence[tuple[float, float]],
) -> Picture:
    """By share, the loss of a model that is as sure as `sure`.

    `equal` are two points (probability, loss) of the same price.
    """

    figure, ax = chart(310)
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

    return show(
        figure,
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
    what = {"right": "tokens right", "sure": "certainty"}
    figures, axes = panels(2, 250)
    said = []
    for ax, (key, name) in zip(axes, what.items(), strict=True):
        shares = [100 * told[key] for told in seeds.values()]
        means = [each.mean() for each in shares]
        for place, (each, mean) in enumerate(zip(shares, means, strict=True)):
            look = {"ms": 4, "color": COLOURS["muted"]}
            ax.plot([place] * len(each), each, "o", **look)
            ax.text(place + 0.2, mean, f"{mean:.1f}%", va="center")
        ax.plot(means, "_", color="black", ms=14, mew=2)
        ax.set_xticks(range(len(seeds)), ["no smoothing", *list(seeds)[1:]])
        ax.set(title=name, xlim=(-0.5, 2.6))
        ax.yaxis.set_major_formatter("{x:.0f}%")
        told = ", ".join(f"{mean:.1f}%" for mean in means)
        said.append(f"{name} {told}")
    axes[0].set(ylim=(93, 98), yticks=[93, 95, 97])
    return show(
        figures,
        "Two panels of dots over no smoothing, a share of 0.1 and one of "
        f"0.3, and means of the seeds: {'; '.join(said)}.",
    )
