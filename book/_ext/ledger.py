"""`{paper-ledger}`: the paper statement by statement, from the ledger.

Each row of `fidelity.yml` says what the paper states, and leads to the
place that explains it, the code that builds it and the test that holds
it. The sections of the paper become sections of the page.
"""

from collections import Counter
from pathlib import Path

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

LEDGER = Path(__file__).resolve().parents[1] / "fidelity.yml"
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


def order(section: str) -> list[tuple]:
    """The paper's order: 3.2 before 3.10, letters last."""
    parts = section.split(".")
    return [
        (not p.isdigit(), int(p) if p.isdigit() else p) for p in parts
    ]


def summary(rows: list[dict], sections: list[str]) -> list[str]:
    """How many statements of each section are in each state."""
    count = Counter((str(r["section"]), r["status"]) for r in rows)
    badges = [f"{{bdg-{STATES[state]}}}`{state}`" for state in STATES]
    lines = [f"| section | {' | '.join(badges)} |"]
    lines.append("|---|" + "---:|" * len(STATES))
    for section in sections:
        cells = [str(count[section, state] or "") for state in STATES]
        title = f"{section} {TITLES.get(section, '')}"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    totals = Counter(row["status"] for row in rows)
    cells = [str(totals[state]) for state in STATES]
    return [*lines, f"| all | {' | '.join(cells)} |"]


def entry(row: dict) -> list[str]:
    """A row as an entry of a list."""
    badge = f"{{bdg-{STATES[row['status']]}}}`{row['status']}`"
    page = row["chapter"].partition("-")[0]
    places = [f"explained: {{ref}}`{page} <{row['chapter']}>`"]
    if symbol := row.get("symbol"):
        short = symbol.removeprefix("transformer_lib.")
        places.append(f"code: {{py:obj}}`{short} <{symbol}>`")
    if test := row.get("test"):
        file, _, name = test.removeprefix("tests/").partition("::")
        held = f"`{name}` in `{file}`"
        if name.startswith("test_chapter_ran"):
            tested = name.rpartition("/")[2][:-1]
            held = f"the check cells of {{ref}}`{tested} <{tested}>`"
        places.append(f"held by: {held}")
    first = f"- {badge} {' '.join(row['says'].split())} \\"
    return [first, *(f"  · {place}" for place in places)]


class Ledger(SphinxDirective):
    """A table of counts, and every row under its section."""

    def render(self, lines: list[str], parent: nodes.Element) -> None:
        text = StringList(lines, str(LEDGER))
        self.state.nested_parse(text, self.content_offset, parent)

    def run(self):
        self.env.note_dependency(str(LEDGER))
        rows = yaml.safe_load(LEDGER.read_text("utf-8"))
        sections = sorted(
            {str(r["section"]) for r in rows}, key=order
        )
        counts = nodes.container()
        self.render(summary(rows, sections), counts)
        found = [counts]
        for number in sections:
            name = nodes.make_id(f"paper-{number}")
            section = nodes.section(ids=[name], names=[name])
            title = f"{number} {TITLES.get(number, '')}".strip()
            section += nodes.title(title, title)
            here = [r for r in rows if str(r["section"]) == number]
            self.render(sum(map(entry, here), []), section)
            found.append(section)
        return found


def setup(app):
    app.add_directive("paper-ledger", Ledger)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
