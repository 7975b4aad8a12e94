# Collected from book/results/runs.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Recorded runs: how one is read, its card, the queue that makes them."""

import json
import math
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from transformer_lib.checkpoints import write_atomically
from transformer_lib.training import History, read_log
from transformer_lib.translator import Translator

__all__ = [
    "Job",
    "Run",
    "SMOKE",
    "load_run",
    "machine",
    "read_queue",
    "recorded_runs",
    "run_queue",
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

    def translator(self, device: str | None = None) -> Translator:
        """The model that the run left, ready to translate."""
        return Translator.from_pretrained(self.folder, device)


def recorded_runs() -> dict[str, Path]:
    """Every recorded run by name: {name: folder}.

    A checkout has them in `runs`, an installed wheel the shipped ones
    in `transformer_lib/pretrained`.

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
    if Path("/proc/cpuinfo").is_file():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(": ")[2]
    if torch.cuda.is_available():
        processor = f"{torch.cuda.get_device_name()}, {processor}"
    return {
        "processor": processor,
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit,
    }


def _markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, with figures made short."""

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
                _markdown_table(rows),
            ]
    lines = [x for x in run.history.lines if "validation_loss" in x]
    shown = lines[:: -max(1, math.ceil(len(lines) / 12))][::-1]
    hidden = ("samples", "loss", "tokens_per_second")
    rows = [{k: x[k] for k in x if k not in hidden} for x in shown]
    parts += ["## The curve", _markdown_table(rows)]
    rows = [
        {"step": x["step"], "greedy": "<br>".join(x["samples"])}
        for x in shown
        if "samples" in x
    ]
    parts += ["## Samples", _markdown_table(rows)] if rows else []
    card = "\n\n".join(part for part in parts if part)
    write_lines(run.folder / "card.md", [card])
    return card


SMOKE = (
    "--device cpu --precision fp32 --max-steps 4 --validate-every 2 "
    "--checkpoint-every 2 --limit 64 --tokens-per-batch 512 --N 1 "
    "--d-model 32 --d-ff 64 --h 2 --vocab-size 400"
)  # at the end of a command, it makes a training a matter of seconds


@dataclass(frozen=True, eq=False)
class Job:
    """One training of a queue: a run's command, for one seed.

    `run` is the queue's entry: with `needs`, files without which the
    job is skipped, and `minutes`, the longest that one start may take.

    Chapter: runs-queue
    """

    name: str
    folder: Path
    command: list[str]
    run: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether a report says that the last step was made."""
        path = self.folder / "report.json"
        return (
            path.is_file() and load_run(self.folder).history.finished
        )

    @property
    def obstacle(self) -> str:
        """Why the job is not to be started, empty if it is."""
        needs = self.run.get("needs", [])
        missing = [x for x in needs if not Path(x).exists()]
        if self.finished:
            return "finished before"
        return f"skipped: needs {missing}" if missing else ""


def read_queue(
    queue: str | Path,
    folder: str | Path = "runs",
    smoke: bool = False,
) -> list[Job]:
    """The jobs of a queue, a YAML file: one for each seed of a run.

    A run of one seed fills `folder/NAME`, one of several
    `folder/NAME/seed-S`. `smoke` takes the first seed of each run and
    makes it tiny.

    Raises:
        ValueError: for a run without a name or an end.

    Chapter: runs-queue
    """
    import yaml

    folder = tempfile.mkdtemp() if smoke else folder
    runs = yaml.safe_load(Path(queue).read_text("utf-8"))["runs"]
    jobs = []
    for run in runs:
        name, command = run.get("name"), run.get("command", "")
        if not name or "--max-steps" not in command:
            raise ValueError(
                f"{queue}: {name or run} needs a name, and a command "
                "whose --max-steps says when it is finished"
            )
        seeds = run.get("seeds", [0])
        for seed in seeds[: 1 if smoke else None]:
            label = f"{name}/seed-{seed}" if seeds[1:] else name
            words = [*shlex.split(command), f"--seed={seed}"]
            words.append(f"--measures={run.get('measures', '')}")
            words += SMOKE.split() if smoke else []
            place = Path(folder) / label
            jobs.append(Job(label, place, words, run))
    return jobs


def _start_job(job: Job, minutes: float) -> subprocess.Popen:
    """Start a job's command as a process that ends within `minutes`."""
    job.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "transformer_lib", *job.command]
    command += ["--name", job.name, "--out", str(job.folder)]
    command += ["--max-minutes", f"{minutes:.2f}"]
    with (job.folder / "output.txt").open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _end_job(job: Job, code: int) -> str:
    """What became of a job whose process ended; tidies a finished one."""
    output = job.folder / "output.txt"
    if code:
        lines = output.read_text("utf-8").strip().splitlines()
        return f"failed: {(lines or [f'exit code {code}'])[-1]}"
    output.unlink()
    if not job.finished:
        return "stopped, goes on next time"
    for path in job.folder.glob("checkpoint-*.safetensors"):
        path.unlink()
    return "finished"


def run_queue(
    queue: str | Path,
    folder: str | Path = "runs",
    budget_minutes: float = math.inf,
    jobs: int = 1,
    smoke: bool = False,
) -> dict[str, str]:
    """Run a queue within a budget, `jobs` at once: {job: its end}.

    Finished jobs are skipped and stopped ones go on. Each process gets
    the minutes that are left and stops by itself; an interrupt stops
    all of them, to go on from their last checkpoints.

    Chapter: runs-queue
    """
    deadline = time.monotonic() + 60 * budget_minutes
    planned = read_queue(queue, folder, smoke)
    state = {job.name: job.obstacle for job in planned}
    waiting = [job for job in planned if not job.obstacle]
    running: dict[Job, subprocess.Popen] = {}
    try:
        while running or (waiting and time.monotonic() < deadline):
            left = (deadline - time.monotonic()) / 60
            while waiting and len(running) < jobs and left > 0:
                job = waiting.pop(0)
                minutes = min(job.run.get("minutes", 9), left)
                running[job] = _start_job(job, minutes)
            time.sleep(0.1)
            for job, process in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    state[job.name] = _end_job(
                        job, process.returncode
                    )
                    print(
                        f"{job.name}: {state[job.name]}", flush=True
                    )
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
    return {name: end or "not started" for name, end in state.items()}
