"""The long tries: killed, fuzzed, every model translating again.

    python tests/soak/soak.py                  all of it, an hour
    python tests/soak/soak.py kills=5 fuzz=2   5 kills, 2 minutes

Prints a row for each part. A crash is a traceback or a signal nobody
sent, a hang a try without an end, lost what a training had saved and
has no more. All three must be zero. `make soak` runs this.
"""

import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "transformer_lib"]
EVERY = 4  # steps from one checkpoint to the next
TRAIN = (
    "train --limit 300 --N 1 --d-model 16 --d-ff 16 --h 2 "
    "--vocab-size 300 --tokens-per-batch 256 --max-steps 200 "
    "--warmup-steps 50 --log-every 1 --validate-every 100 "
    f"--checkpoint-every {EVERY} --device cpu --threads 1 --out"
).split()
PATIENCE = 300  # seconds, for a program that takes ten


@dataclass
class Row:
    """What a part has tried, and what has come of it."""

    tried: int = 0
    crashes: int = 0
    hangs: int = 0
    lost: int = 0
    note: str = ""

    def tell(self, kind: str, what: str) -> None:
        """Count a fault, and say which one."""
        setattr(self, kind, getattr(self, kind) + 1)
        print(f"{kind}: {what}", flush=True)


# 1. Killed at any moment, a training goes on to the same end.


def start(folder: Path, **how) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, *TRAIN, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def ended(process, row: Row, expected: set[int]) -> tuple[int, str]:
    """Exit code and last words; what must not be is counted."""
    try:
        said = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1]
        row.tell("hangs", said[-500:])
    if "Traceback" in said or process.returncode not in expected:
        row.tell("crashes", f"{process.returncode}: {said[-2000:]}")
    return process.returncode, said


def newest(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one."""
    names = sorted(path.stem for path in folder.glob("check*.pt"))
    return int(names[-1][-8:]) if names else 0


def records(folder: Path) -> list[dict]:
    """The log without times; a last line without an end is none."""
    path = folder / "log.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    kept = map(json.loads, lines)
    times = "seconds", "tokens_per_second"
    return [{k: v for k, v in line.items() if k not in times} for line in kept]


def read_all(folder: Path) -> None:
    """Read every file of a training; ValueError if one is no whole."""
    from transformer_lib import checkpoints

    for path in checkpoints.checkpoint_files(folder):
        checkpoints.average_checkpoints([path])
    if (folder / "config.json").exists():
        checkpoints.load_config(folder)
    if (folder / "model.safetensors").exists():
        checkpoints.load_model(folder)
    if (folder / "report.json").exists():
        json.loads((folder / "report.json").read_text())
    records(folder)


def kill(folder: Path, dice: random.Random, row: Row) -> bool:
    """Start a training, end it somewhere.

    Returns whether it was finished before.
    """
    before, begun = newest(folder), time.monotonic()
    halves = {*folder.glob(".*.part")}
    when = dice.choice(["starting", "step", "step", "writing"])
    step = before + dice.randint(1, 30)
    process = start(folder)
    while process.poll() is None and when != "starting":
        if when == "step" and newest(folder) >= step:
            break
        if when == "writing" and {*folder.glob(".*.part")} - halves:
            break
        if time.monotonic() > begun + PATIENCE:
            break
        time.sleep(0.001)
    waits = {"starting": 3, "step": 0.2, "writing": 0.002}
    time.sleep(dice.uniform(0, waits[when]))
    number = dice.choice([signal.SIGKILL] * 4 + [signal.SIGTERM])
    process.send_signal(number)
    code, said = ended(process, row, {-number, 0, 130})
    if code == 0:
        return True
    row.tried += 1
    after, log = newest(folder), records(folder)
    reached = log[-1]["step"] if log else 0
    try:
        read_all(folder)
    except (ValueError, OSError) as error:
        row.tell("lost", f"{error!r} after signal {number}")
    if after < before or reached - after > (code != 130) * EVERY:
        row.tell("lost", f"{before}, {reached}, {after}: {said}")
    return False


def same(one: Path, other: Path) -> bool:
    """Whether two trainings have the same weights and records."""
    from safetensors.numpy import load_file

    a, b = (load_file(x / "model.safetensors") for x in (one, other))
    weights = {k: w.tobytes() for k, w in a.items()}
    return records(one) == records(other) and weights == {
        k: w.tobytes() for k, w in b.items()
    }


def kills(row: Row, count: int, seed: int = 0) -> None:
    """Kill trainings; fill a disk; start a second on one folder."""
    dice, trainings, halves = random.Random(seed), 1, set()
    with TemporaryDirectory() as temporary:
        here = Path(temporary)
        ended(start(here / "whole"), row, {0})
        while row.tried < count:
            trainings += kill(here / str(trainings), dice, row)
            halves |= {*here.glob("*/.*.part")}
        refused(here / "refused", row)
        for last in here / str(trainings), here / "refused":
            ended(start(last), row, {0})
        for folder in here.iterdir():
            if not same(here / "whole", folder):
                row.tell("lost", f"{folder} has another end")
            if left := [*folder.glob(".check*.part")]:
                row.tell("lost", f"halves are left: {left}")
    row.note = f"{trainings} trainings, {len(halves)} in a write"


def refused(folder: Path, row: Row) -> None:
    """A folder that another writes to; then a disk that is full."""
    first = start(folder)
    while newest(folder) < 3 * EVERY and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    said = [ended(start(folder), row, {2})[1]]
    first.kill()
    ended(first, row, {-signal.SIGKILL})
    held = {p.name: p.read_bytes() for p in folder.glob("check*.pt")}
    room = [max(map(len, held.values())) // 2] * 2  # bytes of a file
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, room)
    said += [ended(start(folder, preexec_fn=full), row, {2})[1]]
    if "another training" not in said[0] or "not written" not in said[1]:
        row.tell("crashes", f"not refused: {said}")
    if held != {p.name: p.read_bytes() for p in folder.glob("check*.pt")}:
        row.tell("lost", "checkpoints, to a full disk")
    row.tried += 2


# 3. As many pairs as the paper had, in little memory.


def write_pairs(folder: Path, count: int) -> list[str]:
    """Two files of made-up sentences, and a bad line in each 10,000."""
    dice = random.Random(0)
    signs = "abcdefghijklmnopqrstuvwxyz"
    words = [
        "".join(dice.choices(signs, k=dice.randint(2, 9)))
        for _ in range(20_000)
    ]
    weights = [*accumulate(1 / (i + 10) for i in range(20_000))]
    files = [str(folder / f"train.{x}") for x in ("en", "de")]
    with open(files[0], "w") as left, open(files[1], "w") as right:
        for i in range(count):
            length = dice.randint(5, 40)  # frequent words, rare ones
            row = dice.choices(words, cum_weights=weights, k=length)
            print(*row, file=left)
            bad = i % 10_000 == 9_999
            print("\0" if bad else " ".join(row[::-1]), file=right)
    return files


def corpus(row: Row, count: int) -> None:
    """Prepare that many pairs, go through an epoch of batches."""
    with TemporaryDirectory() as temporary:
        files = write_pairs(Path(temporary), count)
        large = [sys.executable, str(ROOT / "experiments/large.py")]
        words = ["prepare", *files, "--out", f"{temporary}/ids"]
        words += ["--vocab-size", "37000", "--skip-bad-lines"]
        began = time.monotonic()
        done = subprocess.run([*large, *words], stdout=subprocess.PIPE)
        minutes = (time.monotonic() - began) / 60
        through = (
            "import sys; sys.path.append('experiments'); import large;"
            "b = large.TokenBatches(large.StoredPairs(sys.argv[1]));"
            "print(len(b.lengths), sum(len(x.labels) for x in b.epoch(0)))"
        )
        words = [sys.executable, "-c", through, f"{temporary}/ids"]
        read = subprocess.run(words, stdout=subprocess.PIPE, cwd=ROOT)
        row.tried = count
        pairs = count - count // 10_000
        if done.returncode or read.returncode:
            row.tell("crashes", f"{done} {read}")
        elif read.stdout.split() != [str(pairs).encode()] * 2:
            row.tell("lost", f"{pairs} pairs: {read.stdout}")
        row.note = f"prepared in {minutes:.0f} minutes"
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if peak > 2 * 2**20:
        row.tell("crashes", f"{peak / 2**20:.2f} GiB are over 2")


# 4. Every shipped model once more.


def models(row: Row, limit: int) -> None:
    """BLEU on the recorded test sets, and the same translations."""
    from transformer_lib.translator import bundled_models

    off = []
    for name, folder in bundled_models().items():
        record = json.loads((folder / "report.json").read_text())
        with TemporaryDirectory() as here:
            to = Path(here, "translations.txt")
            words = ["evaluate", "--model", name, "--to", str(to)]
            done = subprocess.run(
                [*COMMAND, *words, "--device", "cpu"],
                capture_output=True,
                text=True,
            )
            if "put it there" in done.stderr:
                row.note += f"{name} needs {record['test']['corpus']}; "
                continue
            row.tried += 1
            if done.returncode:
                row.tell("crashes", f"{name}: {done.stderr[-500:]}")
                continue
            said = to.read_text("utf-8").splitlines()
        held = (folder / "translations.txt").read_text("utf-8")
        as_then = sum(map(str.__eq__, said, held.splitlines()))
        found = re.findall(r"^bleu: (\S+)", done.stdout, re.M)[0]
        then = record["test"]["bleu"]
        off.append(abs(float(found) - then))
        told = f"{name}: BLEU {found}, recorded {then:.4f}; "
        told += f"{as_then} of {len(said)} translations as recorded"
        print(told, flush=True)
        if off[-1] > 0.3:
            row.tell("lost", told)
    row.note += f"BLEU at most {max(off, default=0):.2f} off"


def fuzz(row: Row, minutes: int) -> None:
    """Damaged files and odd sentences, see fuzz.py."""
    import fuzz

    fuzz.fuzz(row, 60 * minutes)


PARTS = {"kills": 50, "fuzz": 10, "corpus": 4_500_000, "models": 0}
HEADINGS = "tried", "crashes", "hangs", "lost", "MiB", "s"


def part(name: str, number: int) -> tuple[Row, int]:
    """What a part finds, in a process of its own; its peak memory."""
    row = Row()
    globals()[name](row, number)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return row, peak // 1024


def main(words: list[str]) -> int:
    asked = dict(word.partition("=")[::2] for word in words or PARTS)
    if unknown := asked.keys() - PARTS:
        raise SystemExit(f"parts are {[*PARTS]}, not {[*unknown]}")
    table = [f"{'':8}" + "".join(f"{x:>9}" for x in HEADINGS)]
    faults = 0
    for name, number in asked.items():
        began = time.monotonic()
        with get_context("fork").Pool(1) as pool:
            asking = name, int(number or PARTS[name])
            row, peak = pool.apply(part, asking)
        seconds = round(time.monotonic() - began)
        faults += row.crashes + row.hangs + row.lost
        cells = row.tried, row.crashes, row.hangs, row.lost, peak
        cells = "".join(f"{x:>9,}" for x in (*cells, seconds))
        table.append(f"{name:8}{cells}  {row.note}")
        print(table[-1], flush=True)
    print("", *table, sep="\n")
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
