"""How pictures are drawn: one style and one set of colours.

A picture is as wide as the text, `PAGE`, and on a phone it is drawn a
second time, `PHONE` wide. Words are `SIZE` pixels high in both, in one
family of letters, and take the colour of the page's own text.
"""

import hashlib
import html
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import drawsvg

# One colour for each idea, in stills, charts and live parts alike
# (CONTRIBUTING has the table). The first seven are ideas of the book, and
# nothing else uses their inks; the rest are parts of the machine.
COLOURS = {
    "query": "#3b7dd8",
    "key": "#d2691e",
    "value": "#2a9461",
    "attention": "#1a8fa8",  # its weights, and models that are made of it
    "source": "#64748b",
    "target": "#9b62d6",
    "loss": "#e0524e",
    "embedding": "#d0559b",
    "position": "#a67c10",
    "feed_forward": "#a3735a",  # convolution, too: a network over words
    "recurrence": "#768618",
    "norm": "#7680b3",
    "bad": "#d6336c",  # what is broken, or left out
    "muted": "#8a9099",
}
# The same on a dark page, where those would be dim. The site puts them in
# the others' place.
DARK = {
    "query": "#6aa5f2",
    "key": "#eb8f4a",
    "value": "#45bd83",
    "attention": "#45b5cd",
    "source": "#94a3b8",
    "target": "#b88ae8",
    "loss": "#f08a87",
    "embedding": "#e583bb",
    "position": "#d0a63a",
    "feed_forward": "#c79a82",
    "recurrence": "#a5b84a",
    "norm": "#a0a8d6",
    "bad": "#f0709b",
    "muted": "#a3a9b1",
}
COLOURS |= {
    "encoder": COLOURS["source"],
    "decoder": COLOURS["target"],
    "good": COLOURS["attention"],  # as the paper has it, beside "bad"
}
SIGNED = {"negative": "#b43c00", "positive": "#4b3cff"}  # none of those
FONT = "Helvetica Neue, Arial, sans-serif"
SIZE = 13  # of words, in pixels: 12 and more where the text is narrow
PAGE = 7.5  # inches of 96 pixels
PHONE = 3.5
PAPER = "var(--pst-color-background, Canvas)"  # the page, light or dark
LEAST = 11  # pixels: words on a phone are no smaller
CHART = {  # altair's charts have the page's colours, and some room
    "background": "transparent",
    "padding": 12,
    "view": {"stroke": None},
    "title": {"color": "currentColor", "fontWeight": "normal"},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "gridColor": COLOURS["muted"] + "59",
    },
    "axisY": {"titlePadding": 12},
}


def style() -> AbstractContextManager:
    """Matplotlib's settings for the book, as a context manager."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    size = SIZE * 0.75  # in points
    inks = COLOURS.values()
    names = ("axes.titlesize", "axes.labelsize", "figure.titlesize")
    names += ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    return plt.rc_context(
        dict.fromkeys(names, size)
        | {
            "font.size": size,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=list(dict.fromkeys(inks))),
            "axes.facecolor": "none",
            "figure.facecolor": "none",
            "figure.figsize": (PAGE, 3.2),
            "figure.constrained_layout.use": True,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
        }
    )


def panels(
    count: int, narrow: bool, height: float = 2.8, **options: Any
) -> tuple[Any, Any]:
    """A figure and its axes: side by side, on a phone in a column.

    `height` is that of one, in inches; `options` are `plt.subplots`'.
    """
    import matplotlib.pyplot as plt

    rows, columns = (count, 1) if narrow else (1, count)
    size = (PHONE if narrow else PAGE, height * rows)
    with style():
        figure, axes = plt.subplots(rows, columns, figsize=size, **options)
    if narrow:  # a label is not the next panel's title
        figure.get_layout_engine().set(h_pad=0.1)
    return figure, axes


def legend(ax: Any, columns: int) -> None:
    """Name the lines of one of a figure's axes below the figure."""
    told = ax.get_legend_handles_labels()
    ax.figure.legend(*told, ncols=columns, loc="outside lower center")


def log_ticks(axis: Any) -> None:
    """A logarithmic axis whose powers of ten are written full size."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    raised = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")

    def write(value, place):
        power = round(math.log10(value))
        low, high = axis.get_view_interval()
        if low >= 1e-3 and high < 1e5:
            return f"{value:,.{max(0, -power)}f}"
        return "10" + str(power).translate(raised)

    axis.set_major_formatter(FuncFormatter(write))
    axis.set_minor_formatter(NullFormatter())


class _Link(drawsvg.DrawingParentElement):
    TAG_NAME = "a"


class Sketch(drawsvg.Drawing):
    """A drawing of boxes, lines and words, in pixels from the top left.

    No line crosses a word: where a box with words, a sum, a dot or
    words alone are, lines are cut out.
    """

    def __init__(self, width: float, height: float):
        super().__init__(width, height)
        self.heads: dict[str, Any] = {}
        self.free = drawsvg.Mask(maskUnits="userSpaceOnUse")
        self.free.append(self._area(0, 0, width, height, "white"))
        self.lines = drawsvg.Group(mask=self.free)
        self.append(self.lines)

    def _area(self, x, y, width, height, colour, **style):
        area = {"fill": colour, "stroke": "none", **style}
        return drawsvg.Rectangle(x, y, width, height, **area)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        anchor: str = "middle",
        colour: str = "currentColor",
        size: float = SIZE,
        **style: Any,
    ) -> None:
        """Write a line of text whose middle is at the height `y`."""
        width = 0.58 * size * len(text) + 6  # about
        left = {"start": 0, "middle": width / 2, "end": width}[anchor]
        above = 0.7 * size
        self.free.append(
            self._area(x - left, y - above, width, 2 * above, "black")
        )
        look = {"text_anchor": anchor, "font_family": FONT, **style}
        look["fill"] = COLOURS.get(colour, colour)
        self.append(drawsvg.Text(text, size, x, y + 0.35 * size, **look))

    def line(
        self,
        *points: tuple[float, float],
        width: float = 1.3,
        colour: str = "currentColor",
        arrow: bool = False,
        front: bool = False,
        **style: Any,
    ) -> None:
        """Join points by straight lines; `arrow` ends in a head.

        Lines lie behind boxes and words; one in `front` lies over those
        that are there.
        """
        path = drawsvg.Path().M(*points[0])
        for point in points[1:]:
            path.L(*point)
        look = {"width": width, "colour": colour, "arrow": arrow}
        self.stroke(path, **look, front=front, **style)

    def flow(
        self,
        start: tuple[float, float],
        bend: tuple[float, float],
        back: tuple[float, float],
        end: tuple[float, float],
        width: float,
        colour: str,
        strength: float = 0.55,
    ) -> None:
        """A band between two points that is drawn towards two others.

        Where two cross, the later one is in front.
        """
        for wider, ink, opacity in (1.5, PAPER, 1), (0, colour, strength):
            path = drawsvg.Path().M(*start).C(*bend, *back, *end)
            look = dict(colour=ink, arrow=False, stroke_opacity=opacity)
            self.stroke(path, width=width + wider, **look)

    def stroke(
        self,
        path: Any,
        width: float,
        colour: str,
        arrow: bool,
        front: bool = False,
        **style: Any,
    ) -> None:
        """Draw along a path of drawsvg's."""
        colour = COLOURS.get(colour, colour)
        path.args |= {"fill": "none", "stroke": colour, "stroke-width": width}
        path.args |= {key.replace("_", "-"): v for key, v in style.items()}
        if arrow:
            path.args["marker-end"] = self._head(colour)
        (self if front else self.lines).append(path)

    def _head(self, colour: str) -> Any:
        """The head of an arrow, one for each colour."""
        if colour not in self.heads:
            size = {"scale": 1, "markerUnits": "userSpaceOnUse"}
            head = drawsvg.Marker(-7, -4, 0.5, 4, orient="auto", **size)
            wedge = drawsvg.Lines(-7, -4, 0, 0, -7, 4, fill=colour, close=True)
            head.append(wedge)
            self.heads[colour] = head
        return self.heads[colour]

    def box(
        self,
        x: float,
        y: float,
        text: str = "",
        part: str = "muted",
        width: float = 84,
        height: float = 30,
        href: str = "",
        solid: bool = False,
        **style: Any,
    ) -> None:
        """A box in a part's colour around its middle, with words in it.

        `text` may have several lines; `href` makes box and words a link
        on the site, whose build sets BOOK_BUILD; they look like all
        others. `solid` hides what is behind.
        """
        colour = COLOURS.get(part, part)
        look = {"fill": colour, "fill_opacity": 0.22, "stroke": colour}
        whole = self.elements
        if href and "BOOK_BUILD" in os.environ:
            plain = "color: inherit; text-decoration: none"
            link = _Link(href=href, style=plain)
            self.append(link)
            self.elements = link.children
        place = x - width / 2, y - height / 2, width, height
        if solid:
            self.append(self._area(*place, PAPER, rx=5))
        self.append(drawsvg.Rectangle(*place, rx=5, **{**look, **style}))
        lines = text.split("\n") if text else []
        for number, words in enumerate(lines):
            below = (number - (len(lines) - 1) / 2) * 1.25 * SIZE
            self.words(x, y + below, words)
            self.free.children.pop()  # the box keeps the lines away
        if text:
            self.free.append(self._area(*place, "black", rx=5))
        self.elements = whole

    def plus(self, x: float, y: float, radius: float = 10) -> None:
        """The sum of what arrives: a circle with a cross."""
        reach = radius / 2
        cross = drawsvg.Path(stroke="currentColor", stroke_width=1.3)
        cross.M(x - reach, y).H(x + reach).M(x, y - reach).V(y + reach)
        self.append(cross)
        self.dot(x, y, "none", radius, stroke="currentColor")

    def dot(
        self, x: float, y: float, part: str, radius: float = 9, **style: Any
    ) -> None:
        """A disc in a part's colour."""
        self.free.append(drawsvg.Circle(x, y, radius, fill="black"))
        colour = COLOURS.get(part, part)
        self.append(drawsvg.Circle(x, y, radius, fill=colour, **style))

    def svg(self, prefix: str) -> str:
        self.id_prefix = prefix
        return self.as_svg(header="")


@dataclass
class Picture:
    """An SVG in the page, with words for who cannot see it.

    `narrow` is what a phone shows in its place.
    """

    svg: str = field(repr=False)
    alt: str
    narrow: str = field(default="", repr=False)

    def _repr_html_(self) -> str:
        if not self.narrow:
            return self._label(self.svg, "picture", _readable(self.svg))
        hidden = "display: none"  # where no style sheet says otherwise
        return self._label(self.svg, "picture wide", "") + self._label(
            self.narrow, "picture narrow", hidden
        )

    def _label(self, svg: str, kind: str, look: str) -> str:
        words = html.escape(self.alt, quote=True)
        role = "group" if "<a " in svg else "img"  # keep links
        look = f' style="{look}"' if look else ""
        start = f'<svg class="{kind}"{look} role="{role}" aria-label="{words}"'
        return svg.replace("<svg", start, 1)


def _readable(svg: str) -> str:
    """The least width at which a picture's words can be read."""
    sizes = [
        float(size) for size in re.findall(r'font-size="([\d.]+)(?:px)?"', svg)
    ]
    box = re.search(r'viewBox="\S+ \S+ ([\d.]+)', svg)
    if not sizes or not box:
        return ""
    return f"min-width: {float(box[1]) * LEAST / min(sizes):.0f}px"


def show(figure: Any, alt: str) -> Picture:
    """Show a figure of matplotlib or altair, a `Sketch` or an SVG.

    A function in its place is called twice, as `figure(narrow=False)`
    and `figure(narrow=True)`, and draws for the page and for a phone.
    A figure of matplotlib is made narrow for the phone in any case; a
    sketch that is not keeps the size of its words there, and can be
    pushed sideways. Figures are closed. The same figure and words give
    the same SVG.

    Raises:
        ValueError: if `alt` does not say what the picture shows, or a
            legend is wider than the picture.
    """
    if not alt.strip():
        raise ValueError("alt is empty: say what the picture shows")
    if callable(figure):
        with style():
            wide, narrow = figure(narrow=False), figure(narrow=True)
        return Picture(_svg(wide, alt), alt, _svg(narrow, f"{alt} narrow"))
    if hasattr(figure, "to_dict"):  # a chart of altair's
        import vl_convert

        figure = vl_convert.vegalite_to_svg(figure.to_dict(), config=CHART)
    if isinstance(figure, str | Sketch):
        return Picture(_svg(figure, alt), alt)
    wide = _svg(figure, alt, close=False)
    figure.set_figwidth(min(PHONE, figure.get_figwidth()))
    return Picture(wide, alt, _svg(figure, f"{alt} narrow"))


def _svg(figure: Any, salt: str, close: bool = True) -> str:
    """A figure of any kind as SVG; `salt` makes its names its own."""
    if isinstance(figure, Sketch):
        prefix = hashlib.sha256(salt.encode()).hexdigest()[:8]
        figure = figure.svg(f"s{prefix}-")
    if isinstance(figure, str):
        return figure[figure.index("<svg") :]
    import matplotlib.pyplot as plt

    file = io.StringIO()
    salts = {"svg.fonttype": "none", "svg.hashsalt": salt}
    try:
        with style(), plt.rc_context(salts):
            figure.draw_without_rendering()
            for named in figure.legends:
                box = named.get_window_extent()
                if box.x0 < -1 or box.x1 > figure.bbox.x1 + 1:
                    raise ValueError("a legend is cut: give it fewer columns")
            figure.savefig(file, format="svg", metadata={"Date": None})
    finally:
        if close:
            plt.close(figure)
    return _at_home(file.getvalue())


def _at_home(svg: str) -> str:
    """Matplotlib's SVG without its head, in the page's own colour."""
    svg = svg[svg.index("<svg") :].strip()
    noise = r"\s*(<metadata>.*?</metadata>|<!--.*?-->)"
    svg = re.sub(noise, "", svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # never referred to
    svg = re.sub(r"#000000|(?<=: )black", "currentColor", svg)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, svg)
    # What is black has no fill of its own in matplotlib's file.
    return svg.replace("<svg", '<svg fill="currentColor"', 1)


def _matrix(numbers: Any) -> Any:
    """Numbers as a NumPy matrix of floats; a batch of one is one."""
    import numpy as np

    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().float()
    matrix = np.asarray(numbers, dtype=float)
    return matrix.reshape(matrix.shape[-2:])


def _colour_map(cmap: str | None, signed: bool) -> Any:
    """From the page to a colour of the book; or the signed scale."""
    from matplotlib.colors import LinearSegmentedColormap

    colour = COLOURS[cmap or "attention"]
    stops = [(0, colour + "00"), (1, colour)]
    if signed:  # zero is the page
        low, high = SIGNED["negative"], SIGNED["positive"]
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
    axes: tuple[str, str] = ("", ""),
    scale: str = "",
) -> Any:
    """A matrix with a name for each row and column: a figure.

    Of more than forty names only every eighth is written. `axes` says
    what the rows and what the columns are, `scale` what is coloured.
    `cmap` is one of `COLOURS`; zero is transparent. Numbers of both
    signs have the book's signed scale.
    """
    import matplotlib.pyplot as plt

    matrix = _matrix(matrix)
    if ax is None:
        with style():
            width = min(PAGE, 2.2 + 0.42 * len(columns))
            height = min(PAGE, 1.3 + 0.36 * len(rows))
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
    ax.set(title=title, ylabel=axes[0], xlabel=axes[1])
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label=scale)
    bar.solids.set(rasterized=True, edgecolor="none", linewidth=0)
    bar.ax.patch.set_visible(False)
    return ax.figure


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
