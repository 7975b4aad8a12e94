"""`{paper-ledger}`: the paper statement by statement, from the ledger.

Each row of `fidelity.yml` says what the paper states, and leads to the
place that explains it, the code that builds it and the test that holds
it. The sections of the paper become sections of the page. The rows are
the book's own, so no extension knows them.
"""

from collections import Counter
from pathlib import Path

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

LEDGER = Path(__file__).resolve().parents[1] / "fidelity.yml"
LEDGER_PAGE = "book/appendix/paper"
STATES = {  # and the colours of their badges
    "exact": "success",
    "option": "info",
    "scaled": "warning",
    "open": "dark",
    "undecidable": "secondary",
}
TITLES = {
    "1": "Introduction",
    "2": "Background",
    "3": "Model Architecture",
    "3.1": "Encoder and Decoder Stacks",
    "3.2": "Attention",
    "3.2.1": "Scaled Dot-Product Attention",
    "3.2.2": "Multi-Head Attention",
    "3.2.3": "Applications of Attention",
    "3.3": "Position-wise Feed-Forward Networks",
    "3.4": "Embeddings and Softmax",
    "3.5": "Positional Encoding",
    "4": "Why Self-Attention",
    "5": "Training",
    "5.1": "Training Data and Batching",
    "5.2": "Hardware and Schedule",
    "5.3": "Optimizer",
    "5.4": "Regularization",
    "6": "Results",
    "6.1": "Machine Translation",
    "6.2": "Model Variations",
    "7": "Conclusion",
    "A": "Attention Visualizations",
}


def read() -> list[dict]:
    """The rows, in the order of the file."""
    return yaml.safe_load(LEDGER.read_text("utf-8"))


def chapter(row: dict) -> str:
    """The label of the page that explains a row: that of its chapter."""
    label = row["chapter"].partition("-")[0]
    return "why_attention" if label in ("layer_types", "cost") else label


def order(section: str) -> list[tuple]:
    """The paper's order: 3.2 before 3.10, letters last."""
    parts = section.split(".")
    return [(not p.isdigit(), int(p) if p.isdigit() else p) for p in parts]


def summary(rows: list[dict], sections: list[str]) -> list[str]:
    """How many statements of each section are in each state."""
    count = Counter((str(r["section"]), r["status"]) for r in rows)
    badges = [f"{{bdg-{STATES[state]}}}`{state}`" for state in STATES]
    lines = [f"| section | {' | '.join(badges)} |"]
    lines.append("|---|" + "---:|" * len(STATES))
    for section in sections:
        cells = [str(count[section, state] or "") for state in STATES]
        title = f"{section} {TITLES[section]}"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    totals = Counter(row["status"] for row in rows)
    cells = [str(totals[state]) for state in STATES]
    return [*lines, f"| all | {' | '.join(cells)} |"]


def counted(rows: list[dict]) -> str:
    """In one sentence, how many statements are in each state."""
    count = Counter(row["status"] for row in rows)
    exact, option, scaled, unrun, silent = (count[x] for x in STATES)
    return (
        f"Of {len(rows)} statements, {exact} are built as the paper states "
        f"or implies them, {option} are options, {scaled} are shown at a "
        f"smaller scale, {unrun} are open, and in {silent} the paper does "
        "not say enough."
    )


def entry(row: dict, repository: str) -> list[str]:
    """A row: its state, the statement, and the places it leads to."""
    badge = f"{{bdg-{STATES[row['status']]}}}`{row['status']}`"
    page, place = chapter(row), row["chapter"]
    where = f"{{ref}}`{page}`"
    if place != page:
        where += f", {{ref}}`{place}`"
    places = [f"explained: {where}"]
    if symbol := row.get("symbol"):
        short = symbol.removeprefix("transformer_lib.")
        places.append(f"code: {{py:obj}}`{short} <{symbol}>`")
    if test := row.get("test"):
        file, _, name = test.partition("::")
        held = f"{{download}}`{name} </{file}>`"  # unpublished
        if repository:
            held = f"[`{name}`]({repository}/blob/main/{file})"
        held += f" in `{file.removeprefix('tests/')}`"
        if name.startswith("test_chapter_ran"):
            tested = name.rpartition("/")[2][:-1]
            held = f"the check cells of {{ref}}`{tested}`"
        places.append(f"held by: {held}")
    says = f"{badge} {' '.join(row['says'].split())}"
    return [says, "", "\u00a0· ".join(places)]


class Ledger(SphinxDirective):
    """Every row under its section, after a table of counts.

    `ledger.js` puts a filter above them. It goes by the classes of the
    rows: `section-3-1`, `status-exact`, `chapter-layers`.
    """

    def render(self, lines: list[str], parent: nodes.Element) -> None:
        text = StringList(lines, str(LEDGER))
        self.state.nested_parse(text, self.content_offset, parent)

    def row(self, row: dict) -> nodes.container:
        names = {
            "section": nodes.make_id(f"section-{row['section']}"),
            "status": f"status-{row['status']}",
            "chapter": f"chapter-{chapter(row)}",
        }
        made = nodes.container(classes=["ledger-row", *names.values()])
        made["ids"].append(nodes.make_id(f"row-{row['id']}"))
        options = self.config.html_theme_options
        # Without a repository, Jupyter Book names its own.
        known = options.get("use_repository_button")
        repository = options["repository_url"] if known else ""
        self.render(entry(row, repository), made)
        return made

    def run(self):
        self.env.note_dependency(str(LEDGER))
        rows = read()
        sections = sorted({str(r["section"]) for r in rows}, key=order)
        counts = nodes.container(classes=["ledger-counts"])
        self.render(summary(rows, sections), counts)
        found = [counts]
        for number in sections:
            name = nodes.make_id(f"paper-{number}")
            section = nodes.section(ids=[name], names=[name])
            title = f"{number} {TITLES[number]}"
            section += nodes.title(title, title)
            section += [
                self.row(r) for r in rows if str(r["section"]) == number
            ]
            found.append(section)
        return found


class Counts(Ledger):
    """`{ledger-counts}`: the rows in one sentence."""

    def run(self):
        self.env.note_dependency(str(LEDGER))
        found = nodes.container()
        self.render([counted(read())], found)
        return found.children


def lead_to_rows(app, doctree, docname):
    """A chapter's first box leads to the chapter's rows in the ledger."""
    if app.builder.format != "html":
        return
    names = {label for label, at in labels(app) if at == docname}
    count = sum(chapter(row) in names for row in read())
    if not count or docname == LEDGER_PAGE:
        return
    label = next(chapter(row) for row in read() if chapter(row) in names)
    address = app.builder.get_relative_uri(docname, LEDGER_PAGE)
    for box in doctree.findall(nodes.admonition):
        if "paper" in box["classes"]:
            words = f"→\u00a0statement by statement ({count})"
            link = nodes.reference(
                "", words, refuri=f"{address}?chapter={label}#ledger-rows"
            )
            box += nodes.paragraph("", "", link)
            return  # the others would lead to the same rows


def labels(app) -> list[tuple[str, str]]:
    """The book's labels, each with the page on which it stands."""
    found = app.env.get_domain("std").labels
    return [(label, place[0]) for label, place in found.items()]


def add_filter(app, pagename, templatename, context, doctree):
    if pagename == LEDGER_PAGE:
        app.add_js_file("ledger.js", loading_method="defer")


def setup(app):
    app.add_directive("paper-ledger", Ledger)
    app.add_directive("ledger-counts", Counts)
    app.connect("doctree-resolved", lead_to_rows)
    app.connect("html-page-context", add_filter)
