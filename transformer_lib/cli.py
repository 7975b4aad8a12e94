# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training run or a translation in one line.

Chapter: book/appendix/cli
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from transformer_lib import __version__
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import (
    Experiment,
    finite,
    pick_device,
    run_experiment,
)
from transformer_lib.export import export
from transformer_lib.model import Transformer
from transformer_lib.schedule import TrainingConfig
from transformer_lib.translator import Translator, bundled_models


@dataclass(frozen=True)
class _Settings(TrainingConfig):
    precision: tyro.conf.Suppress[Literal["fp32", "bf16"]] = "fp32"


@dataclass(frozen=True, kw_only=True)
class _Train:
    """Train a model, or go on with the run in a folder.

    Args:
        out: the folder
        preset: where settings come from that are not given
        experiment: what is trained
        command: for the report

    Chapter: cli-train
    """

    out: str
    preset: Literal["tiny", "base", "big"] = "tiny"
    experiment: Experiment
    command: tyro.conf.Suppress[str] = ""

    def run(self) -> None:
        report = run_experiment(self.experiment, self.out, self.command)
        if report is not None:
            result = report["result"] | {"test": report.get("test", {})}
            _print(result)


def _train(words: Sequence[str]) -> _Train:
    """The command `train` with the preset that the words name.

    Chapter: cli-train
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset", default="tiny")
    preset = first.parse_known_args(words)[0].preset
    chosen = getattr(Experiment, preset, Experiment.tiny)()
    settings = _Settings(**vars(chosen.training))
    return _Train(
        out=tyro.MISSING,
        experiment=Experiment(**(vars(chosen) | {"training": settings})),
        command=shlex.join(["python", "-m", "transformer_lib", *words]),
    )


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(finite(values), indent=1, ensure_ascii=False))


@dataclass(frozen=True, kw_only=True)
class _Translating:
    """What `translate` and `evaluate` have in common.

    Args:
        model: a folder or a bundled name
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: the exponent alpha of section 6.1

    Chapter: cli-translate
    """

    model: str
    device: str | None = None
    beam_size: int = 4
    length_penalty: float = 0.6

    def translator(self) -> Translator:
        return Translator.from_pretrained(self.model, pick_device(self.device))


@dataclass(frozen=True, kw_only=True)
class _Translate(_Translating):
    """Translate the sentences given, or the standard input.

    Args:
        sentences: quoted

    Chapter: cli-translate
    """

    sentences: tyro.conf.Positional[tuple[str, ...]] = ()

    def run(self) -> None:
        translator = self.translator()

        def translated(lines: Sequence[str]) -> list[str]:
            try:
                return translator.translate(
                    lines, self.beam_size, self.length_penalty
                )
            except ValueError as error:
                if len(lines) > 1:
                    each = (translated([line]) for line in lines)
                    return [text for texts in each for text in texts]
                print(f"an empty line, as {error}", file=sys.stderr)
                return [""]

        for lines in [self.sentences] if self.sentences else _standard_input():
            print(*translated(lines), sep="\n", flush=True)


def _standard_input() -> Iterator[list[str]]:
    """The lines that are there, whenever there are some.

    Chapter: cli-translate
    """
    rest = b""
    while more := os.read(0, 2**16):  # waits for the first byte only
        *whole, rest = (rest + more).split(b"\n")
        if whole:
            yield [line.decode("utf-8-sig", "replace") for line in whole]
    if rest:
        yield [rest.decode("utf-8-sig", "replace")]


@dataclass(frozen=True, kw_only=True)
class _Evaluate(_Translating):
    """Print BLEU and chrF, with signatures, of a model on a split.

    Args:
        corpus: a name or a folder; the model's own if not given
        split: train, validation or test
        limit: only the first `limit` pairs
        to: a new file for the translations

    Chapter: cli-translate
    """

    corpus: str | None = None
    split: Literal["train", "validation", "test"] = "test"
    limit: int | None = None
    to: str | None = None

    def run(self) -> None:
        if self.to and Path(self.to).exists():
            raise ValueError(f"--to {self.to} is there: name a new file")
        translator = self.translator()
        corpus = self.corpus
        if corpus is None:
            here = Path(self.model).is_dir()
            folder = self.model if here else bundled_models()[self.model]
            corpus = load_config(folder)[2].get("corpus", "")
        try:
            texts = load_corpus(corpus, *translator.languages, self.split)
        except FileNotFoundError as error:
            raise ValueError(f"{error}; or give another --split") from None
        scores = evaluate(
            translator.model,
            translator.tokenizer,
            texts[: self.limit],
            self.beam_size,
            self.length_penalty,
        )
        lines = "\n".join(scores.pop("translations")) + "\n"
        _print(scores)
        if self.to:
            write_atomically(self.to, lines)


@dataclass(frozen=True, kw_only=True)
class _Average:
    """Write a model with the mean weights of the last checkpoints.

    Args:
        model: the folder of a training run
        out: a new folder
        last: how many checkpoints

    Chapter: cli-translate
    """

    model: str
    out: str
    last: int = 5

    def run(self) -> None:
        if (Path(self.out) / "config.json").exists():
            raise ValueError(f"{self.out} holds a model: name another folder")
        config, tokenizer, info = load_config(self.model)
        paths = checkpoint_files(self.model)[-self.last :]
        model = Transformer(config)
        model.load_state_dict(average_checkpoints(paths))
        mean_of = {"mean_of": [path.stem for path in paths]}
        save_model(self.out, model, tokenizer, **(info | mean_of))
        _print(mean_of)


@dataclass(frozen=True, kw_only=True)
class _Export:
    """Write a model for another engine.

    Args:
        model: a folder or a bundled name
        out: a new folder
        to: the engine
        int8: weights as whole numbers, for ctranslate2

    Chapter: cli-translate
    """

    model: str
    out: str
    to: Literal["ctranslate2", "onnx"] = "ctranslate2"
    int8: bool = False

    def run(self) -> None:
        translator = Translator.from_pretrained(self.model)
        export(translator, self.out, self.to, self.int8)


@dataclass(frozen=True, kw_only=True)
class _Data:
    """Fetch a corpus if need be, and print what is in it.

    Args:
        corpus: little_spanish, multi30k, tatoeba, or a folder
        languages: source and target

    Chapter: cli-translate
    """

    corpus: str = "little_spanish"
    languages: tuple[str, str] = ("en", "es")

    def run(self) -> None:
        texts = load_corpus(self.corpus, *self.languages, "train")
        values: dict[str, Any] = {"licence": texts.licence}
        for split in ("train", "validation", "test"):
            with suppress(FileNotFoundError):  # a folder may lack a split
                texts = load_corpus(self.corpus, *self.languages, split)
                values[split] = {"pairs": len(texts), "first": list(texts[:1])}
        _print(values)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is explained in one line.

    Returns:
        The exit code: 0, done; 2, for bad input; 130, stopped by Ctrl-C
        or, while a model trains, by SIGTERM; 141, nobody reads.

    Chapter: cli-main
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["--version"]:
        print(__version__)
        return 0
    named = tyro.conf.subcommand
    commands = (
        Annotated[_Train, named("train", default=_train(words))]
        | Annotated[_Translate, named("translate")]
        | Annotated[_Evaluate, named("evaluate")]
        | Annotated[_Average, named("average")]
        | Annotated[_Export, named("export")]
        | Annotated[_Data, named("data")]
    )
    try:
        command = tyro.cli(
            tyro.conf.OmitArgPrefixes[commands],
            args=words,
            prog="python -m transformer_lib",
        )
        if not isinstance(command, _Train):  # see below
            torch.set_num_threads(1)
        command.run()
        return 0
    except SystemExit as error:  # tyro's, which has explained itself
        return int(error.code or 0)
    except BrokenPipeError:  # whoever read our lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("transformer_lib: stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        print(f"transformer_lib: {error}", file=sys.stderr)
        return 2
