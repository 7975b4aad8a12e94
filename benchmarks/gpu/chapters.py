"""Execute every chapter's cells here; list the cells that fail.

python benchmarks/gpu/chapters.py SECONDS JOBS [PAGE ...]
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]


def one(path):
    """Run a page's cells in this process."""
    import jupytext
    import matplotlib
    from IPython.core.interactiveshell import InteractiveShell

    matplotlib.use("Agg")
    os.chdir(path.parent)
    shell, failed = InteractiveShell.instance(), 0
    for number, cell in enumerate(jupytext.read(path).cells):
        if cell.cell_type != "code":
            continue
        done = shell.run_cell(cell.source)
        error = done.error_before_exec or done.error_in_exec
        if error and "raises-exception" not in cell.metadata.get("tags", []):
            failed += 1
            print(f"FAIL {path.stem} cell {number}: {error!r:.200}")
    print(f"{path.stem}: {failed} cells fail")


def main(seconds, jobs, *pages):
    paths = [ROOT / "index.md", *sorted(ROOT.glob("book/*/*.md"))]
    paths = [p for p in paths if "{code-cell}" in p.read_text("utf-8")]
    paths = [p for p in paths if not pages or p.stem in pages]
    end = time.time() + float(seconds)

    def run(path):
        words = [sys.executable, __file__, "--one", str(path)]
        try:
            left = max(1, end - time.time())
            found = subprocess.run(
                words, capture_output=True, text=True, timeout=left
            )
        except subprocess.TimeoutExpired:
            return f"{path.stem}: out of time"
        lines = found.stdout.splitlines()
        told = [line for line in lines if line.startswith("FAIL")]
        return "\n".join([*told, *lines[-1:]])

    with ThreadPoolExecutor(int(jobs)) as pool:
        for line in pool.map(run, paths):
            print(line, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(Path(sys.argv[2]))
    else:
        main(*sys.argv[1:])
