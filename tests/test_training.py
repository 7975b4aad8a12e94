"""Training: the paper's loop, resumed, stopped, shared out, refused."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import chain, count

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from translators import copies, equal

from transformer_lib.batching import TokenBatches, collate
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    save_checkpoint,
)
from transformer_lib.cli import main
from transformer_lib.loss import validation_loss
from transformer_lib.model import Transformer, TransformerConfig, evaluating
from transformer_lib.schedule import TrainingConfig, adam, learning_rate
from transformer_lib.training import train, worker
from transformer_lib.translator import Translator

QUICK = TrainingConfig(
    max_steps=12, warmup_steps=10, log_every=3, checkpoint_every=4
)
CONFIG = TransformerConfig.tiny(12, N=1, d_model=32, d_ff=64, h=2)


def small(model=Transformer, **changes):
    torch.manual_seed(0)
    return model(replace(CONFIG, **changes))


def batches(**settings):
    return TokenBatches(copies(), tokens_per_batch=40, **settings)


def untimed(history):
    return [
        {k: v for k, v in line.items() if k != "seconds"}
        for line in history.lines
    ]


def steps_of(folder):
    return [int(path.stem[-8:]) for path in checkpoint_files(folder)]


# The loop


class SeededByItsBatch(Transformer):
    """Dropout depends on the batch alone, whoever calls the model."""

    def hidden(self, source_ids, target_ids):
        torch.manual_seed(int(source_ids.sum()))
        return super().hidden(source_ids, target_ids)


def plain_loop(model, data, optimizers, factors):
    """Section 5 in PyTorch's own words, a batch a step."""
    own = [one.param_groups[0]["lr"] for one in optimizers]
    stream = chain.from_iterable(map(data.epoch, count()))
    for factor, batch in zip(factors, stream, strict=False):
        logits = model(batch.source_ids, batch.target_ids)
        loss = cross_entropy(
            logits.flatten(0, 1),
            batch.labels.flatten(),
            ignore_index=0,
            label_smoothing=0.1,
        )
        model.zero_grad()
        loss.backward()
        for optimizer, rate in zip(optimizers, own, strict=True):
            optimizer.param_groups[0]["lr"] = rate * factor
            optimizer.step()


def test_training_is_the_papers_loop():
    """Dropout, smoothing, Adam, warm-up: the weights of a plain loop.

    Validations in between change nothing.
    """
    ours, theirs = (small(SeededByItsBatch, N=2).double() for _ in range(2))
    assert ours.config.norm == "post" and ours.config.dropout == 0.1
    data = batches()
    config = replace(QUICK, max_steps=len(data) + 9, validate_every=1)
    train(ours, data, config, evaluate=lambda model, step: {})
    steps, ramp = range(1, config.max_steps + 1), config.warmup_steps**-1.5
    rates = [32**-0.5 * min(step**-0.5, step * ramp) for step in steps]
    optimizer = torch.optim.Adam(theirs.parameters(), 1.0, (0.9, 0.98), 1e-9)
    plain_loop(theirs, data, [optimizer], rates)
    same = dict(atol=1e-9, rtol=0)
    assert_close(ours.state_dict(), theirs.state_dict(), **same)


def test_dropout_of_a_step_is_its_own_and_the_callers_dice_stay():
    dice = torch.get_rng_state()
    losses = []
    for seed, dropout in ((0, 0.5), (0, 0.5), (1, 0.5), (1, 0.0)):
        model = small(dropout=dropout)
        torch.set_rng_state(dice)
        config = replace(QUICK, max_steps=1, seed=seed)
        history = train(model, batches(), config)
        assert torch.equal(torch.get_rng_state(), dice)
        losses.append(history.lines[-1]["loss"])
    assert losses[0] == losses[1] and len(set(losses)) == 3


class InTwoBatches(TokenBatches):
    """Every epoch the same two batches, of 1 and of 5 pairs."""

    def epoch(self, number, start=0):
        yield from [collate(self.pairs[:1]), collate(self.pairs[1:])][start:]

    def __len__(self):
        return 2


def test_accumulated_batches_weigh_by_their_tokens():
    """Two batches a step are one batch that holds both."""
    pairs = copies(6, seed=3)
    whole = TokenBatches(pairs, 1000)
    found = []
    for data, accumulate in (whole, 1), (InTwoBatches(pairs, 1000), 2):
        assert len(data) == accumulate
        model = small(dropout=0.0).double()
        config = replace(QUICK, accumulate=accumulate, max_steps=2)
        train(model, data, config)
        found.append(torch.cat([w.flatten() for w in model.parameters()]))
    assert torch.allclose(*found, atol=1e-9)


def test_gradients_that_a_reader_left_are_not_followed():
    fresh, used = small(dropout=0.0), small(dropout=0.0)
    used(torch.tensor([[5, 3]]), torch.tensor([[2, 6]])).sum().backward()
    for model in (fresh, used):
        train(model, batches(), replace(QUICK, max_steps=2))
        assert all(weight.grad is None for weight in model.parameters())
    assert equal(fresh, used)


def test_clipping_shortens_the_gradient():
    moved = []
    for limit in (None, 1e-12):
        model, start = small(), small()
        config = replace(QUICK, max_steps=1, clip_norm=limit, epsilon=1.0)
        train(model, batches(), config)
        pairs = zip(model.parameters(), start.parameters(), strict=True)
        moved.append(sum((a - b).abs().sum() for a, b in pairs))
    assert moved[1] < 1e-6 * moved[0]


def test_bf16_reaches_about_the_loss_of_fp32():
    nll = {}
    for precision in ("fp32", "bf16"):
        config = replace(QUICK, max_steps=60, precision=precision)
        model = small(dropout=0.0)
        nll[precision] = train(model, batches(), config).lines[-1]["nll"]
        assert model.output_weight.dtype == torch.float32
    assert nll["bf16"] != nll["fp32"]
    assert abs(nll["bf16"] / nll["fp32"] - 1) < 0.1


def test_a_compiled_model_is_trained_compiled(tmp_path):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    plain, compiled = small(), torch.compile(small(), backend=backend)
    for model, folder in (plain, "plain"), (compiled, "compiled"):
        train(model, batches(), QUICK, folder=tmp_path / folder)
    assert graphs and equal(plain, compiled)
    # its checkpoints are a plain model's
    more = replace(QUICK, max_steps=14)
    train(small(), batches(), more, folder=tmp_path / "compiled")
    mean = average_checkpoints(checkpoint_files(tmp_path / "compiled"))
    plain.load_state_dict(mean)


# What is written down


def test_log_lines(tmp_path):
    def evaluate(model, step):
        assert not model.training and not torch.is_grad_enabled()
        scores = {"bleu": torch.tensor(float(step)), "f": torch.nan}
        return scores | {"loss": 7, "epoch": 99}

    data = batches()
    often = dict(validate_every=5, checkpoint_every=0, accumulate=2)
    config = replace(QUICK, **often)
    model = small(dropout=0.0)
    history = train(model, data, config, evaluate, tmp_path)
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").open()]
    assert lines == history.lines
    assert [x["step"] for x in lines] == [3, 5, 6, 9, 10, 12]
    assert len(data) < 24  # so that there is a second epoch
    epochs = [(2 * x["step"] - 1) // len(data) for x in lines]
    assert [x["epoch"] for x in lines] == epochs
    assert history.series("bleu") == ([5, 10, 12], [5.0, 10.0, 12.0])
    assert history.series("f")[1] == [None] * 3  # JSON has no NaN
    # names that the log has already
    assert history.series("validation_loss")[1] == [7, 7, 7]
    assert history.series("validation_epoch")[1] == [99, 99, 99]
    assert len(data) > 5
    first = [b for b, _ in zip(data.epoch(0), range(6), strict=False)]
    assert lines[0]["tokens"] == sum(b.tokens for b in first)
    assert lines[0]["learning_rate"] == 32**-0.5 * 3 * 10**-1.5
    assert steps_of(tmp_path) == [12]  # at the end


def test_what_evaluate_may_be():
    held_out = batches(shuffle=False)
    config = replace(QUICK, validate_every=0)
    model = small()
    history = train(model, batches(), config, held_out)
    loss = pytest.approx(validation_loss(model, held_out))
    assert history.series("validation_loss") == ([12], [loss])
    history = train(small(), batches(), config, lambda model, step: None)
    plain = train(small(), batches(), config)
    assert untimed(history) == untimed(plain)
    history = train(small(), batches(), config, lambda model, step: 0.0)
    assert history.series("validation") == ([12], [0.0])


def test_a_line_of_pythons_logging(caplog, tmp_path):
    caplog.set_level("INFO", logger="transformer_lib.training")
    train(small(), batches(), replace(QUICK, max_steps=4), folder=tmp_path)
    train(small(), batches(), QUICK, folder=tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("step 3: nll ") and len(said) == 6
    assert said[2] == "going on at step 4"


# Stopped, and on


class Signalling(TokenBatches):
    """A signal comes while the last of so many batches is fetched."""

    taken, last, sent = 0, 2, signal.SIGTERM

    def epoch(self, number, start=0):
        for batch in super().epoch(number, start):
            self.taken += 1
            if self.taken == self.last:
                signal.raise_signal(self.sent)
            yield batch


def interrupted(folder, config, step, number=signal.SIGINT):
    """A training that is sent a signal while it takes a step."""
    data = Signalling(copies(), tokens_per_batch=40)
    data.last, data.sent = step * config.accumulate, number
    with pytest.raises(KeyboardInterrupt):
        train(small(), data, config, folder=folder)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_stopped_training_goes_on_to_the_same_end(tmp_path, accumulate):
    config = replace(QUICK, accumulate=accumulate)
    whole = small()
    history = train(whole, batches(), config, folder=tmp_path / "whole")
    assert 12 * accumulate % len(batches())
    folder = tmp_path / "broken"
    handlers = signal.getsignal(signal.SIGTERM)
    interrupted(folder, config, 2)  # before any checkpoint was due
    assert steps_of(folder) == [2]
    torch.rand(3)  # other random numbers than before
    with open(folder / "log.jsonl", "a") as file:  # then killed
        file.write('{"step": 99, "nll": 1.0}\n{"step": 1')
    (folder / "checkpoint-00000003-best.pt").write_text("a reader's copy")
    interrupted(folder, config, 5, signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == handlers
    part = small()
    broken = train(part, batches(), config, folder=folder)
    assert equal(whole, part) and untimed(broken) == untimed(history)
    # what a stop left between two is not in the mean of the last
    for place in tmp_path / "whole", folder:
        assert steps_of(place) == [4, 8, 12]
    again = small()
    finished = train(again, batches(), config, folder=folder)
    assert equal(whole, again) and untimed(finished) == untimed(history)
    lines = (folder / "log.jsonl").read_text().splitlines()
    assert [json.loads(x)["step"] for x in lines] == [3, 6, 9, 12]


def test_a_signal_during_the_last_validation_is_obeyed(tmp_path):
    def evaluate(model, step):
        os.kill(os.getpid(), signal.SIGTERM)

    config = replace(QUICK, validate_every=0)
    with pytest.raises(KeyboardInterrupt):
        train(small(), batches(), config, evaluate, tmp_path)
    history = train(small(), batches(), config, None, tmp_path)
    assert history.lines[-1]["step"] == 12


@pytest.mark.parametrize("at", [5, 12])
def test_a_validation_that_fails_loses_nothing(tmp_path, at):
    """The step is saved; the next call begins with the validation."""
    failing = at

    def evaluate(model, step):
        if step == failing:
            raise OSError("the reference is gone")
        return {"at": step}

    config = replace(QUICK, validate_every=5, checkpoint_every=0)
    whole = small()
    history = train(whole, batches(), config, lambda _, step: {"at": step})
    model = small()
    with pytest.raises(OSError, match="reference"):
        train(model, batches(), config, evaluate, tmp_path)
    assert steps_of(tmp_path) == [at]
    failing, part = None, small()
    again = train(part, batches(), config, evaluate, tmp_path)
    assert equal(part, whole) and untimed(again) == untimed(history)


def test_a_run_may_be_longer_and_told_otherwise(tmp_path):
    train(small(), batches(), QUICK, folder=tmp_path)
    free = replace(QUICK, log_every=1, max_steps=13)
    history = train(small(), batches(), free, folder=tmp_path)
    assert history.lines[-1]["seconds"] >= history.lines[-2]["seconds"]
    untouched = small()
    with pytest.raises(ValueError, match="beyond step 12"):
        train(untouched, batches(), QUICK, folder=tmp_path)
    assert equal(untouched, small())


def adamw(model, lr=1e-3, **how):
    return torch.optim.AdamW(model.parameters(), lr, **how)


def turned(model):
    """AdamW with the two stacks in the other order."""
    first, *rest = [*model.parameters()]
    return torch.optim.AdamW([*rest, first], 1e-3)


def papers(model):
    """The optimizer that `train` makes itself."""
    return None


def untied():
    model = small()
    weight = model.pre_softmax.weight.detach().clone()
    model.pre_softmax.weight = torch.nn.Parameter(weight)
    return model


def half_frozen():
    model = small()
    model.encoder.requires_grad_(False)
    return model


def go_on(folder, steps, model, optimizer=adamw, pairs=0, budget=40, **how):
    schedule = how.pop("schedule", None)
    train(
        model,
        TokenBatches(copies(seed=pairs), budget),
        replace(QUICK, max_steps=steps, **how),
        folder=folder,
        optimizer=optimizer(model),
        schedule=schedule,
    )


@pytest.mark.parametrize(
    ("build", "then", "words"),
    [
        (small, {"seed": 1}, "seed was 0, is 1"),
        (small, {"optimizer": papers}, "optimizers was AdamW, is Adam"),
        (small, {"optimizer": partial(adamw, lr=1.0)}, "was 0.001, is 1.0"),
        (
            small,
            {"optimizer": partial(adamw, weight_decay=0.1)},
            "optimizer.weight_decay was 0.01, is 0.1",
        ),
        (small, {"optimizer": turned}, "weights was source_emb.* is encoder"),
        (small, {"schedule": lambda _: 0.5}, "step 1 was 0.001, is 0.0005"),
        (small, {"budget": 50}, "tokens_per_batch was 40, is 50$"),
        (small, {"pairs": 9}, "the pairs are not the same"),
        (lambda: small().double(), {}, "dtype was torch.float64, is"),
        (untied, {}, "was pre_softmax.weight, is nothing"),
        (half_frozen, {}, "frozen was encoder.*, is nothing"),
        (partial(small, SeededByItsBatch), {}, "class was Seeded.*, is Tra"),
        (partial(small, h=4), {}, "h was 4, is 2"),
    ],
)
def test_what_the_weights_depend_on_may_not_change(
    tmp_path, build, then, words
):
    go_on(tmp_path, 4, build())
    model = small()
    with pytest.raises(ValueError, match=words):
        go_on(tmp_path, 6, model, **then)
    assert equal(model, small())  # nothing was loaded
    go_on(tmp_path, 6, build())
    assert steps_of(tmp_path) == [4, 6]


def test_the_papers_adam_may_not_change(tmp_path):
    go_on(tmp_path, 4, small(), papers)
    with pytest.raises(ValueError, match="betas"):
        go_on(tmp_path, 6, small(), papers, betas=(0.9, 0.997))


def test_the_past_of_a_schedule_is_compared_and_not_its_end(tmp_path):
    def cooling(end):
        return lambda step: min(1.0, (end - step) / 4) * 1e-3

    for end in 10, 20:
        steps = replace(QUICK, max_steps=end - 4)
        train(
            small(), batches(), steps, folder=tmp_path, schedule=cooling(end)
        )
    with pytest.raises(ValueError, match="at step 16 was 0.001, is 0.0005"):
        steps = replace(QUICK, max_steps=17)
        train(small(), batches(), steps, folder=tmp_path, schedule=cooling(18))


def test_a_checkpoint_of_ones_own_loop_is_named(tmp_path):
    model = small()
    save_checkpoint(tmp_path, model, adam(model), {"step": 3})
    with pytest.raises(ValueError, match="00000003.pt was not written by"):
        train(model, batches(), QUICK, folder=tmp_path)


def test_a_schedulers_signals_save(tmp_path):
    for name in "SIGHUP SIGUSR1 SIGUSR2 SIGXCPU".split():
        number = getattr(signal, name)
        folder = tmp_path / str(number)
        before = signal.signal(number, signal.SIG_DFL)  # nohup ignores one
        try:
            interrupted(folder, QUICK, 2, number)
            assert signal.getsignal(number) == signal.SIG_DFL
        finally:
            signal.signal(number, before)
        assert steps_of(folder) == [2]


def test_a_handler_of_the_callers_stays():
    seen = []

    def mine(number, frame):
        seen.append(number)

    data = Signalling(copies(), tokens_per_batch=40)
    for handler in mine, signal.SIG_IGN:
        before = signal.signal(signal.SIGHUP, handler)
        data.taken, data.sent = 0, signal.SIGHUP
        try:
            train(small(), data, QUICK)
            assert signal.getsignal(signal.SIGHUP) == handler
        finally:
            signal.signal(signal.SIGHUP, before)
    assert seen == [signal.SIGHUP]


def test_what_evaluate_returns_loses_nothing(tmp_path):
    config = replace(QUICK, validate_every=5, checkpoint_every=0)
    with pytest.raises(TypeError, match="not 'set'"):
        train(small(), batches(), config, lambda *_: {"a": {1}}, tmp_path)
    assert steps_of(tmp_path) == [5]


# An optimizer of one's own


def test_our_adam_trains_by_the_papers_schedule():
    usual, given, told = small(), small(), small()
    train(usual, batches(), QUICK)
    train(given, batches(), QUICK, optimizer=adam(given))

    def equation_3(step):
        return learning_rate(step, 32, QUICK.warmup_steps)

    optimizer = adam(told)
    train(told, batches(), QUICK, optimizer=optimizer, schedule=equation_3)
    assert equal(usual, given) and equal(usual, told)
    assert not equal(usual, small())


def one_optimizer(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def two_optimizers(model):
    rest = [*model.decoder.parameters(), model.output_weight]
    rest.append(torch.nn.Parameter(torch.zeros(2), False))  # nobody's
    sgd = torch.optim.SGD(model.encoder.parameters(), lr=0.1, momentum=0.9)
    return [sgd, torch.optim.AdamW(rest, lr=2e-3)]


@pytest.mark.parametrize("make", [one_optimizer, two_optimizers])
@pytest.mark.parametrize("schedule", [None, lambda step: step / 8])
def test_optimizers_keep_their_rates_or_follow_a_schedule(make, schedule):
    config = replace(QUICK, max_steps=5, log_every=1)
    factors = [schedule(step) if schedule else 1 for step in range(1, 6)]
    ours, theirs = small(dropout=0.0), small(dropout=0.0)
    optimizers = make(ours)
    own = [one.param_groups[0]["lr"] for one in optimizers]
    given = optimizers if len(optimizers) > 1 else optimizers[0]
    history = train(
        ours, batches(), config, optimizer=given, schedule=schedule
    )
    plain_loop(theirs, batches(), make(theirs), factors)
    assert_close(ours.state_dict(), theirs.state_dict())
    rates = history.series("learning_rate")[1]
    assert rates == [own[0] * factor for factor in factors]
    assert [one.param_groups[0]["lr"] for one in optimizers] == own


def test_a_schedule_alone_is_the_rate_of_the_papers_adam():
    config = replace(QUICK, max_steps=3, log_every=1)
    history = train(small(), batches(), config, schedule=lambda step: 1e-4)
    assert history.series("learning_rate")[1] == [1e-4] * 3


def test_two_optimizers_go_on_from_a_checkpoint(tmp_path):
    def cooling(step):
        return 1 - step / 12

    models = [small(), small()]
    for model, stops in zip(models, ([12], [5, 12]), strict=True):
        for steps in stops:
            train(
                model,
                batches(),
                replace(QUICK, max_steps=steps),
                folder=tmp_path / str(len(stops)),
                optimizer=two_optimizers(model),
                schedule=cooling,
            )
    assert equal(*models)


def test_frozen_weights_stay():
    model, start = small(), small()
    model.encoder.requires_grad_(False)
    train(model, batches(), QUICK)
    assert equal(model.encoder, start.encoder)
    assert not equal(model.decoder, start.decoder)
    # tied to the decoder's and the output's, so not the encoder's own
    assert not torch.equal(model.output_weight, start.output_weight)


# What is put back, and what is refused


def test_modes_are_the_callers_again():
    model = small()
    model.encoder.eval()
    train(model, batches(), QUICK)
    assert model.training and not model.encoder.training
    model.eval()

    def fails(model, step):
        raise OSError

    with pytest.raises(OSError):
        train(model, batches(), QUICK, fails)
    assert not any(module.training for module in model.modules())


def test_what_is_the_process_own_stays_as_it_is():
    """Its variables, and how PyTorch computes, also while it trains."""

    def settings():
        return (
            dict(os.environ),
            torch.get_float32_matmul_precision(),
            torch.get_num_threads(),
            torch.backends.mkldnn.enabled,
        )

    before, seen = settings(), []
    config = replace(QUICK, precision="bf16")
    train(small(), batches(), config, lambda *_: seen.append(settings()))
    assert seen == [before] and settings() == before


def test_a_training_takes_its_model_over():
    """From a thread that translates with it, however long that takes."""
    model = small()
    used = evaluating(model)
    with ThreadPoolExecutor(1) as other:
        other.submit(used.__enter__).result()
        assert len(train(model, batches(), QUICK).lines) > 0
        other.submit(used.__exit__, None, None, None).result()


def test_a_thread_may_train():
    main, other = small(), small()
    history = train(main, batches(), QUICK)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(train, other, batches(), QUICK).result()
    assert untimed(found) == untimed(history) and equal(main, other)


@pytest.mark.parametrize(
    ("step", "said"),
    [(6, "is nan by step 8: lower"), (8, "w_1.* at step 8, so no")],
)
def test_what_is_no_number_is_not_saved(tmp_path, step, said):
    """At step 8 the loss is finite when the weights are NaN already."""
    good, model, calls = small(), small(), count(1)

    def spoil(gradient):
        return gradient / 0 if next(calls) == step else gradient

    weight = model.encoder.layers[0].feed_forward.w_1.weight
    handle = weight.register_hook(spoil)
    quiet = replace(QUICK, log_every=0)
    with pytest.raises(FloatingPointError, match=said):
        train(model, batches(), quiet, folder=tmp_path)
    assert steps_of(tmp_path) == [4]
    handle.remove()
    train(model, batches(), QUICK, folder=tmp_path)
    train(good, batches(), QUICK)
    assert equal(good, model)


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr)


def frozen():
    return small().requires_grad_(False)


def hooked():
    model = small()
    model.register_forward_hook(lambda _, given, out: out / 2)
    return model


class OwnForward(Transformer):
    def forward(self, source_ids, target_ids):
        return super().forward(source_ids, target_ids) / 2


MODEL = small()
PART = torch.optim.SGD(MODEL.encoder.parameters(), lr=0.1)
COOLING = torch.optim.lr_scheduler.LambdaLR(sgd(MODEL), lambda step: 1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batches": copies()}, "a list is no TokenBatches"),
        ({"batches": None}, "a NoneType is no TokenBatches"),
        ({"batches": len}, "a builtin_function_or_method is no TokenBatches"),
        ({"evaluate": copies()}, "a list is neither TokenBatches nor a"),
        ({"evaluate": False}, "a bool is neither TokenBatches nor a"),
        ({"optimizer": sgd(small())}, "has to be in one optimizer"),
        ({"optimizer": sgd(MODEL, 0.0)}, "or all learning rates are 0"),
        ({"optimizer": [sgd(MODEL), sgd(MODEL)]}, "to be in one optimizer"),
        ({"optimizer": PART}, "has to be in one optimizer"),
        ({"model": frozen()}, "all weights are frozen"),
        ({"model": hooked()}, "gives other scores than its encode"),
        ({"model": OwnForward(MODEL.config)}, "other scores than its encode"),
        ({"schedule": lambda step: step // 4000}, "all learning rates are 0"),
        ({"schedule": lambda step: 1 - step}, "of step 7 aren't 0 or more"),
        ({"schedule": COOLING}, "a LambdaLR is neither"),
        ({"optimizer": COOLING.optimizer}, "a scheduler of PyTorch holds"),
    ],
)
def test_a_slip_is_named(given, words):
    usual = {"model": MODEL, "batches": batches(), "training_config": QUICK}
    with pytest.raises((TypeError, ValueError), match=words):
        train(**usual | given)
    assert equal(MODEL, small())


def test_a_pair_that_is_too_long_is_known_before_the_first_step(tmp_path):
    """Without it the run would be another one, and could not go on."""
    data = TokenBatches([*copies(), ([5] * 40 + [3], [5, 3])], 50)
    short = dict(positions="learned", max_length=16)
    model = small(**short)
    with pytest.raises(ValueError, match="41 positions.*shorten the text"):
        train(model, data, QUICK, folder=tmp_path)
    assert equal(model, small(**short))


def test_a_rate_below_0_is_refused_at_its_step():
    """It would climb; a rate of 0, at which nothing moves, may be meant."""
    model, rates = small(), {2: 0.0, 5: -1.0}

    def schedule(step):
        return rates.get(step, 1.0)

    with pytest.raises(ValueError, match="step 5 aren't 0 or more: .-0.1"):
        train(model, batches(), QUICK, optimizer=sgd(model), schedule=schedule)
    assert not equal(model, small())


def test_inside_no_grad_is_named():
    with torch.no_grad(), pytest.raises(ValueError, match="torch.no_grad"):
        train(small(), batches(), QUICK)


# Several workers


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory, root):
    """The folder in which two workers of torchrun have trained."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", "2"]
    path = [os.environ.get("PYTHONPATH"), str(root), str(root / "tests")]
    path = os.pathsep.join(filter(None, path))
    done = subprocess.run(
        [*command, __file__, str(folder)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def work(folder):
    """What each of the workers does."""
    rank, _ = worker()
    model = small(dropout=0.0).double()
    if rank:  # the first worker's weights are everybody's
        torch.nn.init.zeros_(model.output_weight)
    model.register_buffer("of_the_first", torch.tensor(1.0 - rank))
    config = replace(QUICK, clip_norm=0.5, accumulate=2)
    history = train(model, batches(), config)
    assert model.of_the_first == 1
    weights = {n: w.detach() for n, w in model.named_parameters()}
    save_file(weights, f"{folder}/weights-{rank}.safetensors")
    if rank == 0:
        text = json.dumps(untimed(history))
        with open(f"{folder}/lines.json", "w") as file:
            file.write(text)

    whole, part = small(), small()
    train(whole, batches(), QUICK, folder=f"{folder}/whole")
    first = replace(QUICK, max_steps=4)
    train(small(), batches(), first, folder=f"{folder}/part")
    train(part, batches(), QUICK, folder=f"{folder}/part")
    assert equal(whole, part), "resumed differs"

    # A signal to one worker stops all after the same step, and nobody
    # leaves before the first one, which is slow, has saved.
    stopping = Signalling(copies(), tokens_per_batch=40)
    stopping.last = 3 if rank else 10**6  # in the second step
    config, place = replace(QUICK, validate_every=1), f"{folder}/stopped"
    with pytest.raises(KeyboardInterrupt):
        train(small(), stopping, config, lambda *_: time.sleep(1), place)
    assert steps_of(place) == [2]

    # Workers that differ refuse, and write nothing.
    place = f"{folder}/unlike"
    other = TokenBatches(copies(seed=rank), tokens_per_batch=40)
    slower = replace(QUICK, warmup_steps=10 + rank)
    oftener = replace(QUICK, log_every=3 + rank)
    for data, config, where, said in (
        (other, QUICK, place, "the pairs are not the same"),
        (batches(), slower, place, "warmup_steps is 10 in worker 0, 11 in w"),
        (batches(), oftener, place, "log_every is 3 in worker 0, 4 in w"),
        (batches(), QUICK, f"{folder}/whole/{rank or ''}", "step is 12 in w"),
    ):
        with pytest.raises(ValueError, match=f"workers differ: .*{said}"):
            train(small(), data, config, folder=where)
    with pytest.raises(ValueError, match="rate at step 12 is 1.0 in worker 0"):
        last = 0.5 if rank else 1.0
        schedule = [*[1.0] * 12, last].__getitem__
        train(small(), batches(), QUICK, folder=place, schedule=schedule)
    assert not os.path.exists(place)

    # As after one's own init_process_group, without torchrun.
    told = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}
    assert worker() == (rank, 2)
    os.environ.update(told)

    words = "train --N 1 --d-model 32 --d-ff 64 --h 2 --vocab-size 400"
    words += " --limit 200 --tokens-per-batch 512 --device cpu --log-every 1"
    words += f" --max-steps 4 --out {folder}/cli"
    with open(f"{folder}/printed-{rank}", "w") as file, redirect_stdout(file):
        assert main(words.split()) == 0


def test_two_workers_equal_one(two_workers):
    one = small(dropout=0.0).double()
    data = batches()
    sizes = [batch.tokens for batch in data.epoch(0)]
    assert sizes[0] != sizes[1]  # a mean of means would differ
    config = replace(QUICK, clip_norm=0.5, accumulate=4)
    history = train(one, data, config)
    for rank in range(2):
        read = load_file(two_workers / f"weights-{rank}.safetensors")
        assert_close(read, dict(one.named_parameters()), atol=1e-9, rtol=0)
    lines = json.loads((two_workers / "lines.json").read_text())
    for line, wanted in zip(lines, untimed(history), strict=True):
        assert line["tokens"] == wanted["tokens"]
        for name in ("loss", "nll", "learning_rate"):
            assert abs(line[name] - wanted[name]) < 1e-9


def test_one_who_waits_for_workers_says_so(monkeypatch, caplog):
    timer = threading.Timer
    monkeypatch.setattr(
        threading, "Timer", lambda late, *told: timer(late / 50, *told)
    )

    waits = iter([0, 1])  # for late / 50, and no longer

    def never(*args, timeout):
        assert timeout.total_seconds() <= 3600
        time.sleep(next(waits))
        raise RuntimeError("1/2 clients joined")

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "init_process_group", never)
    for _ in range(2):
        assert not caplog.text
        with pytest.raises(RuntimeError, match="1/2 clients"):
            train(small(), batches(), QUICK)
    assert caplog.text.count("worker 0 waits for the other 1") == 1


def test_a_command_of_two_workers_leaves_one_run(two_workers):
    lines = (two_workers / "cli" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
    first, second = (two_workers / f"printed-{rank}" for rank in range(2))
    assert json.loads(first.read_text())["steps"] == 4
    assert not second.read_text()
    Translator.from_pretrained(two_workers / "cli").translate("Trees")


if __name__ == "__main__":
    work(sys.argv[1])
