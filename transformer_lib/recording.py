# Collected from book/results/recording.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""A training from its sentences to its record, in one folder."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoints,
    load_model,
    read_log,
    save_model,
)
from transformer_lib.evaluation import bleu, evaluate
from transformer_lib.loss import (
    accumulate_gradients,
    hidden_states,
    perplexity,
    validation_loss,
)
from transformer_lib.model import Transformer
from transformer_lib.runs import (
    machine,
    peak_memory,
    write_lines,
    write_report,
)
from transformer_lib.schedule import (
    TrainingConfig,
    pick_precision,
    start_workers,
)
from transformer_lib.tasks import (
    Task,
    read_split,
    recipe,
    task_batches,
    task_tokenizer,
)
from transformer_lib.training import train
from transformer_lib.translator import Translator

__all__ = ["compile_first", "record_training"]


def _claim(
    task: Task, model: Transformer, tokenizer: Any, corpus: Any
):
    """Begin a training's folder, or see that it is this one's."""
    info = {
        "corpus": corpus.name,
        "languages": list(task.languages),
        "pieces_asked": task.vocab_size,
        "bpe_dropout": task.bpe_dropout,
        "pairs": len(corpus),
        "licence": corpus.licence,
    }
    if not Path(task.out, "config.json").is_file():
        save_model(task.out, model, tokenizer, **info)
    held, _, before = load_model(task.out)
    before = {"bpe_dropout": 0.0} | before | asdict(held.config)
    for name, now in (info | asdict(model.config)).items():
        if before[name] != now:
            raise ValueError(
                f"{task.out} holds a training with "
                f"{name}={before[name]}, not {now}: use its "
                "options, or another folder"
            )
    return info


def _minutes(task: Task, began: float) -> float | None:
    """This start's `max_minutes`, counted from the first."""
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


def compile_first(
    model: Transformer, batches: TokenBatches, config: TrainingConfig
) -> float:
    """Compile a model before its training; the seconds it took.

    Does nothing unless the configuration says `compile`. `train`
    then finds what was compiled, as it asks for the same.

    Chapter: recording-compile
    """
    if not config.compile:
        return 0.0
    began, device = time.perf_counter(), torch.device(config.device)
    model.to(device).train()
    how: dict[str, Any] = {
        "bf16": pick_precision(device, config.precision) == "bf16",
        "forward": torch.compile(hidden_states, dynamic=True),
    }
    some = sorted(batches.epoch(0), key=lambda x: x.labels.size(1))
    for batch in (some[-1], some[0], some[len(some) // 2]):
        tokens = model.output_weight.new_full((1,), batch.tokens)
        accumulate_gradients(model, [batch], tokens, **how).tolist()
    model.zero_grad(set_to_none=True)
    return time.perf_counter() - began


def _check_task(task: Task, model: Transformer | None = None):
    """Refuse what could only fail in the end."""
    if not task.out or task.changes.get("max_steps", 1) < 1:
        raise ValueError("a training needs --out FOLDER, and a step")
    if task.source_file and task.test and not task.test_source:
        raise ValueError(
            "a test on own files needs --test-source and "
            "--test-target"
        )
    if model is not None and task.most_mib is not None:
        weights = sum(x.numel() for x in model.parameters())
        mib = weights * (2 if task.half else 4) / 2**20
        if mib > task.most_mib:
            raise ValueError(
                f"this model's file would have {mib:.1f} MiB, more "
                f"than {task.most_mib:g}: lower d_model, d_ff, N or "
                "the vocabulary, save it with --half, or drop the "
                "limit"
            )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other trainings out of a folder as long as this lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        raise ValueError(
            f"another training writes to {folder}: name a new one"
        ) from None
    with held:
        yield
        (folder / ".lock").unlink()


def record_training(task: Task, command: str = "") -> dict | None:
    """Train into a folder, or go on there; leave a record behind.

    The folder gets config, tokenizer, log, checkpoints and, when
    steps or minutes are used up, the averaged model, report and card.
    Every worker of `torchrun` calls this. A folder that holds another
    training, or to which one writes now, is a ValueError.

    Returns the report, or None for a worker that is not the first.

    Chapter: recording-whole
    """
    _check_task(task)
    began = time.monotonic()
    rank, workers, device = start_workers(task.changes.get("device"))
    with nullcontext() if rank else _alone_in(Path(task.out)):
        corpus = read_split(task, "train")
        if rank:  # the first worker begins the folder
            torch.distributed.barrier()
        tokenizer = task_tokenizer(task, corpus)
        config, training = recipe(task, len(tokenizer))
        torch.manual_seed(training.seed)
        model = Transformer(config)
        _check_task(task, model)
        info = _claim(task, model, tokenizer, corpus)
        if workers > 1 and not rank:
            torch.distributed.barrier()
        batches = task_batches(
            task, corpus, tokenizer, training, rank, workers
        )
        compiled = compile_first(
            model, batches, replace(training, device=device)
        )
        judge = _judge(task, tokenizer)
        limited = replace(
            training, device=device, max_minutes=_minutes(task, began)
        )
        train(model, batches, limited, judge, task.out)
        if rank:
            return None
        task.changes["device"] = device
        spent = {
            "compile_seconds": round(compiled, 2),
            "peak_memory_mib": round(peak_memory(device) / 2**20, 1),
        }
        return _finish(
            task, model, tokenizer, info, judge, command, spent
        )


def _last_tenth(folder: str | Path, average: int) -> list[Path]:
    """The last checkpoints, all from the last tenth of steps."""
    paths = checkpoints(folder)[-average:]
    first = 0.9 * int(paths[-1].stem[-8:])
    return [path for path in paths if int(path.stem[-8:]) > first]


@torch.no_grad()
def _averaged(task, model, tokenizer, info, judge, training) -> dict:
    """Average the last weights, save them; the result."""
    folder, last = Path(task.out), read_log(task.out)[-1]
    paths = _last_tenth(folder, training.average)
    model.load_state_dict(average_checkpoints(paths))
    save_model(folder, model, tokenizer, task.half, **info)
    found = judge(model.eval(), last["step"])
    found.pop("samples", None)
    return {
        "steps": last["step"],
        "seconds": last["seconds"],
        "target_tokens_per_second": last["tokens"] / last["seconds"],
        "averaged_checkpoints": len(paths),
        "parameters": sum(x.numel() for x in model.parameters()),
        **found,
    }


def _finish(
    task, model, tokenizer, info, judge, command, spent
) -> dict:
    """What follows the last step: average, save, evaluate, report."""
    folder, training = Path(task.out), recipe(task, len(tokenizer))[1]
    told = task, model, tokenizer, info, judge, training
    result = _averaged(*told) | spent
    weights = (folder / "model.safetensors").read_bytes()
    report = {
        "name": task.name or folder.name,
        "measures": task.measures,
        "command": command,
        "finished": result["steps"] >= training.max_steps,
        "weights_sha256": sha256(weights).hexdigest(),
        "result": result,
        "data": info,
        "model": asdict(model.config),
        "training": asdict(training),
        "machine": machine(),
    }
    if task.test:
        shipped = load_model(folder)[0].to(model.output_weight.device)
        corpus = read_split(task, task.test)
        greedy = evaluate(shipped, tokenizer, corpus, beam_size=1)
        test = evaluate(shipped, tokenizer, corpus)
        test["greedy_bleu"] = greedy["bleu"]
        translations = test.pop("translations")
        write_lines(folder / "translations.txt", translations)
        report["test"] = test
    write_report(folder, report)
    return report
