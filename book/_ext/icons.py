"""Only the icons that the site shows, of the theme's 1,400.

The theme draws its icons twice over: by a script of 1.5 MB, and by Font
Awesome's classes with a font of 156 kB. The classes are enough. This
takes the script off the pages, and of the font and its rules leaves what
the pages and the theme's style name, which is a few kilobytes. The theme
has no option for that.
"""

import re
from pathlib import Path

import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont

THEME = Path(pydata_sphinx_theme.__file__).parent.joinpath(
    "theme", "pydata_sphinx_theme", "static"
)
FONTS = Path("vendor", "fontawesome", "webfonts")
STYLE = Path("styles", "pydata-sphinx-theme.css")
SCRIPT = re.compile(
    r'\s*<script[^>]* src="[^"]*fontawesome\.js[^>]*></script>'
)
BY_SCRIPT = {"xmark"}  # the theme's script puts these on a page
NAME = re.compile(r"\bfa-([a-z0-9-]+)")
USED = re.compile(r'<(?:i|span) class="([^"]*\bfa-[^"]*)"')
RULE = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\(\w+)"\}')
NAMED = re.compile(r'--pst-icon-[\w-]+:"(?:\\(\w+)|(.))"')
SOURCE = re.compile(
    r"url\(\.\./vendor/fontawesome/webfonts/([\w-]+)\.woff2\) "
    r'format\("woff2"\),url\([^)]*\) format\("truetype"\)'
)


def names_on_pages(site: Path) -> set[str]:
    """The classes of icons on the pages, without their `fa-`."""
    found = set(BY_SCRIPT)
    for page in site.rglob("*.html"):
        if "_static" not in page.parts:
            for classes in USED.findall(page.read_text("utf-8")):
                found.update(NAME.findall(classes))
    return found


def fewer_rules(style: str, names: set[str]) -> tuple[str, set[int]]:
    """The theme's style with the rules of these icons alone.

    Returns:
        The style, and the characters that its icons are in the font.
    """
    signs = {
        int(code, 16) if code else ord(sign)
        for code, sign in NAMED.findall(style)
    }

    def keep(rule) -> str:
        if names.isdisjoint(NAME.findall(rule[1])):
            return ""
        signs.add(int(rule[2], 16))
        return rule[0]

    return RULE.sub(keep, style), signs


def write_font(source: Path, signs: set[int], target: Path) -> None:
    """A font with these characters, those of them that it has."""
    font = TTFont(source)
    choice = subset.Subsetter()
    choice.populate(unicodes=signs)
    choice.subset(font)
    font.flavor = "woff"
    font.save(target)


def write_icons(app, error):
    """Write the fewer rules and the small fonts over the theme's."""
    if error or app.builder.name not in {"html", "dirhtml"}:
        return
    site = Path(app.outdir)
    style = (THEME / STYLE).read_text("utf-8")
    style, signs = fewer_rules(style, names_on_pages(site))
    fonts = set(SOURCE.findall(style))
    for name in fonts:
        source = THEME / FONTS / f"{name}.ttf"
        write_font(source, signs, site / "_static" / FONTS / f"{name}.woff")
    style = SOURCE.sub(
        r'url(../vendor/fontawesome/webfonts/\1.woff) format("woff")', style
    )
    (site / "_static" / STYLE).write_text(style, "utf-8")


def setup(app):
    app.connect("build-finished", write_icons)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
