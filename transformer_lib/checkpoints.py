# Collected from book/training/checkpoints.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""What a run leaves behind: models, checkpoints, averages, a log."""

import json
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer, WordTokenizer

__all__ = [
    "average_checkpoints",
    "checkpoints",
    "latest_checkpoint",
    "load_checkpoint",
    "load_model",
    "read_log",
    "save_checkpoint",
    "save_model",
    "write_atomically",
]


def write_atomically(
    path: str | Path, write: Callable[[Path], Any]
) -> None:
    """Have `write` fill a file beside `path`, then give it its name.

    Whoever opens `path` finds all of the old content or of the new,
    whenever the program or the machine stops.

    Chapter: checkpoints-atomic
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(part)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write_tensors(
    path: Path, tensors: dict[str, Tensor], note: dict[str, Any]
) -> None:
    """Write tensors and a note; those that share memory, once."""
    once, tied, owners = {}, {}, {}
    for name, tensor in tensors.items():
        owner = owners.setdefault(tensor.data_ptr(), name)
        if owner == name:
            once[name] = tensor.detach().contiguous()
        else:
            tied[name] = owner
    about = {"note": json.dumps(note), "tied": json.dumps(tied)}

    def write(part: Path) -> None:
        save_file(once, part, about)
        part.chmod(0o644)  # it comes out readable by its owner alone

    write_atomically(path, write)


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Read what `_write_tensors` wrote: every name, and the note."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            tensors = {k: file.get_tensor(k) for k in file.keys()}
    except SafetensorError as error:
        raise ValueError(
            f"{path} is cut short or not a safetensors "
            f"file ({error}): copy it again, or delete "
            "it and use an earlier one"
        ) from None
    tied = json.loads(about.get("tied", "{}"))
    tensors |= {name: tensors[owner] for name, owner in tied.items()}
    return tensors, json.loads(about.get("note", "{}"))


def _part(
    tensors: dict[str, Tensor], prefix: str
) -> dict[str, Tensor]:
    """The tensors whose name starts so, without that start."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _load_weights(
    model: nn.Module, weights: dict[str, Tensor], path: Path
) -> None:
    """Fill a model; an error names the file and what does not fit."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        what = "; ".join(str(error).split("\n\t")[1:4])
        raise ValueError(
            f"{path} holds a model of another shape: {what} "
            "Build the model from the configuration it was "
            "saved with, or start in an empty folder"
        ) from None


def save_model(
    folder: str | Path,
    model: Transformer,
    tokenizer: BPETokenizer | WordTokenizer | None = None,
    half: bool = False,
    **info: Any,
) -> None:
    """Write a model so that `load_model` finds all it needs.

    The folder gets model.safetensors (in float16 if `half`),
    config.json and, with a tokenizer, tokenizer.json. `info` is what
    JSON can hold, such as languages=["en", "es"].

    Chapter: checkpoints-models
    """
    folder, weights = Path(folder), model.state_dict()
    if half:
        small = {t.data_ptr(): t.half() for t in weights.values()}
        weights = {k: small[t.data_ptr()] for k, t in weights.items()}
    config = {
        "model": asdict(model.config),
        "tokenizer": type(tokenizer).__name__ if tokenizer else None,
        "info": info,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    _write_tensors(folder / "model.safetensors", weights, {})
    if tokenizer:
        tokenizer.save(folder / "tokenizer.json")
    write_atomically(
        folder / "config.json",
        lambda part: part.write_text(text, "utf-8"),
    )


def load_model(folder: str | Path) -> tuple[Transformer, Any, dict]:
    """Read a folder of `save_model`: (model, tokenizer, info).

    The model is in float32, on the CPU, in evaluation mode; without a
    tokenizer.json the tokenizer is None. A file that is missing is a
    FileNotFoundError, one that is damaged or does not fit a
    ValueError.

    Chapter: checkpoints-models
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"no model in {folder}: there is no config.json; name a "
            "folder that save_model or a training run has written"
        )
    try:
        config = json.loads(path.read_text("utf-8"))
        model = Transformer(TransformerConfig(**config["model"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from None
    path = path.with_name("model.safetensors")
    _load_weights(model, _read_tensors(path)[0], path)
    tokenizer = None
    for kind in (BPETokenizer, WordTokenizer):
        if kind.__name__ == config["tokenizer"]:
            tokenizer = kind.load(path.with_name("tokenizer.json"))
    return model.eval(), tokenizer, config["info"]


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first.

    Chapter: checkpoints-resume
    """
    return sorted(Path(folder).glob("checkpoint-*.safetensors"))


def latest_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint of a folder, if there is one.

    Chapter: checkpoints-resume
    """
    return (checkpoints(folder) or [None])[-1]


def save_checkpoint(
    folder: str | Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int = 5,
) -> Path:
    """Write all that a run needs to go on, and keep the last `keep`.

    That is the weights, the optimizer's moments, both as they are,
    and `state`, which is anything JSON can hold.

    Chapter: checkpoints-resume
    """
    tensors = {f"model.{k}": t for k, t in model.state_dict().items()}
    for name, weight in model.named_parameters():
        for key, moment in optimizer.state[weight].items():
            tensors[f"optimizer.{key}.{name}"] = moment
    path = Path(folder) / f"checkpoint-{step:08d}.safetensors"
    _write_tensors(path, tensors, {"step": step, **state})
    for old in checkpoints(folder)[: -max(keep, 1)]:
        old.unlink()
    return path


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns the state.

    A file that is cut short or of another model is a ValueError.

    Chapter: checkpoints-resume
    """
    tensors, state = _read_tensors(Path(path))
    _load_weights(model, _part(tensors, "model."), Path(path))
    owners = dict(model.named_parameters())
    for name, moment in _part(tensors, "optimizer.").items():
        key, _, owner = name.partition(".")
        if optimizer is not None:
            weight = owners[owner]
            moment = moment.to(weight.device, copy=True)
            optimizer.state[weight][key] = moment
    return state


def average_checkpoints(
    paths: Iterable[str | Path],
) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict in the weights' own type; the sum is taken in
    float64. No paths, or models of unlike shape, are a ValueError.

    Chapter: checkpoints-average
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise ValueError("nothing to average: give at least one path")
    first = _part(_read_tensors(paths[0])[0], "model.")
    total = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        weights = _part(_read_tensors(path)[0], "model.")
        for name in weights.keys() | first.keys():
            shapes = [
                tuple(of[name].shape) if name in of else "nothing"
                for of in (weights, first)
            ]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"{name} is {shapes[0]} in {path}, {shapes[1]} "
                    f"in {paths[0]}: average checkpoints of one run"
                )
            total[name] += weights[name]
    return {
        name: (tensor / len(paths)).to(first[name].dtype)
        for name, tensor in total.items()
    }


def read_log(
    folder: str | Path, last_step: float = math.inf
) -> list[dict[str, Any]]:
    """A run's log.jsonl up to a step, without a line cut short.

    Chapter: checkpoints-log
    """
    lines, path = [], Path(folder) / "log.jsonl"
    if path.is_file():
        for text in path.read_text("utf-8").splitlines():
            with suppress(ValueError):
                lines.append(json.loads(text))
    return [line for line in lines if line["step"] <= last_step]
