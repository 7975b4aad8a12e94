# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer


def write_atomically(
    path: str | Path, write: Callable[[Path], Any]
) -> None:
    """Have `write` fill a file beside `path`, then give it its name.

    Whoever opens `path` finds all of the old content or of the new,
    whenever the program or the machine stops.

    Raises:
        OSError: naming the file, if the disk does not take it.

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
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"{path} was not written ({error}): see that there is "
            "room and that you may write there, then start again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _write_tensors(
    path: Path, tensors: dict[str, Tensor], note: dict[str, Any]
) -> None:
    """Write tensors and a note; those that are one, once.

    Chapter: checkpoints-tensors
    """
    once, tied, owners = {}, {}, {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr(), tensor.shape, tensor.stride()
        owner = owners.setdefault(place, name)
        if owner == name:  # cloned: a view would bring its whole
            once[name] = tensor.detach().clone().contiguous()
        else:
            tied[name] = owner
    about = {"tied": json.dumps(tied)}
    if note:
        about["note"] = json.dumps(note)

    def write(part: Path) -> None:
        save_file(once, part, about)
        part.chmod(0o644)  # it comes out readable by its owner alone

    write_atomically(path, write)


def _read_tensors(
    path: Path, prefix: str = ""
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors whose names begin so, without that, and the note.

    Chapter: checkpoints-tensors
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            owners = {name: name for name in file.keys()}
            owners |= json.loads(about.get("tied", "{}"))
            tensors = {
                name.removeprefix(prefix): file.get_tensor(owner)
                for name, owner in owners.items()
                if name.startswith(prefix)
            }
        return tensors, json.loads(about.get("note", "{}"))
    except (SafetensorError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is cut short or no safetensors file ({error}): "
            "copy it again, or delete it and use an earlier one"
        ) from None


def _check_fit(
    path: Path, found: dict[str, Tensor], wanted: dict[str, Tensor]
) -> None:
    """Refuse weights that are not of the names and shapes wanted.

    Chapter: checkpoints-tensors
    """
    there, here = (
        {(k, *t.shape, t.is_floating_point()) for k, t in of.items()}
        for of in (found, wanted)
    )
    if odd := sorted(there ^ here):
        raise ValueError(
            f"{path} holds another model, they differ in {odd[:2]}: "
            "give the options it was trained with, or another folder"
        )


def save_checkpoint(
    folder: str | Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int = 5,
) -> Path:
    """Write all that a training needs to go on; keep the last `keep`.

    That is the weights, the optimizer's moments, both as they are,
    and `state`, which is anything JSON can hold. Section 6.1.

    Raises:
        FloatingPointError: if a number is not finite; the earlier
            checkpoints stay.

    Chapter: checkpoints-resume
    """
    tensors = {f"model.{k}": t for k, t in model.state_dict().items()}
    for name, weight in model.named_parameters():
        for key, moment in optimizer.state[weight].items():
            tensors[f"optimizer.{key}.{name}"] = moment
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise FloatingPointError(
                f"{name} holds NaN or infinity after step {step}: "
                "nothing was saved; lower learning_rate_scale"
            )
    path = Path(folder) / f"checkpoint-{step:08d}.safetensors"
    _write_tensors(path, tensors, {"step": step, **state})
    for old in checkpoint_files(folder)[:-keep]:
        old.unlink()
    return path


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first.

    Chapter: checkpoints-resume
    """
    name = re.compile(r"checkpoint-\d{8}\.safetensors")
    paths = Path(folder).glob("checkpoint-*")
    return sorted(path for path in paths if name.fullmatch(path.name))


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns its state.

    Raises:
        ValueError: if the file is cut short or of another model.

    Chapter: checkpoints-resume
    """
    weights, state = _read_tensors(Path(path), "model.")
    _check_fit(Path(path), weights, model.state_dict())
    model.load_state_dict(weights)
    if optimizer is not None:
        moments, _ = _read_tensors(Path(path), "optimizer.")
        owners = dict(model.named_parameters())
        for name, moment in moments.items():
            key, _, owner = name.partition(".")
            weight = owners[owner]
            moment = moment.to(weight.device, copy=True)
            optimizer.state[weight][key] = moment
    return state


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
    first, *others = [Path(path) for path in paths] or [None]
    if first is None:
        raise ValueError("nothing to average: give at least one path")
    weights = _read_tensors(first, "model.")[0]
    total = {
        name: tensor.double() for name, tensor in weights.items()
    }
    for path in others:
        found = _read_tensors(path, "model.")[0]
        _check_fit(path, found, weights)
        for name, tensor in found.items():
            total[name] += tensor
    return {
        name: (total[name] / (1 + len(others))).to(tensor.dtype)
        for name, tensor in weights.items()
    }


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
    held = {"model": asdict(config), "info": info}
    text = json.dumps(held, indent=2, ensure_ascii=False) + "\n"
    if tokenizer:
        tokenizer.save(Path(folder) / "tokenizer.json")
    write_atomically(
        Path(folder) / "config.json",
        lambda part: part.write_text(text, "utf-8"),
    )


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
    weights = model.state_dict()
    if half:
        small = {t.data_ptr(): t.half() for t in weights.values()}
        weights = {k: small[t.data_ptr()] for k, t in weights.items()}
    _write_tensors(Path(folder) / "model.safetensors", weights, {})
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
            f"no model in {folder}: there is no config.json; name a "
            "folder that save_model or a training has written"
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
        raise ValueError(
            f"{path} has {len(tokenizer)} pieces, the model "
            f"{config.vocab_size}: it is another model's tokenizer"
        )
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
    weights, _ = _read_tensors(path)
    if config.N > len(weights):  # to build so many takes for ever
        raise ValueError(f"{path} does not hold N={config.N} layers")
    with torch.device("meta"):  # shapes alone, without memory
        _check_fit(path, weights, Transformer(config).state_dict())
    model = Transformer(config)
    model.load_state_dict(weights)
    return model.eval(), tokenizer, info
