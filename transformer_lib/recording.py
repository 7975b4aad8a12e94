# Collected from book/results/recording.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""A training from its sentences to its record, in one folder."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoints,
    latest_checkpoint,
    load_model,
    save_model,
)
from transformer_lib.corpora import (
    ParallelCorpus,
    load_corpus,
    read_parallel,
)
from transformer_lib.evaluation import bleu, evaluate
from transformer_lib.loss import perplexity
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.runs import machine, write_card, write_lines
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import (
    TrainingConfig,
    preset,
    read_log,
    start_workers,
    table3,
    train,
    validation_loss,
)
from transformer_lib.translator import Translator

__all__ = [
    "SMALL",
    "Task",
    "finish",
    "read_split",
    "recipe",
    "record_training",
]


def _told(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class Task:
    """All that a training is told; each field is an option of `train`.

    `changes` holds fields of the two configurations that are to differ
    from the preset's, such as {"dropout": 0.3}.

    Chapter: recording-task
    """

    out: str = _told("", "folder for all that is written")
    corpus: str = _told("little_spanish", "or multi30k, tatoeba")
    languages: tuple[str, str] = _told(("en", "es"), "source, target")
    source_file: str | None = _told(
        None, "your sentences, one a line"
    )
    target_file: str | None = _told(None, "their translations")
    validation_source: str | None = _told(None, "to validate on")
    validation_target: str | None = _told(None, "their translations")
    limit: int | None = _told(None, "only the first so many pairs")
    longest: int = _told(256, "drop pairs of more pieces")
    vocab_size: int = _told(8000, "pieces in the vocabulary, at most")
    preset: str = _told("tiny", "tiny, base, big; paper, ...")
    table3: str | None = _told(None, "a row, such as 'B: d_k=16'")
    validation_bleu: bool = _told(
        False, "log BLEU of greedy decoding"
    )
    samples: int = _told(0, "how many translations to log")
    test: str | None = _told(None, "the split to evaluate at the end")
    half: bool = _told(False, "save the model in half precision")
    name: str = _told("", "what the record is called")
    measures: str = _told("", "what the record is for")
    changes: dict[str, Any] = field(default_factory=dict)


SMALL = {
    "tokens_per_batch": 4096,
    "warmup_steps": 800,
    "max_steps": 12_000,
    "validate_every": 200,
    "checkpoint_every": 50,
    "log_every": 10,
}  # for the tiny preset: small batches, a short warm-up, frequent looks


def _changed(config: Any, task: Task) -> Any:
    """A configuration with those of the task's changes that it has."""
    names = {field.name for field in fields(config)}
    return replace(
        config,
        **{k: v for k, v in task.changes.items() if k in names},
    )


def recipe(
    task: Task, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """The model and the training that a task asks for.

    `preset` names a size (tiny, base, big) or a recipe (paper,
    tensor2tensor, annotated), unless there is a row of table 3;
    `changes` has the last word.

    Raises:
        ValueError: as the configurations and presets do.

    Chapter: recording-recipe
    """
    if task.table3:
        pair = table3(task.table3, vocab_size)
    elif task.preset in ("tiny", "base", "big"):
        size = getattr(TransformerConfig, task.preset)
        small = SMALL if task.preset == "tiny" else {}
        pair = size(vocab_size), TrainingConfig(**small)
    else:
        pair = preset(task.preset, vocab_size)
    return _changed(pair[0], task), _changed(pair[1], task)


def read_split(task: Task, split: str) -> ParallelCorpus | None:
    """A split of the named corpus, or the reader's own files.

    None for own files without a validation part.

    Raises:
        ValueError: if one file of a pair is missing, and as the loaders.

    Chapter: recording-data
    """
    own = [task.source_file, task.target_file]
    if any(own) and split == "validation":
        own = [task.validation_source, task.validation_target]
        if not any(own):
            return None
    if not any(own):
        corpus = load_corpus(task.corpus, *task.languages, split)
        return corpus[: task.limit]
    if not all(own):
        raise ValueError(
            f"own files come in pairs, here are {own}: give a file of "
            "sentences and the file of their translations"
        )
    return read_parallel(*own, *task.languages)[: task.limit]


def _tokenizer(task: Task, corpus: ParallelCorpus) -> BPETokenizer:
    """The tokenizer in a task's folder, trained at the first start."""
    path = Path(task.out, "tokenizer.json")
    if not path.is_file():
        texts = [text for pair in corpus for text in pair]
        BPETokenizer.train(texts, task.vocab_size).save(path)
    return BPETokenizer.load(path)


def _claim(
    task: Task, model: Transformer, tokenizer: Any, info: dict
):
    """Begin a training's folder, or see that it holds this training."""
    if not Path(task.out, "config.json").is_file():
        save_model(task.out, model, tokenizer, **info)
    held, _, before = load_model(task.out)
    before |= asdict(held.config)
    for name, now in (info | asdict(model.config)).items():
        if before[name] != now:
            raise ValueError(
                f"{task.out} holds a training with {name}={before[name]}, "
                f"not {now}: use its options, or another folder"
            )


def _minutes(task: Task, began: float) -> float | None:
    """What is left of `max_minutes`, as `train` counts it.

    `train` counts from its first start of all, the budget from this
    one; a twentieth is kept for what follows the last step.
    """
    budget = task.changes.get("max_minutes")
    if budget is None:
        return None
    seconds = 57 * budget - (time.monotonic() - began)
    if path := latest_checkpoint(task.out):
        lines = read_log(task.out, int(path.stem[-8:]))
        seconds += lines[-1]["seconds"]
    return max(seconds, 0.1) / 60


def _judge(task: Task, tokenizer: Any) -> Callable[..., dict]:
    """What `train` calls to validate: judge(model, step) -> figures.

    Loss and perplexity, and what the task asks for: BLEU of greedy
    translations, the first few of them.
    """
    corpus = read_split(task, "validation")
    if corpus is None:
        return lambda model, step: {}
    pairs = encode_pairs(corpus, tokenizer, task.longest)
    batches = TokenBatches(pairs, 4096, shuffle=False)

    def judge(model: Transformer, step: int) -> dict[str, Any]:
        loss = validation_loss(model, batches)
        found: dict[str, Any] = {"validation_loss": loss}
        found["validation_perplexity"] = perplexity(loss)
        translator = Translator(model, tokenizer)
        if task.validation_bleu:
            texts = translator.translate(corpus.sources, beam_size=1)
            found["validation_bleu"] = bleu(
                texts, corpus.targets
            ).value
        if task.samples:
            first = corpus.sources[: task.samples]
            found["samples"] = translator.translate(
                first, beam_size=1
            )
        return found

    return judge


def record_training(task: Task, command: str = "") -> dict | None:
    """Train into a folder, or go on there; leave a record behind.

    The folder gets config, tokenizer, log, checkpoints and, whenever a
    start ends by itself, the averaged model, report and card. With
    `torchrun` every worker calls this, and the first one writes.

    Returns:
        The report, None for a worker that is not the first.

    Raises:
        ValueError: if the folder holds another training.

    Chapter: recording-train
    """
    began = time.monotonic()
    rank, workers, device = start_workers(task.changes.get("device"))
    corpus = read_split(task, "train")
    if rank:  # the first worker begins the folder
        torch.distributed.barrier()
    tokenizer = _tokenizer(task, corpus)
    config, training = recipe(task, len(tokenizer))
    torch.manual_seed(training.seed)
    model = Transformer(config)
    info = {
        "corpus": corpus.name,
        "languages": list(task.languages),
        "pieces_asked": task.vocab_size,
        "pairs": len(corpus),
        "licence": corpus.licence,
    }
    _claim(task, model, tokenizer, info)
    if workers > 1 and not rank:
        torch.distributed.barrier()
    pairs = encode_pairs(corpus, tokenizer, task.longest)
    budget, share = training.tokens_per_batch, (rank, workers)
    batches = TokenBatches(pairs, budget, training.seed, True, *share)
    judge = _judge(task, tokenizer)
    minutes = _minutes(task, began)
    limits = {"device": device, "max_minutes": minutes}
    train(
        model, batches, replace(training, **limits), judge, task.out
    )
    if rank:
        return None
    return finish(
        task, model, tokenizer, training, info, judge, command
    )


def _last_tenth(folder: str | Path, average: int) -> list[Path]:
    """The last checkpoints, none from before the last tenth of steps.

    Weights that still move fast have a poor mean. The paper's five
    checkpoints were the last 7% of its training.
    """
    paths = checkpoints(folder)[-average:]
    steps = [int(path.stem[-8:]) for path in paths]
    return [
        p for p, step in zip(paths, steps) if step > 0.9 * steps[-1]
    ]


@torch.no_grad()
def finish(
    task: Task,
    model: Transformer,
    tokenizer: Any,
    training: TrainingConfig,
    info: dict[str, Any],
    judge: Callable[..., dict],
    command: str,
) -> dict[str, Any]:
    """What follows the last step: average, save, evaluate, report.

    Chapter: recording-report
    """
    folder, last = Path(task.out), read_log(task.out)[-1]
    paths = _last_tenth(folder, training.average)
    model.load_state_dict(average_checkpoints(paths))
    save_model(folder, model, tokenizer, task.half, **info)
    weights = (folder / "model.safetensors").read_bytes()
    figures = {
        "steps": last["step"],
        "seconds": last["seconds"],
        "target_tokens_per_second": last["tokens"] / last["seconds"],
        "averaged_checkpoints": len(paths),
        "parameters": sum(x.numel() for x in model.parameters()),
    }
    report = {
        "name": task.name or folder.name,
        "measures": task.measures,
        "command": command,
        "finished": last["step"] >= training.max_steps,
        "weights_sha256": sha256(weights).hexdigest(),
        "result": figures | judge(model.eval(), last["step"]),
        "data": info,
        "model": asdict(model.config),
        "training": asdict(training),
        "machine": machine(),
    }
    if task.test:
        shipped = load_model(folder)[0].to(model.output_weight.device)
        corpus = read_split(task, task.test)
        report["test"] = evaluate(shipped, tokenizer, corpus)
        lines = report["test"].pop("translations")
        write_lines(folder / "translations.txt", lines)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    write_lines(folder / "report.json", [text])
    write_card(folder)
    return report
