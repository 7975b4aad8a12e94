# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""From a corpus to a report: one recorded training run.

Chapter: book/training/experiment
"""

import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import InitVar, asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from torch import nn
from tqdm import tqdm

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    check_folder,
    checkpoint_files,
    load_model,
    load_weights,
    rebuilt,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.evaluation import HeldOut, bleu, evaluate
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer, TransformerConfig, check_fields
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import (
    Gradients,
    History,
    pick_precision,
    train,
    worker,
)
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
        average: checkpoints in the mean, which is saved if it validates
            better than the last one; 1 for no mean
        limit: only the first `limit` pairs of each part
        validation_bleu: log BLEU of greedy translations
        test: part to evaluate at the end, such as test
        half: save the model in half precision
        skip_bad_lines: leave out and count what is not a sentence
        device: cpu, cuda or mps; the best one if not given
        precision: in place of the one in `training`, where it is read

    Raises:
        ValueError: naming a field that cannot be right, and its value.

    Chapter: experiment-settings
    """

    corpus: str = "little_spanish"
    languages: tuple[str, str] = ("en", "es")
    model: TransformerConfig = TransformerConfig(8000)
    training: TrainingConfig = TrainingConfig(precision="auto")
    tokens_per_batch: int = 25_000
    average: int = 5
    limit: int | None = None
    validation_bleu: bool = False
    test: str | None = None
    half: bool = False
    skip_bad_lines: bool = False
    device: str | None = None
    precision: InitVar[str | None] = None

    def __post_init__(self, precision: str | None) -> None:
        if precision is not None:
            training = replace(self.training, precision=precision)
            object.__setattr__(self, "training", training)
        check_fields(self, average=(0, math.inf))

    @classmethod
    def tiny(cls) -> Self:
        """A small model for a laptop."""
        often = dict(log_every=50, validate_every=500, checkpoint_every=100)
        steps = dict(warmup_steps=1000, max_steps=5000, precision="auto")
        return cls(
            model=TransformerConfig.tiny(8000),
            training=TrainingConfig(**steps, **often),
            tokens_per_batch=4096,
        )

    @classmethod
    def base(cls) -> Self:
        """The paper's base model."""
        return cls()

    @classmethod
    def big(cls) -> Self:
        """The paper's big model, sections 5.2 and 6.1."""
        steps = TrainingConfig(max_steps=300_000, precision="auto")
        sizes = TransformerConfig.big(8000)
        return cls(model=sizes, training=steps, average=20)

    @classmethod
    def fine_tuning(cls) -> Self:
        """A small rate and few steps, for a model that is trained."""
        often = dict(log_every=20, validate_every=100, checkpoint_every=50)
        steps = TrainingConfig(
            warmup_steps=100,
            max_steps=500,
            learning_rate_scale=0.05,
            precision="auto",
            **often,
        )
        return cls(training=steps, tokens_per_batch=4096)

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


def run_experiment(
    experiment: Experiment,
    folder: str | Path,
    command: str = "",
    *,
    model: Callable[[TransformerConfig], nn.Module] = Transformer,
    start: str | Path | None = None,
    gradients: Callable[[nn.Module], type[Gradients] | None] | None = None,
) -> dict[str, Any] | None:
    """Train and test a model, or go on with the run in a folder.

    A finished run is left alone.

    Args:
        experiment: every decision.
        folder: for all that the run leaves.
        command: the command line, for the report.
        model: called with the sizes, it makes the model: a class of
            your own, or a function.
        start: the folder or the bundled name of a model that is to be
            trained further: with its weights, sizes and tokenizer.
        gradients: called with the model, it says how gradients are
            computed, as in `train`.

    Returns:
        The content of report.json; None for all workers of `torchrun`
        but the first.

    Raises:
        ValueError: for a bad corpus, or in a folder that holds another
            run or model.
        FileNotFoundError: without the corpus, or without `start`.
        TimeoutError: if another run writes to the folder.
        NotADirectoryError, FloatingPointError, KeyboardInterrupt: as
            `train`.

    Chapter: experiment-run
    """
    folder = check_folder(folder)
    if (folder / "report.json").exists():
        report = _finished(folder, experiment, start, command)
        load_model(folder, model)  # is it of this class?
        return report
    begun = len(checkpoint_files(folder)) > 0
    for file in folder / "model.safetensors", folder / "translations.txt":
        if file.exists() and not begun:
            raise ValueError(f"there is {file}: name another folder")

    # Prepare.
    device = pick_device(experiment.device)
    training = replace(
        experiment.training,
        precision=pick_precision(experiment.training.precision, device),
        keep_checkpoints=max(
            experiment.training.keep_checkpoints, experiment.average
        ),
    )
    net, tokenizer, batches, held_out = _prepare(experiment, model, start)
    info = {
        "corpus": held_out["validation"].corpus.name,
        "languages": [*experiment.languages],
        "command": command,
    }
    with_bleu = experiment.validation_bleu
    measure = partial(_measure, net, held_out["validation"], with_bleu)

    # Fit.
    rebuilt(net)  # else it could not be saved at the end
    net.to(device)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not begun and worker()[0] == 0:
            save_config(folder, net, tokenizer, info=info)
        history = train(
            net,
            batches,
            training,
            lambda _, step: measure(f"step {step}"),
            folder,
            gradients=gradients(net) if gradients else None,
        )
        if worker()[0] > 0:
            return None

        # Finish.
        averaged = _choose_weights(experiment, net, folder, history, measure)
        save_model(folder, net, tokenizer, half=experiment.half, info=info)
        scores = None
        if experiment.test:
            tests = held_out[experiment.test]
            _say(f"translating {len(tests.corpus):,} sentences")
            # As others will load it, perhaps in half precision.
            saved = load_model(folder, model=model).model.to(device)
            scores = evaluate(saved, tokenizer, tests)
        report = describe_run(net, batches, training, history)
        report["result"] |= averaged
        report["experiment"] = asdict(experiment) | {"start": start}
        return write_report(folder, command, report, scores)


def _finished(
    folder: Path,
    experiment: Experiment,
    start: str | Path | None,
    command: str,
) -> dict[str, Any] | None:
    """The report of a finished run, if it is of the same experiment.

    Chapter: experiment-run
    """
    report = json.loads((folder / "report.json").read_text("utf-8"))
    asked = asdict(experiment) | {"start": start}
    asked = json.loads(json.dumps(asked, default=str))
    said = (
        f"{folder} is finished: name another folder, or delete its "
        "report.json to go on with more steps"
    )
    before = report["command"]
    # An older report may have fewer settings.
    settings = report.get("experiment", {}).items()
    same = settings and settings <= asked.items()
    if not same or command not in ("", before):
        raise ValueError(f"other options, but {said}; its command: {before}")
    _say(said)
    return None if worker()[0] else report


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The first worker keeps other runs out of the folder.

    Raises:
        TimeoutError: if another run writes to it.

    Chapter: experiment-run
    """
    lock = FileLock(folder / ".lock")
    try:
        if worker()[0] == 0:
            lock.acquire(timeout=0)
    except Timeout:
        raise TimeoutError(
            f"another run writes to {folder} (it holds .lock): name another "
            "folder"
        ) from None
    except PermissionError:
        raise
    except OSError as error:  # not every file system has locks
        _say(f"warning: {error}: start no other run in {folder}")
    try:
        yield
    finally:
        lock.release()


def _prepare(
    experiment: Experiment,
    build: Callable[[TransformerConfig], nn.Module],
    start: str | Path | None,
) -> tuple[nn.Module, BPETokenizer, TokenBatches, dict[str, HeldOut]]:
    """Model, tokenizer, batches, and by split what is measured on.

    Chapter: experiment-run
    """
    texts = experiment.load("train")
    splits = filter(None, ["validation", experiment.test])
    others = {split: experiment.load(split) for split in splits}
    if start is None:
        model, tokenizer = _new_model(experiment, build, texts)
    else:
        ready = Translator.from_pretrained(start, model=build)
        model, tokenizer = ready.model, ready.tokenizer
    _say(f"tokenizing {len(texts):,} pairs")
    pairs = encode_pairs(texts, tokenizer, model.config.max_length)
    _say(f"{len(pairs):,} pairs of {len(texts):,} fit")
    seed = experiment.training.seed
    batches = TokenBatches(pairs, experiment.tokens_per_batch, seed)
    held_out = {}
    for split, corpus in others.items():
        held_out[split] = HeldOut(corpus, tokenizer, model)
        if too_long := held_out[split].left_out:
            _say(
                f"warning: {too_long} of {len(corpus)} pairs are left out of "
                f"{split}: over {held_out[split].longest} tokens"
            )
    return model, tokenizer, batches, held_out


def _new_model(
    experiment: Experiment,
    build: Callable[[TransformerConfig], nn.Module],
    texts: ParallelCorpus,
) -> tuple[nn.Module, BPETokenizer]:
    """A tokenizer that is learnt from the text, and a model for it.

    Chapter: experiment-run
    """
    both = texts.sources + texts.targets
    _say(f"learning the tokens of {len(both):,} sentences")
    tokenizer = BPETokenizer.train(both, experiment.model.vocab_size)
    with torch.random.fork_rng([]):  # the caller's dice stay as they are
        torch.default_generator.manual_seed(experiment.training.seed)
        model = build(replace(experiment.model, vocab_size=len(tokenizer)))
    return model, tokenizer


def _measure(
    model: nn.Module, held_out: HeldOut, with_bleu: bool, name: str
) -> dict[str, Any]:
    """Loss and perhaps BLEU of a model, said under a name.

    Chapter: experiment-run
    """
    loss = validation_loss(model, held_out.batches)
    scores = {
        "validation_loss": loss,
        "validation_perplexity": perplexity(loss),
    }
    samples = {}
    if with_bleu:
        texts = held_out.translate(model, beam_size=1)
        scores["validation_bleu"] = bleu(texts, held_out.references).value
        samples["samples"] = texts[:3]
    said = [f"{key} {value:.2f}" for key, value in scores.items()]
    _say(f"{name}: {', '.join(said)}")
    return scores | samples


def _choose_weights(
    experiment: Experiment,
    model: nn.Module,
    folder: Path,
    history: History,
    measure: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """Give the model the mean of its last checkpoints, or the last one.

    Returns the validation scores of both, the chosen one's first.

    Chapter: experiment-run
    """
    last = {"averaged_checkpoints": 1}
    for name, value in history.lines[-1].items():
        if name.startswith("validation_") or name == "samples":
            last[name] = value
    # without one, it was stopped here, and is to end
    if last.get("validation_loss") is None:
        last |= measure("the last weights")
    paths = checkpoint_files(folder)[-max(experiment.average, 1) :]
    if len(paths) == 1:
        return last
    load_weights(model, average_checkpoints(paths))
    mean = {"averaged_checkpoints": len(paths)}
    mean |= measure(f"mean of {len(paths)} checkpoints")
    if mean["validation_loss"] <= last["validation_loss"]:
        return mean | {"other_choice": last}
    _say("the last checkpoint alone is better, and is saved")
    load_weights(model, average_checkpoints(paths[-1:]))
    return last | {"other_choice": mean}


def describe_run(
    model: nn.Module,
    batches: TokenBatches,
    training: TrainingConfig,
    history: History,
) -> dict[str, Any]:
    """What a report says of a run that took all its steps.

    Chapter: experiment-report
    """
    last, device = history.lines[-1], next(model.parameters()).device
    return {
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
        },
        "machine": describe_machine(device),
    }


def write_report(
    folder: str | Path,
    command: str,
    described: dict[str, Any],
    scores: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write report.json, of what `describe_run` gave; returns it.

    `scores` is what `evaluate` returned; its translations go to
    translations.txt.

    Raises:
        ValueError: as `check_folder`.

    Chapter: experiment-report
    """
    folder = check_folder(folder)
    report = {"name": folder.absolute().name, "command": command, **described}
    if scores is not None:
        report["test"] = dict(scores)
        lines = report["test"].pop("translations")
        write_atomically(folder / "translations.txt", "\n".join(lines) + "\n")
    text = json.dumps(report, default=str)
    report = json.loads(text, parse_constant=lambda _: None)  # NaN is null
    text = json.dumps(report, indent=1, ensure_ascii=False)
    write_atomically(folder / "report.json", text + "\n")
    return report


def describe_machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """CPU or GPU, versions, threads, and the commit of the book.

    `kernels` are the instructions that PyTorch uses on the CPU.

    Chapter: experiment-report
    """
    names, commit = [platform.machine()], ""
    if torch.device(device).type == "cuda":
        names = [torch.cuda.get_device_name(device)]
    elif (cpus := Path("/proc/cpuinfo")).exists():  # Linux
        names = re.findall(r"model name\s*: (.+)", cpus.read_text()) or names
    root = Path(str(files("transformer_lib"))).parent
    # A folder of the book, not one of a reader's project.
    if (root / ".git").exists() and shutil.which("git"):
        git = "git describe --always --dirty --exclude=*".split()
        done = subprocess.run(git, cwd=root, capture_output=True, text=True)
        commit = done.stdout.strip()
    return {
        "processor": names[0],
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": commit or "not recorded",
    }
