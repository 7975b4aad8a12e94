"""Only the icons that the site shows, in place of the theme's 1.5 MB.

The theme loads a script with every icon of Font Awesome. Half of what a
first visit would load is that one file, of which two dozen icons are
used. This keeps those, read from the theme's own file.
"""

import json
import re
from pathlib import Path

from sphinx.errors import ExtensionError

ICON = re.compile(
    r'[{,]"?([a-z0-9-]+)"?:\[(\d+),(\d+),\[([^\]]*)\],'
    r'"[0-9a-f]+","([^"]+)"\]'
)
USED = re.compile(r'<(?:i|span) class="([^"]*\bfa-[^"]*)"')
OURS = "/* The icons that this site uses, from Font Awesome Free 6"
SCRIPT = (
    OURS
    + """,
   https://fontawesome.com/license/free (icons: CC BY 4.0). */
(function () {
  "use strict";
  var ICONS = %s;
  var NS = "http://www.w3.org/2000/svg";
  function draw(mark) {
    var name = Array.from(mark.classList).find(function (word) {
      return ICONS[word.slice(3)];
    });
    if (!name) return;
    var icon = ICONS[name.slice(3)];
    var svg = document.createElementNS(NS, "svg");
    Array.from(mark.attributes).forEach(function (a) {
      svg.setAttribute(a.name, a.value);
    });
    svg.classList.add("svg-inline--fa");
    svg.setAttribute("viewBox", "0 0 " + icon[0] + " " + icon[1]);
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("focusable", "false");
    var path = document.createElementNS(NS, "path");
    path.setAttribute("fill", "currentColor");
    path.setAttribute("d", icon[2]);
    svg.append(path);
    mark.replaceWith(svg);
  }
  function drawAll() {
    document.querySelectorAll("i[class*=fa-], span[class*=fa-]")
      .forEach(draw);
  }
  if (document.readyState === "loading")
    document.addEventListener("DOMContentLoaded", drawAll);
  else drawAll();
})();
"""
)


def icons(script: str) -> dict[str, list]:
    """Every icon in the theme's file: width, height, path."""
    found = {}
    for name, width, height, others, path in ICON.findall(script):
        names = [name, *re.findall(r'"([a-z0-9-]+)"', others)]
        for each in names:
            found[each] = [int(width), int(height), path]
    return found


def used(site: Path) -> set[str]:
    """The names of the icons on the pages."""
    found = {"xmark", "magnifying-glass"}
    for page in site.rglob("*.html"):
        if "_static" not in page.parts:
            for words in USED.findall(page.read_text("utf-8")):
                found |= {
                    word[3:]
                    for word in words.split()
                    if word.startswith("fa-")
                }
    return found - {"solid", "regular", "brands", "lg", "fw", "sm"}


def shrink(app, error):
    """Write the small file over the theme's."""
    if error or app.builder.name not in {"html", "dirhtml"}:
        return
    target = Path(app.outdir, "_static", "scripts", "fontawesome.js")
    source = Path(app.doctreedir, "icons.json")
    script = target.read_text("utf-8")
    if not script.startswith(OURS):
        known = icons(script)
        source.write_text(json.dumps(known), "utf-8")
    known = json.loads(source.read_text("utf-8"))
    names = sorted(used(Path(app.outdir)))
    if missing := [name for name in names if name not in known]:
        raise ExtensionError(f"no icon is called {missing}")
    chosen = {name: known[name] for name in names}
    target.write_text(SCRIPT % json.dumps(chosen), "utf-8")


def setup(app):
    app.connect("build-finished", shrink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
