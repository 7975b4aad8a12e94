# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From a corpus to a report: one recorded training.

Chapter: book/training/experiment
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs, worker
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_config,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.evaluation import bleu, evaluate
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import (
    History,
    check_settings,
    fixed_settings,
    pick_device,
    train,
)
from transformer_lib.translator import Translator


def _say(text: str) -> None:
    """A line to the person at the terminal, from one worker alone.

    Chapter: experiment-settings
    """
    if worker()[0] == 0:
        tqdm.write(text, file=sys.stderr)


@dataclass(frozen=True)
class Experiment:
    """What is trained, on which text, and what it is tested on.

    Args:
        corpus: little_spanish, multi30k, tatoeba, or a folder with
            train.en, train.es, validation.en and so on, or with
            train.en-es.tsv; plain or .gz
        languages: source and target
        preset: what to start from: tiny, base or big; tiny takes
            5000 steps of 4096 tokens, with a warm-up of 1000; big
            takes 300000 steps
        vocab_size: pieces in the vocabulary
        limit: only the first so many pairs of each part
        average: checkpoints in the mean; 5, and 20 for big
        validation_bleu: log BLEU of greedy translations
        test: part to evaluate at the end, such as test
        half: save the model in half precision
        skip_bad_lines: leave out and count what is no sentence
        changes: of the preset: fields of `TransformerConfig` and of
            `TrainingConfig` by their names

    Raises:
        TypeError: if `corpus` is no text.
        ValueError: if `limit` or `average` is below 1.

    Chapter: experiment-settings
    """

    corpus: str = "little_spanish"
    languages: tuple[str, str] = ("en", "es")
    preset: str = "tiny"
    vocab_size: int = 8000
    limit: int | None = None
    average: int | None = None
    validation_bleu: bool = False
    test: str | None = None
    half: bool = False
    skip_bad_lines: bool = False
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("limit", "average"):
            value = getattr(self, name)
            whole = type(value) is int and value >= 1
            if value is not None and not whole:
                raise ValueError(f"{name}={value!r}: give 1 or more, whole")
        if not isinstance(self.corpus, str):
            raise TypeError(f"corpus={self.corpus!r}: give its name as text")
        if isinstance(self.languages, str) or len(self.languages) != 2:
            raise ValueError(f"languages={self.languages!r}: give two")

    def load(self, part: str) -> ParallelCorpus:
        """A part of the corpus.

        Raises:
            ValueError: if it is empty; or as `load_corpus`.
        """
        if not self.corpus:
            raise ValueError("no corpus is named: give one")
        source, target = self.languages
        corpus = load_corpus(
            self.corpus, source, target, part, self.skip_bad_lines
        )
        if len(corpus) == 0:
            raise ValueError(f"{self.corpus} has no pairs for {part}")
        return corpus[: self.limit]


def pick_precision(name: str, device: torch.device) -> str:
    """What "auto" means on a device; other names stay.

    It is "bf16" where the device has instructions for bfloat16, else
    "fp32". Where "bf16" is asked for and has to be imitated, a line
    on the standard error warns.

    Chapter: experiment-precision
    """
    native = False
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu" and hasattr(torch.cpu, "get_capabilities"):
        able = torch.cpu.get_capabilities()  # since torch 2.13
        native = any(able.get(x) for x in ("amx_bf16", "avx512_bf16"))
    if name == "auto":
        return "bf16" if native else "fp32"
    if name == "bf16" and not native:
        _say(
            "warning: this device imitates bf16, which makes a step about "
            "13 times as long as in fp32: --precision fp32 is faster"
        )
    return name


_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "tokens_per_batch": 4096,
        "warmup_steps": 1000,
        "max_steps": 5000,
        "log_every": 50,
        "validate_every": 500,
        "checkpoint_every": 100,
    },
    "base": {},  # both configurations as they are
    "big": {"max_steps": 300_000},  # section 5.2
}


def recipe(
    preset: str, vocab_size: int, average: int, changes: dict[str, Any]
) -> tuple[TransformerConfig, TrainingConfig]:
    """Both configurations: a preset, with changes of their fields.

    At least 5 checkpoints are kept, and no fewer than are to be
    averaged. The precision
    is "auto" if `changes` names no other: see `pick_precision`.

    Raises:
        ValueError: naming the field, its value and what would do.

    Chapter: experiment-presets
    """
    if preset not in _PRESETS:
        raise ValueError(f"{preset=}: give one of {[*_PRESETS]}")
    config = getattr(TransformerConfig, preset)(vocab_size)
    settings = {"precision": "auto", "keep_checkpoints": max(average, 5)}
    settings |= _PRESETS[preset]
    for name, value in changes.items():
        if name in asdict(config):
            config = replace(config, **{name: value})
        elif name in asdict(TrainingConfig()):
            settings[name] = value
        else:
            raise ValueError(
                f"no setting {name!r}: give a field of TransformerConfig or "
                "TrainingConfig"
            )
    torch.empty(config.least_parameters)  # fails if memory is too small
    device = pick_device(settings.get("device"))
    settings["precision"] = pick_precision(settings["precision"], device)
    training = TrainingConfig(**settings)
    if training.keep_checkpoints < average:
        raise ValueError(
            f"keep_checkpoints={training.keep_checkpoints} is too few for "
            f"a mean of {average}: keep more, or give another average"
        )
    return config, training


@dataclass(frozen=True)
class _Begun:
    """What a folder holds when a training comes to it.

    Chapter: experiment-run
    """

    settings: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    tokenizer: BPETokenizer | None = field(default=None, compare=False)


def _look(folder: Path) -> _Begun:
    """The training that a folder holds, if it holds one.

    Chapter: experiment-run
    """
    if not (folder / "config.json").is_file():
        return _Begun()
    config, tokenizer, saved = load_config(folder)
    if "corpus" not in saved or "mean_of" in saved:
        raise ValueError(f"{folder} holds a model: name a new folder")
    return _Begun(
        settings=saved | asdict(config),
        finished=(folder / "report.json").is_file(),
        tokenizer=tokenizer,
    )


def _describe(corpus: ParallelCorpus, vocab_size: int) -> dict[str, Any]:
    """What a training's config.json says of its text.

    Chapter: experiment-run
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


def _check_sentences(
    corpus: ParallelCorpus, translator: Translator, translated: bool
) -> None:
    """Refuse now what could not be scored or translated later.

    Chapter: experiment-run
    """
    config = translator.model.config
    if translated:
        translator.encode(corpus.sources)
    if config.positions == "learned":
        fit = encode_pairs(corpus, translator.tokenizer, config.max_length)
        if len(fit) < len(corpus):
            raise ValueError(
                f"max_length={config.max_length}: {corpus.split} needs more"
            )


def _check_report(folder: Path) -> None:
    """Refuse to call a training finished whose results are lost.

    Chapter: experiment-run
    """
    report = (folder / "report.json").read_text("utf-8")
    cut_short = not report.endswith("}\n")
    if cut_short or not (folder / "model.safetensors").is_file():
        raise ValueError(
            f"{folder} is finished, but its model.safetensors is lost or its "
            "report.json damaged: delete report.json, then train again"
        )


def run_experiment(
    experiment: Experiment, folder: str | Path, command: str = ""
) -> dict[str, Any] | None:
    """Train and test a model, or go on with the training in a folder.

    A finished training is left alone. `command` is the command line,
    for the report.

    Returns:
        The result and the test of report.json; None if the training
        was finished before, and for all workers but the first.

    Raises:
        ValueError: for bad settings or a bad corpus, or in the folder
            of another training. Nothing was written then.
        filelock.Timeout: if another training writes to the folder.
        FloatingPointError, KeyboardInterrupt: as `train`.

    Chapter: experiment-run
    """
    # Read the text, learn the pieces, fix all settings.
    folder = Path(folder)
    begun = _look(folder)
    texts = experiment.load("train")
    held_out = experiment.load("validation")
    tests = experiment.load(experiment.test) if experiment.test else None
    tokenizer = begun.tokenizer or BPETokenizer.train(
        texts.sources + texts.targets, experiment.vocab_size
    )
    papers = 20 if experiment.preset == "big" else 5  # section 6.1
    average = experiment.average or papers
    changes = {"precision": "auto"} | experiment.changes
    if begun.settings and changes["precision"] == "auto":
        # A training goes on as it began, whatever this machine can do.
        changes["precision"] = begun.settings.get("precision", "fp32")
    config, training = recipe(
        experiment.preset, len(tokenizer), average, changes
    )
    info = _describe(texts, experiment.vocab_size) | fixed_settings(training)

    # See that this may be trained here.
    if begun.settings:
        check_settings(begun.settings, info | asdict(config), folder)
    if begun.finished:
        _check_report(folder)
        _say(f"{folder} is finished: delete report.json to go on with it")
        return None

    # Make batches and model.
    pairs = encode_pairs(texts, tokenizer, config.max_length)
    rank, _ = worker()
    batches = TokenBatches(
        pairs, training.tokens_per_batch, seed=training.seed
    )
    torch.manual_seed(training.seed)
    model = Transformer(config).to(pick_device(training.device))
    translator = Translator(model, tokenizer, experiment.languages)
    with_bleu = experiment.validation_bleu
    _check_sentences(held_out, translator, translated=with_bleu)
    if tests:
        _check_sentences(tests, translator, translated=True)
    judge = _judge(held_out, translator, with_bleu)

    # Claim the folder, train, average, test.
    lock = FileLock(folder / ".lock", timeout=0)
    with lock if rank == 0 else nullcontext():
        if rank == 0:
            if _look(folder) != begun:
                raise ValueError(
                    f"another training used {folder} meanwhile: start again"
                )
            if not begun.settings:
                save_config(folder, model, tokenizer, **info)
        _say(f"{len(pairs):,} pairs of {len(texts):,} fit")
        history = train(model, batches, training, judge, folder)
        if rank == 0:
            last = checkpoint_files(folder)[-average:]
            model.load_state_dict(average_checkpoints(last))
            save_model(folder, model, tokenizer, half=experiment.half, **info)
            result = {"averaged_checkpoints": len(last)}
            result |= judge(model, history.lines[-1]["step"])
            report = make_report(
                folder, command, training, model, history, result
            )
            return _finish(folder, report, tests)
    return None


def _judge(
    corpus: ParallelCorpus, translator: Translator, with_bleu: bool
) -> Callable[[Transformer, int], dict[str, Any]]:
    """What `train` calls to validate: judge(model, step).

    Chapter: experiment-judge
    """
    pairs = encode_pairs(corpus, translator.tokenizer)
    batches = TokenBatches.in_order(pairs)

    def judge(model: Transformer, step: int) -> dict[str, Any]:
        loss = validation_loss(model, batches)
        scores: dict[str, Any] = {"validation_loss": loss}
        scores["validation_perplexity"] = perplexity(loss)
        if with_bleu:
            texts = translator.translate(corpus.sources, beam_size=1)
            scores["validation_bleu"] = bleu(texts, corpus.targets).value
        shown = [f"{name} {score:.2f}" for name, score in scores.items()]
        _say(f"step {step}: {', '.join(shown)}")
        if with_bleu:
            scores["samples"] = texts[:3]
        return scores

    return judge


def make_report(
    folder: Path,
    command: str,
    training: TrainingConfig,
    model: Transformer,
    history: History,
    result: dict[str, Any],
) -> dict[str, Any]:
    """What report.json says of a training that took all its steps.

    `result` holds what the log and the model do not say.

    Chapter: experiment-report
    """
    last = history.lines[-1]
    steps = {
        "steps": last["step"],
        "seconds": last["seconds"],
        "target_tokens_per_second": last["tokens"] / last["seconds"],
        "parameters": sum(w.numel() for w in model.parameters()),
    }
    return {
        "name": folder.absolute().name,
        "command": command,
        "training": asdict(training),
        "result": steps | result,
        "machine": describe_machine(model.output_weight.device),
    }


def _finish(folder: Path, report: dict, corpus: ParallelCorpus | None) -> dict:
    """Score the saved model; write the report, which ends the training.

    Chapter: experiment-report
    """
    if corpus:
        _say(f"translating {len(corpus):,} sentences")
        device = pick_device(report["training"]["device"])
        saved = Translator.from_pretrained(folder, device)
        scores = evaluate(saved.model, saved.tokenizer, corpus)
        lines = "\n".join(scores.pop("translations")) + "\n"
        write_atomically(folder / "translations.txt", lines)
        report["test"] = scores
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / "report.json", text)
    return report["result"] | {"test": report.get("test", {})}


def describe_machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Processor or card, versions, threads, and the commit of the book.

    Chapter: experiment-report
    """
    return {
        "processor": _processor(torch.device(device)),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": _commit(),
    }


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):  # Linux alone has this file
        text = Path("/proc/cpuinfo").read_text()
        if named := re.search(r"model name\s*: (.+)", text):
            return named[1]
    return platform.machine()


def _commit() -> str:
    root = Path(str(files("transformer_lib"))).parent
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    if (root / ".git").exists():  # of the book, not of a reader's project
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.check_output(git, cwd=root, text=True).strip()
    return "not recorded"
