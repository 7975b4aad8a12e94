"""The verdicts as a table of text, and as a page of HTML."""

import html
import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from .core import Adapter, Result
from .places import LOCAL, explained, page

MARKS = {"paper": "✓", "deviation": "≠", "fault": "✗", "not tried": "·"}
ORDER = ("fault", "deviation", "paper", "not tried")


def taken_for(adapter: Adapter) -> str:
    """Which model the suite takes an adapter's for, in a sentence."""
    if adapter.alone:
        words = (
            "Taken for a decoder alone, as GPT is, because it has "
            "logits(model, ids). What such models change on purpose comes as "
            "a deviation: norms first, learned or rotary positions, GELU, no "
            "factor. What the paper says of the encoder is not tried."
        )
    elif adapter.has("logits"):
        words = "Taken for an encoder with a decoder, as in the paper."
    else:
        words = "No model is shown: its parts are tried by themselves."
    return textwrap.fill(words, 78)


def summary(results: Sequence[Result]) -> str:
    """How many verdicts there are of each kind, in a sentence."""
    count = Counter(r.verdict.kind for r in results if r.cause is None)
    seconds = sum(result.seconds for result in results)
    parts = [
        f"{count['paper']} as in the paper",
        f"{count['deviation']} deviation{'s' * (count['deviation'] != 1)}",
        f"{count['fault']} fault{'s' * (count['fault'] != 1)}",
        f"{count['not tried']} not tried",
    ]
    if more := sum(result.cause is not None for result in results):
        parts.insert(3, f"{more} that follow{'s' * (more == 1)} from these")
    probes = f"{len(results)} probe{'s' * (len(results) != 1)}"
    return f"{probes}: {', '.join(parts)}. {seconds:.0f} s"


def line(result: Result) -> str:
    """A verdict in one line, and what a deviation or fault is below."""
    verdict, probe = result.verdict, result.probe
    first = f"{MARKS[verdict.kind]} {probe.row}: {probe.name}"
    body = verdict.words
    if verdict.kind == "deviation":
        body = f"{verdict.name}. {verdict.words}"
        if verdict.who:
            body += f". So in: {verdict.who}"
    if verdict.kind in ("fault", "deviation"):
        says = f"The paper: {probe.says}"
        where = f"Read on in the chapter {explained(probe.label)}"
        texts = [
            line for part in (body, says, where) for line in _wrapped(part)
        ]
        return "\n".join([first, *texts, f"  {page(probe.label)}"])
    return f"{first}\n" + "\n".join(_wrapped(body))


LACKS = "the adapter has no "  # such and such a function


def _lines(results: Sequence[Result]) -> list[str]:
    """Each verdict; those that follow from one, in a line of names."""
    following: dict[str, list[str]] = {}
    for result in results:
        if result.cause:
            names = following.setdefault(result.cause.name, [])
            names.append(result.probe.name)
    lines = []
    for result in results:
        cause = result.cause.name if result.cause else ""
        names = following.get(cause, [])
        if not cause:
            lines.append(line(result))
        elif result.probe.name == names[0]:
            said = f"{MARKS[result.verdict.kind]} {len(names)} that follow"
            said += f"{'s' * (len(names) == 1)} from {cause}: "
            said += ", ".join(names)
            lines.append(textwrap.fill(said, 78, subsequent_indent="  "))
    return lines


def _wrapped(text: str) -> list[str]:
    return [
        piece
        for part in text.splitlines()
        for piece in textwrap.wrap(
            part, 76, initial_indent="  ", subsequent_indent="  "
        )
    ]


def as_text(results: Sequence[Result]) -> str:
    """All verdicts, faults first; what wasn't tried by its reason."""
    tried = [r for r in _sorted(results) if r.verdict.kind != "not tried"]
    untried = [
        textwrap.fill(
            f"{MARKS['not tried']} not tried, {len(names)}: {reason}"
            + ("" if LACKS in reason else f": {', '.join(names)}"),
            78,
            subsequent_indent="  ",
        )
        for reason, names in _untried(results).items()
    ]
    lines = [*_lines(tried), *untried]
    last = ["", summary(results)]
    if any(LOCAL in text for text in lines):
        last.append(
            f"{LOCAL} is where `make serve` shows the book; set "
            "TRANSFORMER_LIB_BOOK to another address."
        )
    lines += [textwrap.fill(text, 78) for text in last]
    return "\n".join(lines)


def _untried(results: Sequence[Result]) -> dict[str, list[str]]:
    """The probes that were not tried, by their reason; all that the
    adapter lacks is one reason."""
    reasons: dict[str, list[str]] = {}
    wanting: dict[str, None] = {}  # the functions, in their order
    for result in results:
        if result.verdict.kind == "not tried":
            words = result.verdict.words
            missing = words.partition(LACKS)[2]
            names = reasons.setdefault("" if missing else words, [])
            names.append(result.probe.name)
            if missing:
                wanting |= dict.fromkeys(missing.split(" and no "))
    lacks = f"{LACKS}{', '.join(wanting)}"
    return {reason or lacks: names for reason, names in reasons.items()}


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .4rem .6rem;
  border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
.fault { color: #b00020; } .deviation { color: #8a5a00; }
.paper { color: #1b6e3c; } .not { color: #666; }
td:first-child, th:first-child { white-space: nowrap; }
summary { cursor: pointer; } details { margin-top: .4rem; }
"""


VERSION = 1  # of the form of as_json


def as_json(results: Sequence[Result], adapter: Adapter) -> dict[str, Any]:
    """The same for a program: {"version": 1, "model": "encoder-decoder"
    or "decoder", "seed", "probes": [...]}.

    A probe has its "name", its "row" of the ledger, a "verdict" ("paper",
    "deviation", "fault" or "not tried"), the name of its "deviation" or
    "", what was "measured", the name of the probe that it "follows" from
    or null, and the "page" that explains it. Names stay from version to
    version; words may not.
    """
    probes = [
        {
            "name": result.probe.name,
            "row": result.probe.row,
            "verdict": result.verdict.kind,
            "deviation": result.verdict.name,
            "measured": result.verdict.words,
            "follows": result.cause.name if result.cause else None,
            "page": page(result.probe.label),
        }
        for result in results
    ]
    model = "decoder" if adapter.alone else "encoder-decoder"
    head = {"version": VERSION, "model": model, "seed": adapter.seed}
    return {**head, "probes": probes}


def accepted(file: str | None) -> dict[str, str] | None:
    """What was tried in a file that as_json's form was written to: the
    names of deviations, or '', by their probes'.

    Raises:
        ValueError: if it is of another form.
    """
    if file is None:
        return None
    found = json.loads(Path(file).read_text("utf-8"))
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError(f"{file} is not what --json writes: write it anew")
    return {
        one["name"]: one["deviation"]
        for one in found["probes"]
        if one["verdict"] != "not tried"
    }


def as_html(
    results: Sequence[Result], title: str, introduction: str = ""
) -> str:
    """The same as a page of its own: a row for each verdict, what
    follows from it folded inside."""
    following: dict[str, list[Result]] = {}
    for result in results:
        if result.cause:
            following.setdefault(result.cause.name, []).append(result)
    rows = "\n".join(
        _row(result, following.get(result.probe.name, []))
        for result in _sorted(results)
        if result.cause is None and result.verdict.kind != "not tried"
    )
    untried = "\n".join(
        f"<details><summary>{MARKS['not tried']} not tried, {len(names)}: "
        f"{html.escape(reason)}</summary>{', '.join(names)}</details>"
        for reason, names in _untried(results).items()
    )
    name = html.escape(title)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Is it a Transformer? {name}</title>
<style>{_STYLE}</style>
<h1>Is it a Transformer? {name}</h1>
<p>{html.escape(introduction)}</p>
<p>{html.escape(summary(results))}</p>
<table><thead><tr><th>verdict</th><th>what the paper says</th>
<th>what was measured</th></tr></thead>
<tbody>
{rows}
</tbody></table>
{untried}
</html>
"""


def _sorted(results: Sequence[Result]) -> list[Result]:
    """Faults first; what follows from a verdict, behind it."""
    places = {result.probe.name: i for i, result in enumerate(results)}
    kinds = {r.probe.name: ORDER.index(r.verdict.kind) for r in results}

    def key(result: Result) -> tuple[int, int, int]:
        first = (result.cause or result.probe).name
        return kinds[first], places[first], places[result.probe.name]

    return sorted(results, key=key)


def _row(result: Result, followers: Sequence[Result]) -> str:
    verdict, probe = result.verdict, result.probe
    says, place = html.escape(probe.says), html.escape(page(probe.label))
    chapter, _, why = explained(probe.label).partition(": ")
    link = f'<a href="{place}">{html.escape(chapter)}</a>'
    if verdict.kind != "paper":
        link += f": {html.escape(why)}"
    return (
        f'<tr><td class="{verdict.kind}">{MARKS[verdict.kind]} '
        f"{verdict.kind}</td><td>{says} {link}</td>"
        f"<td>{_measured(result)}{_folded(followers)}</td></tr>"
    )


def _measured(result: Result) -> str:
    """What was found, after the name of a deviation."""
    verdict = result.verdict
    words = html.escape(verdict.words)
    if verdict.name:
        words = f"<b>{html.escape(verdict.name)}</b>: {words}"
    if verdict.who:
        words += f" <i>So in: {html.escape(verdict.who)}</i>"
    return words


def _folded(followers: Sequence[Result]) -> str:
    """What follows from a verdict: their number, and each if unfolded."""
    if not followers:
        return ""
    count = len(followers)
    words = (
        f"{count} more verdict{'s' * (count > 1)} follow{'s' * (count < 2)}"
    )
    items = "".join(
        f"<li>{MARKS[one.verdict.kind]} {one.probe.name}: "
        f"{_measured(one)}</li>"
        for one in followers
    )
    return (
        f"<details><summary>{words} from this</summary>"
        f"<ul>{items}</ul></details>"
    )


EXAMPLES = ("nn", "huggingface", "gpt")  # adapters that run as they are


def template() -> str:
    """The text of an adapter to fill in."""
    files = resources.files(__package__)
    return files.joinpath("template.py").read_text("utf-8")


def example(name: str) -> str:
    """The text of an adapter that runs: one of EXAMPLES."""
    files = resources.files(__package__)
    return files.joinpath("examples", f"{name}.py").read_text("utf-8")
