"""Add finished runs to the records: a file of runs/ for each experiment.

    python experiments/pack.py                       all finished folders
    python experiments/pack.py runs/gpu/headline-0   this one

A run writes a folder, runs/EXPERIMENT/RUN. When it is finished, the lines
of its files go into runs/EXPERIMENT.jsonl, where they replace those of an
earlier run of that name. Weights and tokenizers stay behind. A count,
runs/NAME/NAME.json, becomes runs/NAME.json. The folder is left as it is;
git ignores it.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

from transformer_book.records import read_folder, read_record, runs_folder
from transformer_lib.checkpoints import write_atomically

RESULTS = "report.json", "copying.json"  # what a run writes last


def write_record(path: Path, runs: dict[str, dict[str, Any]]) -> None:
    """{run: {file: content}} as lines, in the order of their names."""
    lines = []
    for run, content in sorted(runs.items()):
        for file, held in sorted(content.items()):
            row = {"run": run, "file": file, "content": held}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_atomically(path, "".join(lines))


def pack(folder: Path) -> str:
    """Add a finished run to its record; a line that says so, or why not."""
    count = folder / f"{folder.name}.json"
    if count.is_file():
        shutil.copyfile(count, folder.with_suffix(".json"))
        return f"{folder.with_suffix('.json')} is written"
    content = read_folder(folder)
    if not any(name in content for name in RESULTS):
        return f"{folder} is not finished"
    path = folder.parent.with_suffix(".jsonl")
    with FileLock(folder.parent / ".lock"):  # others may pack theirs
        read_record.cache_clear()
        runs = dict(read_record(path)) if path.is_file() else {}
        runs[folder.name] = content
        write_record(path, runs)
    read_record.cache_clear()
    return f"{folder} is in {path}"


def finished(runs: Path) -> list[Path]:
    """The folders of finished runs and counts."""
    found = {path.parent for n in RESULTS for path in runs.glob(f"*/*/{n}")}
    for path in runs.glob("*/*.json"):
        if path.stem == path.parent.name:
            found.add(path.parent)
    return sorted(found)


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    for folder in given or finished(runs_folder()):
        print(pack(folder))
