"""Each page knows a line about itself: its first sentences.

They become its description, for search engines and shared links, and
what the links to its neighbours say. No extension takes them from the
page's text, with titles in place of labels.
"""

import hashlib
import re

from docutils import nodes
from glossary_tips import glossary, plain
from sphinx import addnodes

CAPTIONS = {  # pages that no chapter writes
    "genindex": "All names of the library and all terms, A to Z.",
    "search": "Search the book: the index lies in the site itself.",
    "py-modindex": "The modules of the library.",
    "_modules/index": "The library's source, module by module.",
}


def sentences(text: str, limit: int, whole: bool = False) -> str:
    """The first sentences that fit, at least one, shortened if needed.

    A description has a third of the limit or more; what is `whole` has
    whole sentences, the first even if it is long.
    """
    said = ""
    least = 0 if whole else limit / 3
    for part in re.split(r"(?<=[.?!])\s+(?=[A-Z\"“(])", text):
        fits = len(said) + len(part) + 1 <= limit
        if len(said) > least and not fits:
            break
        said = f"{said} {part}".strip()
    if len(said) > limit and not whole:
        said = said[: limit - 1].rsplit(" ", 1)[0].rstrip(",;:") + " …"
    return said


LABEL = "\ue000{}\ue001"  # stands for the title that a label names


def note_line(app, doctree):
    """Keep the page's first paragraph."""
    env = app.env
    for node in doctree.findall(nodes.paragraph):
        if isinstance(node.parent, nodes.section):
            words = node.deepcopy()
            for cited in list(words.findall(addnodes.pending_xref)):
                if cited.get("refdomain") == "cite":
                    cited.parent.remove(cited)
                elif cited["reftype"] == "ref" and not cited.get(
                    "refexplicit"
                ):
                    mark = LABEL.format(cited["reftarget"])
                    cited.replace_self(nodes.Text(mark))
            text = plain(words.astext()).replace(" ,", ",")
            env.metadata[env.docname]["line"] = text
            return


def line_of(env, docname: str, limit: int, whole: bool = False) -> str:
    if docname in CAPTIONS:
        return CAPTIONS[docname]
    if docname.startswith("_modules/"):
        name = docname.partition("/")[2].replace("/", ".")
        return f"The source of {name}, collected from its chapter."
    return sentences(whole_line(env, docname), limit, whole)


def whole_line(env, docname: str) -> str:
    """A page's first paragraph, titles in place of labels.

    What is a mere pointer, in parentheses, is left out.
    """
    labels = env.get_domain("std").labels
    mark = LABEL.format("(.*?)")

    def title(match):
        found = labels.get(match[1].lower())
        return f"“{found[2]}”" if found and found[2] else match[1]

    line = env.metadata[docname].get("line", "")
    line = re.sub(rf" \({mark}(?:, {mark})*\)", "", line)
    return re.sub(mark, title, line)


def add_lines(app, pagename, templatename, context, doctree):
    """Say at the links to the neighbours what is there."""
    around = getattr(app.builder, "relations", {}).get(pagename)
    if not around:
        return
    for side, docname in zip(["prev", "next"], around[1:], strict=True):
        if docname and context.get(side):
            says = line_of(app.env, docname, 110, whole=True)
            context[side] = {**context[side], "says": says}


def rewrite_all(app, env):
    """Write every page again if what all of them quote has changed."""
    lines = sorted((name, whole_line(env, name)) for name in env.found_docs)
    said = hashlib.sha256(f"{glossary()}{lines}".encode()).hexdigest()
    changed = getattr(env, "quoted_everywhere", said) != said
    env.quoted_everywhere = said
    return list(env.found_docs) if changed else []


def setup(app):
    app.connect("doctree-read", note_line)
    app.connect("env-updated", rewrite_all)
    app.connect("html-page-context", add_lines)
    return {
        "env_version": 2,  # what note_line keeps; read all when it changes
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
