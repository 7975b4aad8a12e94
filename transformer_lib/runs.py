# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Recorded runs: how one is read, and the card drawn from it.

Chapter: book/appendix/runs
"""

import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from transformer_lib.checkpoints import read_log, write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import published_bleu
from transformer_lib.training import History


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

    A checkout has them in `runs`, a wheel in its `pretrained`. Runs
    of several seeds are there as NAME, their sum, and NAME/seed-S.

    Chapter: runs-record
    """
    package = Path(str(files("transformer_lib")))
    folders = package / "pretrained", package.parent / "runs"
    return {
        path.parent.relative_to(folder).as_posix(): path.parent
        for folder in folders
        for path in sorted(folder.glob("**/report.json"))
    }


def load_run(name: str | Path) -> Run:
    """A recorded run by its name, or a training's folder.

    Raises:
        FileNotFoundError: if there is none; lists the names.

    Chapter: runs-record
    """
    folder = recorded_runs().get(str(name), Path(name))
    if not (folder / "report.json").is_file():
        names = ", ".join(recorded_runs()) or "none"
        raise FileNotFoundError(
            f"{str(name)!r} is neither a recorded run nor the "
            f"folder of a training that ended; recorded are: {names}"
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


def peak_memory(device: str | torch.device = "cpu") -> int:
    """The most memory that was in use at once, in bytes.

    Of the card, or of this process; 0 where nobody counts.

    Chapter: runs-machine
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(ImportError):  # not on Windows
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * (1 if sys.platform == "darwin" else 1024)
    return 0


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, figures made short.

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
    """Write a run's `card.md` from report and log; returns it.

    Nothing on a card is typed by hand: the same report and log give
    the same card.

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
        elif isinstance(content, list):
            title = f"## {name.capitalize()}"
            parts += [title, markdown_table(content)]
    lines = [x for x in run.history.lines if "validation_loss" in x]
    shown = lines[:: -max(1, math.ceil(len(lines) / 12))][::-1]
    hidden = ("samples", "loss", "tokens_per_second")
    rows = [{k: x[k] for k in x if k not in hidden} for x in shown]
    parts += ["## The curve", markdown_table(rows)] if rows else []
    rows = [
        {"step": x["step"], "greedy": "<br>".join(x["samples"])}
        for x in shown
        if "samples" in x
    ]
    parts += ["## Samples", markdown_table(rows)] if rows else []
    card = "\n\n".join(part for part in parts if part)
    write_lines(run.folder / "card.md", [card])
    return card


def write_report(folder: str | Path, report: dict) -> None:
    """Write a run's report.json, and its card anew.

    Chapter: runs-card
    """
    text = json.dumps(report, indent=1, ensure_ascii=False)
    write_lines(Path(folder) / "report.json", [text])
    write_card(folder)


def add_published(name: str | Path) -> float:
    """Add BLEU in the published form to a record and its card.

    Computed from the record's translations; needs sacremoses and the
    corpus. Returns the score.

    Raises:
        ValueError: if the record has no test, or lines are missing.

    Chapter: runs-later
    """
    run = load_run(name)
    test = run.report.get("test", {})
    if "split" not in test:
        raise ValueError(f"{name} has no translations of a test set")
    told = test["corpus"], *test["languages"], test["split"]
    corpus = load_corpus(*told)[: test["sentences"]]
    language = test["languages"][1]
    score = published_bleu(run.translations, corpus.targets, language)
    test["bleu_published"] = score.value
    test["bleu_published_signature"] = score.signature
    write_report(run.folder, run.report)
    return score.value
