"""Equation 3, Adam, the settings."""

import math

import pytest
import torch

from transformer_lib.schedule import (
    TrainingConfig,
    adam,
    learning_rate,
)


def test_learning_rate_is_equation_3():
    rates = [learning_rate(step, 512) for step in range(1, 20_001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert math.isclose(max(rates), (512 * 4000) ** -0.5)
    assert math.isclose(rates[1999], 2 * rates[999]), "linear"
    assert math.isclose(rates[15_999], rates[3999] / 2), "inverse root"
    assert math.isclose(learning_rate(1, 64, 100), 1 / 8000)


def test_adam_has_the_papers_constants():
    group = adam(torch.nn.Linear(2, 2)).param_groups[0]
    assert group["betas"] == (0.9, 0.98) and group["eps"] == 1e-9
    assert group["weight_decay"] == 0 and group["fused"]
    assert group["lr"] == 0


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


def test_adam_equals_the_formula():
    layer = torch.nn.Linear(3, 1, bias=False).double()
    weight = layer.weight.detach().clone()
    optimizer = adam(layer)
    optimizer.param_groups[0]["lr"] = 0.01
    m = v = 0
    for t in (1, 2):
        gradient = t * torch.tensor([[1.0, -2.0, 0.5]]).double()
        layer.weight.grad = gradient
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.98**t)
        weight -= 0.01 * m_hat / (v_hat.sqrt() + 1e-9)
    assert torch.allclose(weight, layer.weight, atol=1e-12)


def test_defaults_are_the_papers():
    config = TrainingConfig()
    assert config.label_smoothing == 0.1
    assert config.smoothing == "uniform"
    assert config.warmup_steps == 4000
    assert config.tokens_per_batch == 25_000
    assert config.max_steps == 100_000
    assert config.betas == (0.9, 0.98) and config.epsilon == 1e-9
    assert config.accumulate == 1 and config.learning_rate_scale == 1
    assert config.clip_norm is None


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
        ("clip_norm", 0.0, "above 0"),
        ("clip_norm", math.nan, "above 0"),
        ("betas", (0.9, 1.0), "from 0 to below 1"),
        ("betas", (0.9,), "two numbers"),
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
    most = TrainingConfig(accumulate=10**6, max_steps=2**63 - 1)
    assert most.accumulate == 10**6
