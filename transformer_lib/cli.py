# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training or a translation in one line.

Chapter: book/appendix/cli
"""

import argparse
import inspect
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_origin

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import data_folder, load_corpus
from transformer_lib.evaluation import bleu, evaluate, published_bleu
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import (
    check_settings,
    fixed_settings,
    pick_device,
    train,
    worker,
)
from transformer_lib.translator import Translator, bundled_models


def _train(
    out: str,
    corpus: str = "little_spanish",
    languages: tuple[str, str] = ("en", "es"),
    preset: str = "tiny",
    vocab_size: int = 8000,
    limit: int | None = None,
    average: int = 5,
    validation_bleu: bool = False,
    test: str | None = None,
    half: bool = False,
    command: str = "",
    **changes: Any,
) -> None:
    """Train a model, or go on with the training that --out holds.

    Args:
        out: folder for all that is written
        corpus: little_spanish, multi30k, tatoeba, or a folder with
            train.en, train.es, validation.en and so on
        languages: source and target
        preset: sizes to start from: tiny, base or big; tiny takes
            5000 steps of 4096 tokens, with a warm-up of 1000
        vocab_size: pieces in the vocabulary
        limit: only the first so many pairs of each part
        average: checkpoints in the mean
        validation_bleu: log BLEU of greedy translations
        test: part to evaluate at the end, such as test
        half: save the model in half precision

    Chapter: cli-train
    """
    folder, (rank, workers) = Path(out), worker()
    texts, held_out, tests = (
        part and load_corpus(corpus, *languages, part)[:limit]
        for part in ("train", "validation", test)
    )
    begun = (folder / "config.json").is_file()
    both = texts.sources + texts.targets
    found = load_config(folder)[1] if begun else None
    tokenizer = found or BPETokenizer.train(both, vocab_size)
    config, c = _recipe(preset, len(tokenizer), average, changes)
    info = _describe(texts, vocab_size) | fixed_settings(c)
    if begun and _is_over(folder, config, info, c.max_steps):
        return _say(f"{folder} is finished: see its report.json")
    pairs = encode_pairs(texts, tokenizer, config.max_length)
    how = c.tokens_per_batch, c.seed, True, rank, workers
    batches = TokenBatches(pairs, *how)
    judge = _judge(held_out, tokenizer, validation_bleu)
    pick_device(c.device)  # a wrong one is refused here
    torch.manual_seed(c.seed)
    model = Transformer(config)
    with nullcontext() if rank else FileLock(folder / ".lock", 0):
        if rank == 0 and not begun:
            save_config(folder, config, tokenizer, **info)
        _say(f"{len(pairs):,} pairs of {len(texts):,} fit")
        history = train(model, batches, c, judge, folder)
        if rank == 0:
            result = _finish(folder, model, history, average)
            result |= judge(model, c.max_steps)
            save_model(folder, model, tokenizer, half, **info)
            report = {"training": asdict(c), "result": result}
            _report(folder, command, report, tests)


def _recipe(
    preset: str, vocab_size: int, average: int, changes: dict
) -> tuple[TransformerConfig, TrainingConfig]:
    """A preset's two configurations, with changes of their fields.

    Chapter: cli-train
    """
    if preset not in ("tiny", "base", "big"):
        raise ValueError(f"{preset=}: give tiny, base or big")
    sizes = getattr(TransformerConfig, preset)(vocab_size)
    usual: dict[str, Any] = {"keep_checkpoints": max(average, 5)}
    if preset == "tiny":
        usual |= {"tokens_per_batch": 4096, "warmup_steps": 1000}
        usual |= {"max_steps": 5000, "checkpoint_every": 100}
        usual |= {"log_every": 50, "validate_every": 500}
    own = {k: v for k, v in changes.items() if hasattr(sizes, k)}
    usual |= {k: v for k, v in changes.items() if k not in own}
    return replace(sizes, **own), TrainingConfig(**usual)


def _describe(corpus: Any, vocab_size: int) -> dict[str, Any]:
    """What a training's config.json says of its text.

    Chapter: cli-train
    """
    text = "\n".join("\t".join(pair) for pair in corpus)
    return {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "pieces_asked": vocab_size,
        "pairs": len(corpus),
        "sha256": sha256(text.encode()).hexdigest(),
        "licence": corpus.licence,
    }


def _is_over(
    folder: Path, sizes: Any, text: dict[str, Any], steps: int
) -> bool:
    """Whether a folder's training is over; another's is refused.

    Chapter: cli-train
    """
    begun, _, info = load_config(folder)
    if "corpus" not in info:
        raise ValueError(f"{folder} holds a model: name a new folder")
    now = asdict(sizes) | text
    check_settings(info | asdict(begun), now, folder)
    path = folder / "report.json"
    if not path.is_file():
        return False
    taken = json.loads(path.read_text("utf-8"))["result"]["steps"]
    if taken < steps and not checkpoint_files(folder):
        raise ValueError(
            f"{folder} is finished and its checkpoints are gone, so "
            "it takes no more steps: name another folder"
        )
    return taken >= steps


def _say(text: str) -> None:
    """A line to the person at the terminal, from one worker alone.

    Chapter: cli-train
    """
    if worker()[0] == 0:
        tqdm.write(text, file=sys.stderr)


def _judge(corpus: Any, tokenizer: Any, with_bleu: bool) -> Callable:
    """What `train` calls to validate: judge(model, step).

    Chapter: cli-train
    """
    pairs = encode_pairs(corpus, tokenizer)
    batches = TokenBatches(pairs, 4096, shuffle=False)

    def judge(model: Transformer, step: int) -> dict[str, float]:
        loss = validation_loss(model, batches)
        found = {"validation_loss": loss}
        found["validation_perplexity"] = perplexity(loss)
        if with_bleu:
            translate = Translator(model, tokenizer).translate
            texts = translate(corpus.sources, beam_size=1)
            score = bleu(texts, corpus.targets)
            found["validation_bleu"] = score.value
        told = (f"{name} {x:.2f}" for name, x in found.items())
        _say(f"step {step}: {', '.join(told)}")
        if with_bleu:
            found["samples"] = texts[:3]
        return found

    return judge


def _finish(
    folder: Path, model: Transformer, history: Any, number: int
) -> dict[str, Any]:
    """Average the last checkpoints; what the training has taken.

    Chapter: cli-train
    """
    last = history.lines[-1]
    paths = checkpoint_files(folder)[-number:]
    model.load_state_dict(average_checkpoints(paths))
    return {
        "steps": last["step"],
        "seconds": last["seconds"],
        "target_tokens_per_second": last["tokens"] / last["seconds"],
        "parameters": sum(w.numel() for w in model.parameters()),
        "averaged_checkpoints": len(paths),
    }


def _report(
    folder: Path, command: str, report: dict[str, Any], test: Any
) -> None:
    """Test the saved model; write the report, the translations.

    Chapter: cli-train
    """
    report = {"name": folder.name, "command": command, **report}
    report["machine"] = _machine()
    if test:
        _say(f"translating {len(test):,} sentences")
        device = pick_device(report["training"]["device"])
        found = Translator.from_pretrained(folder, device)
        scores = evaluate(found.model, found.tokenizer, test)
        lines = scores.pop("translations")
        if test.name == "multi30k":  # as papers print it
            score = published_bleu(lines, test.targets, test.target)
            scores["bleu_published"] = score.value
        report["test"] = scores
        _write(folder / "translations.txt", lines)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    _write(folder / "report.json", [text])
    _show(report["result"])
    _show(report.get("test", {}))


def _write(path: str | Path, lines: list[str]) -> None:
    """Write lines of text, all of them or none.

    Chapter: cli-train
    """
    write_atomically(path, "\n".join(lines) + "\n")


def _show(values: dict[str, Any]) -> None:
    for name, value in values.items():
        print(f"{name.replace('_', ' ')}: {value}")


def _machine() -> dict[str, Any]:
    """Processor, versions, threads, and the commit of the book.

    Chapter: cli-train
    """
    processor, commit = platform.machine(), "not recorded"
    root = Path(str(files("transformer_lib"))).parent
    git = "git describe --always --dirty --exclude=*".split()
    with suppress(OSError, LookupError, subprocess.SubprocessError):
        if (root / ".git").exists():  # not a reader's around us
            commit = subprocess.check_output(git, cwd=root, text=True)
        text = Path("/proc/cpuinfo").read_text()
        processor = re.findall(r"model name\s*: (.+)", text)[0]
    if torch.cuda.is_available():
        processor = torch.cuda.get_device_name()
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.strip(),
    }


def _translate(
    model: str,
    sentences: list[str],
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> int:
    """Translate the sentences given, or the standard input.

    Args:
        model: a folder, or a bundled name
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: alpha

    Chapter: cli-translate
    """
    found = Translator.from_pretrained(model, pick_device(device))
    lines = iter(sentences or sys.stdin or ())
    size = 1 if sys.stdin and sys.stdin.isatty() else 64
    done = failed = 0
    while part := [line.strip() for line in islice(lines, size)]:
        for i, line in enumerate(part):
            try:
                found.encode([line])
            except ValueError as error:
                part[i], failed = "", 2
                _say(f"line {done + i + 1}: {error}")
        texts = found.translate(part, beam_size, length_penalty)
        print(*texts, sep="\n", flush=True)
        done += len(part)
    return failed


def _evaluate(
    model: str,
    corpus: str | None = None,
    split: str = "test",
    limit: int | None = None,
    to: str | None = None,
    device: str | None = None,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Args:
        model: a folder, or a bundled name
        corpus: a name or a folder; the model's own if not given
        split: train, validation or test
        limit: only the first so many pairs
        to: file for the translations
        device: cpu, cuda or mps; the best one if not given
        beam_size: 1 is greedy
        length_penalty: alpha

    Chapter: cli-translate
    """
    found = Translator.from_pretrained(model, pick_device(device))
    place = Path(model)
    place = place if place.is_dir() else bundled_models()[model]
    corpus = corpus or load_config(place)[2].get("corpus", "")
    texts = load_corpus(corpus, *found.languages, split)[:limit]
    given = found.model, found.tokenizer, texts
    report = evaluate(*given, beam_size, length_penalty)
    lines = report.pop("translations")
    if to:
        _write(to, lines)
    _show(report)


def _average(model: str, out: str, last: int = 5) -> None:
    """Write a model with the mean weights of the last checkpoints.

    Args:
        model: folder of a training
        out: a new folder
        last: how many

    Chapter: cli-translate
    """
    if (Path(out) / "config.json").exists():
        raise ValueError(f"{out} holds a model: name another folder")
    config, tokenizer, info = load_config(model)
    paths = checkpoint_files(model)[-last:]
    mean = Transformer(config)
    mean.load_state_dict(average_checkpoints(paths))
    save_model(out, mean, tokenizer, **info)
    print(f"mean of {', '.join(path.stem for path in paths)}")


def _data(
    corpus: str = "little_spanish",
    languages: tuple[str, str] = ("en", "es"),
) -> None:
    """Fetch a corpus if need be, and say what is in it.

    Args:
        corpus: little_spanish, multi30k, tatoeba, or a folder
        languages: source and target

    Chapter: cli-translate
    """
    print(f"corpora are kept in {data_folder()}")
    for split in ("train", "validation", "test"):
        texts = load_corpus(corpus, *languages, split)
        print(f"{split}: {len(texts):,} pairs, as {texts[0]}")
    print(f"licence: {texts.licence}")


def _count(text: str) -> int:
    """A whole number from 1 up.

    Chapter: cli-main
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 or more")
    return int(text)


def _add_options(parser: Any, of: Callable, skip: Any = ()) -> None:
    """An option for each documented parameter of a function or class.

    One that is not given leaves no trace: the default stays.

    Chapter: cli-main
    """
    documented = r"^    (\w+): (.+(?:\n {8}.+)*)"
    texts = re.findall(documented, inspect.getdoc(of), re.M)
    parameters = inspect.signature(of).parameters
    for name, text in texts:
        if name not in parameters or name in skip:
            continue
        default = parameters[name].default
        kind = parameters[name].annotation
        kinds = get_args(kind) or (kind,)
        whole = kinds[0] is int and inspect.isfunction(of)
        how: dict[str, Any] = {"type": _count if whole else kinds[0]}
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        if get_origin(kind) is tuple:
            how["nargs"] = len(kinds)
        if default is inspect.Parameter.empty:
            how["required"] = True
        elif default not in (None, False):
            text = f"{text} ({default})"
        how |= {"help": " ".join(text.split())}
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, default=argparse.SUPPRESS, **how)


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong.

    Chapter: cli-main
    """

    def error(self, message: str):
        raise ValueError(f"{message}; see {self.prog} --help")


def _parser() -> _Parser:
    """The parser of all commands.

    Chapter: cli-main
    """
    parser = _Parser("python -m transformer_lib", allow_abbrev=False)
    of = version("executable-transformer")
    parser.add_argument("--version", action="version", version=of)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run in (_train, _translate, _evaluate, _average, _data):
        line = inspect.getdoc(run).splitlines()[0]
        name, how = run.__name__[1:], {"allow_abbrev": False}
        made = commands.add_parser(name, help=line, **how)
        made.set_defaults(run=run)
        made.add_argument("--threads", type=_count, help="of the CPU")
        _add_options(made, run)
        if run is _translate:
            made.add_argument(
                "sentences", nargs="*", help="in quotes"
            )
        if run is _train:
            own = inspect.signature(run).parameters
            for config in (TransformerConfig, TrainingConfig):
                group = made.add_argument_group(config.__name__)
                _add_options(group, config, own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is said in one line.

    Returns:
        0; 2 for bad input, 130 if stopped.

    Chapter: cli-main
    """
    if argv is None:  # a process of its own, which kill may stop
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        options = vars(_parser().parse_args(words))
        run, threads = options.pop("run"), options.pop("threads")
        if run is _train:
            words = "python -m transformer_lib", shlex.join(words)
            options["command"] = " ".join(words)
        if threads or run is not _train:  # decoding steps are small
            here = os.cpu_count() or 1
            torch.set_num_threads(min(threads or 1, here))
        torch.set_float32_matmul_precision("high")  # TF32
        return run(**options) or 0
    except Timeout:
        line, code = "another training writes to that folder", 2
    except BrokenPipeError:  # whoever read our lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except UnicodeError as error:
        line, code = f"this text is not UTF-8 ({error})", 2
    except torch.OutOfMemoryError:
        line, code = "memory is full: lower --tokens-per-batch", 2
    except (ValueError, OSError, ArithmeticError) as error:
        line, code = " ".join(str(error).split()), 2
    except KeyboardInterrupt:
        line, code = "stopped; the same command goes on", 130
    print(f"transformer_lib: {line}", file=sys.stderr)
    return code
