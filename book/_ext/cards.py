"""What a shared link shows: a picture with a page's title and part.

Drawn as SVG and turned into PNG when the site is built. A picture is
kept in `_build/cards` by what is on it, so that the next build only
copies it. sphinxext-opengraph would draw cards too; it is not among the
pinned packages, and its cards would take matplotlib's fonts along.
"""

import hashlib
import html
import shutil
import textwrap
from pathlib import Path

import vl_convert

KEPT = Path(__file__).resolve().parents[2] / "_build" / "cards"
CARD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="630"
 viewBox="0 0 1200 630" font-family="DejaVu Sans, Verdana, sans-serif">
<rect width="1200" height="630" fill="#14202e"/>
<rect width="16" height="630" fill="#e3b35a"/>
{marks}
<text x="80" y="110" font-size="30" fill="#e3b35a">{part}</text>
{title}
<text x="80" y="560" font-size="30" fill="#b8c4d4">{book}</text>
</svg>
"""


def marks() -> str:
    """A triangle of squares: each word looks at those before it."""
    squares = []
    for query in range(6):
        for key in range(query + 1):
            weight = 0.15 + 0.85 / (1 + query - key)
            squares.append(
                f'<rect x="{900 + 40 * key}" y="{330 + 40 * query}" '
                f'width="36" height="36" fill="#7db0f5" '
                f'fill-opacity="{weight:.2f}"/>'
            )
    return "".join(squares)


def drawing(title: str, part: str, book: str) -> str:
    """A card as SVG; a long title is set smaller."""
    size, width = (64, 27) if len(title) <= 54 else (52, 33)
    lines = textwrap.wrap(title, width)[:3]
    text = "".join(
        f'<text x="80" y="{210 + row * size * 1.25:.0f}" '
        f'font-size="{size}" font-weight="bold" fill="#ffffff">'
        f"{html.escape(line)}</text>"
        for row, line in enumerate(lines)
    )
    return CARD.format(
        marks=marks(),
        part=html.escape(part),
        title=text,
        book="" if book == title else html.escape(book),
    )


def card(site: Path, title: str, part: str, book: str) -> str:
    """Put a page's card into the site; returns its path there."""
    svg = drawing(title, part, book)
    name = f"{hashlib.sha256(svg.encode()).hexdigest()[:16]}.png"
    kept = KEPT / name
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(vl_convert.svg_to_png(svg))
    target = site / "_static" / "cards" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, target)
    return f"_static/cards/{name}"
