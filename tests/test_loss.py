"""The loss of section 5.4: against PyTorch, without padding, in chunks."""

import math

import pytest
import torch
from torch.nn import functional as F

from transformer_lib.batching import collate
from transformer_lib.loss import (
    _ProjectedLoss,
    accumulate_gradients,
    hidden_states,
    perplexity,
    projected_loss,
    projected_losses,
    smoothed_loss,
    smoothing_weights,
    validation_loss,
)
from transformer_lib.model import Transformer, TransformerConfig

KINDS = ("uniform", "others", "annotated")
LABELS = torch.tensor([[4, 9, 3, 0], [7, 3, 0, 0], [5, 6, 8, 3]])


def logits(vocab_size=11, scale=2.0, dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(*LABELS.shape, vocab_size, dtype=dtype) * scale


def target(vocab_size, kind, share):
    """The smoothed target of every label, built in full."""
    wrong = {"uniform": 0, "others": 1, "annotated": 2}[kind]
    rows = torch.full(
        (*LABELS.shape, vocab_size), share / (vocab_size - wrong)
    )
    if kind == "annotated":
        rows[..., 0] = 0
    keep = (
        1 - share + (share / vocab_size if kind == "uniform" else 0)
    )
    return rows.scatter(-1, LABELS[..., None], keep)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_uniform_equals_cross_entropy(share):
    x = logits()
    theirs = F.cross_entropy(
        x.flatten(0, 1),
        LABELS.flatten(),
        label_smoothing=share,
        ignore_index=0,
        reduction="sum",
    )
    assert torch.allclose(smoothed_loss(x, LABELS, share), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_equals_its_definition(kind):
    x, q = logits(), target(11, kind, 0.2)
    kept = LABELS != 0
    assert torch.allclose(q[kept].sum(-1), torch.ones(()))
    defined = -(q * x.log_softmax(-1))[kept].sum()
    ours = smoothed_loss(x, LABELS, 0.2, kind)
    assert torch.allclose(ours, defined)
    label, every, padding = smoothing_weights(11, 0.2, kind)
    assert math.isclose(label + 11 * every + padding, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_projected_loss_and_gradients(kind, share):
    torch.manual_seed(0)
    labels = torch.randint(
        0, 30, (60, 20)
    )  # 1,160 rows: three chunks
    hidden = torch.randn(60, 20, 8, requires_grad=True)
    weight = torch.randn(30, 8, requires_grad=True)
    settings = dict(label_smoothing=share, smoothing=kind)
    slow = smoothed_loss(hidden @ weight.T, labels, **settings)
    wanted = torch.autograd.grad(slow / 7, (hidden, weight))
    fast = projected_loss(hidden, weight, labels, **settings)
    got = torch.autograd.grad(fast / 7, (hidden, weight))
    assert torch.allclose(fast, slow, rtol=1e-5)
    for a, b in zip(got, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-5 * b.abs().max().item())


def test_second_loss_is_the_plain_one():
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 4, 8), torch.randn(11, 8)
    plain = smoothed_loss(hidden @ weight.T, LABELS, 0.0)
    assert torch.allclose(
        projected_losses(hidden, weight, LABELS)[1], plain
    )


def test_path_of_other_devices_equals_the_cpus():
    torch.manual_seed(0)
    hidden = torch.randn(
        12, 8, dtype=torch.float64, requires_grad=True
    )
    weight = torch.randn(
        11, 8, dtype=torch.float64, requires_grad=True
    )
    weights = smoothing_weights(11, 0.1, "annotated")
    labels = LABELS.flatten()
    all_rows = _ProjectedLoss.apply(
        hidden, weight, labels, weights, 0, 4096, True
    )[0]
    ours = projected_loss(
        hidden, weight, labels, smoothing="annotated"
    )
    assert torch.allclose(all_rows, ours, rtol=1e-12)
    got = torch.autograd.grad(all_rows, (hidden, weight))
    wanted = torch.autograd.grad(ours, (hidden, weight))
    for a, b in zip(got, wanted, strict=True):
        assert torch.allclose(a, b, rtol=1e-12)
    assert (got[0][labels == 0] == 0).all()


def test_double_precision_gradcheck():
    torch.manual_seed(0)
    hidden = torch.randn(
        3, 4, 5, dtype=torch.float64, requires_grad=True
    )
    weight = torch.randn(
        11, 5, dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(
        lambda h, w: projected_loss(h, w, LABELS), (hidden, weight)
    )


def test_bf16_autocast_is_close_and_keeps_types():
    torch.manual_seed(0)
    hidden = torch.randn(3, 4, 64, requires_grad=True)
    weight = (torch.randn(50, 64) / 8).requires_grad_()
    exact = projected_loss(hidden, weight, LABELS)
    wanted = torch.autograd.grad(exact, (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_loss(hidden, weight, LABELS)
    got = torch.autograd.grad(loss, (hidden, weight))
    assert loss.dtype == torch.float32
    assert math.isclose(loss.item(), exact.item(), rel_tol=0.01)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


def test_tied_weight_gets_gradients_from_both_ends():
    torch.manual_seed(0)
    weight = torch.randn(11, 8, requires_grad=True)
    ids = torch.tensor([[2, 4, 9, 0], [2, 7, 0, 0], [2, 5, 6, 8]])
    got = torch.autograd.grad(
        projected_loss(weight[ids], weight, LABELS), weight
    )[0]
    wanted = torch.autograd.grad(
        smoothed_loss(weight[ids] @ weight.T, LABELS), weight
    )[0]
    assert torch.allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_never_counts(kind):
    torch.manual_seed(0)
    hidden = torch.randn(3, 4, 8)
    other = torch.where(
        (LABELS == 0)[..., None], hidden + 100, hidden
    )
    weight = torch.randn(11, 8)
    wide = F.pad(hidden, (0, 0, 0, 3), value=9.0)
    wider = F.pad(LABELS, (0, 3))

    def explicit(hidden, weight, labels, smoothing):
        return smoothed_loss(
            hidden @ weight.T, labels, smoothing=smoothing
        )

    for loss in (projected_loss, explicit):
        one = loss(hidden, weight, LABELS, smoothing=kind)
        two = loss(other, weight, LABELS, smoothing=kind)
        assert torch.equal(one, two)
        three = loss(wide, weight, wider, smoothing=kind)
        assert torch.allclose(three, one)


def test_no_gradient_is_built_where_none_is_wanted():
    weight = torch.randn(11, 8, requires_grad=True)
    with torch.no_grad():
        loss = projected_loss(torch.randn(3, 4, 8), weight, LABELS)
    assert not loss.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    x = (logits() * 1000).to(dtype)
    x[0, 0, 3] = -60_000.0
    loss = smoothed_loss(x, LABELS, 0.1)
    assert torch.isfinite(loss) and loss.dtype == torch.float32


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"smoothing": "kl"}, "kl"),
        ({"label_smoothing": 1.5}, "1.5"),
        ({"label_smoothing": -0.1}, "-0.1"),
    ],
)
def test_unknown_settings_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        smoothed_loss(logits(), LABELS, **settings)
    with pytest.raises(ValueError, match=word):
        projected_loss(
            torch.zeros(3, 4, 2),
            torch.zeros(11, 2),
            LABELS,
            **settings,
        )


def test_unlike_shapes_are_refused():
    with pytest.raises(ValueError, match="share all but the last"):
        smoothed_loss(logits(), LABELS[:, :3])


def test_perplexity():
    assert math.isclose(perplexity(math.log(4.92)), 4.92)
    assert perplexity(1e6) == math.inf


def test_model_loss_and_gradients():
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig.tiny(20, N=1, dropout=0.0)
    ).double()
    pairs = [
        ([5, 6, 3], [7, 8, 9, 3]),
        ([5, 3], [6, 3]),
        ([9, 3], [4, 4, 3]),
    ]
    batches = [collate(pairs[:1]), collate(pairs[1:])]
    whole = collate(pairs)
    tokens = torch.tensor([9.0], dtype=torch.float64)
    sums = accumulate_gradients(model, batches, tokens)
    got = [w.grad.clone() for w in model.parameters()]
    model.zero_grad()
    logits = model(whole.source_ids, whole.target_ids)
    loss = smoothed_loss(logits, whole.labels)
    (loss / 9).backward()
    assert torch.allclose(sums[0], loss, rtol=1e-12)
    for mine, weight in zip(got, model.parameters(), strict=True):
        assert torch.allclose(mine, weight.grad, atol=1e-12)
    hidden = hidden_states(model, whole.source_ids, whole.target_ids)
    assert torch.allclose(model.project(hidden), logits)
    plain = smoothed_loss(logits, whole.labels, 0.0).item() / 9
    assert math.isclose(
        validation_loss(model, batches), plain, rel_tol=1e-9
    )


def test_validation_switches_dropout_off_and_back_on():
    model = Transformer(TransformerConfig.tiny(20, N=1, dropout=0.5))
    batches = [collate([([5, 6, 3], [7, 8, 9, 3])])]
    assert validation_loss(model, batches) == validation_loss(
        model, batches
    )
    assert model.training
