"""What the book asks of Sphinx beyond Jupyter Book.

Formulas and charts are drawn from the site itself, without a network:
sphinx-mathjax-offline copies all 24 MB of MathJax, of which 2 are used, and
altair's charts ask another host.
Each chapter is offered as a notebook, and the launch buttons lead to it.
The files beside this one do the rest.
"""

import html
import importlib.metadata
import json
import os
import re
from pathlib import Path

import jupytext
import nbformat
from docutils import nodes
from run_chapters import digest, is_notebook
from sphinx import addnodes
from sphinx.util.fileutil import copy_asset

ROOT = Path(__file__).resolve().parents[2]
PAGES = "gh-pages"  # the branch that holds the published site
BESIDE = [
    "run_chapters",
    "glossary_tips",
    "page_lines",
    "book_map",
    "mended_pages",
    "tables",
    "folding",
    "first_reading",
    "facts",
    "finding",
    "ledger",
]


# Formulas and charts without a network


def copy_mathjax(app):
    """Serve MathJax and its fonts, and no more, from the site."""
    files = importlib.metadata.files("sphinx-mathjax-offline")
    start = next(f for f in files if f.name == "tex-mml-chtml.js")
    source = Path(start.locate()).parent
    target = Path(app.outdir, "_static", "mathjax")
    for part in [
        "tex-mml-chtml.js",
        "input/tex/extensions",
        "output/chtml/fonts",
    ]:
        copy_asset(
            str(source / part),
            str((target / part).parent)
            if part.endswith(".js")
            else str(target / part),
        )


TEXT = {
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
LOOK = {
    "background": None,
    "view": {"stroke": None},
    "title": {"fontWeight": "normal", "fontSize": 13},
    **dict.fromkeys(("axis", "header", "legend"), TEXT),
}
BEFORE = """(function () {
  var look = %s, module, exports, define;
"""
AFTER = """
  var embed = window.vegaEmbed;
  /* On a phone a chart is drawn narrower, not smaller with its letters. */
  function fitted(spec, room) {
    var fit = { type: "fit-x", contains: "padding" };
    return spec.width > room && innerWidth < 600
      ? Object.assign({}, spec, { width: room, autosize: fit })
      : spec;
  }
  window.vegaEmbed = function (element, spec, options) {
    var room = element.parentElement.clientWidth;
    return embed(element, fitted(spec, room), Object.assign({}, options, {
      renderer: "svg",
      actions: false,
      config: look,
    }));
  };
  window.VEGA_DEBUG = %s;
})();
"""


def write_charts(app):
    """Vega, Vega-Lite and Vega-Embed as one script of the site.

    It names the versions that altair asks for, so that altair's own
    loader finds all it needs and asks no other host.
    """
    import altair
    import vl_convert

    target = Path(app.outdir, "_static", "charts.js")
    versions = {
        "vega_version": altair.VEGA_VERSION,
        "vegalite_version": altair.VEGALITE_VERSION,
        "vegaembed_version": altair.VEGAEMBED_VERSION,
    }
    before = BEFORE % json.dumps(LOOK)
    after = AFTER % json.dumps(versions)
    there = target.read_text("utf-8") if target.exists() else ""
    if there.startswith(before) and there.endswith(after):
        return
    bundle = vl_convert.javascript_bundle()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{before}  {bundle}{after}", "utf-8")


DARK_INK = """  html[data-theme="dark"]
  :is(svg.picture, .vega-embed svg, .chapter-map .lit)
  :is([{part}="{light}"], [style*="{part}: {light}"]) {{
    {part}: {dark} !important;
  }}
"""


def write_inks(app):
    """The inks of pictures on a dark page, as a style sheet of the site."""
    from transformer_book.figures import COLOURS, DARK

    rules = [
        DARK_INK.format(part=part, light=COLOURS[name], dark=dark)
        for name, dark in DARK.items()
        for part in ("fill", "stroke")
    ]
    target = Path(app.outdir, "_static", "inks.css")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"@media screen {{\n{''.join(rules)}}}\n", "utf-8")


def prepare(app):
    if app.builder.format == "html":
        copy_mathjax(app)
        write_charts(app)
        write_inks(app)


def spare_mathjax(app, pagename, templatename, context, doctree):
    """A page without formulas loads no MathJax, which is 1.2 MB.

    Sphinx gives it to the first page because of the pages below it.
    """
    math = app.env.get_domain("math")
    if not math.data["has_equations"].get(pagename):
        context["script_files"] = [
            script
            for script in context["script_files"]
            if app.config.mathjax_path not in str(script.filename)
        ]


BEGINS = re.compile(r'<script type="text/javascript">(\s*var VEGA_DEBUG)')
CHART = re.compile(r'\}\)\((\{.*\}), \{"mode": "vega-lite"\}\);\s*</script>')


def stand_still(match) -> str:
    """A chart and how it begins, as long as it is not drawn."""
    import vl_convert

    spec = json.loads(match[1])
    words = html.escape(spec.get("description", "A chart"))
    look = LOOK | {"padding": 12, "axisY": {"titlePadding": 12}}
    picture = vl_convert.vegalite_to_svg(spec, config=look)
    return (
        f'{match[0]}<div class="vega-embed chart-still" role="img" '
        f'aria-label="{words}">{picture}</div>'
    )


def choose_scripts(app, pagename, templatename, context, doctree):
    """Charts where a page has one; no Thebe, which asks another host.

    `draw_charts.js` draws them when the reader comes near.
    """
    if "altair-viz-" in context.get("body", ""):
        body = BEGINS.sub(r'<script type="text/chart">\1', context["body"])
        context["body"] = CHART.sub(stand_still, body)
        app.add_js_file("draw_charts.js")
    kept = {}
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body") or ""
        name = f"{getattr(script, 'filename', script)} {body}"
        if "thebe" not in name.lower():
            kept.setdefault(name, script)
    context["script_files"] = list(kept.values())


# The reference


def link_chapter(app, what, name, item, options, lines):
    """Make a link of the label that ends a docstring."""
    for pattern, link in [
        (r"(book/\S+)", r":doc:`/\1`"),
        (r"(\w+)([\w-]*)", r":ref:`\1 <\1\2>`"),  # some have no title
    ]:
        pattern, link = f"^Chapter: {pattern}$", f"Chapter: {link}"
        lines[:] = [re.sub(pattern, link, line) for line in lines]


def set_names_as_code(app, what, name, item, options, lines):
    """What a docstring has between single backticks is code."""
    single = re.compile(r"(?<![\w`:])`([^`<>]+)`(?![\w`])")
    lines[:] = [single.sub(r"``\1``", line) for line in lines]


ORDER = "param type returns Yields rtype raises Warns".split()


def order_entry(app, domain, objtype, content):
    """An entry's words, its fields in one order, its chapter, its methods.

    Else a chapter's link would stand before the fields that are made of
    type hints, and behind those that a docstring has.
    """

    def place(field):
        kind = field[0].astext().partition(" ")[0]
        return ORDER.index(kind) if kind in ORDER else len(ORDER)

    for part in list(content):
        if isinstance(part, nodes.field_list):
            part.children.sort(key=place)
    for part in list(content):
        is_text = isinstance(part, nodes.paragraph)
        if is_text and part.astext().startswith("Chapter: "):
            content.remove(part)
            methods = content.first_child_matching_class(addnodes.desc)
            end = len(content) if methods is None else methods
            content.insert(end, part)


# Notebooks and the buttons that lead to them

INSTALL = """\
# Where the library is missing, as on Colab and Binder, this installs it.
try:
    import transformer_lib
except ImportError:
    %pip install -q "{package}"
"""
SAY_WHERE = """\
# The package that the book writes is needed here.
try:
    import transformer_lib
except ImportError as missing:
    raise ImportError(
        "this notebook needs the book's package: run `pip install '.[book]'` "
        "in a checkout of the book, then restart the kernel"
    ) from missing
"""


def repository() -> str:
    """The repository that publishes this site, from the environment."""
    name = os.environ.get("GITHUB_REPOSITORY", "")
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return os.environ.get("BOOK_REPOSITORY") or (
        f"{server}/{name}" if name else ""
    )


def package() -> str:
    """What pip installs, from the repository that publishes this site."""
    return f"executable-transformer[book] @ git+{repository()}"


def first_cell() -> str:
    """How a notebook gets the package; an unpublished copy can only say."""
    return INSTALL.format(package=package()) if repository() else SAY_WHERE


def set_repository(app, config):
    """Point every button at the repository that builds the site."""
    config.html_context.setdefault("default_mode", "auto")
    options = config.html_theme_options
    if address := repository():
        options["repository_url"] = address
        options["repository_branch"] = "main"
        for name in ["repository", "issues", "edit_page"]:
            options[f"use_{name}_button"] = True
        options["launch_buttons"] = {
            "colab_url": "https://colab.research.google.com",
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        }


def with_captions(cells):
    """What stands under a figure in the page is a cell in a notebook."""
    for cell in cells:
        yield cell
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if caption := figure.get("caption"):
            yield nbformat.v4.new_markdown_cell(f"**Figure.** {caption}")


def write_notebooks(app, error):
    """Offer each chapter as a notebook, without outputs."""
    if error or app.builder.format != "html":
        return
    for docname in sorted(app.env.found_docs):
        path = Path(app.env.doc2path(docname))
        if not is_notebook(path):
            continue
        notebook = jupytext.read(path)
        notebook.cells = list(with_captions(notebook.cells))
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first_cell()))
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        target = Path(app.outdir, "_sources", f"{docname}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, target, fmt="ipynb")


def lead_to_notebook(app, pagename, templatename, context, doctree):
    """Launch buttons and downloads take the built notebook."""
    source = Path(app.srcdir, f"{pagename}.md")
    if not source.exists() or not is_notebook(source):
        return

    def rewrite(entry):
        for button in entry.get("buttons", []):
            rewrite(button)
        url = entry.get("url", "")
        if "colab.research" in url or "mybinder" in url:
            url = re.sub(r"/blob/main/", f"/blob/{PAGES}/_sources/", url)
            url = re.sub(r"/main\?", f"/{PAGES}?", url)
            url = url.replace("lab/tree/", "lab/tree/_sources/")
            entry["url"] = url.replace(".md", ".ipynb")
        elif url.endswith(f"{Path(pagename).name}.md") and "_sources" in url:
            entry["url"] = url[:-3] + ".ipynb"
            entry["text"] = ".ipynb"

    for entry in context.get("header_buttons", []):
        rewrite(entry)


def makers(folder: Path) -> list[str]:
    """Hashes of the extensions: what others made is made anew."""
    return [digest(path) for path in sorted(folder.glob("*.py"))]


def setup(app):
    app.add_config_value("makers", makers(Path(__file__).parent), "env", list)
    for name in BESIDE:
        app.setup_extension(name)
    app.config.mathjax_path = "mathjax/tex-mml-chtml.js"
    app.add_css_file("inks.css")
    app.connect("config-inited", set_repository, priority=400)
    app.connect("builder-inited", prepare)
    app.connect("html-page-context", spare_mathjax, priority=900)
    app.connect("html-page-context", choose_scripts, priority=900)
    app.connect("html-page-context", lead_to_notebook, priority=900)
    app.connect("autodoc-process-docstring", link_chapter)
    app.connect("autodoc-process-docstring", set_names_as_code)
    # after the fields that are made of type hints
    app.connect("object-description-transform", order_entry, priority=600)
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
