"""Execute the chapters under other kernels, threads and seeds.

    python tools/portable.py                     all of it, an hour or two
    python tools/portable.py loss layers         these chapters
    python tools/portable.py loss avx2 seed+77   under these settings

A claim of the book holds on every machine. This stands in for other
machines: older instructions of the processor, other numbers of threads,
and every `torch.manual_seed` of a chapter moved by a number of your
choice. Under `twice` it executes a chapter two times, with two threads,
and what it trains must be the same to the last bit. It prints the cells
that fail, the values in the text that are others than on the site, and a
table; `make portable` runs it.
"""

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import tangle
from nbformat.v4 import new_code_cell
from notebooks import execute, is_notebook, shown

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
SSE = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}
SETTINGS = {
    "threads1": {"OMP_NUM_THREADS": "1"},  # the processor as it is
    "avx2": AVX2,
    "sse": SSE,
    "threads2": {"OMP_NUM_THREADS": "2"},
    "twice": {"OMP_NUM_THREADS": "2"},
    "seed+1": {},
    "seed+23": {},
    "seed+456": {},
}
MOVE_SEEDS = """
import torch

def moved(seed, old=torch.manual_seed):
    return old(int(seed) + {shift})

torch.manual_seed = torch.random.manual_seed = moved
moved(0)
"""

BITS = """
import hashlib
import torch

for name, value in sorted({**globals()}.items()):
    trained = isinstance(value, torch.nn.Module)
    for one in value.parameters() if trained else [value]:
        if torch.is_tensor(one) and not (name[0] == "_" or one.is_meta):
            bits = one.detach().contiguous().numpy().tobytes()
            print(name, hashlib.sha256(bits).hexdigest()[:9])
"""


def chapters() -> dict[str, Path]:
    """The pages that compute, by name."""
    pages = [tangle.ROOT / "index.md", *tangle.contents()]
    return {page.stem: page for page in pages if is_notebook(page)}


def run(path: Path, setting: str) -> tuple[list[str], list[str]]:
    """What fails in a chapter under a setting, and what its text says."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
            **os.environ,
            **SETTINGS.get(setting, {}),
        }
        if setting.startswith("seed+"):
            start = Path(folder, "profile_default", "startup")
            start.mkdir(parents=True)
            shift = int(setting.removeprefix("seed+"))
            start.joinpath("seeds.py").write_text(
                MOVE_SEEDS.format(shift=shift), "utf-8"
            )
            environment["IPYTHONDIR"] = folder
        notebook = jupytext.read(path)
        if setting == "twice":
            notebook.cells.append(new_code_cell(BITS))
        ends = []
        for _ in range(2 if setting == "twice" else 1):
            values = execute(
                notebook, path.parent, environment, allow_errors=True
            )
            told = notebook.cells[-1].get("outputs", [])
            ends.append("".join(one.get("text", "") for one in told))
    found = []
    if ends[0] != ends[-1]:
        found.append("what was trained is not the same twice")
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                said = f"{output.ename}: {output.evalue}".strip()
                found.append(f"{cell.source}\n{said[:500]}")
    return found, [f"{name} is {shown(value)}" for name, value in values]


def told_by_the_build(path: Path) -> list[str]:
    """What the page's text says on the site, if that was built."""
    name = path.relative_to(tangle.ROOT).with_suffix(".json")
    kept = tangle.ROOT / "_build" / "executed" / name
    if not kept.exists():
        return []
    values = json.loads(kept.read_text("utf-8"))["values"]
    return [f"{name} is {shown(value)}" for name, value in values]


def main(names: list[str]) -> int:
    pages = chapters()
    seeds = [name for name in names if name.startswith("seed+")]
    settings = [n for n in names if n in SETTINGS or n in seeds]
    chosen = [name for name in names if name in pages]
    if unknown := set(names) - {*settings, *chosen}:
        raise SystemExit(
            f"neither a chapter nor a setting: {', '.join(unknown)}; "
            f"settings are {', '.join(SETTINGS)} and any seed+NUMBER"
        )
    settings = settings or list(SETTINGS)
    chosen = chosen or list(pages)
    jobs = [(name, setting) for name in chosen for setting in settings]
    cells = {}

    def try_out(job):
        began = time.perf_counter()
        for turn in range(3):
            try:
                found, told = run(pages[job[0]], job[1])
            except (RuntimeError, ValueError) as error:  # the kernel died
                found, told = [str(error)], []
                # before it began: two kernels drew the same port
                if turn < 2 and "kernel_info" in str(error):
                    continue
            break
        said = f"{len(found)} failed" if found else "ok"
        print(*job, said, f"{time.perf_counter() - began:.0f} s")
        for cell in found:
            print("    " + cell.replace("\n", "\n    "), flush=True)
        before = told_by_the_build(pages[job[0]])
        for words in told if before else []:
            if words not in before:
                print(f"    in the text: {words}", flush=True)
        cells[job] = said

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(try_out, jobs))
    width = max(map(len, chosen))
    print(" " * width, *(f"{setting:>9}" for setting in settings))
    for name in chosen:
        row = [f"{cells[name, setting]:>9}" for setting in settings]
        print(f"{name:{width}}", *row)
    return int(any(said != "ok" for said in cells.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
