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
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import nn

from transformer_lib import __version__
from transformer_lib.beams import longest_source
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    load_model,
    save_model,
)
from transformer_lib.corpora import as_path, check_encoding, decode_line
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import Experiment, pick_device, run_experiment
from transformer_lib.export import export_model
from transformer_lib.replays import Replays, why_not_replayed
from transformer_lib.training import worker
from transformer_lib.translator import Translator, find_model, split_sentences


@dataclass(frozen=True)
class _Experiment(Experiment):
    """--precision is the training's.

    Chapter: cli-train
    """

    precision: InitVar[tyro.conf.Suppress[str | None]] = None


PRESETS = {
    "tiny": _Experiment.tiny(),
    "base": _Experiment.base(),
    "big": _Experiment.big(),
    "fine-tuning": _Experiment.fine_tuning(),
}


def _train(
    out: str,
    experiment: _Experiment,
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
    reason = why_not_replayed(model)
    if reason and worker()[0] == 0 and next(model.parameters()).is_cuda:
        print(f"steps are not replayed: {reason}", file=sys.stderr)
    return None if reason else Replays


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1, ensure_ascii=False))


def _translate(
    model: str,
    sentences: tyro.conf.Positional[tuple[str, ...]] = (),
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    split: bool = False,
) -> None:
    """Translate the sentences given, or the standard input.

    Args:
        model: a folder or a bundled name
        sentences: quoted; after -- if one begins with -
        device: cpu, cuda or mps; the best one if not given
        split: a line may hold several sentences
        beam_size: 1 is greedy
        length_penalty: alpha of section 6.1; 0 for none

    Chapter: cli-translate
    """
    translator = Translator.from_pretrained(model, pick_device(device))
    longest = longest_source(translator.model)
    source = translator.languages[0]
    blocks = _standard_input()
    if sentences:
        blocks = iter([[text.encode() for text in sentences]])
    number = 0
    for block in blocks:
        lines = []
        for line in block:
            number += 1
            try:
                text = decode_line(line)
                parts = split_sentences(text, source) if split else [text]
                most = max(map(len, translator.encode(parts)), default=1) - 1
                if most > longest:
                    raise ValueError(f"{most} tokens, over {longest}: --split")
            except ValueError as error:
                parts = []
                print(f"line {number} is left empty: {error}", file=sys.stderr)
            lines.append(parts)
        found = translator.by_sentence(lines, beam_size, length_penalty)
        print(*found, sep="\n", flush=True)


def _standard_input() -> Iterator[list[bytes]]:
    """The lines that are there, whenever there are some.

    Chapter: cli-translate
    """
    check_encoding(sys.stdin.buffer.peek(2), "the input")
    while content := sys.stdin.buffer.read1(2**16):  # waits for a byte
        if not content.endswith(b"\n"):
            content += sys.stdin.buffer.readline()
        yield content.removesuffix(b"\n").split(b"\n")


def _evaluate(
    model: str,
    corpus: str | None = None,
    languages: tuple[str, str] | None = None,
    split: Literal["train", "validation", "test"] = "test",
    limit: int | None = None,
    skip_bad_lines: bool = False,
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
        limit: only the first pairs
        skip_bad_lines: leave out and count what is not a sentence
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: alpha of section 6.1; 0 for none

    Chapter: cli-translate
    """
    folder = find_model(model)
    translator = Translator.from_pretrained(folder, pick_device(device))
    own = translator.languages
    languages = languages or own
    corpus = load_config(folder)[2].get("corpus") if corpus is None else corpus
    for name, said in ("corpus", corpus), ("languages", all(languages)):
        if said in (None, False):
            raise ValueError(f"{model} does not say its {name}: give --{name}")
    if languages == own[::-1] and languages != own:
        raise ValueError(
            f"{model} translates {' to '.join(own)}: give --languages "
            f"{' '.join(own)}, or leave it out"
        )
    part = Experiment(
        corpus, languages, limit=limit, skip_bad_lines=skip_bad_lines
    ).load(split)
    scores = evaluate(
        translator.model, translator.tokenizer, part, beam_size, length_penalty
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
    folder = find_model(model)
    if as_path(out).exists():
        raise FileExistsError(f"{out} is there: name a new folder")
    used = checkpoint_files(folder)[-last:] if last > 0 else []
    mean = average_checkpoints(used)
    averaged, tokenizer, info = load_model(folder, weights=mean)
    save_model(out, averaged, tokenizer, info=info)
    _print({"in": out, "mean of": [path.name for path in used]})


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

    Without `argv` it takes the process' own words, and changes settings
    of the process.

    Returns:
        The exit code: 0, done; 2, for what the line explains;
        130, stopped by Ctrl-C or, while a model trains, by a signal;
        141, if the reader of the output went away.

    Chapter: cli-main
    """
    if argv is None:
        argv = sys.argv[1:]
        _set_process(argv)
    end = [*argv, "--"].index("--")  # what follows is a sentence
    words = [word for word in argv[:end] if word != "--debug"]
    words += argv[end:]
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
        if len(words) < len(argv):
            traceback.print_exc()
        return 2


def _set_process(words: Sequence[str]) -> None:
    """What a process has one of: streams, log, threads, kernels.

    Chapter: cli-main
    """
    # Under a service a stream may be closed: no input, no output.
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if worker()[0] == 0 and not sys.stderr.isatty():
        # Without a terminal there is no bar: show the log's lines.
        logging.basicConfig(format="%(message)s")
        logging.getLogger("transformer_lib").setLevel("INFO")
    # It remarks on packages that no graph of ours needs.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    if not ("train" in words[:1] or "OMP_NUM_THREADS" in os.environ):
        torch.set_num_threads(1)  # a small model's products are too small
    # bf16 on a CPU: oneDNN keeps a program for each shape, and PyTorch
    # keeps it too. Of 1,024, their usual number, these are gigabytes.
    for cache in "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY":
        os.environ.setdefault(cache, "8")
    torch.backends.cuda.matmul.allow_tf32 = True
    # Its attention is planned anew for each shape.
    torch.backends.cuda.enable_cudnn_sdp(False)


def _run(words: list[str]) -> None:
    """Read the options and call the command's function.

    Chapter: cli-main
    """
    if bad := [x for x in words if x.encode(errors="replace").decode() != x]:
        raise ValueError(f"{bad[0]!r} is not UTF-8: rename it")
    # The defaults of other options depend on these two.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    parser.add_argument("--from", dest="start", nargs="?")
    given, _ = parser.parse_known_args(words)
    preset = given.preset
    if preset not in PRESETS:  # tyro explains it
        preset = "tiny" if given.start is None else "fine-tuning"
    train = partial(
        _train,
        experiment=PRESETS[preset],
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
    name = "python -m transformer_lib"
    config = [tyro.conf.OmitArgPrefixes]
    if words == ["--version"]:
        print(__version__)
    elif words and words[0] in commands:
        command, *options = words
        prog = f"{name} {command}"
        tyro.cli(commands[command], args=options, prog=prog, config=config)
    else:  # tyro lists them
        about = "--version; with a command: --help, --debug (a traceback)"
        tyro.extras.subcommand_cli_from_dict(
            commands, args=words, prog=name, description=about, config=config
        )
