# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training run or a translation in one line.

Chapter: book/appendix/cli
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    save_model,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import Experiment, pick_device, run_experiment
from transformer_lib.export import export
from transformer_lib.model import Transformer
from transformer_lib.schedule import TrainingConfig
from transformer_lib.translator import Translator, bundled_models


@dataclass(frozen=True)
class _Settings(TrainingConfig):
    # hidden: the precision that matters is the experiment's
    precision: tyro.conf.Suppress[str] = "fp32"


def _train(
    out: str,
    experiment: Experiment,
    preset: Literal["tiny", "base", "big"] = "tiny",
    command: tyro.conf.Suppress[str] = "",
) -> None:
    """Train a model, or go on with the run in a folder.

    Args:
        out: the folder
        experiment: what is trained
        preset: where settings come from that are not given
        command: for the report

    Chapter: cli-train
    """
    report = run_experiment(experiment, out, command)
    if report is not None:
        _print(report["result"] | {"test": report.get("test", {})})


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1, ensure_ascii=False))


def _translate(
    model: str,
    sentences: tyro.conf.Positional[tuple[str, ...]] = (),
    device: str | None = None,
    beam_size: int = 4,
) -> None:
    """Translate the sentences given, or the standard input.

    Args:
        model: a folder or a bundled name
        sentences: quoted
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy

    Chapter: cli-translate
    """
    torch.set_num_threads(1)  # its products are too small to be shared out
    translator = Translator.from_pretrained(model, pick_device(device))
    translator.translate([], beam_size)  # refuses a wrong size

    def translated(lines: list[str]) -> list[str]:
        try:
            return translator.translate(lines, beam_size)
        except ValueError as error:  # a line is too long
            if len(lines) > 1:
                return [text for one in lines for text in translated([one])]
            print(f"an empty line, as {error}", file=sys.stderr)
            return [""]

    for lines in [[*sentences]] if sentences else _standard_input():
        print(*translated(lines), sep="\n", flush=True)


def _standard_input() -> Iterator[list[str]]:
    """The lines that are there, whenever there are some.

    Chapter: cli-translate
    """
    while text := sys.stdin.buffer.read1(2**16):  # waits for a byte
        if not text.endswith(b"\n"):
            text += sys.stdin.buffer.readline()
        yield text.decode("utf-8", "replace").removesuffix("\n").split("\n")


def _evaluate(
    model: str,
    corpus: str | None = None,
    split: Literal["train", "validation", "test"] = "test",
    device: str | None = None,
) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Args:
        model: a folder or a bundled name
        corpus: a name or a folder; the model's own if not given
        split: train, validation or test
        device: cpu, cuda or mps; the best one if not given

    Chapter: cli-translate
    """
    torch.set_num_threads(1)
    translator = Translator.from_pretrained(model, pick_device(device))
    if corpus is None:
        folder = model if Path(model).is_dir() else bundled_models()[model]
        corpus = load_config(folder)[2].get("corpus", "")
    texts = load_corpus(corpus, *translator.languages, split)
    scores = evaluate(translator.model, translator.tokenizer, texts)
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
    config, tokenizer, info = load_config(model)
    paths = checkpoint_files(model)[::-1][:last]
    mean = Transformer(config)
    mean.load_state_dict(average_checkpoints(paths))
    Path(out).mkdir(parents=True)
    save_model(out, mean, tokenizer, **info)


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
    export(Translator.from_pretrained(model), out, to, int8)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is explained in one line.

    Returns:
        The exit code: 0, done; 2, for bad input; 130, stopped by Ctrl-C
        or, while a model trains, by SIGTERM.

    Chapter: cli-main
    """
    words = sys.argv[1:] if argv is None else list(argv)
    named = re.findall(r"--preset[ =](tiny|base|big)\b", " ".join(words))
    preset = getattr(Experiment, named[-1] if named else "tiny")()
    settings = _Settings(**vars(preset.training))
    experiment = replace(preset, training=settings)
    command = shlex.join(["python", "-m", "transformer_lib", *words])
    train = partial(_train, experiment=experiment, command=command)
    others = _translate, _evaluate, _average, _export
    commands = {"train": train} | {f.__name__[1:]: f for f in others}
    try:
        tyro.extras.subcommand_cli_from_dict(
            commands,
            args=words,
            prog="python -m transformer_lib",
            config=[tyro.conf.OmitArgPrefixes],
        )
        return 0
    except KeyboardInterrupt:
        print("transformer_lib: stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        print(f"transformer_lib: {error}", file=sys.stderr)
        return 2
