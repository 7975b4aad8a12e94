# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training or a translation in one line.

Chapter: book/appendix/cli
"""

import argparse
import inspect
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import torch
from filelock import Timeout

from transformer_lib.batching import worker
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import data_folder, load_corpus
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import Experiment, run_experiment
from transformer_lib.export import export
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import pick_device
from transformer_lib.translator import Translator, bundled_models


def _print(values: dict[str, Any], as_json: bool, prefix: str = "") -> None:
    """Results, from one worker alone: lines, or one JSON document.

    Chapter: cli-train
    """
    if worker()[0] > 0:
        return
    if as_json:
        print(json.dumps(values, ensure_ascii=False))
        return
    for name, value in values.items():
        label = prefix + name.replace("_", " ")
        if isinstance(value, dict):
            _print(value, as_json=False, prefix=f"{label} ")
        elif isinstance(value, float):
            print(f"{label}: {round(value, 4)}")
        else:
            print(f"{label}: {value}")


def _train(out: str, command: str, as_json: bool = False, **given) -> None:
    """Train a model, or go on with the training that --out holds.

    Example: train --corpus multi30k --languages de en --out m30k

    Chapter: cli-train
    """
    settings = {}
    for setting in fields(Experiment):
        if setting.name in given:
            settings[setting.name] = given.pop(setting.name)
    experiment = Experiment(**settings, changes=given)
    result = run_experiment(experiment, out, command)
    _print(result or {}, as_json)


def _translate(
    model: str,
    sentences: list[str],
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> int:
    """Translate the sentences given, or the standard input.

    Example: translate --model little-spanish "I like trees"

    `model` is a folder or a bundled name, `device` cpu, cuda or mps,
    the best one if not given. A beam of 1 is greedy.

    Chapter: cli-translate
    """
    translator = Translator.from_pretrained(model, pick_device(device))
    if isinstance(sys.stdin, io.TextIOWrapper):
        # A line that is not UTF-8 shall not take the others with it.
        sys.stdin.reconfigure(errors="surrogateescape")
    lines = iter(sentences or sys.stdin or ())  # stdin may be closed
    typed = sys.stdin and sys.stdin.isatty()
    size = 1 if typed else 64
    number, code = 0, 0
    while batch := list(islice(lines, size)):
        sources = []
        for line in batch:
            number += 1
            # An editor may have put a byte order mark before the text.
            source = line.removeprefix("\ufeff").strip()
            try:
                translator.encode([source])
            except ValueError as error:
                why = str(error).replace("sentence 1", "it", 1)
                print(f"line {number}: {why}", file=sys.stderr)
                source, code = "", 2
            sources.append(source)
        texts = translator.translate(sources, beam_size, length_penalty)
        print(*texts, sep="\n", flush=True)
    return code


def _evaluate(
    model: str,
    corpus: str | None = None,
    split: str = "test",
    limit: int | None = None,
    to: str | None = None,
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    as_json: bool = False,
) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Example: evaluate --model little-spanish --limit 20

    `model` is a folder or a bundled name; `corpus`, a name or a
    folder, is the model's own if not given. `to` is a new file for
    the translations, `limit` the number of pairs. A beam of 1 is
    greedy.

    Chapter: cli-translate
    """
    path = Path(to or "")
    stream = path.is_fifo() or path.is_char_device()
    if to and os.path.lexists(path) and not stream:
        raise ValueError(f"--to {to} is there already: name a new file")
    translator = Translator.from_pretrained(model, pick_device(device))
    if not all(translator.languages):
        raise ValueError(f"{model} names no languages: save it with two")
    if corpus is None:
        folder = model if Path(model).is_dir() else bundled_models()[model]
        corpus = load_config(folder)[2].get("corpus", "")
    experiment = Experiment(corpus, translator.languages, limit=limit)
    texts = experiment.load(split)
    scores = evaluate(
        translator.model,
        translator.tokenizer,
        texts,
        beam_size=beam_size,
        length_penalty=length_penalty,
    )
    lines = "\n".join(scores.pop("translations")) + "\n"
    _print(scores, as_json)
    if stream:
        path.write_text(lines, "utf-8")
    elif to:
        write_atomically(path, lines)


def _average(
    model: str, out: str, last: int = 5, as_json: bool = False
) -> None:
    """Write a model with the mean weights of the last checkpoints.

    Example: average --model m30k --last 3 --out mean

    `model` is the folder of a training, `out` a new folder, `last`
    the number of checkpoints.

    Chapter: cli-translate
    """
    if (Path(out) / "config.json").exists():
        raise ValueError(f"{out} holds a model: name another folder")
    config, tokenizer, info = load_config(model)
    paths = checkpoint_files(model)[-last:]
    if not paths:
        raise ValueError(f"{model} has no checkpoints: name a training")
    mean_model = Transformer(config)
    mean_model.load_state_dict(average_checkpoints(paths))
    mean_of = {"mean_of": [path.stem for path in paths]}
    save_model(out, mean_model, tokenizer, **(info | mean_of))
    _print(mean_of, as_json)


def _export(
    model: str, out: str, to: str = "ctranslate2", int8: bool = False
) -> None:
    """Write a model for another engine.

    Example: export --model little-spanish --out served

    `model` is a folder or a bundled name, `out` a new folder. With
    `int8`, for ctranslate2 alone, the weights are whole numbers.

    Chapter: cli-translate
    """
    export(Translator.from_pretrained(model, "cpu"), out, to, int8)


def _data(
    corpus: str = "little_spanish",
    languages: tuple[str, str] = ("en", "es"),
    as_json: bool = False,
) -> None:
    """Fetch a corpus if need be, and say what is in it.

    Example: data --corpus multi30k --languages de en

    `corpus` is little_spanish, multi30k, tatoeba, or a folder, and
    `languages` are source and target.

    Chapter: cli-translate
    """
    values: dict[str, Any] = {"folder": str(data_folder())}
    source, target = languages
    for split in ("train", "validation", "test"):
        texts = load_corpus(corpus, source, target, split)
        values[split] = {"pairs": len(texts), "first": list(texts[:1])}
    values["licence"] = texts.licence
    _print(values, as_json)


_CHOICES = TransformerConfig.CHOICES | {
    "preset": ("tiny", "base", "big"),
    "smoothing": ("uniform", "others"),
    "precision": ("auto", "fp32", "bf16"),
    "to": ("ctranslate2", "onnx"),
    "split": ("train", "validation", "test"),
}


def _count(text: str) -> int:
    """A whole number from 1 up.

    Chapter: cli-options
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 or more")
    return int(text)


def _name(text: str) -> str:
    """A name of something: "" would mean the current folder.

    Chapter: cli-options
    """
    if not text:
        raise argparse.ArgumentTypeError("it is empty: give a name")
    if any("\ud800" <= c < "\ue000" for c in text):  # surrogates
        raise argparse.ArgumentTypeError(f"{text!a} is not UTF-8: rename it")
    return text


def _values(parameter: inspect.Parameter) -> dict[str, Any]:
    """What argparse has to know of the values of a parameter.

    Chapter: cli-options
    """
    kind = parameter.annotation
    types = [each for each in get_args(kind) if each is not NoneType]
    if types:  # of int | None it is int, of a pair that of its first
        kind = types[0]
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    # By the default too: --to of evaluate is a file, of export a choice.
    if parameter.default in _CHOICES.get(parameter.name, ()):
        return {"choices": _CHOICES[parameter.name]}
    if len(types) > 1:
        return {"type": kind, "nargs": len(types)}
    return {"type": _name if kind is str else kind}


def add_options(
    parser: Any, function: Callable[..., Any], leave_out: Sequence[str] = ()
) -> None:
    """An option for each parameter of a function or field of a class.

    One that is not given leaves no trace: the default stays.

    Chapter: cli-options
    """
    for name, parameter in inspect.signature(function).parameters.items():
        if name in leave_out or parameter.kind is parameter.VAR_KEYWORD:
            continue
        required = parameter.default is parameter.empty
        values = _values(parameter)
        # These classes say themselves what is wrong with a number.
        checked = function in (TransformerConfig, TrainingConfig)
        if values.get("type") is int and not checked:
            values["type"] = _count
        parser.add_argument(
            "--" + name.replace("_", "-").removeprefix("as-"),
            dest=name,
            default=argparse.SUPPRESS,
            required=required,
            help="(required)" if required else f"({parameter.default})",
            **values,
        )


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong.

    Chapter: cli-options
    """

    def error(self, message: str):
        raise ValueError(f"{message}; see {self.prog} --help")


import_module("transformer_lib.rivals")  # a saved model may be one
_NO_OPTIONS = {
    Experiment: ["changes"],
    TransformerConfig: ["vocab_size"],  # Experiment has it
    TrainingConfig: [],
}
_COMMANDS = _train, _translate, _evaluate, _average, _export, _data


def _parser() -> _Parser:
    """The parser of all commands.

    Chapter: cli-options
    """
    parser = _Parser("python -m transformer_lib", allow_abbrev=False)
    parser.epilog = "exit codes: 0 done, 1 our fault, 2 bad input, 130 stopped"
    release = version("executable-transformer")
    parser.add_argument("--version", action="version", version=release)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run in _COMMANDS:
        text = inspect.getdoc(run) or ""  # python -OO has none
        new = commands.add_parser(
            run.__name__.removeprefix("_"),
            help=text.partition("\n")[0],
            description=text.replace("Example:", f"Example: {parser.prog}"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        new.set_defaults(run=run)
        new.add_argument("--threads", type=_count, help="of the CPU")
        add_options(new, run, leave_out=["command", "sentences"])
        if run is _translate:
            new.add_argument("sentences", nargs="*", help="quoted")
        if run is _train:
            for kind, leave_out in _NO_OPTIONS.items():
                title = kind.__name__
                if kind is not Experiment:
                    title += " (here with the values of --preset base)"
                group = new.add_argument_group(title, inspect.getdoc(kind))
                add_options(group, kind, leave_out)
    return parser


_EXPECTED = ValueError, OSError, ArithmeticError, ImportError
_NO_MEMORY = re.compile("alloc|out of memory|not enough memory|overflow", re.I)


def _explain(error: Exception) -> str | None:
    """What the person at the terminal can mend; None: a fault of ours.

    Chapter: cli-main
    """
    text = " ".join(str(error).split())
    if isinstance(error, Timeout):
        return "another training writes to that folder"
    if isinstance(error, UnicodeEncodeError):
        return f"the output cannot hold this: PYTHONIOENCODING=utf-8 ({text})"
    if isinstance(error, UnicodeError):
        return f"this text is not UTF-8 ({text})"
    full = isinstance(error, RuntimeError) and _NO_MEMORY.search(text)
    if full or isinstance(error, MemoryError):
        return "memory is full: lower the batch, the beam or the sizes"
    return text if isinstance(error, _EXPECTED) else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is said in one line.

    Returns:
        The exit code: 0, done; 2, for bad input or a machine that
        does not let us; 130, stopped by Ctrl-C or, while a model
        trains, by SIGTERM; 141, if nobody reads our lines. A fault of
        ours is raised.

    Chapter: cli-main
    """
    if sys.stderr is None:  # closed by the shell: 2>&-
        sys.stderr = open(os.devnull, "w")
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        options = vars(_parser().parse_args(words))
        run, threads = options.pop("run"), options.pop("threads")
        if run is _train:
            command = shlex.join(words)
            options["command"] = f"python -m transformer_lib {command}"
        if threads or run is not _train:  # decoding is quickest with one
            cores = os.cpu_count() or 1
            torch.set_num_threads(min(threads or 1, cores))
        torch.set_float32_matmul_precision("high")  # TF32
        code = run(**options) or 0
        print(end="", flush=True)  # a full disk is heard of here
        return code
    except BrokenPipeError:  # whoever read our lines has gone
        line, code = "", 141
    except KeyboardInterrupt:
        line, code = "stopped", 130
        if words[:1] == ["train"]:
            line += "; the same command goes on"
    except Exception as error:
        line, code = _explain(error), 2
        if line is None:
            raise
    try:
        print(end="", flush=True)
    except OSError:  # or Python would try again as it ends, and say so
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if line:
        print(f"transformer_lib: {line}", file=sys.stderr)
    return code
