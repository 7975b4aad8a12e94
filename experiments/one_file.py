"""What `transformer.py` learns, as it is and with a line changed.

    python experiments/one_file.py        all of it, about ten minutes

Each row of EDITS changes lines of the file: the old text and the new one.
The file as it is learns with three seeds, a changed one with the first. The
result is runs/one_file.json, which the page *The paper in one file* shows. A
row that is there isn't made again: delete it first if the file has changed.
"""

import contextlib
import io
import json
import platform
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
EDITS = {
    "as it is": [],
    "no causal mask": [
        (
            "x = self.attend(layer, 0, x, x, mask)",
            "x = self.attend(layer, 0, x, x)",
        )
    ],
    "no shift": [
        (
            "model.decode([BOS, *labels[:-1]], memory)",
            "model.decode(labels, memory)",
        )
    ],
    "no look at the source": [
        (
            "x = self.attend(layer, 1, x, memory)",
            "x = self.attend(layer, 1, x, memory * 0)",
        )
    ],
    "no positions": [
        (
            "return words + positions(len(ids), self.d_model)",
            "return words",
        )
    ],
    "no residual connection": [
        ("return layer_norm(x + output,", "return layer_norm(output,")
    ],
    "no norm": [
        (
            'return layer_norm(x + output, *layer["norms"][i])',
            "return x + output",
        ),
        (
            'return layer_norm(x + output, *layer["norms"][-1])',
            "return x + output",
        ),
    ],
    "no root of d_k": [
        ("query @ key.T * (1 / math.sqrt(d_k))", "query @ key.T")
    ],
    "no root of d_model": [
        (
            "self.table[ids] * math.sqrt(self.d_model)",
            "self.table[ids]",
        )
    ],
    "one head": [("d_ff=32, h=2):", "d_ff=32, h=1):")],
    "no smoothing": [("labels, smoothing=0.1):", "labels, smoothing=0.0):")],
    "no warm-up": [
        ("min(step**-0.5, step * warmup_steps**-1.5)", "step**-0.5")
    ],
    "old gradients kept": [("            w.grad = None\n", "")],
}


def edited(edits: list[tuple[str, str]]) -> str:
    """The file's text with these lines changed."""
    text = (ROOT / "transformer.py").read_text("utf-8")
    for old, new in edits:
        if old not in text:
            raise ValueError(f"not in transformer.py: {old}")
        text = text.replace(old, new)
    return text


def run(text: str, seed: int) -> dict:
    """Losses and outputs by step, the share right, seconds of a core."""
    names = {"__name__": "edited"}
    exec(compile(text, "transformer.py", "exec"), names)
    printed, began = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(printed):
        try:
            right = names["main"](seed=seed)
        except (OverflowError, ValueError) as error:
            right = str(error)
    steps = []
    for line in printed.getvalue().splitlines():
        if line.startswith("step"):
            _, step, _, loss, *said = line.split()
            steps.append([int(step), float(loss), " ".join(said)])
    seconds = round(time.process_time() - began, 1)
    return {"seed": seed, "right": right, "seconds": seconds, "steps": steps}


def main() -> None:
    file = ROOT / "runs" / "one_file.json"
    found = {"python": platform.python_version(), "of": 100, "edits": {}}
    if file.exists():  # a row that is there is not made again
        found = json.loads(file.read_text("utf-8"))
    for name, edits in EDITS.items():
        if name in found["edits"]:
            continue
        seeds = range(1 if edits else 3)
        found["edits"][name] = {
            "changes": edits,
            "runs": [run(edited(edits), seed) for seed in seeds],
        }
        print(name, [run["right"] for run in found["edits"][name]["runs"]])
        file.write_text(json.dumps(found, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
