"""Each chapter as a notebook, and the buttons that lead to it.

The theme's buttons take the source of a page, which is no notebook that
Colab knows.
"""

from pathlib import Path

import jupytext
import nbformat
from notebooks import is_notebook, with_values
from publisher import repository
from run_chapters import kept

PAGES = "gh-pages"  # the branch that holds the published site
INSTALL = """\
# Where the library is missing, as on Colab, this installs it.
try:
    import transformer_lib
except ImportError:
    %pip install -q "executable-transformer[book] @ git+{repository}"
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


def first_cell() -> str:
    """How a notebook gets the package; an unpublished copy can only say."""
    if repository():
        return INSTALL.format(repository=repository())
    return SAY_WHERE


def set_repository(app, config):
    """Point every button at the repository that builds the site."""
    options = config.html_theme_options
    if address := repository():
        options["repository_url"] = address
        options["repository_branch"] = "main"
        for name in ["repository", "issues", "edit_page"]:
            options[f"use_{name}_button"] = True
        colab = "https://colab.research.google.com"
        options["launch_buttons"] = {"colab_url": colab}


def with_captions(cells):
    """What stands under a figure in the page is a cell in a notebook."""
    for cell in cells:
        yield cell
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if caption := figure.get("caption"):
            yield nbformat.v4.new_markdown_cell(f"**Figure.** {caption}")


def write_notebooks(app, error):
    """Offer each chapter as a notebook: values in its text, no outputs."""
    if error or app.builder.format != "html":
        return
    for docname in sorted(app.env.found_docs):
        path = Path(app.env.doc2path(docname))
        if not is_notebook(path):
            continue
        values = kept(app, docname)["values"]
        notebook = with_values(jupytext.read(path), values)
        first = nbformat.v4.new_code_cell(first_cell())
        notebook.cells = [first, *with_captions(notebook.cells)]
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
        target = Path(app.outdir, "_sources", f"{docname}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, target, fmt="ipynb")


def lead_to_notebook(app, pagename, templatename, context, doctree):
    """The button for Colab and the download take the built notebook."""
    if not is_notebook(Path(app.srcdir, f"{pagename}.md")):
        return
    buttons = list(context.get("header_buttons", []))
    for button in buttons:
        buttons += button.get("buttons", [])
        url = button.get("url", "")
        if "colab.research" in url or "_sources" in url:
            url = url.replace("/blob/main/", f"/blob/{PAGES}/_sources/")
            button["url"] = url.replace(".md", ".ipynb")
            if button.get("text") == ".md":
                button["text"] = ".ipynb"


def setup(app):
    app.config.html_context.setdefault("default_mode", "auto")
    app.connect("config-inited", set_repository, priority=400)
    app.connect("html-page-context", lead_to_notebook, priority=900)
    app.connect("build-finished", write_notebooks)
