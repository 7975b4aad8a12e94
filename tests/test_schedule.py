"""Equation 3, Adam, the settings."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from translators import copies

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import save_checkpoint
from transformer_lib.experiment import Experiment
from transformer_lib.loss import projected_losses, smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig, adam, learning_rate
from transformer_lib.training import train


def rates_of(**settings):
    """The learning rates of a training run, for d_model 16."""
    sizes = dict(N=1, d_model=16, d_ff=16, h=2)
    model = Transformer(TransformerConfig(12, **sizes))
    config = TrainingConfig(log_every=1, **settings)
    history = train(model, TokenBatches(copies(), 40), config)
    return history.series("learning_rate")[1]


def test_learning_rate_is_equation_3():
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
    rates = rates_of(max_steps=9, warmup_steps=4, learning_rate_scale=0.5)
    assert rates == [0.5 * learning_rate(step, 16, 4) for step in range(1, 10)]
    for step, warmup_steps in (0, 4), (1, 0):
        with pytest.raises(ValueError, match="both count from 1"):
            learning_rate(step, 512, warmup_steps)


def test_adam_has_the_papers_constants():
    model = torch.nn.Linear(2, 2)
    optimizer = adam(model)
    assert type(optimizer) is torch.optim.Adam
    [group] = optimizer.param_groups
    assert group["betas"] == (0.9, 0.98) and group["eps"] == 1e-9
    assert group["weight_decay"] == 0 and group["fused"]
    assert not group["amsgrad"] and not group["maximize"]
    assert group["lr"] == 1  # of which a schedule gives the factor
    assert [*map(id, group["params"])] == [*map(id, model.parameters())]


def test_defaults_are_the_papers():
    config = TrainingConfig()
    assert config.label_smoothing == 0.1
    assert config.warmup_steps == 4000
    rates = [learning_rate(step, 512) for step in range(1, 9000)]
    assert rates.index(max(rates)) + 1 == 4000
    assert config.max_steps == 100_000
    assert config.betas == (0.9, 0.98) and config.epsilon == 1e-9
    assert config.accumulate == 1 and config.learning_rate_scale == 1
    assert config.clip_norm is None
    assert (config.seed, config.precision) == (0, "fp32")
    assert (config.log_every, config.validate_every) == (100, 1000)
    assert (config.checkpoint_every, config.keep_checkpoints) == (1000, 5)
    rates = [learning_rate(step, 16, 4000) for step in (1, 2, 3)]
    assert rates_of(max_steps=3) == rates
    # The same where these settings are not used, and in both presets.
    for function, *names in (
        (learning_rate, "warmup_steps"),
        (adam, "betas", "epsilon"),
        (smoothed_loss, "label_smoothing"),
        (projected_losses, "label_smoothing"),
    ):
        for name in names:
            assert default_of(function, name) == getattr(config, name)
    assert default_of(save_checkpoint, "keep") == config.keep_checkpoints
    assert default_of(TokenBatches, "tokens_per_batch") == 25_000
    for preset, steps in (Experiment.base, 100_000), (Experiment.big, 300_000):
        ours = replace(config, max_steps=steps, precision="auto")
        assert preset().training == ours
        assert preset().tokens_per_batch == 25_000


def default_of(function, name):
    return inspect.signature(function).parameters[name].default


NAN = float("nan")
WRONG = {
    "label_smoothing": (1.0, -0.1, NAN),
    "warmup_steps": (0,),
    "accumulate": (0, 2.0),
    "max_steps": (0, 2.8),
    "learning_rate_scale": (0.0, NAN, "1"),
    "betas": ((0.9,), (0.9, 0.98, 0.99), (0.9, 1.0), (-0.1, 0.9)),
    "epsilon": (-1e-9, NAN),
    "clip_norm": (0, NAN),
    "precision": ("fp16",),
    "seed": (0.5,),
    "log_every": (-1,),
    "validate_every": (-1,),
    "checkpoint_every": (-1,),
    "keep_checkpoints": (0,),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_setting_that_cannot_be_right_is_named(name):
    for value in WRONG[name]:
        with pytest.raises(ValueError, match=f"^{name}=.*: give "):
            TrainingConfig(**{name: value})


def test_what_has_no_least_number_is_greater_than_0():
    with pytest.raises(ValueError, match="give a number greater than 0$"):
        TrainingConfig(clip_norm=0)


def test_settings_that_can_just_be_right():
    edges = {
        "label_smoothing": 0.0,
        "warmup_steps": 1,
        "max_steps": 1,
        "betas": (0.0, 0.0),
        "epsilon": 0.0,
        "clip_norm": 0.5,
        "precision": "bf16",
        "log_every": 0,
        "validate_every": 0,
        "checkpoint_every": 0,
        "keep_checkpoints": 1,
    }
    assert replace(TrainingConfig(), **edges) == TrainingConfig(**edges)
