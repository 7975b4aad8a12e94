"""How pictures are drawn: one style and one set of colours."""

import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "COLOURS",
    "Picture",
    "attention_chart",
    "heatmap",
    "mask_chart",
    "shape_table",
    "show",
    "style",
]


COLOURS = {
    "query": "#3b7dd8",
    "key": "#d2691e",
    "value": "#2a9461",
    "encoder": "#1a8fa8",
    "decoder": "#9b62d6",
    "embedding": "#d0559b",
    "position": "#a67c10",
    "feed_forward": "#a3735a",
    "norm": "#7680b3",
    "loss": "#e0524e",
    "good": "#5d9116",
    "bad": "#d6336c",
    "muted": "#7c848d",
}


def style() -> AbstractContextManager:
    """Matplotlib's settings for the book, as a context manager."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    return plt.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=list(COLOURS.values())),
            "axes.facecolor": "none",
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "legend.frameon": False,
        }
    )


@dataclass
class Picture:
    """An SVG in the page, with words for who cannot see it."""

    svg: str = field(repr=False)
    alt: str

    def _repr_html_(self) -> str:
        words = html.escape(self.alt, quote=True)
        fit = 'class="picture" style="max-width: 100%; height: auto"'
        role = "group" if "<a " in self.svg else "img"  # keep links
        start = f'<svg {fit} role="{role}" aria-label="{words}"'
        return self.svg.replace("<svg", start, 1)


def show(figure: Any, alt: str) -> Picture:
    """Show a matplotlib figure, or an SVG string, inside the page.

    The figure is closed. The same figure and words give the same SVG.

    Raises:
        ValueError: if `alt` does not say what the picture shows.
    """
    if not alt.strip():
        raise ValueError("alt is empty: say what the picture shows")
    if isinstance(figure, str):
        return Picture(figure[figure.index("<svg") :], alt)
    import matplotlib.pyplot as plt

    file = io.StringIO()
    salt = {"svg.fonttype": "none", "svg.hashsalt": alt}
    try:
        with style(), plt.rc_context(salt):
            figure.savefig(
                file, format="svg", metadata={"Date": None}
            )
    finally:
        plt.close(figure)
    return Picture(_at_home(file.getvalue()), alt)


def _at_home(svg: str) -> str:
    """Matplotlib's SVG without its head, in the page's own colour."""
    svg = svg[svg.index("<svg") :].strip()
    noise = r"\s*(<metadata>.*?</metadata>|<!--.*?-->)"
    svg = re.sub(noise, "", svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # never referred to
    svg = re.sub(r"#000000|(?<=: )black", "currentColor", svg)
    return re.sub("<text(?=[ >])", '<text fill="currentColor"', svg)


def _matrix(numbers: Any, rows: Sequence, columns: Sequence) -> Any:
    """A NumPy matrix of floats whose axes have these names."""
    import numpy as np

    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().float()
    matrix = np.asarray(numbers, dtype=float)
    while matrix.shape[:1] == (1,) and matrix.ndim > 2:
        matrix = matrix[0]
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(
            f"a matrix of shape {matrix.shape} cannot have "
            f"{len(rows)} row and {len(columns)} column names"
        )
    return matrix


def _colour_map(cmap: str | None, signed: bool) -> Any:
    """A colour of the book, two if signed, or one of matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    if cmap and cmap not in COLOURS:
        return cmap
    high, low = COLOURS[cmap or "query"], COLOURS["key"]
    stops = [(0, high + "00"), (1, high)]
    if signed:
        middle = [(0.5, low + "00"), (0.5, high + "00")]
        stops = [(0, low), *middle, (1, high)]
    return LinearSegmentedColormap.from_list("book", stops)


def heatmap(
    matrix: Any,
    rows: Sequence,
    columns: Sequence,
    title: str = "",
    ax: Any = None,
    limits: tuple[float, float] | None = None,
    cmap: str | None = None,
) -> Any:
    """A matrix with a name for each row and column: a figure.

    Of more than forty names only every eighth is written. `cmap` is
    one of `COLOURS` or of matplotlib's; zero is transparent.

    Raises:
        ValueError: if there are not as many names as rows or columns.
    """
    import matplotlib.pyplot as plt

    matrix = _matrix(matrix, rows, columns)
    if ax is None:
        with style():
            width = min(5.2, 1.7 + 0.32 * len(columns))
            height = min(5.2, 1.1 + 0.3 * len(rows))
            ax = plt.subplots(figsize=(width, height))[1]
    signed = limits[0] < 0 if limits else matrix.min() < 0
    top = abs(matrix).max() or 1.0
    limits = limits or (-top if signed else 0.0, top)
    drawn = ax.imshow(
        matrix,
        clim=limits,
        cmap=_colour_map(cmap, signed),
        interpolation="none",
        aspect="auto" if max(matrix.shape) > 40 else "equal",
    )
    for names, axis in ((columns, ax.xaxis), (rows, ax.yaxis)):
        at = range(0, len(names), 8 if len(names) > 40 else 1)
        axis.set_ticks(at, [str(names[i]) for i in at])
    if max((len(str(name)) for name in columns), default=0) > 2:
        ax.tick_params(axis="x", rotation=60)
    ax.set_title(title)
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.8)
    bar.solids.set(rasterized=True, edgecolor="face")
    bar.ax.patch.set_visible(False)
    return ax.figure


def _grid(numbers, queries, keys, title, description, what) -> Any:
    import altair as alt
    import numpy as np

    matrix = _matrix(numbers, queries, keys)
    mask = what == "may attend"
    cells = []
    for (i, j), x in np.ndenumerate(matrix):
        told = ("yes" if x else "no") if mask else f"{x:.3f}"
        names = {"query": queries[i], "key": keys[j], what: told}
        cells.append({"i": i, "j": j, "amount": float(x)} | names)
    side = min(30, 350 // max(len(keys), len(queries)))
    colour = COLOURS["good" if mask else "query"]
    shade = alt.Scale(domain=[0, 1], range=[0, 1])
    plain = {"domain": False, "ticks": False}
    across = f"{json.dumps(list(keys))}[datum.value]"
    down = f"{json.dumps(list(queries))}[datum.value]"
    return (
        alt.Chart(
            alt.Data(values=cells),
            width=side * len(keys),
            height=side * len(queries),
            title=title,
            description=description or f"{what}: {title}",
        )
        .mark_rect(color=colour, stroke=COLOURS["muted"] + "59")
        .encode(
            x=alt.X("j:O", title="key").axis(
                labelExpr=across, labelAngle=-50, **plain
            ),
            y=alt.Y("i:O", title="query").axis(
                labelExpr=down, **plain
            ),
            fillOpacity=alt.FillOpacity(
                "amount:Q", scale=shade, legend=None
            ),
            tooltip=["query:N", "key:N", f"{what}:N"],
        )
    )


def attention_chart(
    weights: Any,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    description: str = "",
) -> Any:
    """Attention weights (query_len, key_len) to point at, by altair.

    Raises:
        ValueError: if the tokens are not one for each row or column.
    """
    return _grid(weights, queries, keys, title, description, "weight")


def mask_chart(
    mask: Any,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    description: str = "",
) -> Any:
    """A boolean mask (query_len, key_len) to point at, by altair.

    Raises:
        ValueError: if the tokens are not one for each row or column.
    """
    what = "may attend"
    return _grid(mask, queries, keys, title, description, what)


def shape_table(tensors: Mapping[str, Any]) -> Any:
    """Name, shape and meaning of the axes of each tensor, as a table.

    An entry is `(tensor, "batch, source_len")`, or the tensor alone.

    Raises:
        ValueError: if there is not one word for each axis.
    """
    import pandas as pd

    rows = {}
    for name, entry in tensors.items():
        alone = not isinstance(entry, tuple)
        tensor, axes = (entry, "") if alone else entry
        shape = tuple(tensor.shape)
        if axes and len(axes.split(",")) != len(shape):
            raise ValueError(
                f"{name} has shape {shape}, not the axes ({axes})"
            )
        rows[name] = (str(shape), f"({axes})" if axes else "")
    return pd.DataFrame(rows, index=["shape", "axes"]).T
