"""What the chapter on the loss shows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from transformer_book.figures import COLOURS, Picture, panels, show

DASHES = "-", "--", ":"  # from no smoothing to the most


def targets(pieces: Sequence[str], kinds: Mapping[str, Tensor]) -> Picture:
    """Bars for targets over the same tokens, a panel for each kind."""

    def draw(narrow: bool):
        figure, axes = panels(
            len(kinds), narrow, height=2.6, sharey=True, squeeze=False
        )
        places = range(len(pieces))
        for ax, (kind, target) in zip(axes.flat, kinds.items(), strict=True):
            right = int(target.argmax())
            looks = [COLOURS["muted"]] * len(pieces)
            looks[right] = COLOURS["good"]
            bars = ax.bar(places, target, color=looks)
            ax.bar_label(bars, [f"{share:.3g}" for share in target.tolist()])
            ax.set_title(kind)
            ax.set_xticks(places, pieces, rotation=50)
            ax.set_ylabel("target" if narrow or ax is axes.flat[0] else "")
            ax.margins(y=0.15)
        return figure

    said = "; ".join(
        f"{kind}: {pieces[int(t.argmax())]} {t.max():.3f}, "
        f"each other {t.min():.3f}"
        for kind, t in kinds.items()
    )
    return show(draw, f"Bars for a target over {len(pieces)} tokens. {said}.")


def learning(learnt: Mapping[float, Sequence]) -> Picture:
    """By share, the probability and the lead of the right token."""

    def draw(narrow: bool):
        figure, axes = panels(2, narrow, height=2.6)
        titles = "probability of the right token", "lead of its score"
        for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
            for (share, steps), dash in zip(
                learnt.items(), DASHES, strict=False
            ):
                ax.plot(
                    [step[i] for step in steps],
                    dash,
                    color=COLOURS["loss"],
                    label=rf"$\epsilon$ = {share}",
                )
            ax.set(title=title, xlabel="step", ylim=(0, None))
        axes[0].legend(loc="lower right")
        return figure

    return show(
        draw,
        "Two curves over the steps, twice. The probability of the right "
        "token rises towards 1 without smoothing and stops near 0.9 with "
        "it. The lead of its score grows for ever without smoothing and "
        "becomes level with it.",
    )


def price(
    confidence: Tensor,
    curves: Mapping[float, Tensor],
    best: Mapping[float, tuple[float, float]],
) -> Picture:
    """By share, the loss of a model that is as sure as `confidence`."""

    def draw(narrow: bool):
        figure, ax = panels(1, narrow, height=3)
        for (share, loss), dash in zip(curves.items(), DASHES, strict=True):
            label = rf"$\epsilon$ = {share}"
            ax.plot(confidence, loss, dash, color=COLOURS["loss"], label=label)
            ax.plot(*best[share], "o", color=COLOURS["good"])
        ax.set_xlabel("probability of the right token")
        ax.set_ylabel("loss, nats")
        ax.legend()
        return figure

    return show(
        draw,
        "Loss against the probability given to the right token. Without "
        "smoothing the curve falls all the way to zero. With a share of "
        "0.1 or 0.2 it reaches its lowest point, marked by a dot, at "
        "about 0.9 and 0.8, well above zero, and climbs steeply beyond.",
    )


def seeds_apart(seeds: Mapping[str, Mapping]) -> Picture:
    """By share, what each seed measured and the mean, as dots."""
    measures = {
        "nats": "nats per token,\nwithout smoothing",
        "right": "share of tokens right",
        "sure": "mean certainty",
    }

    def draw(narrow: bool):
        figure, axes = panels(3, narrow, height=2.4)
        shares = [float(share) for share in seeds]
        for ax, (what, title) in zip(axes, measures.items(), strict=True):
            means = []
            for place, measured in zip(shares, seeds.values(), strict=True):
                values = list(measured[what])
                means.append(sum(values) / len(values))
                ax.plot(
                    [place] * len(values),
                    values,
                    "o",
                    color=COLOURS["muted"],
                    mfc="none",
                    label="a seed",
                )
            ax.plot(shares, means, "D-", color=COLOURS["loss"], label="mean")
            ax.set_xticks(shares, list(seeds))
            ax.set(title=title, xlabel="share", xlim=(-0.05, 0.35))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles[-2:], labels[-2:], ncols=2, loc="outside lower center"
        )
        return figure

    return show(
        draw,
        "Three pictures with a dot for each of eight seeds at the shares "
        "0, 0.1 and 0.3. Nats rise at 0.3. The share of tokens that are "
        "right rises a little. The mean certainty falls in steps.",
    )
