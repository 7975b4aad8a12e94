# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""What a training run leaves behind: checkpoints, averages, models.

Chapter: book/training/checkpoints
"""

import io
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
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as as_safetensors
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.corpora import as_path
from transformer_lib.embeddings import PAD
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    evaluating,
    uncompiled,
)
from transformer_lib.tokenization import BPETokenizer


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file beside `path`, then rename it to `path`.

    Whoever opens `path` finds all of the old content or all of the new,
    whenever the program or the machine stops, and whoever else writes
    it. A link stays a link: the file it points to is new.

    Raises:
        OSError: naming `path` if it cannot be written, for instance
            because the disk is full.

    Chapter: checkpoints-atomic
    """
    path = as_path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two writers of one path write a part each.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        text = isinstance(content, str)
        part.write_bytes(content.encode() if text else content)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise OSError(f"{path} is not written: {error!s:.150}") from error
    finally:
        part.unlink(missing_ok=True)


def check_folder(folder: str | Path) -> Path:
    """The folder, with "~" expanded, if our files may be written there.

    Raises:
        NotADirectoryError: naming a file that is in its place.
        ValueError: naming a file in it that has the name of one of ours
            and is another program's.

    Chapter: checkpoints-atomic
    """
    folder = as_path(folder)
    for place in (folder, *folder.parents):
        if place.is_file():
            raise NotADirectoryError(f"{place} is a file: name another folder")

    def first_json(path: Path) -> Any:
        return json.JSONDecoder().raw_decode(path.read_text("utf-8"))[0]

    readers: dict[str, Callable[[Path], Any]] = {
        "tokenizer.json": BPETokenizer.load,
        "config.json": lambda path: load_config(folder),
        "model.safetensors": lambda path: load_config(folder),
        "report.json": lambda path: first_json(path)["result"]["steps"],
        "log.jsonl": lambda path: first_json(path)["nll"],
    }
    for path in [folder / name for name in readers]:
        try:
            if path.exists():
                readers[path.name](path)
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            raise ValueError(
                f"{path} is another program's: name another folder"
            ) from None
    return folder


def save_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    state: dict[str, Any],
    keep: int = 5,
) -> Path:
    """Write all that a training run needs to go on; returns the file.

    `state` is what JSON can hold, with the number of the "step". Of the
    folder's checkpoints, this one and the newest before it are kept,
    `keep` in all. What `torch.compile` compiled is saved as if it were
    not. Section 6.1.

    Raises:
        FloatingPointError: if a weight is not finite: nothing is
            written.
        TypeError: for a `state` that JSON cannot hold.
        KeyError: if it has no "step".

    Chapter: checkpoints-library
    """
    step, optimizers = state["step"], as_list(optimizer)
    if bad := _not_finite(model):
        raise FloatingPointError(
            f"{bad[0]} holds NaN or infinity at step {step}, so no "
            "checkpoint is written: go on from the one before, with a "
            "lower rate or a clip_norm"
        )
    plain = uncompiled(model)
    content = {
        "kind": f"{type(plain).__name__} {getattr(plain, 'config', '')}",
        "model": plain_weights(model),
        "optimizer": [one.state_dict()["state"] for one in optimizers],
        "kinds": [type(one).__name__ for one in optimizers],
        "state": json.dumps(state),
    }
    path = as_path(folder) / f"checkpoint-{step:08d}.pt"
    written = io.BytesIO()  # of a full disk torch.save would not say so
    torch.save(content, written)
    write_atomically(path, written.getbuffer())
    old = [file for file in checkpoint_files(folder) if file != path]
    for file in old[: max(0, len(old) + 1 - keep)]:
        file.unlink(missing_ok=True)
    return path


def checkpoint_files(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first; no other file.

    Chapter: checkpoints-library
    """
    return sorted(as_path(folder).glob(f"checkpoint-{'[0-9]' * 8}.pt"))


def as_list(optimizer: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One optimizer, or several, as a list.

    Chapter: checkpoints-library
    """
    return [optimizer] if isinstance(optimizer, Optimizer) else [*optimizer]


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """A model's state_dict, under the names that it has uncompiled.

    Chapter: checkpoints-library
    """
    return {
        name.replace("_orig_mod.", ""): weight
        for name, weight in model.state_dict().items()
    }


def _not_finite(model: nn.Module) -> list[str]:
    """Names of weights with NaN or infinity in them, and buffers with NaN.

    Chapter: checkpoints-library
    """
    numbers = {x: w.isnan() for x, w in model.named_buffers()}
    numbers |= {x: ~w.isfinite() for x, w in model.named_parameters()}
    return [name for name, bad in numbers.items() if bad.any()]


def _read(path: str | Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote; runs no code that is in the file.

    Chapter: checkpoints-library
    """
    content = as_path(path).read_bytes()
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            # torch.load compares no sums
            if damaged := archive.testzip():
                raise BadZipFile(f"{damaged} is not what was written")
        read = torch.load(io.BytesIO(content), "cpu", weights_only=True)
        parts = "model", "kind", "optimizer", "kinds", "state"
        return {part: read[part] for part in parts}
    except MemoryError:
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
    *,
    check: Callable[[dict[str, Any]], Any] | None = None,
) -> dict[str, Any]:
    """Put back what `save_checkpoint` wrote; returns its state.

    Without a model only the state is read. `check` is called with the
    state before anything is put back, and may raise.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged.
        RuntimeError: if the weights are another model's, as PyTorch
            says, or if the numbers are another kind of optimizer's.

    Chapter: checkpoints-library
    """
    content = _read(path)
    state = json.loads(content["state"])
    if check is not None:
        check(state)
    optimizers = [] if optimizer is None else as_list(optimizer)
    kinds = [type(one).__name__ for one in optimizers]
    if optimizers and content["kinds"] != kinds:
        raise RuntimeError(
            f"{path} was written with {', '.join(content['kinds'])}, not "
            f"with {', '.join(kinds)}"
        )
    if model is not None:
        load_weights(model, content["model"])
    for one, kept in zip(optimizers, content["optimizer"], strict=False):
        # Its settings stay as they are.
        one.load_state_dict(one.state_dict() | {"state": kept})
    return state


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put a state_dict into a model, all or a part of which is compiled.

    Of weights that the model ties one is enough.

    Raises:
        RuntimeError: if names or shapes are not the model's, as PyTorch
            says, or if what the model ties differs.

    Chapter: checkpoints-library
    """
    plain, whole = plain_weights(model), dict(weights)
    for tied in _tied(plain):
        given = [weights[name] for name in tied if name in weights]
        if not all(alike(given[0], other, 0) for other in given):
            raise RuntimeError(f"{' and '.join(tied)} are tied, but differ")
        whole |= dict.fromkeys(tied, given[0]) if given else {}
    names = dict(zip(plain, model.state_dict(), strict=True))
    model.load_state_dict({names.get(x, x): w for x, w in whole.items()})


def _tied(weights: Mapping[str, Tensor]) -> list[list[str]]:
    """The names of each weight; those that are tied have several.

    Chapter: checkpoints-library
    """
    names: dict[Any, list[str]] = {}
    for name, weight in sorted(weights.items()):
        names.setdefault((weight.data_ptr(), weight.shape), []).append(name)
    return [*names.values()]


def average_checkpoints(paths: Iterable[str | Path]) -> dict[str, Tensor]:
    """The mean weights of some checkpoints, section 6.1.

    Returns a state_dict; the mean is taken in float64.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: without paths, for a damaged checkpoint, or for
            models of unlike weights, dtypes, classes or settings.
        RuntimeError: for weights of unlike sizes, as PyTorch says.

    Chapter: checkpoints-library
    """
    paths = [paths] if isinstance(paths, str | Path) else [*paths]
    if not paths:
        raise ValueError("no checkpoints: give at least one of a training run")
    total: dict[str, Tensor] = {}
    kinds: list[Any] = []
    for path in paths:  # one at a time, as they may be large
        read = _read(path)
        weights = read["model"]
        kinds.append((read["kind"], {x: w.dtype for x, w in weights.items()}))
        if kinds[-1] != kinds[0]:
            raise ValueError(
                f"{path} and {paths[0]} hold unlike models: their mean would "
                "be no model"
            )
        for name, weight in weights.items():
            total[name] = total.get(name, 0.0) + weight.double()
    return {
        name: (total[name] / len(paths)).to(weight.dtype)
        for name, weight in weights.items()
    }


def save_model(
    folder: str | Path,
    model: nn.Module,
    tokenizer: BPETokenizer | None = None,
    *,
    half: bool = False,
    info: Mapping[str, Any] | None = None,
) -> None:
    """Write model.safetensors, and what `save_config` writes.

    The weights are in float16 if `half`. What `torch.compile` compiled
    is saved as if it were not. Each file is written whole; stopped
    between two of them, a folder that held another model has parts of
    both.

    Raises:
        TypeError, ValueError: as `save_config` and `rebuilt`, and for a
            weight that is not finite, perhaps in float16; nothing is
            written.

    Chapter: checkpoints-models
    """
    anew = rebuilt(model)
    if half:
        anew = anew.half()
    if bad := _not_finite(anew):
        raise ValueError(f"{bad[0]} holds NaN or infinity with {half=}")
    weights = anew.state_dict()
    # Of tied weights the first by name is written.
    kept = {x: weights[x].contiguous() for x, *_ in _tied(weights)}
    save_config(
        folder, anew, tokenizer, info=info, weights=as_safetensors(kept)
    )


def save_config(
    folder: str | Path,
    model: nn.Module,
    tokenizer: BPETokenizer | None = None,
    *,
    info: Mapping[str, Any] | None = None,
    weights: bytes | None = None,
) -> None:
    """Write tokenizer.json, if there is one, and then config.json.

    `info` is what JSON can hold, such as {"languages": ["en", "es"]};
    `weights` are what model.safetensors will hold. A tokenizer that the
    folder held before is replaced or removed.

    Raises:
        TypeError: for an `info` that JSON cannot hold, or for another
            kind of tokenizer, which could not be read again.
        ValueError: if the tokenizer is another model's, or as
            `check_folder`.

    Chapter: checkpoints-models
    """
    folder = check_folder(folder)
    if type(tokenizer) not in (BPETokenizer, type(None)):
        raise TypeError(
            f"a {type(tokenizer).__name__} is no BPETokenizer: save the "
            "model without a tokenizer, and yours beside it"
        )
    size = model.config.vocab_size
    if tokenizer is not None and len(tokenizer) != size:
        raise ValueError(f"{len(tokenizer)=}, vocab_size={size}: not a pair")
    content = {
        "model": asdict(model.config),
        "class": type(uncompiled(model)).__name__,
        "info": dict(info or {}),
    }
    config = json.dumps(content, indent=2) + "\n"
    if weights is not None:
        write_atomically(folder / "model.safetensors", weights)
    if tokenizer is not None:
        tokens = tokenizer.tokenizer.to_str()
        write_atomically(folder / "tokenizer.json", tokens)
    else:
        (folder / "tokenizer.json").unlink(missing_ok=True)
    # A model is found by this file, so it comes last.
    write_atomically(folder / "config.json", config)


def rebuilt(model: nn.Module) -> nn.Module:
    """The model anew, made by its class of its config and its weights.

    So `load_model` will make it, and what it then computes is compared
    with what the model computes.

    Raises:
        TypeError: for a model without a `TransformerConfig`.
        ValueError: if the two do not compute the same.

    Chapter: checkpoints-models
    """
    model = uncompiled(model)
    kind = type(model).__name__
    config = getattr(model, "config", None)
    if type(config) is not TransformerConfig:
        raise TypeError(f"a {kind} has no TransformerConfig: save its model")
    try:
        with torch.random.fork_rng([]):  # the caller's stay as they are
            anew = type(model)(config)
        weight = next(model.parameters())
        anew.to(weight.device, weight.dtype)
        load_weights(anew, plain_weights(model))
        same = alike(probe(model), probe(anew))
        reason = "the two compute different scores"
    except (RuntimeError, TypeError) as error:
        same, reason = False, f"{error!s:.200}"
    if not same:
        raise ValueError(
            f"this model is not what {kind}(config) and its weights make "
            f"({reason}), so it could not be loaded: let a class of your own "
            "make what you exchanged, tied or hooked, from the config alone"
        )
    return anew


def probe(model: nn.Module) -> Tensor:
    """A model's scores for two short sentences, to know it again by.

    Raises:
        ValueError: if its parts, which training and searches call, give
            other scores than the model itself.

    Chapter: checkpoints-models
    """
    model = uncompiled(model)
    ids = torch.arange(16).view(2, 8)[:, : model.config.max_length]
    ids = ids * 7919 % (model.config.vocab_size - 1) + 1  # none is padding
    source_ids = ids.clone()
    source_ids[1, 5:] = PAD
    device = next(model.parameters()).device
    source_ids, ids = source_ids.to(device), ids.to(device)
    with evaluating(model):
        scores, memory = model(source_ids, ids), model.encode(source_ids)
        ways = [model.decode(ids, memory, source_ids)]
        if isinstance(model, Transformer):  # with a cache, as searches do
            cache = [layer.new_cache(memory) for layer in model.decoder.layers]
            steps = [
                model.decode(last, None, source_ids, cache)
                for last in ids.split(1, dim=1)
            ]
            ways.append(torch.cat(steps, dim=1))
        ways = [model.project(hidden) for hidden in ways]
    # One token at a time is rounded otherwise: TF32 and bf16 are coarse.
    off = 16 * max(torch.finfo(scores.dtype).eps, 2**-10)
    if not all(alike(scores, one, off) for one in ways):
        raise ValueError(
            "model(...) gives other scores than its encode, decode and "
            "project, which training and searches call: override these; "
            "decode with a cache tells attention an offset, not to be ignored"
        )
    return scores.float().cpu()


def alike(one: Tensor, other: Tensor, off: float = 1e-3) -> bool:
    """Whether numbers are the same but for rounding.

    Chapter: checkpoints-models
    """
    return torch.allclose(one, other, off, off, equal_nan=True)


def load_config(
    folder: str | Path,
) -> tuple[TransformerConfig, BPETokenizer | None, dict[str, Any], str]:
    """What `save_config` wrote: (config, tokenizer, info, class's name).

    Raises:
        FileNotFoundError: if there is no config.json.
        ValueError: if config.json is another program's, or the
            tokenizer is damaged.

    Chapter: checkpoints-models
    """
    folder = as_path(folder)
    path, tokens = folder / "config.json", folder / "tokenizer.json"
    try:
        content = json.loads(path.read_text("utf-8"))
        config = TransformerConfig(**content["model"])
        info = dict(content["info"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} describes no model of this library ({error})"
        ) from None
    tokenizer = BPETokenizer.load(tokens) if tokens.exists() else None
    return config, tokenizer, info, content.get("class", "Transformer")


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
    *,
    weights: Mapping[str, Tensor] | None = None,
) -> SavedModel:
    """Read a folder of `save_model`: (model, tokenizer, info).

    The model is in float32, on the CPU, in evaluation mode.

    Args:
        model: builds the model from its sizes: its class, or a function
            that returns one of that class.
        weights: in place of those in the folder, such as the mean of
            its checkpoints.

    Raises:
        FileNotFoundError: if there is no model, or none yet.
        ValueError: if the weights are cut short, another model's or not
            finite, if the tokenizer is damaged, or if the folder's model
            is of another class than `model` builds.

    Chapter: checkpoints-models
    """
    config, tokenizer, info, saved = load_config(folder)
    path = as_path(folder) / "model.safetensors"
    if weights is None and not path.exists():
        raise FileNotFoundError(
            f"there is no {path}: its training has not ended (give its "
            "command again), or the file is lost"
        )
    built = model(config)
    kind = type(uncompiled(built)).__name__
    if kind != saved:
        raise ValueError(
            f"{folder} holds a model of the class {saved}, not {kind}: in "
            "Python give model=, its class"
        )
    told = path if weights is None else "`weights`"
    try:
        if weights is None:
            weights = from_safetensors(path.read_bytes())
        load_weights(built, weights)
    except (SafetensorError, RuntimeError) as error:
        message = f"{told} is damaged or another model's"
        raise ValueError(f"{message} ({error!s:.200})") from None
    if _not_finite(built):
        raise ValueError(f"{told} holds NaN or infinity")
    return SavedModel(built.eval(), tokenizer, info)
