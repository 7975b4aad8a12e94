# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training run leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import copy
import errno
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model as read_safetensors
from safetensors.torch import save_model as write_safetensors
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    foreign_parts,
    uncompiled,
)
from transformer_lib.tokenization import BPETokenizer


def _check_folder(folder: str | Path) -> None:
    """Refuse a folder that cannot be made, since a file is in its place.

    Raises:
        NotADirectoryError: naming the file.

    Chapter: checkpoints-atomic
    """
    for place in (Path(folder), *Path(folder).parents):
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(f"{place} is a file: name another folder")


def write_atomically(
    path: str | Path, content: str | Callable[[Path], Any]
) -> None:
    """Write a file beside `path`, then rename it to `path`.

    `content` is a text, or a function that writes the file it is
    given. Whoever opens `path` finds all of the old content or all of
    the new, whenever the program or the machine stops, and whoever else
    writes it.

    Raises:
        OSError: naming `path` if it cannot be written, for instance
            because the disk is full.

    Chapter: checkpoints-atomic
    """
    path = Path(path)
    _check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two writers of one path write a part each.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        if isinstance(content, str):
            part.write_text(content, "utf-8")
        else:
            content(part)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        # PyTorch and safetensors have errors of their own for a full disk.
        reason = getattr(error, "strerror", None)
        reason = reason or f"is the disk full? ({error!s:.99})"
        number = getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"not written: {reason}", str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def save_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    state: dict[str, Any],
    keep: int = 5,
    every: int = 1,
) -> Path:
    """Write all that a training run needs to go on; returns the file.

    `state` is what JSON can hold, with the number of the "step". Keeps
    the newest checkpoint and the last `keep` at multiples of `every`;
    with `every=0` only the newest. Of a model that `torch.compile`
    returned, the plain one is saved. Section 6.1.

    Raises:
        FloatingPointError: if a weight, or what the optimizer keeps for
            one, is not finite: nothing is written.
        TypeError: for a `state` that JSON cannot hold.

    Chapter: checkpoints-library
    """
    model = uncompiled(model)
    content = {
        "model": model.state_dict(),
        "optimizer": [
            one.state_dict()["state"] for one in _as_list(optimizer)
        ],
        "state": json.dumps(state),
    }
    _refuse_what_is_not_finite(model, content["optimizer"], state["step"])
    path = Path(folder) / f"checkpoint-{state['step']:08d}.pt"
    write_atomically(path, lambda part: torch.save(content, part))
    files = checkpoint_files(folder)
    due = [file for file in files if every and _step_of(file) % every == 0]
    kept = [path]
    if keep > 0:
        kept += due[-keep:]
    for file in files:
        if file not in kept:
            file.unlink()
    return path


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first; no other file.

    Chapter: checkpoints-library
    """
    found = Path(folder).glob("checkpoint-*.pt")
    numbered = [path for path in found if _number_in(path).isdecimal()]
    return sorted(numbered, key=_step_of)


def _number_in(path: Path) -> str:
    return path.stem.removeprefix("checkpoint-")


def _step_of(path: Path) -> int:
    return int(_number_in(path))


def _as_list(optimizer: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    single = isinstance(optimizer, Optimizer)
    return [optimizer] if single else [*optimizer]


def _refuse_what_is_not_finite(
    model: nn.Module, kept: list[dict[int, Any]], step: int
) -> None:
    """From NaN no training can go on: the checkpoint before it can.

    Chapter: checkpoints-library
    """
    named = dict(model.named_parameters())
    for states in kept:
        for number, state in states.items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    named[f"{name} of weight {number}, in Adam,"] = value
    for name, value in named.items():
        if not value.isfinite().all():
            raise FloatingPointError(
                f"{name} holds NaN or infinity at step {step}, so no "
                "checkpoint is written: go on from the one before, with a "
                "lower rate or a clip_norm"
            )


def _read(path: str | Path, mmap: bool = True) -> dict[str, Any]:
    """What `save_checkpoint` wrote; runs no code that is in the file.

    With `mmap`, what is not used takes no memory.

    Chapter: checkpoints-library
    """
    try:
        with ZipFile(path) as archive:  # torch.load compares no sums
            if damaged := archive.testzip():
                raise BadZipFile(f"{damaged} is not what was written")
        return torch.load(path, "cpu", weights_only=True, mmap=mmap)
    except (OSError, MemoryError):
        raise  # the file may be good
    except Exception as error:  # each damage has its own
        raise ValueError(
            f"{path} is damaged or not a checkpoint ({error!s:.99}): "
            "move it away and go on from an earlier one"
        ) from None


def load_checkpoint(
    path: str | Path,
    model: nn.Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns its state.

    Without a model only the state is read.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged.
        RuntimeError: if the weights have other names or shapes than the
            model's, as PyTorch says.

    Chapter: checkpoints-library
    """
    # An optimizer would keep the file mapped, and Windows not delete it.
    content = _read(path, mmap=optimizer is None)
    if model is not None:
        model = uncompiled(model)
        model.load_state_dict(content["model"])
    if optimizer is not None:
        optimizers = _as_list(optimizer)
        for one, state in zip(optimizers, content["optimizer"], strict=True):
            # Its settings stay as they are.
            one.load_state_dict(one.state_dict() | {"state": state})
    return json.loads(content["state"])


def average_checkpoints(paths: Iterable[str | Path]) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict; the mean is taken in float64.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: without paths, or for a damaged checkpoint.
        RuntimeError: for models of unlike shapes.

    Chapter: checkpoints-library
    """
    states = [_read(path)["model"] for path in paths]
    if not states:
        raise ValueError("no checkpoints: give at least one path")
    mean = {}
    for name, weight in states[0].items():
        stacked = torch.stack([state[name].double() for state in states])
        mean[name] = stacked.mean(dim=0).to(weight.dtype)
    return mean


def save_model(
    folder: str | Path,
    model: nn.Module,
    tokenizer: BPETokenizer | None = None,
    *,
    half: bool = False,
    info: Mapping[str, Any] | None = None,
) -> None:
    """Write model.safetensors, and what `save_config` writes.

    The weights are in float16 if `half`. Of a model that
    `torch.compile` returned, the plain one is saved.

    Raises:
        TypeError, ValueError: as `save_config`; nothing is written.

    Chapter: checkpoints-models
    """
    model = uncompiled(model)
    config = _config_text(model, tokenizer, info)
    if half:
        model = copy.deepcopy(model).half()
    path = Path(folder) / "model.safetensors"
    write_atomically(path, lambda part: write_safetensors(model, str(part)))
    path.chmod(0o644)  # others may read it, as they may the rest
    _write_config(folder, config, tokenizer)


def save_config(
    folder: str | Path,
    model: nn.Module,
    tokenizer: BPETokenizer | None = None,
    *,
    info: Mapping[str, Any] | None = None,
) -> None:
    """Write tokenizer.json, if there is one, and then config.json.

    `info` is what JSON can hold, such as {"languages": ["en", "es"]}.
    A tokenizer that the folder held before is replaced or removed.

    Raises:
        TypeError: for an `info` that JSON cannot hold, or for another
            kind of tokenizer, which could not be read again.
        ValueError: if the tokenizer is another model's.

    Chapter: checkpoints-models
    """
    config = _config_text(model, tokenizer, info)
    _write_config(folder, config, tokenizer)


def _config_text(
    model: nn.Module,
    tokenizer: BPETokenizer | None,
    info: Mapping[str, Any] | None,
) -> str:
    """The content of config.json; refuses what could not be loaded.

    Chapter: checkpoints-models
    """
    if tokenizer is not None and not isinstance(tokenizer, BPETokenizer):
        raise TypeError(
            f"a {type(tokenizer).__name__} is no BPETokenizer: save the "
            "model without a tokenizer, and yours beside it"
        )
    size = model.config.vocab_size
    if tokenizer is not None and len(tokenizer) != size:
        raise ValueError(f"{len(tokenizer)=}, vocab_size={size}: not a pair")
    content = {"model": asdict(model.config), "info": dict(info or {})}
    parts = foreign_parts(model)
    if parts:
        content["parts"] = parts
    return json.dumps(content, indent=2) + "\n"


def _write_config(
    folder: str | Path, config: str, tokenizer: BPETokenizer | None
) -> None:
    _check_folder(folder)
    folder = Path(folder)
    if tokenizer is not None:
        write_atomically(folder / "tokenizer.json", tokenizer.save)
    else:
        (folder / "tokenizer.json").unlink(missing_ok=True)
    # A model is found by this file, so it comes last.
    write_atomically(folder / "config.json", config)


def _read_config(folder: str | Path) -> dict[str, Any]:
    """The content of a folder's config.json.

    Chapter: checkpoints-models
    """
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(
            f"there is no {path}: name a folder that `save_model` wrote"
        )
    try:
        content = json.loads(path.read_text("utf-8"))
        content["model"] = TransformerConfig(**content["model"])
        content["info"] = dict(content["info"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} describes no model of this library ({error})"
        ) from None
    return content


def load_config(
    folder: str | Path,
) -> tuple[TransformerConfig, BPETokenizer | None, dict[str, Any]]:
    """What `save_config` wrote: (config, tokenizer, info).

    Raises:
        FileNotFoundError: if there is no config.json.
        ValueError: if config.json is another program's, or the
            tokenizer is damaged.

    Chapter: checkpoints-models
    """
    content = _read_config(folder)
    path = Path(folder) / "tokenizer.json"
    tokenizer = BPETokenizer.load(path) if path.exists() else None
    return content["model"], tokenizer, content["info"]


class SavedModel(NamedTuple):
    """What `load_model` found in a folder.

    Chapter: checkpoints-models
    """

    model: Any
    tokenizer: BPETokenizer | None
    info: dict[str, Any]


def load_model(
    folder: str | Path,
    model: Callable[[TransformerConfig], nn.Module] = Transformer,
) -> SavedModel:
    """Read a folder of `save_model`: (model, tokenizer, info).

    The model is in float32, on the CPU, in evaluation mode.

    Args:
        model: builds the model from its sizes: its class, or a function
            that exchanges parts of a `Transformer`.

    Raises:
        FileNotFoundError: if there is no model, or none yet.
        ValueError: if the weights or the tokenizer are damaged, the
            weights not finite, or if the folder's model is not of the
            kind that `model` builds.

    Chapter: checkpoints-models
    """
    config, tokenizer, info = load_config(folder)
    path = Path(folder) / "model.safetensors"
    if not path.exists():
        raise FileNotFoundError(
            f"there is no {path}: its training has not ended (give its "
            "command again), or the file is lost"
        )
    built = model(config)
    _check_parts(folder, built)
    try:
        read_safetensors(built, path)
    except (SafetensorError, RuntimeError) as error:
        message = f"{path} is damaged or another model's"
        raise ValueError(f"{message} ({error!s:.200})") from None
    if not all(weight.isfinite().all() for weight in built.parameters()):
        raise ValueError(f"{path} holds NaN or infinity")
    return SavedModel(built.eval(), tokenizer, info)


def _check_parts(folder: str | Path, built: nn.Module) -> None:
    """Refuse to read one model's weights into another kind of model.

    Chapter: checkpoints-models
    """
    saved, given = _read_config(folder).get("parts", []), foreign_parts(built)
    if saved == given:
        return
    kinds = []
    for parts in saved, given:
        more = f" and {len(parts) - 2} more" if len(parts) > 2 else ""
        kinds.append(", ".join(parts[:2]) + more or "the library's own parts")
    raise ValueError(
        f"{folder} holds a model with {kinds[0]}, and not with {kinds[1]}: "
        "in Python give model=, its class or the function that builds it"
    )
