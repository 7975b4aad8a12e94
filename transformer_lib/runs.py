# Collected from book/results/runs.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Recorded runs: how one is read, and the card drawn from it."""

import json
import math
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from transformer_lib.checkpoints import read_log, write_atomically
from transformer_lib.training import History

__all__ = [
    "Run",
    "load_run",
    "machine",
    "markdown_table",
    "recorded_runs",
    "write_card",
    "write_lines",
]


@dataclass(frozen=True)
class Run:
    """A recorded run: its folder, configuration, log and report.

    Chapter: runs-record
    """

    folder: Path
    config: dict[str, Any]
    history: History
    report: dict[str, Any]

    @property
    def translations(self) -> list[str]:
        """Every translation of the test set, in its order."""
        text = (self.folder / "translations.txt").read_text("utf-8")
        return text.split("\n")[:-1]


def recorded_runs() -> dict[str, Path]:
    """Every recorded run by name: {name: folder}.

    A checkout has them in `runs`, a wheel in its `pretrained`.

    Chapter: runs-record
    """
    package = Path(str(files("transformer_lib")))
    folders = package / "pretrained", package.parent / "runs"
    return {
        path.parent.name: path.parent
        for folder in folders
        for path in sorted(folder.glob("*/report.json"))
    }


def load_run(name: str | Path) -> Run:
    """A recorded run by its name, or any folder that a training filled.

    Raises:
        FileNotFoundError: if there is none; lists the names.

    Chapter: runs-record
    """
    folder = recorded_runs().get(str(name), Path(name))
    if not (folder / "report.json").is_file():
        names = ", ".join(recorded_runs()) or "none"
        raise FileNotFoundError(
            f"{str(name)!r} is neither a recorded run nor the folder of a "
            f"training that ended; recorded are: {names}"
        )
    config, report = (
        json.loads((folder / file).read_text("utf-8"))
        for file in ("config.json", "report.json")
    )
    history = History(read_log(folder), report["finished"])
    return Run(folder, config, history, report)


def machine() -> dict[str, str | int]:
    """Processor, versions and commit, as a record keeps them.

    Chapter: runs-machine
    """
    commit, processor = "not recorded", platform.machine()
    if shutil.which("git"):
        git = "git describe --always --dirty --exclude=*".split()
        place = str(files("transformer_lib"))
        done = subprocess.run(git, cwd=place, capture_output=True)
        commit = done.stdout.decode().strip() or commit
    if (info := Path("/proc/cpuinfo")).is_file():
        names = re.findall("model name\\s*: (.+)", info.read_text())
        processor = (names or [processor])[0]
    if torch.cuda.is_available():
        processor = f"{torch.cuda.get_device_name()}, {processor}"
    return {
        "processor": processor,
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit,
    }


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, with figures made short.

    Chapter: runs-card
    """

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return " ".join(map(text, value))
        if isinstance(value, float):
            return f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"
        whole = isinstance(value, int) and not isinstance(value, bool)
        return (
            f"{value:,}" if whole else str(value).replace("|", r"\|")
        )

    names = list(rows[0]) if rows else ["nothing was logged"]
    lines = [[name.replace("_", " ") for name in names]]
    lines.append(["---"] * len(names))
    lines += [
        [text(row.get(name, "")) for name in names] for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_lines(path: str | Path, lines: list[str]) -> None:
    """Write lines of text, the whole file or nothing.

    Chapter: runs-card
    """
    text = "\n".join(lines) + "\n"
    write_atomically(
        path, lambda part: part.write_text(text, "utf-8")
    )


def write_card(folder: str | Path) -> str:
    """Write a run's `card.md` from its report and its log; returns it.

    Nothing on a card is typed by hand: the same report and log give the
    same card.

    Chapter: runs-card
    """
    run = load_run(folder)
    parts = [f"# {run.report['name']}", run.report["measures"]]
    parts.append(f"~~~\n{run.report['command']}\n~~~")
    for name, content in run.report.items():
        if isinstance(content, dict):
            rows = [{name: key, "": content[key]} for key in content]
            parts += [
                f"## {name.capitalize()}",
                markdown_table(rows),
            ]
    lines = [x for x in run.history.lines if "validation_loss" in x]
    shown = lines[:: -max(1, math.ceil(len(lines) / 12))][::-1]
    hidden = ("samples", "loss", "tokens_per_second")
    rows = [{k: x[k] for k in x if k not in hidden} for x in shown]
    parts += ["## The curve", markdown_table(rows)]
    rows = [
        {"step": x["step"], "greedy": "<br>".join(x["samples"])}
        for x in shown
        if "samples" in x
    ]
    parts += ["## Samples", markdown_table(rows)] if rows else []
    card = "\n\n".join(part for part in parts if part)
    write_lines(run.folder / "card.md", [card])
    return card
