# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import copy
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import load_model as read_safetensors
from safetensors.torch import save_model as write_safetensors
from torch import Tensor

from transformer_lib.model import Transformer, TransformerConfig
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
            f"{path} was not written ({error}): see that there is "
            "room and that you may write there, then start again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def save_checkpoint(
    folder, model, optimizer, state: dict[str, Any], keep=5, every=1
) -> Path:
    """Write all that a training needs to go on; keep the last `keep`.

    `state` is numbers, texts, lists and dicts; the "step" is one.
    Of earlier checkpoints those at multiples of `every` are kept:
    what a stop left between two goes with the next. Section 6.1.

    Raises:
        FloatingPointError: if a weight is not finite; the earlier
            checkpoints stay.

    Chapter: checkpoints-resume
    """
    weights, step = model.state_dict(), state["step"]
    if not all(w.isfinite().all() for w in weights.values()):
        raise FloatingPointError(
            f"after step {step} some weight is NaN or infinite: not "
            "saved; lower learning_rate_scale"
        )
    whole = {"model": weights, "optimizer": optimizer.state_dict()}
    whole["state"] = state
    path = Path(folder) / f"checkpoint-{step:08d}.pt"
    write_atomically(path, lambda part: torch.save(whole, part))
    halves = Path(folder).glob(".checkpoint-*.part")  # of killed ones
    files, due = checkpoint_files(folder), []
    if every:
        due = [x for x in files if int(x.stem[-8:]) % every == 0]
    for old in {*files, *halves} - {*due[-keep:], path}:
        old.unlink()
    return path


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first.

    Chapter: checkpoints-resume
    """
    return sorted(Path(folder).glob(f"checkpoint-{'[0-9]' * 8}.pt"))


def _read(path: str | Path, mmap: bool = False) -> dict[str, Any]:
    """What `save_checkpoint` wrote, without running code in it.

    Chapter: checkpoints-resume
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        held = torch.load(path, "cpu", weights_only=True, mmap=mmap)
        if {*map(type, held["model"].values())} != {Tensor}:
            raise TypeError("its weights are no tensors")
        return held
    except Exception as error:  # of many kinds, one for each damage
        raise ValueError(
            f"{path} is cut short or no checkpoint ({error!s:.99}): "
            "delete it and go on from an earlier one"
        ) from None


def load_checkpoint(path, model, optimizer=None, fresh=None) -> dict:
    """Put back what `save_checkpoint` wrote; returns its state.

    With a `fresh` state, of a training that begins, what is returned
    has all that it has, and of the same kinds. The optimizer keeps
    its own settings.

    Raises:
        ValueError: if the file is damaged or of another model.

    Chapter: checkpoints-resume
    """
    held = _read(path)
    try:
        model.load_state_dict(held["model"])
        if optimizer is not None:
            own = optimizer.state_dict()
            own["state"] = held["optimizer"]["state"]
            optimizer.load_state_dict(own)
            for weight, adam in optimizer.state.items():
                adam["step"].view(()), adam["exp_avg"].view_as(weight)
                adam["exp_avg_sq"].view_as(weight)
        state = dict(held["state"])
        for name, value in (fresh or {}).items():
            state[name] = type(value)(state.get(name, value))
        if min([state["step"], *state.get("since", {}).values()]) < 0:
            raise ValueError("a number below 0")
        return state
    except Exception as error:  # as above, one for each damage
        raise ValueError(
            f"{path} is damaged or of another model "
            f"({error!s:.200}): give its options, or another folder"
        ) from None


def average_checkpoints(paths) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict in the weights' own type; the mean is taken
    in float64.

    Raises:
        ValueError: without paths, or for models of unlike shape.

    Chapter: checkpoints-average
    """
    held = [_read(path, mmap=True)["model"] for path in paths]
    sizes = [{k: w.shape for k, w in one.items()} for one in held]
    if not held or sizes != sizes[:1] * len(held):
        raise ValueError("give at least one path, and of one model")
    mean = {}
    for name, weight in held[0].items():
        all_of_it = torch.stack([one[name].double() for one in held])
        mean[name] = all_of_it.mean(dim=0).to(weight.dtype)
    return mean


def save_config(folder, config, tokenizer=None, /, **info) -> None:
    """Write config.json and, if there is one, tokenizer.json.

    `info` is what JSON can hold, such as languages=["en", "es"].

    Chapter: checkpoints-models
    """
    folder = Path(folder)
    held = {"model": asdict(config), "info": info}
    text = json.dumps(held, indent=2, ensure_ascii=False) + "\n"
    if tokenizer:
        write_atomically(folder / "tokenizer.json", tokenizer.save)
    write_atomically(folder / "config.json", text)


def save_model(
    folder, model, tokenizer=None, /, half: bool = False, **info
) -> None:
    """Write a model so that `load_model` finds all it needs.

    The folder gets model.safetensors (in float16 if `half`) and what
    `save_config` writes.

    Chapter: checkpoints-models
    """
    shipped = copy.deepcopy(model).half() if half else model

    def write(part: Path) -> None:
        write_safetensors(shipped, str(part))
        part.chmod(0o644)  # it comes out readable by its owner alone

    write_atomically(Path(folder) / "model.safetensors", write)
    save_config(folder, model.config, tokenizer, **info)


def load_config(
    folder: str | Path,
) -> tuple[TransformerConfig, BPETokenizer | None, dict[str, Any]]:
    """What `save_config` wrote: (configuration, tokenizer, info).

    Raises:
        FileNotFoundError: if there is no config.json.
        ValueError: if it is damaged, or the tokenizer another's.

    Chapter: checkpoints-models
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"there is no model: no {path}")
    try:
        held = json.loads(path.read_text("utf-8"))
        sizes, info = held["model"], dict(held.get("info", {}))
        config = TransformerConfig(**sizes)
        source, target = both = info.get("languages", ["", ""])
        "".join(both + [info.get("corpus", "")])  # all are texts
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error!r})") from None
    path = path.with_name("tokenizer.json")
    tokenizer = BPETokenizer.load(path) if path.is_file() else None
    if tokenizer and len(tokenizer) != config.vocab_size:
        raise ValueError(f"{path} is another model's tokenizer")
    return config, tokenizer, info


def load_model(
    folder: str | Path,
) -> tuple[Transformer, BPETokenizer | None, dict[str, Any]]:
    """Read a folder of `save_model`: (model, tokenizer, info).

    The model is in float32, on the CPU, in evaluation mode; without a
    tokenizer.json the tokenizer is None.

    Raises:
        FileNotFoundError: if there is no model, or none yet.
        ValueError: if a file is damaged or does not fit, or a weight
            is NaN, infinite or a whole number.

    Chapter: checkpoints-models
    """
    config, tokenizer, info = load_config(folder)
    path = Path(folder) / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}: a training that has not ended, "
            "whose command would go on with it, or a lost file"
        )
    try:
        least = 2 * config.weights  # bytes, in float16
        if least > path.stat().st_size:  # before it fills the memory
            raise ValueError("it is too small")
        for name, weight in load_file(path).items():
            finite = weight.float().isfinite().all()
            if not (weight.is_floating_point() and finite):
                raise ValueError(f"{name} holds no finite floats")
        model = Transformer(config)
        read_safetensors(model, path)
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path} is cut short, damaged or another model's "
            f"({error!s:.200}): copy it again with its config.json"
        ) from None
    return model.eval(), tokenizer, info
