"""Equation 3, Adam, the settings."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from translators import copies

from transformer_lib import training
from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import save_checkpoint
from transformer_lib.experiment import Experiment
from transformer_lib.loss import projected_losses, smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig, adam, learning_rate


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
        settings = dict(max_steps=3, log_every=1) | changes
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
    history, _ = trained(max_steps=9, warmup_steps=4, learning_rate_scale=0.5)
    rates = [0.5 * learning_rate(step, 16, 4) for step in range(1, 10)]
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


def test_defaults_are_the_papers(trained):
    config = TrainingConfig()
    assert config.label_smoothing == 0.1
    assert config.smoothing == "uniform"
    assert config.warmup_steps == 4000
    assert config.max_steps == 100_000
    assert config.betas == (0.9, 0.98) and config.epsilon == 1e-9
    assert config.accumulate == 1 and config.learning_rate_scale == 1
    assert config.clip_norm is None
    assert (config.seed, config.precision) == (0, "fp32")
    assert (config.log_every, config.validate_every) == (100, 1000)
    assert (config.checkpoint_every, config.keep_checkpoints) == (1000, 5)
    # The same where these settings are not used, and in both presets.
    for function, *names in (
        (learning_rate, "warmup_steps"),
        (adam, "betas", "epsilon"),
        (smoothed_loss, "label_smoothing", "smoothing"),
        (projected_losses, "label_smoothing", "smoothing"),
    ):
        for name in names:
            usual = inspect.signature(function).parameters[name].default
            assert usual == getattr(config, name)
    keep = inspect.signature(save_checkpoint).parameters["keep"].default
    assert keep == config.keep_checkpoints
    default = inspect.signature(TokenBatches).parameters["tokens_per_batch"]
    assert default.default == 25_000
    for preset, steps in (("base", 100_000), ("big", 300_000)):
        made = getattr(Experiment, preset)()
        assert made.training == replace(config, max_steps=steps)
        assert made.tokens_per_batch == 25_000
    history, optimizer = trained()
    rates = [learning_rate(step, 16, 4000) for step in (1, 2, 3)]
    assert history.series("learning_rate") == ([1, 2, 3], rates)
    [group] = optimizer.param_groups
    assert group["betas"] == config.betas and group["eps"] == config.epsilon


WRONG = dict(accumulate=0, warmup_steps=0, label_smoothing=1.0, clip_norm=0)
WRONG |= dict(smoothing="odd", precision="auto", learning_rate_scale=0.0)


@pytest.mark.parametrize("name", WRONG)
def test_a_setting_that_cannot_be_right_is_named(name):
    with pytest.raises(ValueError, match=f"^{name} cannot be .*{WRONG[name]}"):
        TrainingConfig(**{name: WRONG[name]})


def test_settings_that_can_just_be_right():
    edges = dict(label_smoothing=0.0, smoothing="others", warmup_steps=1)
    edges |= dict(precision="bf16")
    assert vars(TrainingConfig(**edges)) == vars(TrainingConfig()) | edges
