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
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from importlib import import_module
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
from transformer_lib.export import export
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
    average: int | None = None,
    validation_bleu: bool = False,
    test: str | None = None,
    half: bool = False,
    skip_bad_lines: bool = False,
    command: str = "",
    **changes: Any,
) -> dict[str, Any] | None:
    """Train a model, or go on with the training that --out holds.

    Example: train --corpus multi30k --languages de en --out m30k

    Args:
        out: folder for all that is written
        corpus: little_spanish, multi30k, tatoeba, or a folder with
            train.en, train.es, validation.en and so on, or with
            train.en-es.tsv; plain or .gz
        languages: source and target
        preset: sizes to start from: tiny, base or big; tiny takes
            5000 steps of 4096 tokens, with a warm-up of 1000; big
            takes 300000 steps
        vocab_size: pieces in the vocabulary
        limit: only the first so many pairs of each part
        average: checkpoints in the mean; 5, and 20 for big
        validation_bleu: log BLEU of greedy translations
        test: part to evaluate at the end, such as test
        half: save the model in half precision
        skip_bad_lines: leave out and count what is no sentence

    Chapter: cli-train
    """
    folder, (rank, workers) = Path(out), worker()
    of = corpus, languages, limit, skip_bad_lines
    texts, held_out, tests = _splits(test, *of)
    then, tokenizer = _begun(folder)
    both = texts.sources + texts.targets
    tokenizer = tokenizer or BPETokenizer.train(both, vocab_size)
    average = average or (20 if preset == "big" else 5)
    config, c = _recipe(preset, len(tokenizer), average, changes)
    info = _describe(texts, vocab_size) | fixed_settings(c)
    if then:
        check_settings(then, info | asdict(config), folder)
    if (folder / "report.json").is_file():
        return _say(f"{folder} is finished: see its report.json")
    pairs = encode_pairs(texts, tokenizer, config.max_length)
    batches = TokenBatches(  # True: shuffled
        pairs, c.tokens_per_batch, c.seed, True, rank, workers
    )
    judge = _judge(held_out, tokenizer, validation_bleu)
    torch.manual_seed(c.seed)
    model = Transformer(config).to(pick_device(c.device))
    with nullcontext() if rank else FileLock(folder / ".lock", 0):
        if rank == 0 and not then:
            save_config(folder, model, tokenizer, **info)
        _say(f"{len(pairs):,} pairs of {len(texts):,} fit")
        history = train(model, batches, c, judge, folder)
        if rank == 0:
            result = _finish(folder, model, history, average, judge)
            save_model(folder, model, tokenizer, half, **info)
            return _report(folder, command, asdict(c), result, tests)


def _splits(test, corpus, languages, limit, skip) -> list:
    """To train, to validate and, if there is a name, to test on.

    Chapter: cli-train
    """
    return [
        part and load_corpus(corpus, *languages, part, skip)[:limit]
        for part in ("train", "validation", test)
    ]


def _begun(folder: Path) -> tuple[dict, BPETokenizer | None]:
    """Settings and tokenizer of the training that a folder holds.

    Chapter: cli-train
    """
    if not (folder / "config.json").is_file():
        return {}, None
    begun = load_config(folder)
    if "corpus" not in begun.info:
        raise ValueError(f"{folder} holds a model: name a new folder")
    return begun.info | asdict(begun.config), begun.tokenizer


def _recipe(preset, vocab_size, average, changes):
    """Both configurations: a preset, with changes of their fields.

    Chapter: cli-train
    """
    if preset not in ("tiny", "base", "big"):
        raise ValueError(f"{preset=}: give tiny, base or big")
    sizes = getattr(TransformerConfig, preset)(vocab_size)
    usual = {"keep_checkpoints": max(average, 5)}
    if preset == "tiny":
        usual |= {"tokens_per_batch": 4096, "warmup_steps": 1000}
        usual |= {"max_steps": 5000, "checkpoint_every": 100}
        usual |= {"log_every": 50, "validate_every": 500}
    elif preset == "big":
        usual["max_steps"] = 300_000  # section 5.2
    own = {k: v for k, v in changes.items() if hasattr(sizes, k)}
    usual |= {k: v for k, v in changes.items() if k not in own}
    config = replace(sizes, **own)
    torch.empty(config.weights)  # too many are refused at once
    return config, TrainingConfig(**usual)


def _describe(corpus, vocab_size) -> dict[str, Any]:
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


def _say(text: str) -> None:
    """A line to the person at the terminal, from one worker alone.

    Chapter: cli-train
    """
    if worker()[0] == 0:
        tqdm.write(text, file=sys.stderr)


def _judge(corpus, tokenizer, with_bleu: bool) -> Callable:
    """What `train` calls to validate: judge(model, step).

    Chapter: cli-train
    """
    pairs = encode_pairs(corpus, tokenizer)
    batches = TokenBatches(pairs, 4096, shuffle=False)

    def judge(model: Transformer, step: int) -> dict[str, Any]:
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


def _finish(folder, model, history, number, judge) -> dict[str, Any]:
    """Average the last checkpoints; what has come of the training.

    Chapter: cli-train
    """
    if not history.lines:
        raise ValueError("no step was logged: raise --max-steps")
    last = history.lines[-1]
    paths = checkpoint_files(folder)[-number:]
    model.load_state_dict(average_checkpoints(paths))
    return {
        "steps": last["step"],
        "seconds": last["seconds"],
        "target_tokens_per_second": last["tokens"] / last["seconds"],
        "parameters": sum(w.numel() for w in model.parameters()),
        "averaged_checkpoints": len(paths),
        **judge(model, last["step"]),
    }


def _report(folder, command, training, result, test) -> dict:
    """Test the saved model; write the report, the translations.

    Chapter: cli-train
    """
    report = {
        "name": folder.name,
        "command": command,
        "training": training,
        "result": result,
        "machine": _machine(),
    }
    if test:
        _say(f"translating {len(test):,} sentences")
        device = pick_device(training["device"])
        found = Translator.from_pretrained(folder, device)
        report["test"] = _score(found, test, folder / "translations.txt")
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / "report.json", text)
    return result | {"test": report.get("test", {})}


def _score(translator, texts, to, *search) -> dict[str, Any]:
    """Scores of a test set, its translations written to a file.

    Chapter: cli-train
    """
    model, tokenizer = translator.model, translator.tokenizer
    scores = evaluate(model, tokenizer, texts, *search)
    lines = scores.pop("translations")
    if texts.name == "multi30k":  # as papers print it
        score = published_bleu(lines, texts.targets, texts.target)
        scores["bleu_published"] = score.value
    if to:
        write_atomically(to, "\n".join(lines) + "\n")
    return scores


def _show(values: dict[str, Any], of: str = "") -> None:
    for name, value in values.items():
        name = of + name.replace("_", " ")
        if isinstance(value, dict):
            _show(value, f"{name} ")
        elif isinstance(value, float):
            print(f"{name}: {round(value, 4)}")
        else:
            print(f"{name}: {value}")


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

    Example: translate --model little-spanish "I like trees"

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
) -> dict[str, Any]:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Example: evaluate --model little-spanish --limit 20

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
    if not Path(model).is_dir():
        model = bundled_models()[model]
    corpus = corpus or load_config(model).info.get("corpus", "")
    texts = load_corpus(corpus, *found.languages, split)[:limit]
    return _score(found, texts, to, beam_size, length_penalty)


def _average(model: str, out: str, last: int = 5) -> dict[str, Any]:
    """Write a model with the mean weights of the last checkpoints.

    Example: average --model m30k --last 3 --out mean

    Args:
        model: folder of a training
        out: a new folder
        last: how many

    Chapter: cli-translate
    """
    if (Path(out) / "config.json").exists():
        raise ValueError(f"{out} holds a model: name another folder")
    begun = load_config(model)
    paths = checkpoint_files(model)[-last:]
    mean = begun.build()
    mean.load_state_dict(average_checkpoints(paths))
    save_model(out, mean, begun.tokenizer, **begun.info)
    return {"mean_of": [path.stem for path in paths]}


def _export(
    model: str, out: str, to: str = "ctranslate2", int8: bool = False
) -> None:
    """Write a model for another engine.

    Example: export --model little-spanish --out served

    Args:
        model: a folder, or a bundled name
        out: a new folder
        to: ctranslate2 or onnx
        int8: weights as whole numbers, for ctranslate2

    Chapter: cli-translate
    """
    export(Translator.from_pretrained(model, "cpu"), out, to, int8)


def _data(
    corpus: str = "little_spanish",
    languages: tuple[str, str] = ("en", "es"),
) -> dict[str, Any]:
    """Fetch a corpus if need be, and say what is in it.

    Example: data --corpus multi30k --languages de en

    Args:
        corpus: little_spanish, multi30k, tatoeba, or a folder
        languages: source and target

    Chapter: cli-translate
    """
    found: dict[str, Any] = {"folder": str(data_folder())}
    for split in ("train", "validation", "test"):
        texts = load_corpus(corpus, *languages, split)
        found[split] = {"pairs": len(texts), "first": [*texts[:1]]}
    return found | {"licence": texts.licence}


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
    texts = dict(re.findall(documented, inspect.getdoc(of), re.M))
    for name, parameter in inspect.signature(of).parameters.items():
        if name not in texts or name in skip:
            continue
        kind, default = parameter.annotation, parameter.default
        kinds = get_args(kind) or (kind,)
        how: dict[str, Any] = {"type": kinds[0]}
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        elif kinds[0] is int and inspect.isfunction(of):
            how = {"type": _count}  # a class checks its own fields
        elif get_origin(kind) is tuple:
            how["nargs"] = len(kinds)
        how["help"] = " ".join(texts[name].split())
        if default is parameter.empty:
            how["required"] = True
        elif default not in (None, False):
            how["help"] += f" ({default})"
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, default=argparse.SUPPRESS, **how)


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong.

    Chapter: cli-main
    """

    def error(self, message: str):
        raise ValueError(f"{message}; see {self.prog} --help")


import_module("transformer_lib.rivals")  # a saved model may be one
_COMMANDS = _train, _translate, _evaluate, _average, _export, _data
_EXPECTED = ValueError, OSError, ArithmeticError, ImportError
_CODES = "exit codes: 0 done, 1 our fault, 2 bad input, 130 stopped"


def _parser() -> _Parser:
    """The parser of all commands.

    Chapter: cli-main
    """
    parser = _Parser("python -m transformer_lib", allow_abbrev=False)
    parser.epilog, of = _CODES, version("executable-transformer")
    parser.add_argument("--version", action="version", version=of)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run in _COMMANDS:
        name = run.__name__.removeprefix("_")
        line, _, example = inspect.getdoc(run).splitlines()[:3]
        new = commands.add_parser(name, help=line, allow_abbrev=False)
        new.set_defaults(run=run)
        new.epilog = example.replace(":", f": {parser.prog}")
        new.formatter_class = argparse.RawDescriptionHelpFormatter
        new.add_argument("--threads", type=_count, help="of the CPU")
        if run not in (_translate, _export):
            text = "the results as one JSON document"
            new.add_argument("--json", action="store_true", help=text)
        _add_options(new, run)
        if run is _translate:
            new.add_argument("sentences", nargs="*", help="quoted")
        if run is _train:
            own = inspect.signature(run).parameters
            for config in (TransformerConfig, TrainingConfig):
                group = new.add_argument_group(config.__name__)
                _add_options(group, config, own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is said in one line.

    Returns:
        The exit code: 0, done; 2, for bad input or a machine that
        does not let us; 130, stopped by Ctrl-C or SIGTERM; 141, if
        nobody reads our lines. A fault of ours is raised, and ends
        the process with a traceback and a 1.

    Chapter: cli-main
    """
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        options = vars(_parser().parse_args(words))
        run, threads = options.pop("run"), options.pop("threads")
        as_json = options.pop("json", False)
        if run is _train:
            words = "python -m transformer_lib", shlex.join(words)
            options["command"] = " ".join(words)
        if threads or run is not _train:  # decoding steps are small
            here = os.cpu_count() or 1
            torch.set_num_threads(min(threads or 1, here))
        torch.set_float32_matmul_precision("high")  # TF32
        found = run(**options)
        if as_json and worker()[0] == 0:
            print(json.dumps(found or {}, ensure_ascii=False))
        elif isinstance(found, dict):
            _show(found)
        return found if run is _translate else 0
    except Timeout:
        line, code = "another training writes to that folder", 2
    except BrokenPipeError:  # whoever read our lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except UnicodeError as error:
        line, code = f"this text is not UTF-8 ({error})", 2
    except (RuntimeError, MemoryError) as error:
        if not re.search("memory|overflow", repr(error), re.I):
            raise
        line = "memory is full: lower --tokens-per-batch or the sizes"
        code = 2
    except _EXPECTED as error:
        line, code = " ".join(str(error).split()), 2
    except KeyboardInterrupt:
        line, code = "stopped; the same command goes on", 130
    print(f"transformer_lib: {line}", file=sys.stderr)
    return code
