"""How pictures are drawn: one style, one family of letters, one drawing.

A picture is drawn once. `WIDE` pixels fill the page's column and `WIDTH`
a phone's; on a phone a wider one shrinks until its words are `LEAST`
pixels high, and is then pushed sideways. Pieces of a picture, as several
charts, lie side by side where there is room and below each other where
there is none. Words are `SIZE` pixels high and take the colour of the
page's own text.
"""

import hashlib
import html
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import drawsvg
import matplotlib
from matplotlib import font_manager
from PIL import ImageFont

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
    "embedding": "#5d9732",
    "position": "#a67c10",
    "feed_forward": "#a3735a",  # convolution, too: a network over words
    "recurrence": "#768618",
    "norm": "#7680b3",
    "bad": "#d6336c",  # what is broken, wrong or left out, and it alone
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
    "embedding": "#93c06a",
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
FONT = "Book Sans"  # Source Sans 3, cut to what the book writes
FONTS = Path(__file__).with_name("fonts")
SIZE = 14  # of words, in pixels
LEAST = 11.5  # and on a phone
WIDTH = 430  # pixels of a picture that a phone shows whole
WIDE = 680  # of one that fills the page's column
GROWS = 1.15  # times, where there is room
GAP = 16  # pixels between the pieces of a picture
PAPER = "var(--pst-color-background, Canvas)"  # the page, light or dark
# Where the letters are missing, others are made as high as they are.
LETTERS = f"font-family: '{FONT}', sans-serif; font-size-adjust: 0.486"
CHART = {  # altair's charts have the page's colours, and some room
    "background": "transparent",
    "padding": 12,
    "font": FONT,
    "view": {"stroke": None},
    "legend": {"labelFontSize": SIZE, "labelLimit": 0},
    "title": {"color": "currentColor", "fontWeight": "normal"},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "labelFontSize": SIZE,
        "titleFontSize": SIZE,
        "gridColor": COLOURS["muted"] + "59",
    },
    "axisY": {"titlePadding": 12},
}


def set_style() -> None:
    """Give matplotlib the book's style, as `plt.style.use` would."""
    for file in FONTS.glob("*.ttf"):
        font_manager.fontManager.addfont(file)
    points = SIZE * 0.75
    named = ("axes.titlesize", "axes.labelsize", "figure.titlesize")
    named += ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    matplotlib.rcParams.update(
        dict.fromkeys(named, points)
        | {
            "font.family": "sans-serif",
            "font.sans-serif": [FONT, "DejaVu Sans"],
            "font.size": points,
            "svg.fonttype": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.facecolor": "none",
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
        }
    )


set_style()


def chart(height: float, width: float = WIDTH) -> tuple[Any, Any]:
    """A figure of matplotlib and its axes; both sizes in pixels."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width / 96, height / 96))


def panels(count: int, height: float, abreast: int = 0) -> tuple[list, list]:
    """Figures that fill the column, so many or all abreast; their axes."""
    abreast = abreast or count
    width = (WIDE - GAP * (abreast - 1)) / abreast
    pairs = [chart(height, width) for _ in range(count)]
    figures, axes = zip(*pairs, strict=True)
    return [*figures], [*axes]


@cache
def _letters(weight: int) -> Any:
    return ImageFont.truetype(FONTS / f"book-sans-{weight}.ttf", 100)


def width_of(text: str, size: float = SIZE, bold: bool = False) -> float:
    """How many pixels wide a line of text is."""
    return _letters(700 if bold else 400).getlength(text) * size / 100


def columns(count: int, left: float, right: float) -> list[float]:
    """The middles of equal columns between two edges."""
    step = (right - left) / count
    return [left + step * (i + 0.5) for i in range(count)]


def log_ticks(axis: Any) -> None:
    """A logarithmic axis whose powers of ten are written full size."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    raised = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")

    def write(value, place):
        power = round(math.log10(value))
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
        bold = style.get("font_weight") == "bold"
        width = width_of(text, size, bold)
        left = {"start": 0, "middle": width / 2, "end": width}[anchor]
        above = 0.7 * size
        self.free.append(
            self._area(x - left - 3, y - above, width + 6, 2 * above, "black")
        )
        look = {"text_anchor": anchor, **style}
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

    def ribbons(
        self,
        words: Sequence[float],
        others: Sequence[float],
        weights: Sequence[Sequence[float]],
        edges: tuple[float, float],
        width: float,
        lit: int,
        sideways: bool = False,
    ) -> None:
        """Bands as wide as the weights, from words to those looked at.

        `words` and `others` are their places along two lines, and `edges`
        where these are: the words lie below the others, or `sideways` to
        the left of them. At a word bands lie side by side. Those of the
        word `lit` stand out; what nobody would see is not drawn.
        """
        low, high = edges
        bend = 0.4 * (high - low)
        columns = zip(*weights, strict=True)
        pairs = zip(others, columns, strict=True)
        ends = [at - width * sum(column) / 2 for at, column in pairs]
        bands = []
        for i, (at, row) in enumerate(zip(words, weights, strict=True)):
            start = at - width * sum(row) / 2
            for j, weight in enumerate(row):
                thick = width * weight
                here, there = start + thick / 2, ends[j] + thick / 2
                start, ends[j] = start + thick, ends[j] + thick
                points = (
                    (here, low),
                    (here, low + bend),
                    (there, high - bend),
                    (there, high),
                )
                if sideways:
                    points = [point[::-1] for point in points]
                if thick >= 0.5:
                    bands.append((i == lit, thick, points))
        for strong, thick, points in sorted(bands):  # the strongest in front
            strength = 0.85 if strong else 0.25
            self.flow(*points, thick, "attention", strength)

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

    def plus(self, x: float, y: float) -> None:
        """The sum of what arrives: a circle with a cross."""
        radius, reach = 10, 5.0
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


@dataclass
class Picture:
    """Pieces of SVG in the page, with words for who cannot see them."""

    pieces: list[str] = field(repr=False)
    alt: str

    def _repr_html_(self) -> str:
        words = html.escape(self.alt, quote=True)
        role = "group" if "<a " in self.pieces[0] else "img"  # keep links
        told = f'role="{role}" aria-label="{words}"'
        if len(self.pieces) == 1:
            return _placed(self.pieces[0], told)
        look = f"display: flex; flex-wrap: wrap; gap: {GAP}px"
        placed = "".join(_placed(svg, "") for svg in self.pieces)
        return f'<div class="pictures" style="{look}" {told}>{placed}</div>'


def _placed(svg: str, told: str) -> str:
    """A piece that takes the room it has, as far as it can be read."""
    width = float(re.search(r'<svg[^>]* width="([\d.]+)', svg)[1])
    if "pt" in re.search(r"<svg[^>]*", svg)[0]:  # matplotlib's
        width *= 4 / 3
    look = (
        f"flex: 1 1 {width:.0f}px; width: 100%; height: auto; "
        f"min-width: {width * LEAST / SIZE:.0f}px; "
        f"max-width: {width * GROWS:.0f}px; {LETTERS}"
    )
    start = f'<svg class="picture" style="{look}" fill="currentColor" {told}'
    return svg.replace("<svg", start, 1)


def show(drawing: Any, alt: str) -> Picture:
    """Show a figure of matplotlib or altair, a `Sketch`, or several.

    `alt` says what is drawn for those who cannot see it. Figures are
    closed. The same drawing and words give the same SVG.

    Raises:
        ValueError: if `alt` does not say what the picture shows.
    """
    if not alt.strip():
        raise ValueError("alt is empty: say what the picture shows")
    pieces = drawing if isinstance(drawing, list) else [drawing]
    return Picture(
        [_svg(piece, f"{alt} {i}") for i, piece in enumerate(pieces)], alt
    )


def _svg(figure: Any, salt: str) -> str:
    """A drawing of any kind as SVG; `salt` makes its names its own."""
    if isinstance(figure, Sketch):
        prefix = hashlib.sha256(salt.encode()).hexdigest()[:8]
        figure.id_prefix = f"s{prefix}-"
        return figure.as_svg(header="")
    if hasattr(figure, "to_dict"):  # a chart of altair's
        import vl_convert

        return vl_convert.vegalite_to_svg(figure.to_dict(), config=CHART)
    import matplotlib.pyplot as plt

    file = io.StringIO()
    plain = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    try:
        figure.draw_without_rendering()  # a layout settles at the second
        with matplotlib.rc_context({"svg.hashsalt": salt}):
            figure.savefig(file, format="svg", metadata=plain)
    finally:
        plt.close(figure)
    svg = file.getvalue()
    svg = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index("<svg") :])
    return svg.replace("#000000", "currentColor")


def fading(part: str, signed: bool = False) -> Any:
    """A scale from the page to a part's colour; or the signed one."""
    from matplotlib.colors import LinearSegmentedColormap

    colour = COLOURS[part]
    stops = [(0, colour + "00"), (1, colour)]
    if signed:  # zero is the page
        low, high = SIGNED["negative"], SIGNED["positive"]
        middle = [(0.5, low + "00"), (0.5, high + "00")]
        stops = [(0, low), *middle, (1, high)]
    return LinearSegmentedColormap.from_list("book", stops)


def shape_table(tensors: Mapping[str, tuple[Any, str]]) -> Any:
    """Name, shape and axes of each `(tensor, "batch, source_len")`.

    Raises:
        ValueError: if there is not one word for each axis.
    """
    import pandas as pd

    rows = {}
    for name, (tensor, axes) in tensors.items():
        shape = tuple(tensor.shape)
        if len(axes.split(",")) != len(shape):
            raise ValueError(
                f"{name} has shape {shape}, not the axes ({axes})"
            )
        rows[name] = str(shape), f"({axes})"
    return pd.DataFrame(rows, index=["shape", "axes"]).T
