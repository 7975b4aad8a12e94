"""The loss of section 5.4: against PyTorch, in chunks."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_lib.batching import TokenBatches
from transformer_lib.loss import (
    model_losses,
    perplexity,
    projected_losses,
    smoothed_loss,
    validation_loss,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

LABELS = torch.tensor([[4, 9, 3, 0], [7, 3, 0, 0], [5, 6, 8, 3]])


def rows(count=12, d_model=8, vocab_size=11, dtype=torch.float64):
    """Hidden states and a projection that want gradients."""
    torch.manual_seed(0)
    hidden = torch.randn(count, d_model, dtype=dtype)
    weight = torch.randn(vocab_size, d_model, dtype=dtype)
    return hidden.requires_grad_(), weight.requires_grad_()


def both_losses_are(defined, *settings):
    """`smoothed_loss`, `projected_losses` and what a training logs."""
    torch.manual_seed(0)
    many = torch.randint(0, 300, (2, 700))  # three chunks
    for labels, pieces in ((LABELS, 11), (many, 300)):
        hidden, weight = rows(labels.numel(), 8, pieces)
        logits = hidden.view(*labels.shape, 8) @ weight.T
        wanted = defined(logits, labels)
        slow = smoothed_loss(logits, labels, *settings)
        shaped = hidden.view(*labels.shape, 8)
        fast, plain = projected_losses(shaped, weight, labels, *settings)
        assert torch.allclose(plain, smoothed_loss(logits, labels, 0.0))
        slope = torch.autograd.grad(wanted / 7, (hidden, weight), None, True)
        for loss in (slow, fast):
            assert torch.allclose(loss, wanted)
            found = torch.autograd.grad(loss / 7, (hidden, weight), None, True)
            torch.testing.assert_close(found, slope)

    config = TransformerConfig.tiny(20, N=1, d_model=16, dropout=0.0)
    model = Transformer(config)
    data = TokenBatches([([5, 3], [7, 8, 9, 3]), ([5, 6, 3], [6, 3])], 8)
    [batch] = data.epoch(0)
    logits = model(batch.source_ids, batch.target_ids)
    wanted = defined(logits, batch.labels).item() / batch.tokens
    named = dict(zip(["label_smoothing"], settings, strict=False))
    once = TrainingConfig(max_steps=1, **named)
    logged = train(model, data, once).lines[0]["loss"]
    assert math.isclose(logged, wanted, rel_tol=1e-5)


def test_uniform_equals_cross_entropy():
    for given in ((), (0.1,), (0.0,), (0.3,)):
        share = given[0] if given else 0.1

        def theirs(logits, labels, share=share):
            return F.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                label_smoothing=share,
                ignore_index=0,
                reduction="sum",
            )

        both_losses_are(theirs, *given)


def test_a_larger_share_spreads_only_over_the_wrong_tokens():
    hidden, weight = rows()
    logits, labels = hidden @ weight.T, LABELS.flatten()
    vocab_size = len(weight)
    for share in (0.1, 0.2, 0.5):
        target = torch.full_like(logits, share / (vocab_size - 1))
        target.scatter_(-1, labels[:, None], 1 - share)
        wanted = -(target * logits.log_softmax(-1))[labels != 0].sum()
        larger = share * vocab_size / (vocab_size - 1)
        for found in (
            smoothed_loss(logits, labels, larger),
            projected_losses(hidden, weight, labels, larger)[0],
        ):
            assert torch.allclose(found, wanted)


def test_bf16_autocast_is_close_and_keeps_types():
    hidden, weight = rows(300, 64, 50, torch.float32)
    labels = torch.randint(4, 50, (300,))
    exact, _ = projected_losses(hidden, weight / 8, labels)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = projected_losses(hidden, weight / 8, labels)
    assert loss.dtype == torch.float32
    assert math.isclose(loss.item(), exact.item(), rel_tol=0.01)
    for a, b in zip(
        torch.autograd.grad(loss, (hidden, weight)),
        torch.autograd.grad(exact, (hidden, weight)),
        strict=True,
    ):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


def test_perplexity():
    assert math.isclose(perplexity(math.log(4.92)), 4.92)
    assert perplexity(1e4) == math.inf  # a training that went astray
    assert perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("bf16", [False, True])
def test_a_gpu_leaves_padding_out_as_the_cpu_does(bf16):
    """There the rows of padding stay, as zeros; nothing is waited for."""
    hidden, weight = rows(dtype=torch.float32)
    labels, found = LABELS.flatten(), []
    for device in "cpu", "cuda":
        x = hidden.detach().to(device).requires_grad_()
        w = weight.detach().to(device).requires_grad_()
        y = labels.to(device)
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.autocast(device, torch.bfloat16, enabled=bf16):
                losses = projected_losses(x, w, y)
            slopes = torch.autograd.grad(losses[0], (x, w))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append([one.cpu().detach() for one in (*losses, *slopes)])
    near = dict(rtol=0.02, atol=0.02) if bf16 else dict(rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*found, **near)
    assert not found[1][2][labels == 0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_in_float32_whatever_the_models_type(dtype):
    """In half precision alone the sum is off by percents, or inf."""
    hidden, weight = rows(4000, 32, 400, dtype)
    hidden = hidden.detach() * 8
    labels = torch.randint(1, 400, (4000,))
    exact, plain = projected_losses(
        hidden.double(), weight.detach().double(), labels
    )
    for losses in (
        projected_losses(hidden, weight, labels),
        (smoothed_loss(hidden @ weight.T, labels),),
    ):
        assert losses[0].dtype == torch.float32
        assert math.isclose(losses[0].item(), exact.item(), rel_tol=2e-3)
    assert exact > 70_000  # more than float16 can hold


def test_validation_loss_is_the_plain_mean_without_dropout():
    torch.manual_seed(0)
    config = TransformerConfig.tiny(20, N=1, d_model=32, dropout=0.5)
    model = Transformer(config).double()
    pairs = []
    for length in range(1, 41):
        source, target = torch.randint(4, 20, (2, length)).tolist()
        pairs.append((source[: length % 9] + [3], target + [3]))
    # Each sentence in a batch of its own, some together, and one batch.
    found = [
        validation_loss(model, TokenBatches(pairs, budget))
        for budget in (41, 300, 5000)
    ]
    assert model.training, "as it was before"
    model.eval()
    losses = []
    for source, target in pairs:
        ids = torch.tensor([source]), torch.tensor([[2, *target[:-1]]])
        loss = smoothed_loss(model(*ids), torch.tensor([target]), 0.0)
        losses.append(loss.item())
    tokens = sum(len(target) for _, target in pairs)
    for nats in found:
        assert math.isclose(nats, sum(losses) / tokens, rel_tol=1e-9)
        assert math.isclose(perplexity(nats), math.exp(nats))


class Biased(Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.logit_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def project(self, hidden):
        return super().project(hidden) + self.logit_bias


def patched(config):
    model = Transformer(config)
    model.project = lambda hidden: -Transformer.project(model, hidden)
    return model


def hooked(config):
    model = Transformer(config)
    model.pre_softmax.register_forward_hook(lambda _, x, logits: logits / 2)
    return model


def patched_inside(config):
    """As some libraries put a module on several devices."""
    model = Transformer(config)
    last = model.pre_softmax
    last.forward = lambda hidden: nn.Linear.forward(last, hidden) / 2
    return model


def with_bias(config):
    model = Transformer(config)
    last = nn.Linear(config.d_model, config.vocab_size)
    last.weight = model.pre_softmax.weight
    model.pre_softmax = last
    return model


def hooked_backward(config):
    model = Transformer(config)
    model.pre_softmax.register_full_backward_hook(
        lambda _, found, given: (found[0] / 2,)
    )
    return model


KINDS = [Transformer, Biased, patched, patched_inside]
KINDS += [hooked, hooked_backward, with_bias]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", ["three-way", "none"])
def test_training_and_validation_see_the_scores_that_a_search_sees(kind, tie):
    """Whatever `project` does, and the gradient is the one of this too."""
    torch.manual_seed(0)
    config = TransformerConfig.tiny(20, N=1, d_model=16, dropout=0, tie=tie)
    model = kind(config).double()
    data = TokenBatches([([5, 3], [7, 8, 9, 3]), ([5, 6, 3], [6, 3])], 8)
    [batch] = data.epoch(0)
    logits = model(batch.source_ids, batch.target_ids)
    wanted = smoothed_loss(logits, batch.labels)
    plain = smoothed_loss(logits, batch.labels, 0.0).item()
    hidden = model.hidden(batch.source_ids, batch.target_ids)
    loss, nll = model_losses(model, hidden, batch.labels)
    assert math.isclose(nll, plain) and not nll.requires_grad
    slopes = [
        torch.autograd.grad(one, model.parameters(), allow_unused=True)
        for one in (loss, wanted)
    ]
    torch.testing.assert_close(*slopes)
    found = validation_loss(model, data)
    assert math.isclose(found, plain / batch.tokens, rel_tol=1e-9)
    before = [weight.detach().clone() for weight in model.parameters()]
    line = train(model, data, TrainingConfig(max_steps=1)).lines[0]
    assert math.isclose(line["loss"], wanted.item() / batch.tokens)
    assert math.isclose(line["nll"], plain / batch.tokens)
    for old, new in zip(before, model.parameters(), strict=True):
        assert not torch.equal(old, new), "every weight is trained"


def test_a_second_derivative_is_refused():
    """It would be another function's, and nobody would know."""
    hidden, weight = rows()

    def squared(weight):
        loss, _ = projected_losses(hidden, weight, LABELS.flatten())
        return 3 * loss**2

    with pytest.raises(RuntimeError, match="take smoothed_loss"):
        torch.autograd.grad(squared(weight), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="take smoothed_loss"):
        torch.autograd.functional.hessian(squared, weight)  # not zeros


def test_labels_marked_as_pytorch_marks_them_are_left_out():
    hidden, weight = rows()
    marked = LABELS.masked_fill(LABELS == 0, -100).flatten()
    wanted = projected_losses(hidden, weight, LABELS.flatten())
    torch.testing.assert_close(
        projected_losses(hidden, weight, marked), wanted
    )
    logits = hidden @ weight.T
    torch.testing.assert_close(smoothed_loss(logits, marked), wanted[0])
