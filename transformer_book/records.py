"""Recorded runs, whose results the chapters show.

An experiment has one file in `runs`. `runs/variations.jsonl` holds its
runs: a line for each file that a run left in its folder, with the name of
the run, the name of the file, and what the file holds. What was counted
rather than trained is one object, such as `runs/heads.json`.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

MODELS = "models"  # the experiment of the models that ship
READ: set[Path] = set()  # what a page asked for, and so depends on


@dataclass(frozen=True)
class Run:
    """A recorded run.

    `files` has what each file of the run's folder holds: an object for
    .json, a list of objects for .jsonl, a list of lines for .txt.
    """

    name: str
    files: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """What the model and the tokenizer were built from."""
        return self.files.get("config.json", {})  # some left only results

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines that training wrote."""
        return self.files["log.jsonl"]

    @property
    def report(self) -> dict[str, Any]:
        """`name`, `command`, `training`, `result`, `machine`, `test`."""
        return self.files["report.json"]

    @property
    def translations(self) -> list[str]:
        """Every translation of the test set, in its order."""
        return self.files["translations.txt"]

    @property
    def init(self) -> str:
        """The initialization: "xavier" where no config says."""
        info = self.config.get("info", {})
        tried = info.get("init", "xavier")  # of their own trials
        return self.config["model"].get("init", tried)

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        # Here, so that a page of results does not wait for the loop.
        from transformer_lib.training import History

        return History(self.log).series(name)


def runs_folder() -> Path:
    """The records: beside a checkout's packages, or in the wheel."""
    package = Path(str(files("transformer_book")))
    installed = package / "runs"
    return installed if installed.is_dir() else package.parent / "runs"


def record(name: str) -> Path:
    """A file of the records, or for "" all of them; noted in READ."""
    path = runs_folder() / name
    READ.add(path)
    return path


@cache
def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """The runs of an experiment's .jsonl: {run: {file: content}}."""
    runs: dict[str, dict[str, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            runs.setdefault(row["run"], {})[row["file"]] = row["content"]
    return runs


def read_folder(folder: Path) -> dict[str, Any]:
    """The same of one run that still has its folder: {file: content}."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "tokenizer.json":
            continue
        file = path.relative_to(folder).as_posix()
        if path.suffix == ".json":
            found[file] = json.loads(path.read_text("utf-8"))
        elif path.suffix == ".jsonl":
            lines = path.read_text("utf-8").splitlines()
            found[file] = [json.loads(line) for line in lines]
        elif path.suffix == ".txt":
            # A translation may hold any character but the end of a line.
            found[file] = path.read_text("utf-8").split("\n")[:-1]
    return found


def recorded_runs(experiment: str | None = None) -> list[str]:
    """The names of all recorded trainings, or of one experiment's.

    A model that ships goes by the name that `from_pretrained` takes,
    another run by its experiment and its name: "variations/h-16-0".
    """
    asked = record(f"{experiment}.jsonl" if experiment else "")
    names = []
    some = [asked] if asked.is_file() else sorted(asked.glob("*.jsonl"))
    for path in some:
        for run, content in sorted(read_record(path).items()):
            if "report.json" in content:
                names.append(f"{path.stem}/{run}".removeprefix(f"{MODELS}/"))
    return names


def load_files(name: str | Path) -> dict[str, Any]:
    """{file: content} of a recorded run, else of a run's folder.

    A folder is looked for by itself, then in `runs`.
    """
    experiment, _, run = str(name).rpartition("/")
    path = record(f"{experiment or MODELS}.jsonl")
    recorded = read_record(path) if path.is_file() else {}
    if run in recorded:
        return recorded[run]
    folder = Path(name)
    return read_folder(folder if folder.is_dir() else record(str(name)))


def load_run(name: str | Path) -> Run:
    """A recorded run by its name, or a run by its folder.

    Raises:
        FileNotFoundError: if there is none; lists the names.
    """
    content = load_files(name)
    if "report.json" not in content:
        names = ", ".join(recorded_runs()) or "none"
        raise FileNotFoundError(
            f"{str(name)!r} is neither a recorded run nor the folder "
            f"of a run that ended; recorded are: {names}"
        )
    return Run(str(name), content)


def load_copying() -> list[dict[str, Any]]:
    """What each run of the copying experiment found."""
    runs = read_record(record("copying.jsonl"))
    return [content["copying.json"] for _, content in sorted(runs.items())]


def load_counts(name: str) -> dict[str, Any]:
    """What an experiment counted: runs/NAME.json."""
    return json.loads(record(f"{name}.json").read_text("utf-8"))
