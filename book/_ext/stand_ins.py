"""Boxes in whose place the site shows something of its own.

JupyterLab and Colab know the directives of MyST, but not the book's own.
So a page writes an admonition of the class `on-the-site`, which says in
words what the site has here; the other classes name the directive and its
arguments. The site shows the directive, the notebooks show the box:

    :::{admonition} On the book's site: a translation is written
    :class: on-the-site live play

    `make serve` shows it in place of this box.
    :::
"""

from docutils import nodes
from docutils.parsers.rst.directives.admonitions import Admonition
from docutils.statemachine import StringList


class StandIn(Admonition):
    """An admonition, or the directive in whose place it stands."""

    option_spec = Admonition.option_spec | {"sentence": str}

    def run(self):
        classes = self.options.get("class", [])
        if "on-the-site" not in classes:
            return super().run()
        name, *arguments = [one for one in classes if one != "on-the-site"]
        text = [f"```{{{name}}} {' '.join(arguments)}"]
        if sentence := self.options.get("sentence"):
            text.append(f":sentence: {sentence}")
        text.append("```")
        shown = nodes.Element()
        self.state.nested_parse(StringList(text), self.content_offset, shown)
        return shown.children


def setup(app):
    app.add_directive("admonition", StandIn, override=True)
