# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The command line: a training or a translation in one line.

Chapter: book/appendix/cli
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_checkpoint,
    load_config,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import (
    ParallelCorpus,
    data_folder,
    load_corpus,
    read_parallel,
)
from transformer_lib.evaluation import bleu, evaluate, published_bleu
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import check_settings, train, worker
from transformer_lib.translator import Translator, bundled_models

Options = argparse.Namespace


_FIELDS = {
    "N": "layers in each stack",
    "d_model": "width of the model",
    "d_ff": "width inside the feed-forward networks",
    "h": "heads",
    "d_k": "width of a head's keys; d_model / h if not given",
    "d_v": "width of a head's values; d_model / h if not given",
    "dropout": "P_drop, on sub-layers and embedding sums",
    "attention_dropout": "on attention weights",
    "relu_dropout": "inside the feed-forward networks",
    "bias": "in attention's projections",
    "norm": "post or pre",
    "positions": "sinusoid, learned or none",
    "tie": "three-way, decoder or none",
    "scale_embeddings": "by sqrt(d_model)",
    "max_length": "in pieces; longer pairs are left out",
    "label_smoothing": "eps_ls",
    "smoothing": "uniform or others",
    "warmup_steps": "in which the rate rises",
    "tokens_per_batch": "on each side, for each worker",
    "accumulate": "batches a step",
    "max_steps": "in all",
    "learning_rate_scale": "times equation 3",
    "betas": "of Adam",
    "epsilon": "of Adam",
    "clip_norm": "longest gradient; not clipped if not given",
    "precision": "fp32 or bf16",
    "seed": "of weights, batches and dropout",
    "device": "cpu, cuda or mps; the best one if not given",
    "log_every": "steps",
    "validate_every": "steps",
    "checkpoint_every": "steps",
    "keep_checkpoints": "at least; those to average are kept too",
}


_OPTIONS = {
    "out": (str, "folder for all that is written"),
    "preset": ("tiny", "sizes to start from: tiny, base or big"),
    "corpus": (str, "little_spanish, multi30k or tatoeba"),
    "languages": (str, "source and target, such as en es"),
    "source_file": (str, "your own sentences"),
    "target_file": (str, "their translations"),
    "validation_source": (str, "your own, to validate on"),
    "validation_target": (str, "their translations"),
    "test_source": (str, "your own, for --test"),
    "test_target": (str, "their translations"),
    "limit": (int, "only the first so many pairs of each part"),
    "vocab_size": (8000, "pieces in the vocabulary"),
    "average": (5, "checkpoints in the mean"),
    "validation_bleu": (False, "log greedy BLEU"),
    "test": (str, "part to evaluate at the end, such as test"),
    "published_bleu": (False, "test in the form of papers, too"),
    "half": (False, "save the model in half precision"),
    "model": (str, "a folder, or a bundled name"),
    "device": (str, "cpu, cuda or mps; the best one if not given"),
    "beam_size": (4, "1 is greedy"),
    "length_penalty": (0.6, "alpha"),
    "split": ("test", "or validation"),
    "to": (str, "file for the translations"),
    "threads": (int, "of the CPU"),
}
_SMALL = TrainingConfig(
    tokens_per_batch=4096,
    warmup_steps=1000,
    max_steps=5000,
    log_every=50,
    validate_every=500,
    checkpoint_every=100,
)


def _count(text: str) -> int:
    """A whole number from 1 up.

    Chapter: cli-options
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 or more")
    return int(text)


def _add(parser: Any, name: str, kind: Any, text: str, **how) -> None:
    """An option for a name, read as `kind`.

    Chapter: cli-options
    """
    if kind is bool:
        how["action"] = argparse.BooleanOptionalAction
    else:
        how["type"] = kind
    if name in ("languages", "betas"):
        how["nargs"] = 2
    parser.add_argument(
        "--" + name.replace("_", "-"), help=text, **how
    )


def _add_fields(parser: Any, tiny: Any, paper: Any) -> None:
    """An option for each field of two presets of a configuration.

    One that is not given leaves no trace.

    Chapter: cli-options
    """
    group = parser.add_argument_group(type(paper).__name__)
    for name, hint in get_type_hints(type(paper)).items():
        if name not in _FIELDS:
            continue
        kind = (*get_args(hint), hint)[0]  # int | None: int
        value, other = getattr(tiny, name), getattr(paper, name)
        text = f"{_FIELDS[name]} ({value})"
        if value != other:
            text = f"{text[:-1]}; base: {other})"
        text = text.removesuffix(" (None)")
        _add(group, name, kind, text, default=argparse.SUPPRESS)


def _recipe(
    options: Options, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """The preset's two configurations, with what options change.

    Chapter: cli-options
    """
    if options.preset not in ("tiny", "base", "big"):
        raise ValueError(
            f"preset={options.preset}: tiny, base or big"
        )
    model = getattr(TransformerConfig, options.preset)(vocab_size)
    training = (
        _SMALL if options.preset == "tiny" else TrainingConfig()
    )
    for name in vars(options).keys() & _FIELDS.keys():
        change = {name: getattr(options, name)}
        if hasattr(model, name):
            model = replace(model, **change)
        else:
            training = replace(training, **change)
    keep = max(training.keep_checkpoints, options.average)
    return model, replace(training, keep_checkpoints=keep)


def _corpus(options: Options, split: str, *files: Any) -> Any:
    """Two files of the reader's, or a split of the named corpus.

    Chapter: cli-train
    """
    languages = options.languages or ("en", "es")
    if all(files):
        corpus = read_parallel(*files, *languages)
    elif any(files):
        raise ValueError(f"{files}: give sentences and translations")
    else:
        name = options.corpus or "little_spanish"
        corpus = load_corpus(name, *languages, split)
    return corpus[: options.limit]


def _corpora(options: Options) -> list[Any]:
    """Training, validation and test pairs; None where none are.

    Chapter: cli-train
    """
    o = options
    found = [_corpus(o, "train", o.source_file, o.target_file)]
    for split, wanted, *files in (
        (
            "validation",
            True,
            o.validation_source,
            o.validation_target,
        ),
        (o.test, o.test, o.test_source, o.test_target),
    ):
        unnamed = o.source_file and not any(files)
        missing = unnamed or not wanted
        found.append(None if missing else _corpus(o, split, *files))
    if o.test and not found[2]:
        raise ValueError("--test needs --test-source, --test-target")
    if o.validation_bleu and not found[1]:
        raise ValueError("--validation-bleu needs validation files")
    if o.test or o.validation_bleu:
        _need("sacrebleu")
    if o.published_bleu:
        _need("sacremoses")
    return found


def _need(module: str) -> None:
    """Refuse to begin what a missing package would end.

    Chapter: cli-train
    """
    if find_spec(module) is None:
        raise ImportError(
            f"{module} is missing: "
            "pip install 'executable-transformer[evaluation]'"
        )


def _is_over(folder: Path, now: dict, training: dict) -> bool:
    """Whether a folder's training is over; another's is refused.

    Chapter: cli-train
    """
    config, _, info = load_config(folder)
    if "corpus" not in info:
        raise ValueError(
            f"{folder} holds a model: name another folder"
        )
    check_settings(info | asdict(config), now, folder)
    path = folder / "report.json"
    if not path.is_file():
        return False
    report = json.loads(path.read_text("utf-8"))
    check_settings(report["training"], training, folder)
    over = training["max_steps"] <= report["result"]["steps"]
    if not over and not checkpoint_files(folder):
        raise ValueError(
            f"{folder} is finished and its checkpoints are gone, so "
            "it takes no more steps: name another folder"
        )
    return over


def _alone_in(folder: Path) -> Any:
    """Keep other trainings out of a folder while this is held.

    Chapter: cli-train
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(folder / ".lock", timeout=0).acquire()
    except Timeout:
        raise ValueError(
            f"another training writes to {folder}: name a new one"
        ) from None


def _run_train(options: Options) -> None:
    """Train a model, or go on with the training that --out holds.

    Chapter: cli-train
    """
    folder, (rank, workers) = Path(options.out), worker()
    corpus, validation, test = _corpora(options)
    begun = (folder / "config.json").is_file()
    tokenizer = load_config(folder)[1] if begun else None
    if tokenizer is None:
        texts = corpus.sources + corpus.targets
        tokenizer = BPETokenizer.train(texts, options.vocab_size)
    config, training = _recipe(options, len(tokenizer))
    text = "\n".join("\t".join(pair) for pair in corpus)
    info = {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "pieces_asked": options.vocab_size,
        "pairs": len(corpus),
        "sha256": sha256(text.encode()).hexdigest(),
        "licence": corpus.licence,
    }
    now = info | asdict(config)
    if begun and _is_over(folder, now, asdict(training)):
        _say(f"{folder} is finished: its report.json has the result")
        return
    pairs = encode_pairs(corpus, tokenizer, config.max_length)
    batches = TokenBatches(
        pairs,
        training.tokens_per_batch,
        training.seed,
        rank=rank,
        world_size=workers,
    )
    judge = _judge(options, validation, tokenizer, training)
    torch.manual_seed(training.seed)
    model = Transformer(config)
    with nullcontext() if rank else _alone_in(folder):
        if rank == 0 and not begun:
            save_config(folder, config, tokenizer, **info)
        _say(f"{len(pairs):,} pairs, {pairs.dropped:,} too long")
        history = train(model, batches, training, judge, folder)
        if rank == 0:
            paths = checkpoint_files(folder)[-options.average :]
            model.load_state_dict(average_checkpoints(paths))
            save_model(folder, model, tokenizer, options.half, **info)
            last = history.lines[-1]
            result = {
                "steps": last["step"],
                "seconds": last["seconds"],
            }
            result["parameters"] = sum(
                x.numel() for x in model.parameters()
            )
            result["averaged_checkpoints"] = len(paths)
            result |= judge(model, last["step"])
            _report(options, training, result, test)


def _say(text: str) -> None:
    """A line to the person at the terminal, from one worker alone.

    Chapter: cli-train
    """
    if worker()[0] == 0:
        tqdm.write(text, file=sys.stderr)


def _judge(
    options: Options,
    corpus: ParallelCorpus | None,
    tokenizer: BPETokenizer,
    training: TrainingConfig,
) -> Callable[[Transformer, int], dict[str, Any]]:
    """What `train` calls to validate: judge(model, step) -> figures.

    Chapter: cli-train
    """
    if corpus is None:
        return lambda model, step: {}
    pairs = encode_pairs(corpus, tokenizer)
    longest = max(len(ids) for pair in pairs for ids in pair)
    room = max(training.tokens_per_batch, longest)
    batches = TokenBatches(pairs, room, shuffle=False)

    def judge(model: Transformer, step: int) -> dict[str, Any]:
        loss = validation_loss(model, batches)
        found = {"validation_loss": loss}
        found["validation_perplexity"] = perplexity(loss)
        if options.validation_bleu:
            texts = Translator(model, tokenizer).translate(
                corpus.sources, beam_size=1
            )
            score = bleu(texts, corpus.targets)
            found["validation_bleu"] = score.value
        told = (f"{name} {x:.2f}" for name, x in found.items())
        _say(f"step {step}: {', '.join(told)}")
        return found

    return judge


def _report(
    options: Options,
    training: TrainingConfig,
    result: dict[str, Any],
    test: ParallelCorpus | None,
) -> None:
    """Test the saved model; write report.json, translations.txt.

    Chapter: cli-train
    """
    folder = Path(options.out)
    command = "python -m transformer_lib " + shlex.join(options.words)
    report: dict[str, Any] = {"name": folder.name, "command": command}
    report |= {"training": asdict(training), "result": result}
    report["machine"] = _machine()
    if test is not None:
        _say(f"translating {len(test):,} sentences")
        found = Translator.from_pretrained(folder, training.device)
        scores = evaluate(found.model, found.tokenizer, test)
        lines = scores.pop("translations")
        if options.published_bleu:
            score = published_bleu(lines, test.targets, test.target)
            scores["bleu_published"] = score.value
        report["test"] = scores
        _write(folder / "translations.txt", lines)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    _write(folder / "report.json", [text])
    _show(result | report.get("test", {}))


def _write(path: Path, lines: list[str]) -> None:
    """Write lines of text, all of them or none.

    Chapter: cli-train
    """
    text = "\n".join(lines) + "\n"
    write_atomically(path, lambda x: x.write_text(text, "utf-8"))


def _show(values: dict[str, Any]) -> None:
    """Print figures, one a line.

    Chapter: cli-train
    """
    for name, value in values.items():
        print(f"{name.replace('_', ' ')}: {value}")


def _machine() -> dict[str, Any]:
    """Processor, versions, threads, and the commit of the book.

    Chapter: cli-train
    """
    processor, commit = platform.machine(), "not recorded"
    if (info := Path("/proc/cpuinfo")).is_file():
        names = info.read_text().split("model name")[1:2]
        for name in names:
            processor = name.split("\n")[0].strip("\t: ")
    if torch.cuda.is_available():
        processor = f"{torch.cuda.get_device_name()}, {processor}"
    root = Path(__file__).resolve().parents[1]
    if (root / ".git").exists():  # ours, not a reader's around us
        git = "git describe --always --dirty --exclude=*".split()
        done = subprocess.run(git, cwd=root, capture_output=True)
        commit = done.stdout.decode().strip() or commit
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit,
    }


def _run_translate(options: Options) -> int:
    """Translate the sentences given, or the standard input.

    Chapter: cli-translate
    """
    found = Translator.from_pretrained(options.model, options.device)
    search = options.beam_size, options.length_penalty
    lines = iter(options.sentences or sys.stdin or ())
    size = 1 if sys.stdin and sys.stdin.isatty() else 64
    done = failed = 0
    while part := [line.strip() for line in islice(lines, size)]:
        try:
            texts = found.translate(part, *search)
        except ValueError:  # find the line, and spare the others
            texts = [""] * len(part)
            for i, line in enumerate(part):
                try:
                    texts[i] = found.translate(line, *search)
                except ValueError as error:
                    failed = 2
                    _say(f"line {done + i + 1}: {error}")
        done += len(part)
        print(*texts, sep="\n", flush=True)
    return failed


def _run_evaluate(options: Options) -> None:
    """Print BLEU and chrF, with signatures, of a model on a split.

    Chapter: cli-translate
    """
    _need("sacrebleu")
    found = Translator.from_pretrained(options.model, options.device)
    place = Path(options.model)
    place = place if place.is_dir() else bundled_models()[place.name]
    info = load_config(place)[2]
    options.corpus = options.corpus or info.get("corpus")
    options.languages = options.languages or info.get("languages")
    files = options.source_file, options.target_file
    report = evaluate(
        found.model,
        found.tokenizer,
        _corpus(options, options.split, *files),
        options.beam_size,
        options.length_penalty,
    )
    lines = report.pop("translations")
    if options.to:
        _write(Path(options.to), lines)
    _show(report)


def _run_average(options: Options) -> None:
    """Write a model with the mean weights of the last checkpoints.

    Chapter: cli-translate
    """
    if (Path(options.out) / "config.json").exists():
        raise ValueError(f"{options.out} holds a model: name another")
    config, tokenizer, info = load_config(options.model)
    paths = checkpoint_files(options.model)[-options.average :]
    if not paths:
        raise ValueError(f"{options.model} has no checkpoints")
    model = Transformer(config)
    load_checkpoint(paths[0], model)
    model.load_state_dict(average_checkpoints(paths))
    save_model(options.out, model, tokenizer, **info)
    print(f"mean of {', '.join(path.stem for path in paths)}")


def _run_data(options: Options) -> None:
    """Fetch a corpus if need be, and say what is in it.

    Chapter: cli-translate
    """
    print(f"corpora are kept in {data_folder()}")
    for split in ("train", "validation", "test"):
        corpus = _corpus(options, split)
        print(f"{split}: {len(corpus):,} pairs, as {corpus[0]}")
    print(f"licence: {corpus.licence}")


_COMMANDS = {
    _run_train: "out preset corpus languages source_file target_file "
    "validation_source validation_target test_source test_target "
    "limit vocab_size average validation_bleu test published_bleu "
    "half threads",
    _run_translate: "model device beam_size length_penalty threads",
    _run_evaluate: "model corpus languages split source_file "
    "target_file limit to device beam_size length_penalty threads",
    _run_average: "model average out",
    _run_data: "corpus languages limit",
}


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
    for run, names in _COMMANDS.items():
        made = commands.add_parser(
            run.__name__[5:], help=run.__doc__, allow_abbrev=False
        )
        made.set_defaults(run=run)
        for name in names.split():
            value, text = _OPTIONS[name]
            given = not isinstance(value, type)
            kind = type(value) if given else value
            if given and kind is not bool:
                text = f"{text} ({value})"
            _add(
                made,
                name,
                _count if kind is int else kind,
                text,
                default=value if given else None,
                required=name in ("out", "model"),
            )
        if run is _run_translate:
            made.add_argument("sentences", nargs="*")
        if run is _run_train:
            sizes = TransformerConfig.tiny(8), TransformerConfig(8)
            _add_fields(made, *sizes)
            _add_fields(made, _SMALL, TrainingConfig())
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
        options = _parser().parse_args(words)
        options.words = words
        threads = getattr(options, "threads", None)
        if threads or options.run is not _run_train:
            torch.set_num_threads(
                min(threads or 1, os.cpu_count() or 1)
            )
        torch.set_float32_matmul_precision("high")
        return options.run(options) or 0
    except BrokenPipeError:  # whoever read our lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except UnicodeError as error:
        line, code = f"this text is not UTF-8 ({error})", 2
    except torch.OutOfMemoryError:
        line, code = "memory is full: lower --tokens-per-batch", 2
    except (
        ValueError,
        OSError,
        ImportError,
        ArithmeticError,
    ) as error:
        line, code = " ".join(str(error).split()), 2
    except KeyboardInterrupt:
        line, code = "stopped; the same command goes on", 130
    print(f"transformer_lib: {line}", file=sys.stderr)
    return code
