"""Under a chapter's title: how long a first reading takes.

They are written in `book/minutes.yml`; a test counts what is open on the
built pages, and says which are off by more than a quarter. They stand in the
navigation too, with a sign where a page has an interactive figure.
"""

from pathlib import Path

import yaml
from docutils import nodes

BOOK = Path(__file__).resolve().parents[1]
MINUTES = yaml.safe_load((BOOK / "minutes.yml").read_text("utf-8"))
SIGN = """\
.bd-links a:is([href$="/{name}.html"], [href="{name}.html"])::after {{
  content: "{sign}" / "{words}";
}}
"""


def say(app, doctree, docname):
    minutes = MINUTES.get(docname.rpartition("/")[2])
    if minutes and app.builder.format == "html":
        words = f"First reading: about {minutes} minutes"
        line = nodes.paragraph("", words, classes=["first-reading"])
        title = next(doctree.findall(nodes.title))
        title.parent.insert(title.parent.index(title) + 1, line)


def new_minutes(app, env):
    """The pages whose minutes have changed: they are written again."""
    before, env.minutes = getattr(env, "minutes", {}), MINUTES
    names = {page: page.rpartition("/")[2] for page in env.found_docs}
    return [
        page
        for page, name in names.items()
        if before.get(name) != MINUTES.get(name)
    ]


def write_signs(app):
    """What the navigation says beside a chapter, as a style sheet."""
    if app.builder.format != "html":
        return
    rules = []
    for page in sorted(BOOK.glob("*/*.md")):
        if minutes := MINUTES.get(page.stem):
            sign, words = f"{minutes} min", f"{minutes} minutes"
            if "on-the-site live" in page.read_text("utf-8"):
                sign, words = f"◉\u2002{sign}", f"interactive, {words}"
            rules.append(SIGN.format(name=page.stem, sign=sign, words=words))
    target = Path(app.outdir, "_static", "minutes.css")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(rules), "utf-8")


def setup(app):
    app.add_css_file("minutes.css")
    app.connect("doctree-resolved", say)
    app.connect("builder-inited", write_signs)
    app.connect("env-get-updated", new_minutes)
