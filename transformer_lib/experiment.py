# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From a corpus to a report: one recorded training run.

Chapter: book/training/experiment
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import torch
from filelock import FileLock
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_model,
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
from transformer_lib.training import History, train, worker
from transformer_lib.translator import Translator


@dataclass(frozen=True)
class Experiment:
    """What is trained, on which text, and what it is tested on.

    Args:
        corpus: little_spanish, multi30k, tatoeba, or a folder with
            train.en, train.es, validation.en and so on, plain or .gz
        languages: source and target
        model: the sizes; its vocab_size is what the tokenizer is asked
            for, and becomes what it has
        training: the settings
        tokens_per_batch: on either side, with padding
        average: checkpoints in the mean; 1 for none
        limit: only the first `limit` pairs of each part
        validation_bleu: log BLEU of greedy translations
        test: part to evaluate at the end, such as test
        half: save the model in half precision
        skip_bad_lines: leave out and count what is not a sentence
        precision: instead of the one in `training`; auto is bf16 where
            the device has instructions for it
        device: cpu, cuda or mps; the best one if not given

    Chapter: experiment-settings
    """

    corpus: str = "little_spanish"
    languages: tuple[str, str] = ("en", "es")
    model: TransformerConfig = TransformerConfig(8000)
    training: TrainingConfig = TrainingConfig()
    tokens_per_batch: int = 25_000
    average: int = 5
    limit: int | None = None
    validation_bleu: bool = False
    test: str | None = None
    half: bool = False
    skip_bad_lines: bool = False
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    device: str | None = None

    @classmethod
    def tiny(cls) -> Self:
        """A small model for a laptop."""
        often = dict(log_every=50, validate_every=500, checkpoint_every=100)
        steps = TrainingConfig(warmup_steps=1000, max_steps=5000, **often)
        sizes = TransformerConfig.tiny(8000)
        return cls(model=sizes, training=steps, tokens_per_batch=4096)

    @classmethod
    def base(cls) -> Self:
        """The paper's base model."""
        return cls()

    @classmethod
    def big(cls) -> Self:
        """The paper's big model, sections 5.2 and 6.1."""
        steps = TrainingConfig(max_steps=300_000)
        sizes = TransformerConfig.big(8000)
        return cls(model=sizes, training=steps, average=20)

    def load(self, split: str) -> ParallelCorpus:
        """A split of the corpus; the errors are those of `load_corpus`."""
        texts = load_corpus(
            self.corpus, *self.languages, split, self.skip_bad_lines
        )
        return texts[: self.limit]


def _say(text: str) -> None:
    """A line to the person at the terminal, from only one worker.

    Chapter: experiment-precision
    """
    if worker()[0] == 0:
        tqdm.write(text, file=sys.stderr)


def pick_device(name: str | None = None) -> torch.device:
    """The device of that name, or the best one here.

    Each worker of `torchrun` gets a GPU of its own.

    Raises:
        ValueError: if this machine or this PyTorch has no such device.

    Chapter: experiment-precision
    """
    best = "cpu"
    if torch.accelerator.is_available():
        best = torch.accelerator.current_accelerator().type
    name = name or best
    if name.partition(":")[0] not in ("cpu", best):
        raise ValueError(f"there is no device {name!r} here: try {best}")
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return torch.device(name)


def _pick_precision(name: str, device: torch.device) -> str:
    """For "auto", "bf16" if the device has instructions for it.

    Chapter: experiment-precision
    """
    native = False
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu" and hasattr(torch.cpu, "get_capabilities"):
        able = torch.cpu.get_capabilities()  # since torch 2.13
        native = any(able.get(x) for x in ("amx_bf16", "avx512_bf16"))
    if name == "bf16" and not native:
        _say("warning: bf16 is slow on this device: --precision fp32 is fast")
    return name if name != "auto" else "bf16" if native else "fp32"


def run_experiment(
    experiment: Experiment, folder: str | Path, command: str = ""
) -> dict[str, Any] | None:
    """Train and test a model, or go on with the run in a folder.

    A finished run is left alone. `command` is the command line, for
    the report.

    Returns:
        The content of report.json; None if the run was finished
        before, and for all workers but the first.

    Raises:
        ValueError: for a bad corpus, or in a folder that holds another
            run or model.
        filelock.Timeout: if another run writes to the folder.
        FloatingPointError, KeyboardInterrupt: as `train`.

    Chapter: experiment-run
    """
    folder, first = Path(folder), worker()[0] == 0
    texts, held_out = experiment.load("train"), experiment.load("validation")
    tests = experiment.load(experiment.test) if experiment.test else None
    device = pick_device(experiment.device)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=0) if first else nullcontext():
        if (folder / "report.json").exists():
            _say(
                f"{folder} is finished: name another folder, or delete its "
                "report.json to go on with more steps"
            )
            return None
        begun = bool(checkpoint_files(folder))
        if (folder / "model.safetensors").exists() and not begun:
            raise ValueError(f"{folder} holds a model: name another folder")
        sizes, training = experiment.model, experiment.training
        precision = _pick_precision(experiment.precision, device)
        keep = max(training.keep_checkpoints, experiment.average)
        training = replace(
            training, precision=precision, keep_checkpoints=keep
        )
        both = texts.sources + texts.targets
        tokenizer = BPETokenizer.train(both, sizes.vocab_size)
        pairs = encode_pairs(texts, tokenizer, sizes.max_length)
        _say(f"{len(pairs):,} pairs of {len(texts):,} fit")
        tokens, seed = experiment.tokens_per_batch, training.seed
        batches = TokenBatches(pairs, tokens, seed)
        torch.manual_seed(seed)
        config = replace(sizes, vocab_size=len(tokenizer))
        model = Transformer(config).to(device)
        info = {"corpus": texts.name, "languages": [*experiment.languages]}
        if first and not begun:
            save_config(folder, model, tokenizer, **info)
        judge = _judge(held_out, tokenizer, experiment.validation_bleu)
        history = train(model, batches, training, judge, folder)
        if not first:
            return None
        last = checkpoint_files(folder)[-max(experiment.average, 1) :]
        model.load_state_dict(average_checkpoints(last))
        save_model(folder, model, tokenizer, half=experiment.half, **info)
        result = {"averaged_checkpoints": len(last)}
        result |= judge(model, history.lines[-1]["step"])
        scores = None
        if tests:
            _say(f"translating {len(tests):,} sentences")
            saved, _, _ = load_model(folder)  # perhaps in half precision
            scores = evaluate(saved.to(device), tokenizer, tests)
        return write_report(
            folder, command, model, batches, training, history, result, scores
        )


def _judge(
    corpus: ParallelCorpus, tokenizer: BPETokenizer, with_bleu: bool
) -> Callable[[Transformer, int], dict[str, Any]]:
    """What `train` calls to validate: judge(model, step).

    Chapter: experiment-judge
    """
    batches = TokenBatches.in_order(encode_pairs(corpus, tokenizer))

    def judge(model: Transformer, step: int) -> dict[str, Any]:
        loss = validation_loss(model, batches)
        scores: dict[str, Any] = {"validation_loss": loss}
        if loss < 700:  # JSON has no infinity
            scores["validation_perplexity"] = perplexity(loss)
        if with_bleu:
            texts = Translator(model, tokenizer).translate(corpus.sources, 1)
            score = bleu(texts, corpus.targets, corpus.target)
            scores["validation_bleu"] = score.value
        shown = [f"{name} {score:.2f}" for name, score in scores.items()]
        _say(f"step {step}: {', '.join(shown)}")
        return scores | ({"samples": texts[:3]} if with_bleu else {})

    return judge


def write_report(
    folder: str | Path,
    command: str,
    model: Transformer,
    batches: TokenBatches,
    training: TrainingConfig,
    history: History,
    result: dict[str, Any] | None = None,
    scores: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write report.json of a run that took all its steps; returns it.

    `result` joins what the log and the model say, `scores` is what
    `evaluate` returned; its translations go to translations.txt. `more`
    is added as it is.

    Chapter: experiment-report
    """
    folder, last = Path(folder), history.lines[-1]
    device = model.output_weight.device
    report = {
        "name": folder.absolute().name,
        "command": command,
        "training": {
            **asdict(training),
            "tokens_per_batch": batches.tokens_per_batch,
            "device": device.type,
        },
        "result": {
            "steps": last["step"],
            "seconds": last["seconds"],
            "target_tokens_per_second": last["tokens"] / last["seconds"],
            "parameters": sum(w.numel() for w in model.parameters()),
            **(result or {}),
        },
        "machine": describe_machine(device),
    }
    if scores is not None:
        report["test"] = dict(scores)
        lines = report["test"].pop("translations")
        write_atomically(folder / "translations.txt", "\n".join(lines) + "\n")
    report |= more
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / "report.json", text)
    return report


def describe_machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """CPU or GPU, versions, threads, and the commit of the book.

    Chapter: experiment-report
    """
    name, info = platform.machine(), Path("/proc/cpuinfo")  # of Linux
    if torch.device(device).type == "cuda":
        name = torch.cuda.get_device_name(device)
    elif info.exists():
        found = re.search(r"model name\s*: (.+)", info.read_text())
        name = found[1] if found else name
    root, commit = Path(str(files("transformer_lib"))).parent, ""
    # A folder of the book, not one of a reader's project.
    if (root / ".git").exists() and shutil.which("git"):
        git = "git describe --always --dirty --exclude=*".split()
        done = subprocess.run(git, cwd=root, capture_output=True, text=True)
        commit = done.stdout.strip()
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit or "not recorded",
    }
