# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import copy
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import load_model as read_safetensors
from safetensors.torch import save_model as write_safetensors
from torch import Tensor, nn

from transformer_lib.model import Transformer, TransformerConfig, model_class
from transformer_lib.tokenization import BPETokenizer


def write_atomically(
    path: str | Path, content: str | Callable[[Path], Any]
) -> None:
    """Write a file beside `path`, then give it that name.

    `content` is a text, or a function that writes the file it is
    given. Whoever opens `path` finds all of the old content or of the
    new, whenever the program or the machine stops.

    Raises:
        OSError: naming the file, if the disk does not take it.

    Chapter: checkpoints-atomic
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if isinstance(content, str):
            part.write_text(content, "utf-8")
        else:
            content(part)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise OSError(
            f"{path} was not written ({error}): is there room, and may "
            "you write there?"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _with_digests(content: Any) -> Any:
    """The same dicts and lists, each tensor replaced by its digest.

    Chapter: checkpoints-resume
    """
    if isinstance(content, Tensor):
        numbers = content.detach().cpu().contiguous().flatten()
        digest = sha256(numbers.view(torch.uint8).numpy()).hexdigest()
        return f"{content.dtype} {tuple(content.shape)} {digest}"
    if isinstance(content, dict):
        return {name: _with_digests(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [_with_digests(part) for part in content]
    return content


def _digest(content: Any) -> str:
    """SHA-256 of tensors, numbers and texts in dicts and lists.

    Chapter: checkpoints-resume
    """
    return sha256(repr(_with_digests(content)).encode()).hexdigest()


def _plain(content: Any) -> Any:
    """The same dicts and lists, with Python's numbers for NumPy's.

    To read any other class back would run code, which `_read` refuses.

    Chapter: checkpoints-resume
    """
    if isinstance(content, dict):
        return {_plain(key): _plain(part) for key, part in content.items()}
    if isinstance(content, list):
        return [_plain(part) for part in content]
    if isinstance(content, tuple):
        return tuple(_plain(part) for part in content)
    if isinstance(content, np.generic):
        return content.item()
    simple = bool, int, float, str, type(None), torch.Tensor
    if type(content) not in simple:
        raise TypeError(
            f"a checkpoint cannot hold {content!r}: give numbers, texts, "
            "tensors, lists or dicts"
        )
    return content


def save_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int = 5,
    every: int = 1,
) -> Path:
    """Write all that a training needs to go on; returns the file.

    `state` holds numbers, texts, lists and dicts, among them "step",
    a whole number. The newest checkpoint stays, and so do the last
    `keep` at multiples of `every`; with `every` 0 the newest alone.
    One that a stop left between two multiples is deleted when the next
    is written. Section 6.1.

    Raises:
        OSError: naming the file, if the disk does not take it.
        TypeError: for a `state` that could not be read back.
        ValueError: for a `step` that is no whole number from 0, or
            `keep` below 1.
        FloatingPointError: if a weight is not finite; the earlier
            checkpoints stay.

    Chapter: checkpoints-resume
    """
    step = state.get("step")
    if type(step) is not int or step < 0:
        raise ValueError(f"{step=}: give a whole number from 0")
    if keep < 1:
        raise ValueError(f"{keep=}: give 1 or more")
    weights = model.state_dict()
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise FloatingPointError(
            f"{step=}: a weight is not finite; lower learning_rate_scale"
        )
    content = {
        "model": weights,
        "optimizer": _plain(optimizer.state_dict()),
        "state": _plain(state),
    }
    digests = {part: _digest(content[part]) for part in content}
    content["sha256"] = digests
    path = Path(folder) / f"checkpoint-{step:08d}.pt"
    write_atomically(path, lambda file: torch.save(content, file))
    _delete_old(Path(folder), path, keep, every)
    return path


def _delete_old(folder: Path, newest: Path, keep: int, every: int) -> None:
    """Keep the newest and the last `keep` at multiples of `every`.

    Chapter: checkpoints-resume
    """
    files = checkpoint_files(folder)
    # With every=0 the newest alone stays.
    due = [path for path in files if every and _step_of(path) % every == 0]
    kept = [*due[-keep:], newest]
    unfinished = folder.glob(".checkpoint-*.part")  # of killed trainings
    for path in [*files, *unfinished]:
        if path not in kept:
            path.unlink()


def _step_of(path: Path) -> int:
    """The step in the name of a checkpoint; -1 for another name.

    Chapter: checkpoints-resume
    """
    match = re.fullmatch(r"checkpoint-(\d{8,})\.pt", path.name, re.ASCII)
    return int(match[1]) if match else -1


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first.

    Chapter: checkpoints-resume
    """
    paths = Path(folder).glob("checkpoint-*.pt")
    files = [path for path in paths if _step_of(path) >= 0]
    return sorted(files, key=_step_of)


def _read(
    path: str | Path, parts: list[str], mmap: bool = False
) -> dict[str, Any]:
    """What `save_checkpoint` wrote, without running code in it.

    `parts` are those of its keys whose digests are compared. With
    `mmap`, what is not used is not read.

    Chapter: checkpoints-resume
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = torch.load(path, "cpu", weights_only=True, mmap=mmap)
        for part in parts:
            if _digest(content[part]) != content["sha256"][part]:
                raise ValueError(f"its {part} is not what was saved")
        step = content["state"]["step"]
        if _step_of(path) not in (step, -1):  # -1: it has another name
            raise ValueError(f"it was written after step {step}")
    except (OSError, MemoryError):
        raise  # the file may be good
    except Exception as error:  # of many kinds, one for each damage
        if "alloc" in str(error):  # PyTorch says so when memory is full
            raise MemoryError(f"no memory to read {path}") from error
        raise ValueError(
            f"{path} is damaged or no checkpoint ({error!s:.99}): "
            "move it away and go on from an earlier one"
        ) from None
    return content


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of a state_dict, by name.

    Chapter: checkpoints-resume
    """
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def load_checkpoint(
    path: str | Path,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns its state.

    Without a model only the state is read, and nothing is put back.
    The optimizer's rate and other settings stay as they are.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or its weights have other
            names, shapes or ties than the model's; then model and
            optimizer stay as they were. Other differences, such as
            `h`, are not seen: `train` compares the settings.

    Chapter: checkpoints-resume
    """
    if model is None:
        return _read(path, ["state"], mmap=True)["state"]
    content = _read(path, ["model", "optimizer", "state"])
    saved, own = _shapes(content["model"]), _shapes(model.state_dict())
    for name in saved | own:
        if saved.get(name) != own.get(name):
            raise ValueError(
                f"{path} is of another model ({name} is {saved.get(name)}, "
                f"not {own.get(name)}): give its options, or another folder"
            )
    # A model that ties two weights cannot take two that differ.
    weights = content["model"]
    first_name: dict[int, str] = {}
    for name, weight in model.state_dict().items():
        first = first_name.setdefault(weight.data_ptr(), name)
        if name != first and _digest(weights[name]) != _digest(weights[first]):
            raise ValueError(
                f"{path} is of another model ({first} and {name} are not "
                "tied): give its options, or another folder"
            )
    model.load_state_dict(content["model"])
    if optimizer is not None:
        restored = optimizer.state_dict()
        restored["state"] = content["optimizer"]["state"]
        optimizer.load_state_dict(restored)
    return content["state"]


def average_checkpoints(paths: Iterable[str | Path]) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict in the weights' own type; the mean is taken
    in float64.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: without paths, for a damaged checkpoint, or for
            models of unlike shape.

    Chapter: checkpoints-average
    """
    paths = list(paths)
    if not paths:
        raise ValueError("no checkpoints: give at least one path")
    states = [_read(path, ["model"], mmap=True)["model"] for path in paths]
    for path, state in zip(paths, states, strict=True):
        if _shapes(state) != _shapes(states[0]):
            raise ValueError(
                f"{path} is of another model than {paths[0]}: leave it out"
            )
    mean = {}
    for name, weight in states[0].items():
        stacked = torch.stack([state[name].double() for state in states])
        mean[name] = stacked.mean(dim=0).to(weight.dtype)
    return mean


def _check_info(info: dict[str, Any]) -> None:
    """Raise if `languages` is not two texts, or `corpus` not a text.

    Chapter: checkpoints-models
    """
    languages = info.get("languages", ["", ""])
    if not isinstance(languages, list | tuple) or len(languages) != 2:
        raise ValueError(f"{languages=}: give two")
    for text in [*languages, info.get("corpus", "")]:
        if not isinstance(text, str):
            raise ValueError(f"info has {text!r}, which is no text")


def _file_digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _write_config(
    folder: Path,
    model: Transformer,
    tokenizer: BPETokenizer | None,
    info: dict[str, Any],
) -> None:
    """Write tokenizer.json, if any, and config.json with all digests.

    Chapter: checkpoints-models
    """
    if tokenizer is not None:
        tokenizer.save(folder / "tokenizer.json")
    described = {
        "class": type(model).__name__,
        "model": asdict(model.config),
        "info": info,
    }
    # As it will be read: a key that is a number comes back as a text.
    described = json.loads(json.dumps(described, allow_nan=False))
    # The other files are there already; config.json has a digest of
    # what it holds besides the digests.
    digests = {path.name: _file_digest(path) for path in folder.iterdir()}
    digests["config.json"] = _digest(described)
    text = json.dumps(described | {"sha256": digests}, indent=2)
    (folder / "config.json").write_text(text + "\n", "utf-8")


@contextmanager
def _draft_of(folder: str | Path) -> Iterator[Path]:
    """A temporary folder, moved to `folder` when the block ends.

    The block reads back what it wrote: after a ValueError in it,
    nothing is moved.

    Chapter: checkpoints-models
    """
    with tempfile.TemporaryDirectory() as temporary:
        try:
            yield Path(temporary)
        except ValueError as error:
            why = str(error).replace(temporary, "the draft")
            raise ValueError(
                f"nothing was saved: it could not be read back ({why})"
            ) from None
        _move_files(Path(temporary), Path(folder))


def _move_files(draft: Path, folder: Path) -> None:
    """Put a draft's files into `folder`, where an older model may be.

    All are on the disk before the first takes an old one's place.

    Chapter: checkpoints-models
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as beside:
        for path in draft.iterdir():
            copy_file = partial(shutil.copyfile, path)
            write_atomically(Path(beside, path.name), copy_file)
        for name in ("tokenizer.json", "model.safetensors"):
            if not (draft / name).exists():  # an earlier model's
                (folder / name).unlink(missing_ok=True)
        # config.json, by which a model is found, comes last.
        files = list(Path(beside).iterdir())
        for path in sorted(files, key=lambda path: path.name == "config.json"):
            os.replace(path, folder / path.name)


def save_config(
    folder: str | Path,
    model: Transformer,
    /,
    tokenizer: BPETokenizer | None = None,
    **info: Any,
) -> None:
    """Write config.json and, if there is one, tokenizer.json.

    A model.safetensors in `folder` is deleted, and so is a
    tokenizer.json if no tokenizer is given: they are an earlier
    model's.

    `info` is what JSON can hold, such as languages=["en", "es"].

    Raises:
        ValueError, TypeError: for what could not be read back;
            nothing is written.

    Chapter: checkpoints-models
    """
    with _draft_of(folder) as draft:
        _write_config(draft, model, tokenizer, info)
        load_config(draft)


def _check_finite(weights: dict[str, Tensor]) -> None:
    """Raise if a weight is not of floats, or holds NaN or infinity.

    Chapter: checkpoints-models
    """
    for name, weight in weights.items():
        finite = weight.float().isfinite().all()
        if not (weight.is_floating_point() and finite):
            raise ValueError(f"{name} holds NaN, infinity or no floats")


def _answer(model: Transformer) -> Tensor:
    """The logits for one short pair of sentences, in float32.

    Chapter: checkpoints-models
    """
    model = copy.deepcopy(model).cpu().float().eval()
    length = min(8, model.config.vocab_size, model.config.max_length)
    ids = torch.arange(length)[None]
    with torch.no_grad():
        return model(ids, ids)


def save_model(
    folder: str | Path,
    model: nn.Module,
    /,
    tokenizer: BPETokenizer | None = None,
    half: bool = False,
    **info: Any,
) -> None:
    """Write a model so that `load_model` finds all it needs.

    The folder gets model.safetensors (in float16 if `half`) and what
    `save_config` writes. Of a compiled model the plain one is saved.

    Raises:
        OSError: naming the file, if the disk does not take it.
        ValueError: for what could not be read back: weights that are
            NaN, infinite or too large for `half`, a model that its
            class and config do not build, another model's tokenizer.
            Nothing is written.
        TypeError: for a model that is no `Transformer`, or `info` that
            JSON cannot hold.

    Chapter: checkpoints-models
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if not isinstance(model, Transformer):
        raise TypeError(f"{type(model).__name__} is no Transformer")
    if half:
        model = copy.deepcopy(model)
        for parameter in model.parameters():  # a table of sines stays
            parameter.data = parameter.data.half()
    with _draft_of(folder) as draft:
        _check_finite(model.state_dict())
        write_atomically(
            draft / "model.safetensors",
            lambda file: write_safetensors(model, str(file)),
        )
        _write_config(draft, model, tokenizer, info)
        read, _, _ = load_model(draft)
        difference = (_answer(read) - _answer(model)).abs().max()
        if not difference <= 1e-4:  # larger, or NaN
            raise ValueError(
                "the model that was read answers otherwise: its class and "
                "config do not build this one; derive a class. If .half() "
                "or .bfloat16() rounded its table of sines, load its "
                "state_dict into a new model and save that"
            )


@dataclass(frozen=True)
class Description:
    """What a folder says of its model: all but the weights.

    Args:
        kind: the model's class
        config: its sizes
        tokenizer: None if there is none
        info: what was said of it when it was saved
        digests: SHA-256 of each file; that of config.json is of its
            content without the digests; empty for an older folder

    Chapter: checkpoints-models
    """

    kind: type[Transformer]
    config: TransformerConfig
    tokenizer: BPETokenizer | None
    info: dict[str, Any]
    digests: dict[str, str]

    def build(self) -> Transformer:
        """Such a model, with fresh weights."""
        return self.kind(self.config)


def _check_file(path: Path, digests: dict[str, str]) -> None:
    """Raise if a file is not the one that was saved.

    Chapter: checkpoints-models
    """
    if path.name in digests and _file_digest(path) != digests[path.name]:
        raise ValueError(
            f"{path} is not the file that was saved: copy it again"
        )


def load_config(folder: str | Path) -> Description:
    """What `save_config` wrote.

    Raises:
        FileNotFoundError: if there is no config.json.
        ValueError: if a file is damaged or was changed, or the class
            of the model is not known.

    Chapter: checkpoints-models
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"there is no model: no {path}")
    try:
        described = json.loads(path.read_text("utf-8"))
        digests = described.pop("sha256", {})
        # Older files have neither "sha256" nor "class"; any other file
        # needs a digest.
        if "config.json" in digests and False:
            raise ValueError("it was changed after it was saved")
        # Older files name no start: it was xavier.
        sizes = {"init": "xavier"} | described["model"]
        config = TransformerConfig(**sizes)
        info = dict(described.get("info", {}))
        _check_info(info)
    except OSError:
        raise  # the file may be good
    except Exception as error:  # of many kinds, one for each damage
        raise ValueError(
            f"{path} is damaged, or of a newer version ({error!r}): copy "
            "it again, or update transformer_lib"
        ) from None
    kind = model_class(described.get("class", "Transformer"))
    path = path.with_name("tokenizer.json")
    tokenizer = None
    if path.is_file() or path.name in digests:
        _check_file(path, digests)
        tokenizer = BPETokenizer.load(path)
        if len(tokenizer) != config.vocab_size:
            raise ValueError(
                f"{path} is another model's tokenizer, of {len(tokenizer)} "
                f"pieces: give that of this model, of {config.vocab_size}"
            )
    return Description(
        kind=kind,
        config=config,
        tokenizer=tokenizer,
        info=info,
        digests=digests,
    )


def load_model(
    folder: str | Path,
) -> tuple[Transformer, BPETokenizer | None, dict[str, Any]]:
    """Read a folder of `save_model`: (model, tokenizer, info).

    The model is in float32, on the CPU, in evaluation mode; without a
    tokenizer.json the tokenizer is None.

    Raises:
        FileNotFoundError: if there is no model, or none yet.
        ValueError: if a file is damaged, was changed or does not fit,
            or a weight is NaN, infinite or a whole number.

    Chapter: checkpoints-models
    """
    saved = load_config(folder)
    path = Path(folder) / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}: its training has not ended (give its "
            "command again), or the file is lost"
        )
    _check_file(path, saved.digests)
    try:
        _check_finite(load_file(path))
        model = saved.build()
        read_safetensors(model, path)
    except (SafetensorError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or another model's ({error!s:.200}): "
            "copy it again"
        ) from None
    return model.eval(), saved.tokenizer, saved.info
