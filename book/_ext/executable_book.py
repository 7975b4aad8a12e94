"""What the book asks of Sphinx beyond Jupyter Book.

Formulas are drawn from the site itself, without a network:
sphinx-mathjax-offline copies all 24 MB of MathJax, of which 2 are used. The
files beside this one do the rest, a thing each.
"""

import base64
import importlib.metadata
import importlib.util
import io
import re
from pathlib import Path

from docutils import nodes
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from run_chapters import file_digest
from sphinx.util.fileutil import copy_asset
from sphinx_exercise.nodes import exercise_enumerable_node

ROOT = Path(__file__).resolve().parents[2]
BESIDE = [
    "run_chapters",
    "glossary_tips",
    "book_map",
    "folding",
    "reading_time",
    "buttons",
    "finding",
    "ledger",
    "sittings",
]


# What the site serves itself


def copy_mathjax(static: Path) -> None:
    """Serve MathJax and its fonts, and no more, from the site."""
    files = importlib.metadata.files("sphinx-mathjax-offline")
    start = next(f for f in files if f.name == "tex-mml-chtml.js")
    source = Path(start.locate()).parent
    for part in ["", "input/tex/extensions", "output/chtml/fonts"]:
        copy_asset(
            source / part if part else source / start.name,
            static / "mathjax" / part,
        )


DARK_INK = """  html[data-theme="dark"]
  :is(svg.picture, .chapter-map .lit)
  :is([{part}="{light}"], [style*="{part}: {light}"]) {{
    {part}: {dark} !important;
  }}
"""


def write_inks(static: Path) -> None:
    """The inks of pictures on a dark page, as a style sheet of the site."""
    from transformer_book.figures import COLOURS, DARK

    rules = [
        DARK_INK.format(part=part, light=COLOURS[name], dark=dark)
        for name, dark in DARK.items()
        for part in ("fill", "stroke")
    ]
    text = f"@media screen {{\n{''.join(rules)}}}\n"
    (static / "inks.css").write_text(text, "utf-8")


ICONS = (
    "angle-down angle-left angle-right arrow-up bars circle-half-stroke "
    "download file file-pdf list magnifying-glass moon sun "
    "up-right-from-square xmark"
)
ICON_FACE = """/* Of Font Awesome Free: SIL Open Font License 1.1 */
@font-face {{
  font-family: "Book Icons";
  font-weight: 900;
  src: url(data:font/woff;base64,{font}) format("woff");
}}
:root {{
  --fa-font-solid: normal 900 1em/1 "Book Icons", "Font Awesome 6 Free";
}}
.fas,
.fa-solid {{
  font-family: "Book Icons", "Font Awesome 6 Free";
}}
"""


def write_icons(static: Path) -> None:
    """The icons that pages have, of the theme's font of 1,400.

    One that is not among them is still drawn: a page asks for the whole.
    """
    theme = Path(importlib.util.find_spec("pydata_sphinx_theme").origin)
    font = TTFont(next(theme.parent.rglob("fa-solid-900.ttf")))
    few = Subsetter(Options(layout_features=[], name_IDs=[0]))
    few.populate(glyphs=ICONS.split())
    few.subset(font)
    font.flavor = "woff"
    file = io.BytesIO()
    font.save(file)
    kept = base64.b64encode(file.getvalue()).decode()
    (static / "icons.css").write_text(ICON_FACE.format(font=kept), "utf-8")


def prepare(app):
    if app.builder.format == "html":
        static = Path(app.outdir, "_static")
        static.mkdir(parents=True, exist_ok=True)
        copy_mathjax(static)
        write_inks(static)
        write_icons(static)


def choose_scripts(app, pagename, templatename, context, doctree):
    """No Thebe, which asks another host; MathJax for formulas alone.

    Sphinx gives it to the first page too, because of the pages below it.
    """
    left_out = ["thebe"]
    if not app.env.get_domain("math").data["has_equations"].get(pagename):
        left_out.append(app.config.mathjax_path)
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if not any(
            word in f"{script.filename} {script.attributes}"
            for word in left_out
        )
    ]


# Boxes, formulas and outputs

PANDAS = 'border="1" class="dataframe"'
COLUMNS = 79  # of a line of code; what is printed wider is prose


def tidy(app, doctree, docname):
    """Mend in a page's tree what no option of an extension does."""
    for box in doctree.findall(exercise_enumerable_node):
        title = box.next_node(nodes.title)
        if title.children[0].astext() == " (":  # a dot stands there
            del title[0], title[-1]
    for printed in doctree.findall(nodes.literal_block):
        lines = printed.astext().splitlines()
        if max(map(len, lines), default=0) <= COLUMNS:
            printed["classes"].append("columns")
    for shown in doctree.findall(nodes.raw):  # pandas' tables, as all others
        text = shown.astext().replace(PANDAS, 'class="dataframe table"')
        shown.children = [nodes.Text(text)]
    for formula in list(doctree.findall(nodes.math)):
        keep_sign(formula)
    for name in list(doctree.findall(nodes.literal)):
        if " " not in name.astext():  # several words may be on two lines
            link = name.parent
            alone = isinstance(link, nodes.reference) and len(link) == 1
            keep_sign(link if alone else name)


def keep_sign(formula: nodes.Element) -> None:
    """No line begins with the full stop behind a formula or a name."""
    after = formula.next_node(descend=False, siblings=True)
    if not isinstance(after, nodes.Text):
        return
    sign = re.match(r"[.,;:?!)\u201d]+", after)
    if sign:
        whole = nodes.inline("", "", classes=["unbroken"])
        formula.replace_self(whole)
        whole += [formula, nodes.Text(sign[0])]
        parent = after.parent  # replace would take the first of equal texts
        parent[parent.index(whole) + 1] = nodes.Text(after[sign.end() :])


# The reference


def link_chapter(app, what, name, item, options, lines):
    """Make a link of the label that ends a docstring."""
    for at, line in enumerate(lines):
        if said := re.fullmatch(r"Chapter: (\S+)", line):
            place = said[1]
            page = f":doc:`/{place}`" if "/" in place else ""
            # some labels have no title
            lines[at] = f"Chapter: {page or f':ref:`{place} <{place}>`'}"


def setup(app):
    # Sphinx reads all pages again when an extension has changed.
    here = sorted(Path(__file__).parent.glob("*.py"))
    makers = [file_digest(path) for path in here]
    app.add_config_value("makers", makers, "env", list)
    for name in BESIDE:
        app.setup_extension(name)
    app.config.mathjax_path = "mathjax/tex-mml-chtml.js"
    app.config.templates_path.append(str(Path(__file__).parent / "templates"))
    app.add_css_file("inks.css")
    app.add_css_file("icons.css")
    app.connect("builder-inited", prepare)
    app.connect("doctree-resolved", tidy)
    app.connect("html-page-context", choose_scripts, priority=900)
    app.connect("autodoc-process-docstring", link_chapter)
