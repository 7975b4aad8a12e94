"""`python -m transformer_conformance my_adapter.py`."""

import argparse
import sys
from pathlib import Path

from . import Adapter, as_html, as_text, run, template


def main(arguments: list[str] | None = None) -> int:
    """Try an adapter; 1 if there is a fault, 2 if it cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_conformance",
        description="Try the paper's statements on an implementation.",
    )
    parser.add_argument("adapter", nargs="?", help="a Python file")
    parser.add_argument(
        "--template", action="store_true", help="print an adapter to fill in"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page, too")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.template:
        print(template(), end="")
        return 0
    if options.adapter is None:
        parser.error("give an adapter, or --template")
    try:
        adapter = Adapter.load(options.adapter, options.seed)
    except Exception as error:
        print(f"{options.adapter} cannot be used: {error}", file=sys.stderr)
        return 2
    results = list(run(adapter))
    print(as_text(results))
    if options.html:
        text = as_html(results, Path(options.adapter).stem)
        Path(options.html).write_text(text, "utf-8")
    # what follows from a deviation is none of its own
    own = [r for r in results if r.cause is None]
    return int(any(r.verdict.kind == "fault" for r in own))


if __name__ == "__main__":
    sys.exit(main())
