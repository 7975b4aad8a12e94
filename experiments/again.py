"""Make a recorded run again, or one that has no record yet.

    python experiments/again.py                           all names
    python experiments/again.py variations/h-16-1         this run
    python experiments/again.py gpu --device cuda         an experiment's
    python experiments/again.py hour/all-three-0 --max-steps 3 --out /tmp/x

A record names the command that made it. Runs that are declared or prepared
and have no record are in waiting.txt, in the order of their worth; by the
name of an experiment, those of it are made that are still without one.
Options after the names take the place of the command's own.

A run writes a folder, runs/EXPERIMENT/RUN, and its report last. It takes one
thread. Stopped, it goes on when the same command is given again; pack.py adds
what is finished to the records.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from filelock import FileLock, Timeout
from pack import RESULTS

from transformer_book.records import load_files, read_record, runs_folder

ROOT = Path(__file__).resolve().parents[1]
WAITING = Path(__file__).with_name("waiting.txt")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def recorded() -> dict[str, list[str]]:
    """{run: the words of the command in its record}"""
    found = {}
    for path in sorted(runs_folder().glob("*.jsonl")):
        for run, files in read_record(path).items():
            for result in RESULTS:
                if result in files:
                    words = shlex.split(files[result]["command"])
                    found[f"{path.stem}/{run}"] = words
    return found


def waiting() -> dict[str, list[str]]:
    """The same of runs that are to be made; --out has their names."""
    lines = map(shlex.split, WAITING.read_text("utf-8").splitlines())
    return {words[-1].removeprefix("runs/"): words for words in lines}


def chosen(names: list[str]) -> dict[str, list[str]]:
    """The runs of these names, and their commands."""
    made, left = recorded(), waiting()
    every = left | made
    for name in names:
        if not any(f"{run}/".startswith(f"{name}/") for run in every):
            raise SystemExit(f"no run and no experiment {name!r}")
    return {
        run: every[run]
        for run in every
        if run in names
        or run.partition("/")[0] in names
        and not {*RESULTS} & load_files(run).keys()
    }


def again(run: str, words: list[str], options: list[str]) -> None:
    """Run a command; two at the same folder would spoil it."""
    folder = ROOT / "runs" / run
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock")  # the run has its own
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *words[1:], "--out", f"runs/{run}", *options]
    print(shlex.join(command), flush=True)
    environment = ONE_THREAD | os.environ | {"PYTHONPATH": path}
    try:
        with FileLock(lock, timeout=0):
            code = finish(subprocess.Popen(command, cwd=ROOT, env=environment))
    except Timeout:
        raise SystemExit(f"{folder}: another run is at it") from None
    if code:
        raise SystemExit(code)


def finish(process: subprocess.Popen) -> int:
    """Wait for it, also when Ctrl-C has told it to save and to stop.

    Ctrl-C reaches it by itself; SIGTERM is handed on.
    """
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def main(words: list[str]) -> None:
    dashed = [i for i, word in enumerate(words) if word.startswith("--")]
    names = words[: dashed[0]] if dashed else words
    if not names:
        print("\n".join(recorded() | waiting()))
    for run, command in chosen(names).items():
        again(run, command, words[len(names) :])


if __name__ == "__main__":
    main(sys.argv[1:])
