# Collected from book/training/training.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The training loop, presets, and the rows of table 3."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import (
    latest_checkpoint,
    load_checkpoint,
    read_log,
    save_checkpoint,
    write_atomically,
)
from transformer_lib.loss import hidden_states, validation_loss
from transformer_lib.model import TransformerConfig
from transformer_lib.schedule import (
    TrainingConfig,
    adam,
    pick_device,
    pick_precision,
    same_weights,
    start_workers,
    sum_over_workers,
    update,
    updates,
)

__all__ = ["History", "ROWS", "preset", "table3", "train"]


def preset(
    name: str, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """A base model and its training, as the paper or others have it.

    "tensor2tensor" is what the authors' own code came to call base,
    "annotated" the Annotated Transformer; others are a ValueError.

    Chapter: training-presets
    """
    base = partial(TransformerConfig.base, vocab_size)
    pre = dict(norm="pre", attention_dropout=0.1, relu_dropout=0.1)
    if name == "paper":
        return base(), TrainingConfig()
    if name == "tensor2tensor":
        return base(**pre), TrainingConfig(
            smoothing="others",
            warmup_steps=8000,
            learning_rate_scale=2.0,
            betas=(0.9, 0.997),
        )
    if name == "annotated":
        return base(**pre, tie="none", bias=True), TrainingConfig(
            smoothing="annotated", warmup_steps=3000, accumulate=10
        )
    raise ValueError(
        f"no preset {name!r}: paper, tensor2tensor and annotated are"
    )


ROWS = (
    "base; A: h=1; A: h=4; A: h=16; A: h=32; B: d_k=16; B: d_k=32; "
    "C: N=2; C: N=4; C: N=8; C: d_model=256; C: d_model=1024; "
    "C: d_ff=1024; C: d_ff=4096; D: dropout=0.0; D: dropout=0.2; "
    "D: label_smoothing=0.0; D: label_smoothing=0.2; "
    "E: learned positions; big"
).split("; ")


def table3(
    row: str, vocab_size: int
) -> tuple[TransformerConfig, TrainingConfig]:
    """The model and training of one row of table 3, section 6.2.

    An unknown row is a ValueError that lists all.

    Chapter: training-table3
    """
    if row not in ROWS:
        known = "; ".join(ROWS)
        raise ValueError(
            f"no row {row!r} in table 3; choose from: {known}"
        )
    model, training = (
        TransformerConfig.base(vocab_size),
        TrainingConfig(),
    )
    name, _, value = row[3:].partition("=")
    if row == "big":
        model = TransformerConfig.big(vocab_size)
        training = replace(training, max_steps=300_000, average=20)
    elif row.startswith("E"):
        model = replace(model, positions="learned")
    elif name == "label_smoothing":
        training = replace(training, label_smoothing=float(value))
    elif value:
        number = float(value) if "." in value else int(value)
        model = replace(model, **{name: number})
    return model, training


@dataclass
class History:
    """What a run logged, a dict a line; `finished` with its steps.

    Chapter: training-record
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which `name` was logged, and its values."""
        lines = [line for line in self.lines if name in line]
        return [row["step"] for row in lines], [
            row[name] for row in lines
        ]


class _Recorder:
    """Log, progress bar and clock; only the first worker writes."""

    def __init__(self, folder: Path | None, state: dict, first: bool):
        self.state, self.first = state, first
        self.lines = read_log(folder, state["step"]) if folder else []
        self.path = folder / "log.jsonl" if folder and first else None
        if self.path:
            text = "".join(json.dumps(x) + "\n" for x in self.lines)
            write_atomically(self.path, lambda x: x.write_text(text))
        hide = None if first else True  # None: shown in a terminal
        steps, start = state["settings"]["max_steps"], state["step"]
        self.bar = tqdm(total=steps, initial=start, disable=hide)
        self.mark = time.perf_counter()
        self.began = self.mark - state["seconds"]

    def add(self, sums: Tensor, rate: float, judge: Callable) -> None:
        """Log the steps since the last line: sums over tokens."""
        smoothed, plain, tokens = sums.tolist()
        speed = round(tokens / (time.perf_counter() - self.mark))
        total = self.state["tokens"] = self.state["tokens"] + int(
            tokens
        )
        line = {name: self.state[name] for name in ("step", "epoch")}
        line |= {"loss": smoothed / tokens, "nll": plain / tokens}
        line |= {"learning_rate": rate, **judge()}
        line |= {"tokens": total, "tokens_per_second": speed}
        seconds = round(time.perf_counter() - self.began, 2)
        self.state["seconds"] = line["seconds"] = seconds
        self.lines.append(line)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")
        self.bar.update(line["step"] - self.bar.n)
        self.bar.set_postfix(nll=f"{line['nll']:.3f}")
        self.mark = time.perf_counter()

    def late(self) -> bool:
        """Whether any worker's clock has passed `max_minutes`."""
        settings = self.state["settings"]
        limit = settings["max_minutes"] or math.inf
        passed = time.perf_counter() - self.began >= 60 * limit
        if (
            settings["max_minutes"] is None
            or settings["workers"] == 1
        ):
            return passed
        flag = torch.tensor(float(passed)).to(settings["device"])
        sum_over_workers([flag])
        return bool(flag)


_FREE = (
    "max_steps max_minutes compile device log_every validate_every "
    "checkpoint_every keep_checkpoints average"
).split()


def _resume(
    folder: Path | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Where to start: the newest checkpoint, or the beginning."""
    path = latest_checkpoint(folder) if folder else None
    if path is None:
        start = dict.fromkeys("step epoch position tokens".split(), 0)
        return start | {"seconds": 0.0, "settings": settings}
    state = load_checkpoint(path, model, optimizer)
    for name, now in settings.items():
        then = state["settings"].get(name)
        if name not in _FREE and json.dumps(then) != json.dumps(now):
            raise ValueError(
                f"{path} is of a run with {name}={then}, this one "
                f"has {now}: give that value, or an empty folder"
            )
    return state | {"settings": settings}


def _judge(
    model: nn.Module,
    evaluate: Callable | TokenBatches | None,
    step: int,
) -> dict[str, Any]:
    """What `evaluate` finds, without dropout and gradients."""
    if isinstance(evaluate, TokenBatches):
        return {"validation_loss": validation_loss(model, evaluate)}
    model.eval()
    with torch.no_grad():
        found = evaluate(model, step) if evaluate else {}
    model.train()
    return found


def _loop(model, optimizer, groups, config, record, evaluate, how):
    """Update, log, judge and save until steps or minutes are up."""
    c, state, sums = config, record.state, 0
    over = state["step"] >= c.max_steps or record.late()
    while not over:
        group, place = next(groups)
        step = state["step"] + 1
        state |= place | {"step": step}
        sums += update(model, optimizer, group, step, c, **how)
        over = step >= c.max_steps or record.late()
        log, judge, save = (
            over or (every > 0 and step % every == 0)
            for every in (
                c.log_every,
                c.validate_every,
                c.checkpoint_every,
            )
        )
        if log or judge or save:
            ask = evaluate if judge and record.first else None
            rate = optimizer.param_groups[0]["lr"]
            record.add(sums, rate, partial(_judge, model, ask, step))
            sums = 0
        if save and record.path:
            folder, keep = record.path.parent, c.keep_checkpoints
            save_checkpoint(
                folder, step, model, optimizer, state, keep
            )


def train(
    model: nn.Module,
    batches: TokenBatches,
    training_config: TrainingConfig,
    evaluate: Callable | TokenBatches | None = None,
    folder: str | Path | None = None,
) -> History:
    """Train to `max_steps` or `max_minutes`, or go on with a run.

    Args:
        evaluate: called as evaluate(model, step), without dropout and
            gradients, every `validate_every` steps and at the end;
            the numbers it returns join the log. Batches stand for
            their `validation_loss`.
        folder: for log.jsonl and checkpoints; a run that was stopped
            goes on as if it had not been.

    No batches, or a folder of another run, are a ValueError.

    Chapter: training-loop
    """
    config, folder = training_config, Path(folder) if folder else None
    if len(batches) == 0:
        raise ValueError("there is nothing to train on: no batches")
    rank, workers, name = start_workers(config.device)
    device = pick_device(name)
    bf16 = pick_precision(device, config.precision) == "bf16"
    how = {"rank": rank, "bf16": bf16}
    if config.compile:
        how["forward"] = torch.compile(hidden_states, dynamic=True)
    model.to(device).train()
    optimizer = adam(model, config.betas, config.epsilon)
    same_weights(model, rank)
    settings = asdict(config) | {"device": name, "workers": workers}
    settings["batches"] = len(batches)
    state = _resume(folder, model, optimizer, settings)
    record = _Recorder(folder, state, rank == 0)
    place = state["epoch"], state["position"]
    groups = updates(batches, config.accumulate, *place)
    _loop(model, optimizer, groups, config, record, evaluate, how)
    record.bar.close()
    model.eval()
    return History(record.lines, state["step"] >= config.max_steps)
