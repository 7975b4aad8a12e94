"""Equation 3, Adam, devices, the settings, and one update."""

import math

import pytest
import torch

from transformer_lib.batching import Batch, TokenBatches, collate
from transformer_lib.loss import smoothed_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import (
    TrainingConfig,
    adam,
    learning_rate,
    pick_device,
    pick_precision,
    same_weights,
    start_workers,
    sum_over_workers,
    update,
    updates,
)

PAIRS = [
    ([5, 6, 3], [7, 8, 9, 3]),
    ([5, 3], [6, 3]),
    ([9, 4, 3], [4, 4, 3]),
]


def small(**changes):
    torch.manual_seed(0)
    config = TransformerConfig.tiny(20, N=1, d_model=32, **changes)
    return Transformer(config).double()


def test_learning_rate_is_equation_3():
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        wanted = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, 512) == wanted
    rates = [learning_rate(step, 512) for step in range(1, 20_001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert math.isclose(max(rates), (512 * 4000) ** -0.5)


def test_learning_rate_is_linear_then_an_inverse_root():
    assert math.isclose(
        learning_rate(2000, 512), learning_rate(1000, 512) * 2
    )
    assert math.isclose(
        learning_rate(40_000, 512), learning_rate(10_000, 512) / 2
    )


@pytest.mark.parametrize("arguments", [(0, 512), (1, 0), (1, 512, 0)])
def test_learning_rate_counts_from_1(arguments):
    with pytest.raises(ValueError, match="count from 1"):
        learning_rate(*arguments)


def test_adam_has_the_papers_constants_and_is_fused():
    group = adam(small()).param_groups[0]
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9 and group["fused"]
    assert group["weight_decay"] == 0


def test_fused_adam_equals_the_formula():
    weight = torch.nn.Linear(3, 1, bias=False).double()
    before = weight.weight.detach().clone()
    optimizer = adam(weight)
    optimizer.param_groups[0]["lr"] = 0.01
    grads = [
        torch.tensor([[1.0, -2.0, 0.5]]).double() * k for k in (1, 3)
    ]
    m = v = 0
    for t, grad in enumerate(grads, 1):
        weight.weight.grad = grad.clone()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * grad, 0.98 * v + 0.02 * grad**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.98**t)
        before -= 0.01 * m_hat / (v_hat.sqrt() + 1e-9)
    assert torch.allclose(weight.weight, before, atol=1e-12)


def test_adam_without_a_rate_changes_nothing():
    model = small()
    before = [w.clone() for w in model.parameters()]
    optimizer = adam(model)
    sum(w.sum() for w in model.parameters()).backward()
    optimizer.step()
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)


def test_pick_device():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type in ("cuda", "mps", "cpu")
    with pytest.raises(ValueError, match="'tpu'.*cpu"):
        pick_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(
            ValueError, match="no device 'cuda:1' here"
        ):
            pick_device("cuda:1")


def test_pick_precision():
    cpu = torch.device("cpu")
    assert pick_precision(cpu) == "fp32"
    assert pick_precision(cpu, "bf16") == "bf16"
    with pytest.raises(ValueError, match="fp16.*bf16"):
        pick_precision(cpu, "fp16")


@pytest.mark.parametrize(
    "capability, name, wanted",
    [
        ((8, 0), "auto", "bf16"),
        ((7, 0), "auto", "fp32"),
        ((9, 0), "fp32", "fp32"),
    ],
)
def test_precision_follows_the_card(
    monkeypatch, capability, name, wanted
):
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda device: capability
    )
    assert pick_precision(torch.device("cuda"), name) == wanted


def test_an_old_card_has_no_bf16(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda device: (7, 0)
    )
    with pytest.raises(ValueError, match="no bf16"):
        pick_precision(torch.device("cuda"), "bf16")


def test_alone_there_is_one_worker(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert start_workers("cpu") == (0, 1, "cpu")
    tensor = torch.ones(3)
    sum_over_workers([tensor])
    assert torch.equal(tensor, torch.ones(3))
    model = small()
    before = [w.clone() for w in model.parameters()]
    same_weights(model, 0)
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"accumulate": 0}, "accumulate=0"),
        ({"warmup_steps": 0}, "warmup_steps=0"),
        ({"tokens_per_batch": -1}, "tokens_per_batch=-1"),
        ({"label_smoothing": 2.0}, "2.0"),
        ({"smoothing": "odd"}, "odd"),
        ({"precision": "fp8"}, "fp8"),
    ],
)
def test_settings_are_checked(settings, word):
    with pytest.raises(ValueError, match=word):
        TrainingConfig(**settings)


def test_defaults_are_the_papers():
    config = TrainingConfig()
    assert (
        config.label_smoothing == 0.1
        and config.smoothing == "uniform"
    )
    assert config.warmup_steps == 4000 and config.betas == (0.9, 0.98)
    assert (
        config.epsilon == 1e-9 and config.tokens_per_batch == 25_000
    )
    assert config.max_steps == 100_000 and config.average == 5


def one_step(batches, dropout=0.0, **settings):
    model = small(dropout=dropout)
    optimizer = adam(model)
    config = TrainingConfig(warmup_steps=10, **settings)
    sums = update(model, optimizer, batches, 3, config)
    return model, optimizer, sums


def test_update_is_one_step_of_adam_on_the_mean_loss():
    whole = collate(PAIRS)
    model, optimizer, sums = one_step([whole])
    other = small(dropout=0.0)
    loss = smoothed_loss(
        other(whole.source_ids, whole.target_ids), whole.labels
    )
    (loss / 9).backward()
    theirs = torch.optim.Adam(
        other.parameters(),
        lr=learning_rate(3, 32, 10),
        betas=(0.9, 0.98),
        eps=1e-9,
    )
    theirs.step()
    assert optimizer.param_groups[0]["lr"] == learning_rate(3, 32, 10)
    assert torch.allclose(sums[0], loss) and sums[2] == 9
    for a, b in zip(
        model.parameters(), other.parameters(), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-9)


def test_accumulated_batches_count_as_one():
    one, _, a = one_step([collate(PAIRS)])
    many, _, b = one_step([collate(PAIRS[:1]), collate(PAIRS[1:])])
    assert torch.allclose(a, b)
    for x, y in zip(one.parameters(), many.parameters(), strict=True):
        assert torch.allclose(x, y, atol=1e-9)


def test_random_numbers_follow_seed_step_and_nothing_else():
    one, _, _ = one_step([collate(PAIRS)], dropout=0.3)
    torch.rand(17)
    two, _, _ = one_step([collate(PAIRS)], dropout=0.3)
    three, _, _ = one_step([collate(PAIRS)], dropout=0.3, seed=1)
    pairs = list(zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(x, y) for x, y in pairs)
    pairs = list(
        zip(one.parameters(), three.parameters(), strict=True)
    )
    assert not all(torch.equal(x, y) for x, y in pairs)


def test_clipping_bounds_the_gradient():
    for clip, bound in ((None, math.inf), (0.01, 0.01001)):
        model, _, _ = one_step([collate(PAIRS)], clip_norm=clip)
        norm = torch.stack(
            [w.grad.norm() for w in model.parameters()]
        ).norm()
        assert norm <= bound
        assert clip is None or norm > 0.0099
    model, _, _ = one_step([collate(PAIRS)])


def test_updates_go_on_from_any_place():
    pairs = [([4 + i, 3], [5 + i, 3]) for i in range(12)]
    batches = TokenBatches(pairs, tokens_per_batch=4)

    def told(stream, count):
        return [
            ([b.source_ids.tolist() for b in group], place)
            for group, place in (next(stream) for _ in range(count))
        ]

    everything = told(updates(batches, 4), 6)
    for start in range(1, 5):
        place = everything[start - 1][1]
        rest = told(updates(batches, 4, **place), 6 - start)
        assert rest == everything[start:]
    assert everything[1][1] == {"epoch": 1, "position": 2}


def test_batches_keep_their_number_of_tokens():
    batch = collate(PAIRS).to("cpu")
    assert isinstance(batch, Batch) and batch.tokens == 9
