"""Replayed steps: what is refused anywhere, and on a GPU that they are
the plain steps. Other tests of a GPU are here too: nothing waits for it.
"""

from dataclasses import replace

import pytest
import torch
from test_training import CONFIG, batches, small
from translators import copies, equal

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import collate
from transformer_lib.beams import beam_search
from transformer_lib.decoding import greedy_decode
from transformer_lib.experiment import pick_device
from transformer_lib.loss import projected_losses, validation_loss
from transformer_lib.model import Transformer
from transformer_lib.replays import Replays, why_not_replayed
from transformer_lib.schedule import TrainingConfig, adam
from transformer_lib.training import train

QUICK = TrainingConfig(max_steps=60, warmup_steps=10, log_every=3)
on_a_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"
)


class Mine(torch.nn.Linear):
    pass


class Own(Transformer):
    pass


def test_what_a_replay_would_leave_out_is_named(monkeypatch):
    model = small()
    assert "device cpu" in why_not_replayed(model)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "several workers" in why_not_replayed(model)
    norm = model.decoder.layers[0].residuals[1].norm
    weight = model.encoder.layers[0].feed_forward.w_1.weight
    for register, name in (
        (norm.register_forward_hook, "decoder.layers.0.residuals.1.norm"),
        (norm.register_forward_pre_hook, "decoder.layers.0.residuals.1.norm"),
        (norm.register_full_backward_hook, "residuals.1.norm, a LayerNorm,"),
        (norm.register_full_backward_pre_hook, "residuals.1.norm"),
        (weight.register_hook, "encoder.layers.0.feed_forward.w_1.weight"),
        (weight.register_post_accumulate_grad_hook, "feed_forward.w_1.weight"),
    ):
        handle = register(lambda *_: None)
        assert name in why_not_replayed(model)
        assert "has a hook" in why_not_replayed(model)
        handle.remove()
    assert "compiled" in why_not_replayed(torch.compile(model))
    model.decoder.layers[0].feed_forward.w_2 = Mine(64, 32)
    assert "w_2, a Mine, is neither" in why_not_replayed(model)
    assert "the model, a Own, is neither" in why_not_replayed(Own(CONFIG))


def test_replays_are_refused_where_they_cannot_be():
    with pytest.raises(ValueError, match="recorded: the model is on the dev"):
        train(small(), batches(), QUICK, gradients=Replays)
    model = torch.compile(small(), backend="eager")
    with pytest.raises(ValueError, match="recorded: the model is compiled"):
        train(model, batches(), QUICK, gradients=Replays)


@on_a_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_replayed_steps_are_the_steps(precision, accumulate, tmp_path):
    config = replace(
        QUICK, clip_norm=1.0, precision=precision, accumulate=accumulate
    )
    assert config.max_steps > 3 * len(batches())
    runs = []
    for gradients in None, Replays:
        model = small().cuda()
        history = train(model, batches(), config, gradients=gradients)
        losses = history.series("loss")[1]
        runs.append((losses, [weight.cpu() for weight in model.parameters()]))
        assert all(weight.grad is None for weight in model.parameters())
    torch.testing.assert_close(*runs, rtol=0, atol=0)
    # and a resumed run is one that was not stopped
    for steps in 25, config.max_steps:
        model = small().cuda()
        part = replace(config, max_steps=steps)
        train(model, batches(), part, folder=tmp_path, gradients=Replays)
    weights = [weight.cpu() for weight in model.parameters()]
    torch.testing.assert_close(weights, runs[0][1], rtol=0, atol=0)


@on_a_gpu
def test_gradients_that_were_set_to_none_are_noticed():
    def evaluate(model, step):
        model.zero_grad()

    config = replace(QUICK, validate_every=30)
    with pytest.raises(RuntimeError, match="no longer where steps were rec"):
        train(small().cuda(), batches(), config, evaluate, gradients=Replays)


@on_a_gpu
def test_no_memory_for_a_recording_means_plain_steps(monkeypatch):
    def record(*_):
        raise torch.OutOfMemoryError

    plain, short = small().cuda(), small().cuda()
    train(plain, batches(), QUICK)
    monkeypatch.setattr(Replays, "record", record)
    train(short, batches(), QUICK, gradients=Replays)
    assert equal(plain, short)


@on_a_gpu
@pytest.mark.parametrize("bf16", [False, True])
def test_a_training_step_does_not_wait_for_the_gpu(bf16):
    model = small().cuda()
    optimizer = adam(model)
    optimizer.param_groups[0]["lr"] = 1e-3
    batch = collate(copies(9)).to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            hidden = model.hidden(batch.source_ids, batch.target_ids)
            losses = projected_losses(
                hidden, model.output_weight, batch.labels
            )
        (losses[0] / batch.tokens).backward()
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(weight.grad.is_cuda for weight in model.parameters())


@on_a_gpu
def test_the_gpu_is_picked_by_each_worker_its_own(monkeypatch):
    assert pick_device() == pick_device("cuda") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "3")  # as torchrun sets it
    assert pick_device() == pick_device("cuda") == torch.device("cuda:3")
    assert pick_device("cuda:1") == torch.device("cuda:1")
    assert pick_device("cpu") == torch.device("cpu")


@on_a_gpu
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_query_that_may_see_nothing_is_finite(kind):
    x = torch.randn(2, 5, 64, device="cuda")
    mask = torch.ones(2, 1, 5, 5, device="cuda").bool()
    mask[1, :, 2] = False
    with torch.no_grad(), torch.autocast("cuda", kind):
        output = MultiHeadAttention(64, 4).eval().cuda()(x, x, mask)
    assert output.isfinite().all()


@on_a_gpu
def test_a_gpu_computes_what_a_cpu_does():
    here, there = small().double(), small().double().cuda()
    losses = [validation_loss(model, batches()) for model in (here, there)]
    assert losses[0] == pytest.approx(losses[1])
    ids = collate(copies(9)).source_ids
    for search in greedy_decode, beam_search:
        outputs = search(here, ids), search(there, ids.cuda())
        found = [
            [[one.ids for one in row] for row in rows] for rows in outputs
        ]
        assert found[0] == found[1]
