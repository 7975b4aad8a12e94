"""Equation 3, Adam, the settings."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from translators import copies

from transformer_lib import training
from transformer_lib.batching import TokenBatches
from transformer_lib.experiment import recipe
from transformer_lib.loss import projected_losses, smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import (
    TrainingConfig,
    adam,
    learning_rate,
)


@pytest.fixture
def trained(monkeypatch):
    """Trains by the defaults: what was logged, and the optimizer."""

    def run(**changes):
        made = []

        def noted(*arguments):
            made.append(adam(*arguments))
            return made[0]

        monkeypatch.setattr(training, "adam", noted)
        sizes = dict(N=1, d_model=16, d_ff=16, h=2)
        model = Transformer(TransformerConfig(12, **sizes))
        settings = dict(max_steps=3, log_every=1, device="cpu") | changes
        history = training.train(
            model, TokenBatches(copies(), 40), TrainingConfig(**settings)
        )
        return history, made[0]

    return run


def test_learning_rate_is_equation_3(trained):
    assert math.isclose(learning_rate(1, 64, 100), 1 / 8000)
    steps = [*range(1, 6000), *range(6000, 300_001, 50)]
    for d_model, warmup_steps in ((512, 4000), (1024, 4000), (64, 400)):
        highest = (d_model * warmup_steps) ** -0.5
        for step in steps:
            share = math.sqrt(warmup_steps / step)
            if step < warmup_steps:
                share = step / warmup_steps
            rate = learning_rate(step, d_model, warmup_steps)
            assert math.isclose(rate, share * highest)
    history, _ = trained(max_steps=9, warmup_steps=4)
    rates = [learning_rate(step, 16, 4) for step in range(1, 10)]
    assert history.series("learning_rate")[1] == rates


def test_adam_has_the_papers_constants(trained):
    model = torch.nn.Linear(2, 2)
    fresh, (_, used) = adam(model), trained()
    for optimizer in (fresh, used):
        assert type(optimizer) is torch.optim.Adam
        [group] = optimizer.param_groups
        assert group["betas"] == (0.9, 0.98) and group["eps"] == 1e-9
        assert group["weight_decay"] == 0 and group["fused"]
        assert not group["amsgrad"] and not group["maximize"]
    [group] = fresh.param_groups
    assert group["lr"] == 0
    assert [*map(id, group["params"])] == [*map(id, model.parameters())]


def test_adam_without_a_rate_is_refused():
    """Else a reader's own loop would learn nothing, and not say so."""
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    optimizer = adam(layer)
    layer(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ValueError, match="rate is 0.*set"):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()
    assert not torch.equal(layer.weight, before)


def test_defaults_are_the_papers(trained):
    config = TrainingConfig()
    assert config.label_smoothing == 0.1
    assert config.smoothing == "uniform"
    assert config.warmup_steps == 4000
    assert config.tokens_per_batch == 25_000
    assert config.max_steps == 100_000
    assert config.betas == (0.9, 0.98) and config.epsilon == 1e-9
    assert config.accumulate == 1 and config.learning_rate_scale == 1
    assert config.clip_norm is None
    # The same where these settings are not used, and in both presets.
    for function, *names in (
        (learning_rate, "warmup_steps"),
        (adam, "betas", "epsilon"),
        (smoothed_loss, "label_smoothing", "smoothing"),
        (projected_losses, "label_smoothing", "smoothing"),
        (TokenBatches, "tokens_per_batch"),
    ):
        for name in names:
            usual = inspect.signature(function).parameters[name].default
            assert usual == getattr(config, name)
    here = dict(device="cpu", precision="fp32")
    for preset, steps in (("base", 100_000), ("big", 300_000)):
        _, settings = recipe(preset, 300, 5, here)
        assert settings == replace(config, max_steps=steps, device="cpu")
    history, optimizer = trained()
    rates = [learning_rate(step, 16, 4000) for step in (1, 2, 3)]
    assert history.series("learning_rate") == ([1, 2, 3], rates)
    [group] = optimizer.param_groups
    assert group["betas"] == config.betas and group["eps"] == config.epsilon


@pytest.mark.parametrize(
    "name, value, wanted",
    [
        ("accumulate", 0, "number from 1 to 1000000$"),
        ("accumulate", 10**6 + 1, "number from 1 to 1000000$"),
        ("warmup_steps", 10.5, f"from 1 to {2**63 - 1}$"),
        ("tokens_per_batch", -1, "number from 1"),
        ("max_steps", 0, "number from 1"),
        ("max_steps", 2**63, "number from 1"),
        ("keep_checkpoints", 0, "number from 1"),
        ("log_every", -1, "number from 0"),
        ("label_smoothing", 2.0, "0 <= share < 1"),
        ("smoothing", "odd", "uniform or others"),
        ("precision", "auto", "fp32 or bf16"),
        ("learning_rate_scale", math.nan, "above 0"),
        ("learning_rate_scale", math.inf, "a finite number"),
        ("learning_rate_scale", -1, "above 0"),
        ("epsilon", 0, "above 0"),
        ("epsilon", np.float32(1e-9), "above 0"),  # no number of Python's
        ("clip_norm", 0.0, "above 0"),
        ("clip_norm", math.nan, "above 0"),
        ("betas", (0.9, 1.0), "from 0 to below 1"),
        ("betas", (0.9,), "two numbers"),
        ("betas", 0.9, "two numbers"),
        ("betas", ("0.9", 0.98), "two numbers"),
        ("label_smoothing", "0.1", "0 <= share < 1"),
        ("label_smoothing", np.float32(0.1), "0 <= share < 1"),
        ("device", torch.device("cpu"), "its name"),  # no JSON holds it
    ],
)
def test_settings_are_checked(name, value, wanted):
    with pytest.raises(ValueError, match=f"{name}=.*give.*{wanted}"):
        TrainingConfig(**{name: value})


def test_the_least_and_the_most_are_taken():
    least = dict(log_every=0, validate_every=0, checkpoint_every=0, seed=0)
    least |= dict(accumulate=1, max_steps=1, warmup_steps=1)
    least |= dict(betas=(0, 0), keep_checkpoints=1, tokens_per_batch=1)
    assert TrainingConfig(**least).seed == 0
    most = TrainingConfig(
        accumulate=10**6, max_steps=2**63 - 1, precision="bf16"
    )
    assert most.accumulate == 10**6
