# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import copy
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

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
    except (OSError, RuntimeError, safetensors.SafetensorError) as e:
        raise OSError(
            f"{path} was not written ({e}): see that there is room "
            "and that you may write there, then start again"
        ) from e
    finally:
        part.unlink(missing_ok=True)


def save_checkpoint(
    folder: str | Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int = 5,
) -> Path:
    """Write all that a training needs to go on; keep the last `keep`.

    `state` is numbers, texts, lists and dicts. Section 6.1.

    Raises:
        FloatingPointError: if a weight is not finite; the earlier
            checkpoints stay.

    Chapter: checkpoints-resume
    """
    weights = model.state_dict()
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise FloatingPointError(
                f"{name} holds NaN or infinity after step {step}: "
                "nothing was saved; lower learning_rate_scale"
            )
    whole = {"model": weights, "optimizer": optimizer.state_dict()}
    whole["state"] = {"step": step, **state}
    path = Path(folder) / f"checkpoint-{step:08d}.pt"
    write_atomically(path, lambda part: torch.save(whole, part))
    for old in checkpoint_files(folder)[:-keep]:
        old.unlink()
    return path


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first.

    Chapter: checkpoints-resume
    """
    name = f"checkpoint-{'[0-9]' * 8}.pt"
    return sorted(Path(folder).glob(name))


def _read(path: str | Path, mmap: bool = False) -> dict[str, Any]:
    """What `save_checkpoint` wrote, without running code in it.

    Chapter: checkpoints-resume
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return torch.load(path, "cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # of many kinds, one for each damage
        raise ValueError(
            f"{path} is cut short or no checkpoint ({error!s:.99}): "
            "delete it and go on from an earlier one"
        ) from None


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns its state.

    Raises:
        ValueError: if the file is damaged or of another model.

    Chapter: checkpoints-resume
    """
    held = _read(path)
    try:
        model.load_state_dict(held["model"])
    except (RuntimeError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} holds another model ({error!s:.200}): give its "
            "options, or another folder"
        ) from None
    if optimizer is not None:
        optimizer.load_state_dict(held["optimizer"])
    return held["state"]


def average_checkpoints(
    paths: Iterable[str | Path],
) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict in the weights' own type; the sum is taken in
    float64.

    Raises:
        ValueError: without paths, or for models of unlike shape.

    Chapter: checkpoints-average
    """
    held = [_read(path, mmap=True)["model"] for path in paths]
    if not held:
        raise ValueError("nothing to average: give at least one path")
    shapes = [{k: t.shape for k, t in one.items()} for one in held]
    if any(other != shapes[0] for other in shapes):
        raise ValueError("these checkpoints are of unlike models")
    mean = {}
    for name, weight in held[0].items():
        total = sum(one[name].double() for one in held)
        mean[name] = (total / len(held)).to(weight.dtype)
    return mean


def save_config(
    folder: str | Path,
    config: TransformerConfig,
    tokenizer: BPETokenizer | None = None,
    **info: Any,
) -> None:
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
    folder: str | Path,
    model: Transformer,
    tokenizer: BPETokenizer | None = None,
    half: bool = False,
    **info: Any,
) -> None:
    """Write a model so that `load_model` finds all it needs.

    The folder gets model.safetensors (in float16 if `half`) and what
    `save_config` writes.

    Chapter: checkpoints-models
    """
    shipped = copy.deepcopy(model).half() if half else model

    def write(part: Path) -> None:
        safetensors.torch.save_model(shipped, str(part))
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
        raise FileNotFoundError(
            f"no model in {folder}: there is no config.json"
        )
    try:
        held = json.loads(path.read_text("utf-8"))
        sizes, info = dict(held["model"]), dict(held.get("info", {}))
        sizes.pop("pad_id", None)  # older ones named it; it is 0
        config = TransformerConfig(**sizes)
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
        ValueError: if a file is damaged or does not fit.

    Chapter: checkpoints-models
    """
    config, tokenizer, info = load_config(folder)
    path = Path(folder) / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}: a training that has not ended, "
            "whose command would go on with it, or a lost file"
        )
    c = config  # the least that it holds, in bytes, if in float16
    least = 2 * c.d_model * (c.vocab_size + 4 * c.N * c.d_ff)
    try:
        if least > path.stat().st_size:  # before it fills the memory
            raise ValueError("it is too small")
        model = Transformer(config)
        safetensors.torch.load_model(model, path)
    except (
        safetensors.SafetensorError,
        RuntimeError,
        ValueError,
    ) as error:
        raise ValueError(
            f"{path} is cut short or another model's "
            f"({error!s:.200}): copy it again with its config.json"
        ) from None
    return model.eval(), tokenizer, info
