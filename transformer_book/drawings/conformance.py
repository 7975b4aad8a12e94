"""Tables of the page `conformance`."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

from IPython.display import Markdown

from transformer_book import plant
from transformer_book.tables import with_powers
from transformer_conformance import PROBES, run
from transformer_conformance.clinic import probe

_SHORT = (  # the beginning of a name or a diagnosis, and what the table says
    ("untied: three tables", "three tables"),
    ("untied: two tables", "two tables"),
    ("one table, a bias", "a bias on the scores"),
    ("the factor is missing", "no factor, so positions drown the words"),
    ("in evaluation mode alone", "no causal mask in evaluation mode"),
    ("the exponent is twice", "the exponent of the positions is doubled"),
    ("three paddings move", "no padding mask"),
    ("nothing is smoothed, and padding", "padding counts in the loss"),
    ("no dropout on the sums", "no dropout on the embeddings"),
    ("in the encoder's output", "no norm at the encoder's end"),
    ("is one module used for all", "all heads share their matrices"),
    ("do attentions or layers share", "fewer matrices than the paper's"),
    ("some outputs are added", "some outputs are added without dropout"),
)


_NAME = re.compile(r"[a-z]\w*(?:\.\w+)+")  # of a weight: layers.0.w_1


def implementations(found: dict[str, Any]) -> Markdown:
    """A row each: where it is from, its deviations and its faults."""
    lines = ["| implementation | deviations | faults |", "|---|---|---|"]
    for one in found.values():
        name = one["repository"]
        if one["commit"]:
            address = f"https://github.com/{name}/tree/{one['commit']}"
            for mark in "/-_":  # a phone's line may end here
                name = name.replace(mark, f"\\{mark}<wbr>")
            name = f"[{name}]({address}), `{one['commit'][:7]}`"
        cells = [_shortened(one, kind) for kind in ("deviation", "fault")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return Markdown("\n".join(lines))


def _shortened(implementation: dict[str, Any], kind: str) -> str:
    """Each cause once, in few words that lead to the line."""
    place = "https://github.com/{repository}/blob/{commit}/"
    said: list[str] = []
    for one in implementation[kind]:
        if one["follows"]:
            continue
        words = one["says"]
        short = next((b for a, b in _SHORT if a in words), None)
        short = short or words.partition(":")[0].partition(";")[0]
        if "nats per token" in short:
            short = short.partition(",")[0].removesuffix(" at first")
            short = f"the first loss is {short}"
        short = short.replace("V - 2", "$V - 2$")
        short = short.replace("d_ff", "$d_{\\text{ff}}$")
        if one["line"]:
            address = place.format_map(implementation) + one["line"]
            short = f"[{short}]({address})"
        said.append(short)
    return "; ".join(said) or "none"


def _breakable(words: str) -> str:
    """A phone's line may end at the dots of a weight's name."""
    return _NAME.sub(lambda name: name[0].replace(".", ".<wbr>"), words)


def planted(faults: Sequence[tuple[str, str, str, str]]) -> Markdown:
    """Faults in the library, and what the probe of that name says.

    A fault is (module, old text, new text, probe).
    """
    lines = ["| what we changed | what the suite says |", "|---|---|"]
    for module, old, new, name in faults:
        with plant.planted((module, old, new)):
            tried = [one for one in PROBES if one.name == name]
            verdicts = [result.verdict for result in run(plant.ours(), tried)]
        words = [v.words for v in verdicts if v.kind == "fault"]
        said = f"✗ {_breakable(words[0])}" if words else "✓"
        lines.append(f"| `{old}`<br>→ `{new}` | {said} |")
    return Markdown("\n".join(lines))


def symptoms(patients: Sequence[tuple[str, Any, str]]) -> Markdown:
    """What the clinic's probe says of each patient.

    A patient is (the fault, a function that gives the arguments of
    `probe`, the remedy).
    """
    lines = ["| the fault | what is marked | remedy |", "|---|---|---|"]
    for fault, arguments, remedy in patients:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                with arguments() as given:
                    found = probe(**given)
                marked = [name for name, fine in found.items() if not fine]
            except Exception as error:
                marked = [f"it stops: {type(error).__name__}"]
        text = said.getvalue()
        numbers = [
            line[5:].strip()
            for line in text.splitlines()
            if line.startswith("LOOK")
        ]
        cell = with_powers("; ".join(numbers or marked) or "nothing")
        lines.append(f"| {fault} | {_breakable(cell)} | {remedy} |")
    return Markdown("\n".join(lines))
