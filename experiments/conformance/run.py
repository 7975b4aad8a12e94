"""Try all adapters of this folder: `run.py FOLDER [NAME…]`.

Public implementations are cloned into FOLDER, each at its commit in
`sources.py`, if they are not there. What was found goes to
`runs/conformance.json`, with the lines of `lines.yml`, and onto the
page `conformance`.
Marian needs `pip install transformers==5.23.0`.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml
from sources import SOURCES

import transformer_conformance
from transformer_book.records import runs_folder
from transformer_conformance import Adapter, run

HERE = Path(__file__).parent
RESULTS = runs_folder() / "conformance.json"
LINES = HERE / "lines.yml"
EXAMPLES = Path(transformer_conformance.__file__).parent / "examples"
OTHERS = {  # those that need no clone
    "nn": "torch.nn.Transformer",
    "huggingface": "Marian in Hugging Face Transformers 5.23",
    "after_gpt": "this book's GPT, of the chapter {ref}`after <after-gpt>`",
    "one_file": "this book's {ref}`paper in one file <one_file>`",
}


def clone(folder: Path, name: str) -> None:
    """One commit of a repository, without its history."""
    repository, commit = SOURCES[name]
    target = folder / name
    if target.exists():
        return
    target.mkdir(parents=True)
    address = f"https://github.com/{repository}"
    for command in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", address, commit],
        ["checkout", "-q", "FETCH_HEAD"],
    ):
        subprocess.run(["git", "-C", str(target), *command], check=True)


def tried(name: str) -> dict:
    """What the suite says of one adapter."""
    file = HERE / f"{name}.py"
    if not file.exists():  # one that the suite ships
        file = EXAMPLES / file.name
    adapter = Adapter.load(file)
    results = list(run(adapter))
    repository, commit = SOURCES.get(name, (OTHERS.get(name, name), None))
    found: dict = {"repository": repository, "commit": commit}
    found["alone"] = adapter.alone
    kinds = Counter(result.verdict.kind for result in results)
    lines = yaml.safe_load(LINES.read_text("utf-8")).get(name, {})
    found["count"] = dict(sorted(kinds.items()))
    for kind in ("deviation", "fault"):
        found[kind] = [
            {
                "row": one.probe.row,
                "probe": one.probe.name,
                "says": one.verdict.name or one.verdict.words,
                "follows": one.cause.name if one.cause else None,
                "line": lines.get(one.probe.name),
            }
            for one in results
            if one.verdict.kind == kind
        ]
    return found


def main(folder: str, *names: str) -> None:
    everything = json.loads(RESULTS.read_text("utf-8"))
    os.environ["CONFORMANCE_SOURCES"] = str(Path(folder).resolve())
    for name in names or [*SOURCES, *OTHERS]:
        if name in SOURCES:
            clone(Path(folder), name)
        # a process each: some have modules of the same names
        child = [sys.executable, __file__, "--one", name]
        said = subprocess.run(child, capture_output=True, text=True)
        if said.returncode:
            raise SystemExit(f"{name}: {said.stderr}")
        everything[name] = json.loads(said.stdout.splitlines()[-1])
        order = [*SOURCES, *OTHERS]  # as the page has them
        everything = {n: everything[n] for n in order if n in everything}
        print(name, everything[name]["count"], flush=True)
        text = json.dumps(everything, indent=1, ensure_ascii=False)
        RESULTS.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(tried(sys.argv[2]), ensure_ascii=False))
    else:
        main(*sys.argv[1:])
