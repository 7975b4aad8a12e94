# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training run or a translation in one line.

Chapter: book/appendix/cli
"""

import argparse
import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import nn

from transformer_lib.beams import _check_options, longest_source
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    load_model,
    save_model,
)
from transformer_lib.corpora import decode_line, is_utf16, load_corpus
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import Experiment, pick_device, run_experiment
from transformer_lib.export import export_model
from transformer_lib.replays import Replays, why_not_replayed
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import worker
from transformer_lib.translator import Translator, bundled_models

PRESETS = {
    "tiny": Experiment.tiny(),
    "base": Experiment.base(),
    "big": Experiment.big(),
    "fine-tuning": Experiment.fine_tuning(),
}


@dataclass(frozen=True)
class _Training(TrainingConfig):
    """Two dataclasses have a precision: --precision is the experiment's.

    Chapter: cli-train
    """

    precision: tyro.conf.Suppress[str] = "fp32"


def _train(
    out: str,
    experiment: Experiment,
    preset: Literal["tiny", "base", "big", "fine-tuning"] = "tiny",
    start: Annotated[str | None, tyro.conf.arg(name="from")] = None,
    command: tyro.conf.Suppress[str] = "",
) -> None:
    """Train a model, or go on with the run in a folder.

    Args:
        out: the folder
        experiment: what is trained
        preset: where settings come from that are not given; fine-tuning
            with --from, else tiny
        start: a folder or the bundled name of a model to train further;
            it keeps its sizes and its tokenizer
        command: for the report

    Chapter: cli-train
    """
    if start is not None and experiment.model != PRESETS[preset].model:
        raise ValueError(
            f"--from: {start} keeps its sizes and its dropout; leave out "
            "--d-model, --vocab-size, --dropout and the like"
        )
    report = run_experiment(
        experiment, out, command, start=start, gradients=_gradients
    )
    if report is not None:
        _print(report["result"] | {"test": report.get("test", {})})


def _gradients(model: nn.Module) -> type[Replays] | None:
    """On a GPU of NVIDIA the steps are recorded and replayed.

    Chapter: cli-train
    """
    return None if why_not_replayed(model) else Replays


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1, ensure_ascii=False))


def _translate(
    model: str,
    sentences: tyro.conf.Positional[tuple[str, ...]] = (),
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> None:
    """Translate the sentences given, or the standard input.

    Args:
        model: a folder or a bundled name
        sentences: quoted
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: alpha of section 6.1; 0 for none

    Chapter: cli-translate
    """
    _check_options(beam_size, length_penalty)
    torch.set_num_threads(1)  # its products are too small to be shared out
    translator = Translator.from_pretrained(model, pick_device(device))
    longest = longest_source(translator.model)
    blocks = _standard_input()
    if sentences:
        blocks = iter([[text.encode() for text in sentences]])
    number = 0
    for block in blocks:
        texts = []
        for line in block:
            number += 1
            try:
                text = decode_line(line)
                [ids] = translator.encode([text])
                if len(ids) - 1 > longest:
                    raise ValueError(
                        f"{len(ids) - 1} tokens, over {longest}: split it"
                    )
            except ValueError as error:
                text = ""
                print(f"line {number} is left empty: {error}", file=sys.stderr)
            texts.append(text)
        found = translator.translate(texts, beam_size, length_penalty)
        print(*found, sep="\n", flush=True)


def _standard_input() -> Iterator[list[bytes]]:
    """The lines that are there, whenever there are some.

    Chapter: cli-translate
    """
    begun = False
    while content := sys.stdin.buffer.read1(2**16):  # waits for a byte
        if not content.endswith(b"\n"):
            content += sys.stdin.buffer.readline()
        if not begun and is_utf16(content):
            raise ValueError("the input is UTF-16: give UTF-8")
        begun = True
        yield content.removesuffix(b"\n").split(b"\n")


def _evaluate(
    model: str,
    corpus: str | None = None,
    languages: tuple[str, str] | None = None,
    split: Literal["train", "validation", "test"] = "test",
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Args:
        model: a folder or a bundled name
        corpus: a name or a folder; the model's own if not given
        languages: source and target; the model's own if not given
        split: train, validation or test
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: alpha of section 6.1; 0 for none

    Chapter: cli-translate
    """
    torch.set_num_threads(1)
    translator = Translator.from_pretrained(model, pick_device(device))
    if corpus is None:
        folder = model if Path(model).is_dir() else bundled_models()[model]
        _, _, info = load_config(folder)
        corpus = info.get("corpus")
        if corpus is None:
            raise ValueError(f"{model} does not say its corpus: give --corpus")
    source, target = languages or translator.languages
    texts = load_corpus(corpus, source, target, split)
    scores = evaluate(
        translator.model,
        translator.tokenizer,
        texts,
        beam_size,
        length_penalty,
    )
    del scores["translations"]
    _print(scores)


def _average(model: str, out: str, last: int = 5) -> None:
    """Write a model with the mean weights of the last checkpoints.

    Args:
        model: the folder of a training run
        out: a new folder
        last: how many checkpoints

    Chapter: cli-translate
    """
    paths = checkpoint_files(model)
    if last < 1 or not paths:
        raise ValueError(
            f"{model} has {len(paths)} checkpoints, {last=}: give the folder "
            "of a training run, and --last 1 or more"
        )
    if Path(out).exists():
        raise FileExistsError(f"{out} exists: name a new folder")
    mean = average_checkpoints(paths[-last:])
    averaged, tokenizer, info = load_model(model, weights=mean)
    save_model(out, averaged, tokenizer, info=info)


def _export(
    model: str,
    out: str,
    to: Literal["ctranslate2", "onnx"] = "ctranslate2",
    int8: bool = False,
) -> None:
    """Write a model for another engine.

    Args:
        model: a folder or a bundled name
        out: a new folder
        to: the engine
        int8: weights as whole numbers, for ctranslate2

    Chapter: cli-translate
    """
    export_model(Translator.from_pretrained(model), out, to, int8)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is explained in one line.

    Returns:
        The exit code: 0, done; 2, for bad input or too little memory;
        130, stopped by Ctrl-C or, while a model trains, by SIGTERM;
        141, if the reader of the output went away.

    Chapter: cli-main
    """
    words = list(argv) if argv is not None else sys.argv[1:]
    if argv is None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        if worker()[0] == 0 and not sys.stderr.isatty():
            # Without a terminal there is no bar: show the log's lines.
            logging.basicConfig(format="%(message)s")
            logging.getLogger("transformer_lib").setLevel("INFO")
    threads = torch.get_num_threads()
    try:
        _run(words)
        return 0
    except KeyboardInterrupt as error:
        line = str(error) or "stopped"
        print(f"transformer_lib: {line}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # What is still to be written goes nowhere, without a word.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (
        ArithmeticError,
        ImportError,
        MemoryError,
        OSError,
        RuntimeError,
        ValueError,
    ) as error:
        line = str(error).strip().partition("\n")[0] or type(error).__name__
        print(f"transformer_lib: {line}", file=sys.stderr)
        return 2
    finally:
        torch.set_num_threads(threads)


def _run(words: list[str]) -> None:
    """Read the options and call the command's function.

    Chapter: cli-main
    """
    for word in words:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise ValueError(f"{word!r} is not UTF-8: give it as UTF-8")
    # The defaults of other options depend on these two.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    parser.add_argument("--from", dest="start", nargs="?")
    given, _ = parser.parse_known_args(words)
    preset = given.preset
    if preset not in PRESETS:  # tyro explains it
        preset = "tiny" if given.start is None else "fine-tuning"
    experiment = PRESETS[preset]
    training = _Training(**vars(experiment.training))
    train = partial(
        _train,
        experiment=replace(experiment, training=training),
        preset=preset,
        command=shlex.join(["python", "-m", "transformer_lib", *words]),
    )
    commands = {
        "train": train,
        "translate": _translate,
        "evaluate": _evaluate,
        "average": _average,
        "export": _export,
    }
    tyro.extras.subcommand_cli_from_dict(
        commands,
        args=words,
        prog="python -m transformer_lib",
        config=[tyro.conf.OmitArgPrefixes],
    )
