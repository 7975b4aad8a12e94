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
    load_model,
    read_log,
    save_model,
)
from transformer_lib.corpora import (
    ParallelCorpus,
    load_corpus,
    read_parallel,
)
from transformer_lib.evaluation import bleu, evaluate
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.runs import machine, write_card, write_lines
from transformer_lib.schedule import TrainingConfig, start_workers
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import preset, table3, train
from transformer_lib.translator import Translator

__all__ = ["Task", "read_split", "recipe", "record_training"]


_PRESETS = "tiny base big paper tensor2tensor annotated".split()


def _told(default: Any, help: str, choices: Any = None) -> Any:
    about = {"help": help, "choices": choices}
    return field(default=default, metadata=about)


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
    source_file: str | None = _told(None, "your own sentences")
    target_file: str | None = _told(None, "their translations")
    validation_source: str | None = _told(None, "to validate on")
    validation_target: str | None = _told(None, "their translations")
    limit: int | None = _told(None, "only the first so many pairs")
    longest: int = _told(256, "drop pairs of more pieces")
    vocab_size: int = _told(8000, "pieces in the vocabulary, at most")
    preset: str = _told("tiny", "a size or a recipe", _PRESETS)
    table3: str | None = _told(None, "a row, such as 'B: d_k=16'")
    validation_bleu: bool = _told(False, "log BLEU, greedy")
    samples: int = _told(0, "how many translations to log")
    test: str | None = _told(None, "the split to evaluate at the end")
    half: bool = _told(False, "save the model in half precision")
    name: str = _told("", "what the record is called")
    measures: str = _told("", "what the record is for")
    changes: dict[str, Any] = field(default_factory=dict)


_SMALL = {"tokens_per_batch": 4096, "warmup_steps": 500}
_SMALL |= {"max_steps": 12_000, "validate_every": 200}
_SMALL |= {"checkpoint_every": 20, "log_every": 10}


def _changed(config: Any, task: Task) -> Any:
    """A configuration with those of the task's changes that it has."""
    names = {field.name for field in fields(config)}
    given = {k: v for k, v in task.changes.items() if k in names}
    return replace(config, **given)


def recipe(
    task: Task, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """The model and the training that a task asks for.

    A row of table 3, or a preset: a size (tiny, base, big) or a recipe
    (paper, tensor2tensor, annotated). `changes` has the last word.

    Chapter: recording-recipe
    """
    if task.table3:
        pair = table3(task.table3, vocab_size)
    elif task.preset in ("tiny", "base", "big"):
        size = getattr(TransformerConfig, task.preset)
        small = _SMALL if task.preset == "tiny" else {}
        pair = size(vocab_size), TrainingConfig(**small)
    else:
        pair = preset(task.preset, vocab_size)
    return _changed(pair[0], task), _changed(pair[1], task)


def read_split(task: Task, split: str) -> ParallelCorpus | None:
    """A split of the named corpus, or the reader's own files.

    None for own files without a validation part; a file without its
    translations is a ValueError.

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
            f"give a file of sentences and their translations, not {own}"
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
    task: Task, model: Transformer, tokenizer: Any, corpus: Any
):
    """Begin a training's folder, or see that it holds this training."""
    info = {
        "corpus": corpus.name,
        "languages": list(task.languages),
        "pieces_asked": task.vocab_size,
        "pairs": len(corpus),
        "licence": corpus.licence,
    }
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
    return info


def _minutes(task: Task, began: float) -> float | None:
    """This start's `max_minutes`, as `train` counts: from the first."""
    budget = task.changes.get("max_minutes")
    if budget is None:
        return None
    # a twentieth is kept for what follows the last step
    seconds = 57 * budget - (time.monotonic() - began)
    for path in checkpoints(task.out)[-1:]:
        lines = read_log(task.out, int(path.stem[-8:]))
        seconds += lines[-1]["seconds"]
    return max(seconds, 0.1) / 60


def _judge(task: Task, tokenizer: Any) -> Callable[..., dict]:
    """What `train` calls to validate: judge(model, step) -> figures.

    Loss, perplexity, and what the task asks for.
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

    The folder gets config, tokenizer, log, checkpoints and, when steps
    or minutes are used up, the averaged model, report and card. Every
    worker of `torchrun` calls this. A folder that holds another
    training is a ValueError.

    Returns the report, or None for a worker that is not the first.

    Chapter: recording-train
    """
    if not task.out or task.changes.get("max_steps", 1) < 1:
        raise ValueError("a training needs --out FOLDER, and a step")
    began = time.monotonic()
    rank, workers, device = start_workers(task.changes.get("device"))
    corpus = read_split(task, "train")
    if rank:  # the first worker begins the folder
        torch.distributed.barrier()
    tokenizer = _tokenizer(task, corpus)
    config, training = recipe(task, len(tokenizer))
    torch.manual_seed(training.seed)
    model = Transformer(config)
    info = _claim(task, model, tokenizer, corpus)
    if workers > 1 and not rank:
        torch.distributed.barrier()
    pairs = encode_pairs(corpus, tokenizer, task.longest)
    budget, share = training.tokens_per_batch, (rank, workers)
    batches = TokenBatches(pairs, budget, training.seed, True, *share)
    judge, minutes = _judge(task, tokenizer), _minutes(task, began)
    limited = replace(training, device=device, max_minutes=minutes)
    train(model, batches, limited, judge, task.out)
    if rank:
        return None
    task.changes["device"] = device
    return _finish(task, model, tokenizer, info, judge, command)


def _last_tenth(folder: str | Path, average: int) -> list[Path]:
    """The last checkpoints, none from before the last tenth of steps."""
    paths = checkpoints(folder)[-average:]
    first = 0.9 * int(paths[-1].stem[-8:])
    return [path for path in paths if int(path.stem[-8:]) > first]


@torch.no_grad()
def _finish(task, model, tokenizer, info, judge, command) -> dict:
    """What follows the last step: average, save, evaluate, report."""
    folder, last = Path(task.out), read_log(task.out)[-1]
    training = recipe(task, len(tokenizer))[1]
    paths = _last_tenth(folder, training.average)
    model.load_state_dict(average_checkpoints(paths))
    save_model(folder, model, tokenizer, task.half, **info)
    found = judge(model.eval(), last["step"])
    found.pop("samples", None)
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
        "result": figures | found,
        "data": info,
        "model": asdict(model.config),
        "training": asdict(training),
        "machine": machine(),
    }
    if task.test:
        shipped = load_model(folder)[0].to(model.output_weight.device)
        test = evaluate(
            shipped, tokenizer, read_split(task, task.test)
        )
        translations = test.pop("translations")
        write_lines(folder / "translations.txt", translations)
        report["test"] = test
    text = json.dumps(report, indent=1, ensure_ascii=False)
    write_lines(folder / "report.json", [text])
    write_card(folder)
    return report
