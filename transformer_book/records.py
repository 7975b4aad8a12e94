"""Recorded runs, whose results the chapters show."""

import json
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """A recorded run: what its folder holds.

    `config` is what the model and tokenizer were built from, `log` the
    lines that training wrote, `report` the rest: `name`, `command`,
    `training`, `result`, `machine` and `test`.
    """

    folder: Path
    config: dict[str, Any]
    log: list[dict[str, Any]]
    report: dict[str, Any]

    @cached_property
    def translations(self) -> list[str]:
        """Every translation of the test set, in its order."""
        text = (self.folder / "translations.txt").read_text("utf-8")
        return text.split("\n")[:-1]

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


def _runs_folder() -> Path:
    """The records: beside a checkout's packages, or in the wheel."""
    package = Path(str(files("transformer_book")))
    installed = package / "runs"
    return installed if installed.is_dir() else package.parent / "runs"


def recorded_runs() -> dict[str, Path]:
    """Every recorded run: {name: folder}.

    A model that ships goes by the name that `from_pretrained` takes,
    another run by its place in `runs`: "variations/h-16-0".
    """
    found = {}
    runs = _runs_folder()
    for report in sorted(runs.glob("*/*/report.json")):
        name = report.parent.relative_to(runs).as_posix()
        found[name.removeprefix("models/")] = report.parent
    return found


def load_run(name: str | Path) -> Run:
    """A recorded run by its name, or by a run's folder.

    Raises:
        FileNotFoundError: if there is none; lists the names.
    """
    folder = Path(recorded_runs().get(str(name), name))
    if not (folder / "report.json").is_file():
        names = ", ".join(recorded_runs()) or "none"
        raise FileNotFoundError(
            f"{str(name)!r} is neither a recorded run nor the folder "
            f"of a run that ended; recorded are: {names}"
        )
    report = json.loads((folder / "report.json").read_text("utf-8"))
    path = folder / "config.json"  # some runs left only their results
    config = json.loads(path.read_text("utf-8")) if path.exists() else {}
    log = (folder / "log.jsonl").read_text("utf-8").splitlines()
    return Run(folder, config, [json.loads(x) for x in log], report)


def load_copying() -> list[dict[str, Any]]:
    """What each run of the copying experiment found."""
    paths = sorted(_runs_folder().glob("copying/*/copying.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def load_counts(name: str) -> dict[str, Any]:
    """What an experiment counted: runs/NAME/NAME.json, else nothing."""
    path = _runs_folder() / name / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows of like keys as a Markdown table, figures made short."""
    names = list(rows[0]) if rows else []
    lines = [
        [name.replace("_", " ") for name in names],
        ["---"] * len(names),
        *([_short(row.get(name, "")) for name in names] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    return str(value).replace("|", r"\|")
