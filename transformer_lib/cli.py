# Collected from book/back/cli.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The command line: a training or a translation in one line."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import torch

from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoints,
    load_model,
    save_model,
)
from transformer_lib.corpora import data_folder
from transformer_lib.evaluation import evaluate
from transformer_lib.model import TransformerConfig
from transformer_lib.queues import run_queue
from transformer_lib.recording import record_training
from transformer_lib.runs import (
    add_published,
    load_run,
    recorded_runs,
    write_card,
    write_lines,
)
from transformer_lib.schedule import TrainingConfig
from transformer_lib.speed import WAYS, record_speed
from transformer_lib.tasks import Task, read_split
from transformer_lib.translator import Translator, bundled_models

__all__ = ["Options", "main"]


Options = argparse.Namespace


def _add_fields(parser: Any, kind: type, *names: str) -> None:
    """Give a parser an option for each field of a dataclass.

    An option that is not given leaves no trace: the field's default,
    or the preset's value, stays. `names` restricts the fields.
    """
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if isinstance(hint, UnionType):
            hint = get_args(hint)[0]  # the other is None
        how: dict[str, Any] = {"type": hint}
        how["choices"] = field.metadata.get("choices")
        if get_origin(hint) is tuple:
            kinds = get_args(hint)
            how = {"type": kinds[0], "nargs": len(kinds)}
        elif hint is bool:
            how = {"action": argparse.BooleanOptionalAction}
        if field.name in names or not names:
            parser.add_argument(
                "--" + field.name.replace("_", "-"),
                default=argparse.SUPPRESS,
                help=field.metadata.get("help"),
                **how,
            )


def _task_of(options: Options, **more: Any) -> Task:
    """The task that a command's options describe."""
    given = vars(options) | more
    own = {field.name for field in fields(Task)} - {"changes"}
    configs = (TransformerConfig, TrainingConfig)
    changing = {
        x.name for config in configs for x in fields(config)
    } - own
    task = Task(**{k: given[k] for k in own & given.keys()})
    task.changes = {k: given[k] for k in changing & given.keys()}
    return task


def _run_train(options: Options) -> None:
    """Train a model, or go on with the training that --out holds."""
    command = "python -m transformer_lib " + shlex.join(options.words)
    report = record_training(_task_of(options), command)
    if report:
        for name, value in report["result"].items():
            print(f"{name.replace('_', ' ')}: {value}")
        end = "finished" if report["finished"] else "stopped in time"
        print(f"{end}; the model is in {options.out}")


def _run_measure(options: Options) -> None:
    """Measure how fast steps are, in several ways."""
    command = "python -m transformer_lib " + shlex.join(options.words)
    task = _task_of(options)
    for row in record_speed(task, options.ways, command)["speed"]:
        speed = row["target_tokens_per_second"]
        print(f"{row['way']}: {speed:,.0f} target tokens a second")


def _run_translate(options: Options) -> None:
    """Translate the sentences given, or the standard input."""
    model = Translator.from_pretrained(options.model, options.device)
    lines = iter(options.sentences or sys.stdin)
    size = 1 if sys.stdin.isatty() else 64
    search = {"beam_size": options.beam_size}
    search["length_penalty"] = options.length_penalty
    while part := [line.strip() for line in islice(lines, size)]:
        texts = [line for line in part if line]
        found = iter(
            model.translate(texts, **search) if texts else []
        )
        for line in part:
            print(next(found) if line else "", flush=True)


def _run_evaluate(options: Options) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split."""
    found = Translator.from_pretrained(options.model, options.device)
    place = bundled_models().get(options.model, options.model)
    info = load_model(place)[2]
    known = {k: info[k] for k in ("corpus", "languages") if k in info}
    task = _task_of(Options(**known | vars(options)))
    search = options.beam_size, options.length_penalty
    corpus = read_split(task, options.split)
    report = evaluate(found.model, found.tokenizer, corpus, *search)
    lines = report.pop("translations")
    if options.to:
        write_lines(Path(options.to), lines)
    for name, value in report.items():
        print(f"{name.replace('_', ' ')}: {value}")


def _run_average(options: Options) -> None:
    """Write a model with the mean weights of the last checkpoints."""
    model, tokenizer, info = load_model(options.model)
    paths = checkpoints(options.model)[-options.last :]
    model.load_state_dict(average_checkpoints(paths))
    save_model(options.out, model, tokenizer, **info)
    print(
        f"{options.out}: mean of {', '.join(x.stem for x in paths)}"
    )


def _run_data(options: Options) -> None:
    """Fetch a corpus if need be, and say what is in it."""
    print(f"corpora are kept in {data_folder()}")
    for split in ("train", "validation", "test"):
        corpus = read_split(_task_of(options), split)
        print(f"{split}: {len(corpus):,} pairs, as {corpus[0]}")
    print(f"licence: {corpus.licence}")


def _run_runs(options: Options) -> int:
    """List the recorded runs, write a card anew, or run a queue."""
    if options.card:
        print(write_card(options.card))
    elif options.published:
        print(add_published(options.published))
    elif options.queue:
        limits = options.budget_minutes, options.jobs, options.smoke
        ends = run_queue(options.queue, options.out, *limits)
        print(
            "\n".join(f"{name}: {end}" for name, end in ends.items())
        )
        return int(any("failed" in end for end in ends.values()))
    else:
        for name in recorded_runs():
            print(f"{name}: {load_run(name).report['measures']}")
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str):
        raise ValueError(f"{message}; see {self.prog} --help")


def _add_model(parser: Any) -> None:
    """The options of `translate` and `evaluate`."""
    add = parser.add_argument
    add("--model", required=True, help="a folder, or a bundled name")
    add("--device", help="cpu, cuda or mps; the best there is")
    add("--beam-size", type=int, default=4, help="1 is greedy")
    add("--length-penalty", type=float, default=0.6, help="alpha")


def _add_task(parser: Any) -> None:
    """The options of `train` and `measure`: a whole task."""
    own = {x.name for x in fields(Task)}
    for kind in (Task, TransformerConfig, TrainingConfig):
        group = parser.add_argument_group(kind.__name__)
        names = {x.name for x in fields(kind)} - {"changes"}
        known = set() if kind is Task else own
        _add_fields(group, kind, *names - known)


def _make_parser() -> _Parser:
    """The parser of all commands."""
    parser = _Parser("python -m transformer_lib", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Callable) -> _Parser:
        name, line = run.__name__[5:], run.__doc__.splitlines()[0]
        made = commands.add_parser(
            name, help=line, allow_abbrev=False
        )
        made.set_defaults(run=run)
        made.add_argument("--threads", type=int, help="of the CPU")
        return made

    _add_task(command(_run_train))
    _add_task(made := command(_run_measure))
    made.add_argument("--ways", choices=list(WAYS), required=True)
    _add_model(made := command(_run_translate))
    made.add_argument("sentences", nargs="*")
    data = "corpus languages source_file target_file limit".split()
    _add_model(made := command(_run_evaluate))
    _add_fields(made, Task, *data)
    made.add_argument("--split", default="test")
    made.add_argument("--to", help="file for the translations")
    made = command(_run_average)
    made.add_argument("--model", required=True, help="a training")
    made.add_argument("--last", type=int, default=5)
    made.add_argument("--out", required=True, help="a new folder")
    _add_fields(command(_run_data), Task, *data)
    add = command(_run_runs).add_argument
    add("--card", metavar="RUN", help="write its card anew")
    add("--published", metavar="RUN", help="add BLEU as published")
    add("--queue", help="a YAML file of runs")
    add("--out", default="runs", help="folder for the records")
    add("--budget-minutes", type=float, default=float("inf"))
    add("--jobs", type=int, default=1, help="trainings at once")
    add("--smoke", action="store_true", help="tiny, on a CPU")
    return parser


def _set_threads(options: Options) -> None:
    """All cores for training, shared by workers; one for decoding.

    A step of decoding is too small to be worth sharing.
    """
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    threads = max((os.cpu_count() or 1) // workers, 1)
    if options.run not in (_run_train, _run_measure):
        threads = 1
    elif workers == 1:  # torchrun sets this variable by itself
        threads = int(os.environ.get("OMP_NUM_THREADS", threads))
    torch.set_num_threads(options.threads or threads)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is said in one line.

    Returns:
        0; 1 if a run of a queue failed, 2 for bad input, 130 if
        stopped.

    Chapter: cli-main
    """
    if argv is None:  # a process of its own, which kill may stop
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        options = _make_parser().parse_args(words)
        options.words = words
        _set_threads(options)
        return options.run(options) or 0
    except (ValueError, OSError, ImportError) as error:
        line, code = " ".join(str(error).split()), 2
    except torch.OutOfMemoryError:
        line, code = "memory is full: lower --tokens-per-batch", 2
    except KeyboardInterrupt:
        line, code = "stopped; the same command goes on", 130
    print(f"transformer_lib: {line}", file=sys.stderr)
    return code
