"""`python -m transformer_conformance my_adapter.py`."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import PROBES, Adapter, Probe, Result, as_html, as_json, as_text, run
from .core import own_line, said_by
from .report import EXAMPLES, MARKS, accepted, example, taken_for, template


def main(arguments: list[str] | None = None) -> int:
    """Try an adapter. 0: no fault, and all that --known has is tried and
    no worse; 1: otherwise; 2: it cannot be read, nothing of it could be
    tried, or a file cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_conformance",
        description="Try the paper's statements on an implementation.",
        epilog="Exit code 0: no fault. 1: a fault, or with --known a new "
        "deviation, or what is no longer tried. 2: the adapter cannot be "
        "read, nothing was tried, or a file cannot be written.",
    )
    parser.add_argument("adapter", nargs="?", help="a Python file")
    parser.add_argument(
        "--template", action="store_true", help="print an adapter to fill in"
    )
    parser.add_argument(
        "--example", choices=EXAMPLES, help="print an adapter that runs"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page, too")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts")
    parser.add_argument(
        "--known",
        metavar="FILE",
        help="what --json wrote before: its deviations are accepted, others "
        "fail, and so does what it has and is no longer tried",
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help="probes, rows of the ledger or functions, with commas",
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.template or options.example:
        text = example(options.example) if options.example else template()
        print(text, end="")
        return 0
    if options.adapter is None:
        parser.error("give an adapter, --template or --example")
    given = options.adapter
    try:
        adapter = Adapter.load(given, options.seed)
        given = f"--only {options.only}"
        probes = _asked(options.only)
        given = f"--known {options.known}"
        known = accepted(options.known)
    except (Exception, SystemExit) as error:
        place = own_line(error)
        said = f"{said_by(error)}\n  at {place}" if place else error
        print(f"{given} cannot be used: {said}", file=sys.stderr)
        return 2
    print(taken_for(adapter), end="\n\n", flush=True)
    results = list(_watched(run(adapter, probes), len(probes)))
    print(as_text(results))
    written = {}
    if options.html:
        name = Path(options.adapter).stem
        written[options.html] = as_html(results, name, taken_for(adapter))
    if options.json:
        found = as_json(results, adapter)
        text = json.dumps(found, indent=1, ensure_ascii=False)
        written[options.json] = text + "\n"
    for file, text in written.items():
        try:
            Path(file).expanduser().write_text(text, "utf-8")
        except OSError as error:  # no fault of the adapter's: not 1
            print(f"{file} cannot be written: {error}", file=sys.stderr)
            return 2
    return _code(results, known)


def _asked(names: str | None) -> list[Probe]:
    """The probes of these names, of these rows, or of these functions."""
    if names is None:
        return PROBES
    probes: list[Probe] = []
    for name in names.split(","):
        of_name = [
            one
            for one in PROBES
            if name in (one.name, one.row)
            or name in "|".join(one.needs).split("|")
        ]
        if not of_name:
            raise ValueError(f"there is no probe {name!r}")
        probes += of_name
    return [one for one in PROBES if one in probes]


def _watched(results: Iterable[Result], count: int) -> Iterator[Result]:
    """The results; a terminal sees how far they are, and each fault."""
    shown = sys.stderr.isatty()
    for number, result in enumerate(results, 1):
        yield result
        if shown:
            if result.verdict.kind == "fault" and not result.cause:
                words = result.verdict.words.splitlines()[0]
                line = f"{MARKS['fault']} {result.probe.name}: {words}"
                print(f"\r{line[:78]:78}", file=sys.stderr)
            text = f"\r{number} of {count}" if number < count else "\r"
            print(f"{text:20}", end="\r", file=sys.stderr, flush=True)


def _code(results: list[Result], known: dict[str, str] | None) -> int:
    """The command's exit code."""
    kinds = {result.verdict.kind for result in results}
    if kinds == {"not tried"}:
        print("Nothing was tried: fill in more of the adapter.")
        return 2
    if known is None:
        return int("fault" in kinds)
    found = [(result.probe.name, result.verdict) for result in results]
    worse = [
        f"new: {name}, {verdict.name}"
        for name, verdict in found
        if verdict.kind == "deviation" and known.get(name) != verdict.name
    ]
    gone = [n for n, v in found if v.kind == "not tried" and n in known]
    if gone:
        said = f"no longer tried: {', '.join(gone)}"
        worse.append(textwrap.fill(said, 78))
    print(*worse, sep="\n", end="\n" * bool(worse))
    return int("fault" in kinds or bool(worse))


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a pipe's may lack the signs
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(main())
