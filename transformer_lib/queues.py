# Collected from book/results/queues.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The queue of trainings: a budget, several at once, going on."""

import math
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_lib.checkpoints import checkpoints
from transformer_lib.runs import load_run

__all__ = ["Job", "SMOKE", "read_queue", "run_queue"]


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

    Chapter: queues-jobs
    """

    name: str
    folder: Path
    command: list[str]
    run: dict[str, Any]

    @property
    def obstacle(self) -> str:
        """Why not to start it: done, or a file it needs is missing."""
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
    `folder/NAME/seed-S`. `smoke` takes the first seed and makes it tiny.

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
    if job.obstacle != "finished":
        return "stopped, goes on next time"
    for path in checkpoints(job.folder):
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

    Chapter: queues-run
    """
    deadline = time.monotonic() + 60 * budget_minutes
    planned = read_queue(queue, folder, smoke)
    state = {x.name: x.obstacle or "not started" for x in planned}
    waiting = [x for x in planned if not x.obstacle]
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
    return state
