# Collected from book/results/queues.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The queue of trainings: a budget, several at once, going on."""

import math
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_lib.checkpoints import checkpoints
from transformer_lib.runs import Run, load_run, write_report

__all__ = [
    "Job",
    "SMOKE",
    "keep_best",
    "may_start",
    "read_queue",
    "run_queue",
]


SMOKE = (
    "--device cpu --precision fp32 --max-steps 4 --validate-every 2 "
    "--checkpoint-every 2 --limit 64 --tokens-per-batch 512 --N 1 "
    "--d-model 32 --d-ff 64 --h 2 --vocab-size 400 --no-compile"
)  # at the end of a command, it makes a training a matter of seconds


@dataclass(frozen=True, eq=False)
class Job:
    """One training of a queue: a run's command, for one seed.

    `run` is the queue's entry: with `needs`, files without which the
    job is skipped, `minutes`, the longest that one start may take,
    and `alone`, if nothing else may run beside it.

    Chapter: queues-jobs
    """

    name: str
    folder: Path
    command: list[str]
    run: dict[str, Any]

    @property
    def of_several(self) -> bool:
        """Whether the run has more seeds than this one."""
        return len(self.run.get("seeds", [])) > 1

    @property
    def obstacle(self) -> str:
        """Why not to start it: done, or a file is missing."""
        report = self.folder / "report.json"
        if (
            report.is_file()
            and load_run(self.folder).history.finished
        ):
            return "finished"
        needs = self.run.get("needs", [])
        missing = [x for x in needs if not Path(x).exists()]
        return f"skipped: needs {missing}" if missing else ""


def read_queue(
    queue: str | Path, folder: str | Path, smoke: bool = False
) -> list[Job]:
    """The jobs of a queue, a YAML file: one for each seed of a run.

    A run of one seed fills `folder/NAME`, one of several
    `folder/NAME/seed-S`. `smoke` takes the first seed, made tiny.

    Raises:
        ValueError: for a run without a name or an end.

    Chapter: queues-jobs
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
    """Start a job as a process that ends within `minutes`."""
    job.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "transformer_lib", *job.command]
    command += ["--name", job.name, "--out", str(job.folder)]
    command += ["--max-minutes", f"{minutes:.2f}"]
    with (job.folder / "output.txt").open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _end_job(job: Job, code: int) -> str:
    """What became of a job whose process ended; tidies up."""
    output = job.folder / "output.txt"
    if code:
        lines = output.read_text("utf-8").strip().splitlines()
        return f"failed: {(lines or [f'exit code {code}'])[-1]}"
    output.unlink()
    if job.obstacle != "finished":
        return "stopped, goes on next time"
    for path in checkpoints(job.folder):
        path.unlink()
    return "finished"


def may_start(job: Job, running: list[Job], places: int) -> bool:
    """Whether a job can start beside those that run already.

    There must be a place, and nobody may be there who wants to be
    `alone`.

    Chapter: queues-run
    """
    if any(x.run.get("alone") for x in [job, *running]):
        return not running
    return len(running) < places


def _spread(runs: list[Run], part: str) -> dict[str, Any]:
    """A part of several reports as one: every seed's figures.

    Of each score and time also the mean, and the deviation.
    """
    found: dict[str, Any] = {}
    for name, first in runs[0].report.get(part, {}).items():
        values = [run.report[part].get(name) for run in runs]
        if isinstance(first, float) and None not in values:
            found[name] = values
            found[f"{name}_mean"] = statistics.mean(values)
            spread = statistics.stdev(values) if values[1:] else 0.0
            found[f"{name}_spread"] = spread
        elif all(value == first for value in values):
            found[name] = first
    return found


def keep_best(folder: str | Path) -> dict[str, Any]:
    """Sum up the seeds of a run; keep the weights of the best alone.

    The best has the highest BLEU on the validation set or, where that
    was not measured, the lowest loss. Can be stopped and done again.

    Chapter: queues-best
    """
    folder, kept = (
        Path(folder),
        ("model.safetensors", "tokenizer.json"),
    )
    runs = [load_run(path) for path in sorted(folder.glob("seed-*"))]

    def quality(run: Run) -> float:
        loss = run.report["result"]["validation_loss"]
        return run.report["result"].get("validation_bleu", -loss)

    best = max(runs, key=quality)
    if not (folder / "report.json").is_file():
        for name in ("config.json", *kept):
            shutil.copy(best.folder / name, folder)
        seeds = [run.report["training"]["seed"] for run in runs]
        chosen = {"best_seed": best.report["training"]["seed"]}
        result = {"seeds": seeds} | chosen | _spread(runs, "result")
        same = ("measures", "command", "weights_sha256", "finished")
        same += ("data", "model", "training", "machine")
        report = {"name": folder.name, "result": result}
        report |= {name: best.report[name] for name in same}
        if "test" in best.report:
            report["test"] = _spread(runs, "test")
        write_report(folder, report)
    for path in (run.folder / name for run in runs for name in kept):
        path.unlink(missing_ok=True)
    return load_run(folder).report


def _sum_up(planned: list[Job], state: dict[str, str]) -> None:
    """`keep_best` of each run all of whose seeds have finished."""
    for folder in {x.folder.parent for x in planned if x.of_several}:
        jobs = [x for x in planned if x.folder.parent == folder]
        if all(state[x.name] == "finished" for x in jobs):
            keep_best(folder)


def run_queue(
    queue: str | Path,
    folder: str | Path = "runs",
    budget_minutes: float = math.inf,
    jobs: int = 1,
    smoke: bool = False,
) -> dict[str, str]:
    """Run a queue within a budget, `jobs` at once: {job: its end}.

    Finished jobs are skipped and stopped ones go on. Each process
    gets the minutes that are left and stops by itself; an interrupt
    stops all of them, to go on from their last checkpoints. Of a run
    whose seeds are all finished, `keep_best` keeps one.

    Chapter: queues-best
    """
    deadline = time.monotonic() + 60 * budget_minutes
    planned = read_queue(queue, folder, smoke)
    state = {x.name: x.obstacle or "not started" for x in planned}
    waiting = [x for x in planned if not x.obstacle]
    running: dict[Job, subprocess.Popen] = {}
    try:
        while running or (waiting and time.monotonic() < deadline):
            left = (deadline - time.monotonic()) / 60
            while waiting and left > 0:
                if not may_start(waiting[0], list(running), jobs):
                    break
                job = waiting.pop(0)
                minutes = min(job.run.get("minutes", 9), left)
                running[job] = _start_job(job, minutes)
            time.sleep(0.1)
            for job, process in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    end = _end_job(job, process.returncode)
                    state[job.name] = end
                    print(f"{job.name}: {end}", flush=True)
        _sum_up(planned, state)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    return state
