"""Training: resumed, accumulated, shared out, stopped, and learning."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, count
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from translators import copies

from transformer_lib import training
from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import checkpoint_files
from transformer_lib.decoding import greedy_decode
from transformer_lib.loss import smoothed_loss, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train, worker

QUICK = TrainingConfig(
    max_steps=12, warmup_steps=10, log_every=3, checkpoint_every=4
)


def small(**changes):
    torch.manual_seed(0)
    sizes = {"N": 1, "d_model": 32, "d_ff": 64, "h": 2} | changes
    return Transformer(TransformerConfig.tiny(12, **sizes))


def batches(**settings):
    return TokenBatches(copies(), tokens_per_batch=40, **settings)


def equal(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def untimed(history):
    times = "seconds", "tokens_per_second"
    return [
        {k: v for k, v in line.items() if k not in times}
        for line in history.lines
    ]


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
    model = small()
    with pytest.raises(KeyboardInterrupt):
        train(model, data, config, folder=folder)
    assert not model.training


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_stopped_training_goes_on_to_the_same_end(tmp_path, accumulate):
    config = replace(QUICK, accumulate=accumulate)
    whole = small()
    history = train(whole, batches(), config, folder=tmp_path / "whole")
    assert 12 * accumulate % len(batches())
    folder = tmp_path / "broken"
    handlers = signal.getsignal(signal.SIGTERM)
    interrupted(folder, config, 2)  # before any checkpoint was due
    assert checkpoint_files(folder)[-1].stem == "checkpoint-00000002"
    torch.rand(3)  # other random numbers than before
    with open(folder / "log.jsonl", "a") as file:  # then killed
        file.write('{"step": 99, "loss": 1.0}\n{"step": 1')
    interrupted(folder, config, 5, signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == handlers
    part = small()
    broken = train(part, batches(), config, folder=folder)
    assert equal(whole, part) and untimed(broken) == untimed(history)
    # what a stop left between two is not in the mean of the last
    for place in tmp_path / "whole", folder:
        names = [path.stem[-2:] for path in checkpoint_files(place)]
        assert names == ["04", "08", "12"]
    again = small()
    finished = train(again, batches(), config, folder=folder)
    assert equal(whole, again) and untimed(finished) == untimed(history)
    lines = (folder / "log.jsonl").read_text().splitlines()
    assert [json.loads(x)["step"] for x in lines] == [3, 6, 9, 12]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_replayed_steps_are_the_steps(monkeypatch, precision):
    config = replace(QUICK, max_steps=60, clip_norm=1.0, precision=precision)
    assert config.max_steps > 3 * len(batches())
    replayed, plain = small().cuda(), small().cuda()
    history = train(replayed, batches(), config)
    monkeypatch.setattr(training, "_can_be_recorded", lambda model: False)
    assert untimed(train(plain, batches(), config)) == untimed(history)
    assert equal(replayed, plain)


class RunAgain:
    """Stands in for a CUDA graph: what was recorded is run again."""

    recording = None

    def replay(self):
        self.sums.copy_(self.run())

    @classmethod
    @contextmanager
    def record(cls, graph, pool):
        cls.recording = graph
        yield
        cls.recording = None


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"clip_norm": 1}])
def test_a_replay_has_the_new_batch_and_its_tokens(changes, monkeypatch):
    real, config = training._add_gradients, replace(QUICK, **changes)
    config = replace(config, max_steps=4 * len(batches()))
    plain, replayed = small(), small()
    history = train(plain, batches(), config)

    def add_gradients(*given):
        if (graph := RunAgain.recording) is None:
            return real(*given)
        graph.run, graph.sums = partial(real, *given), torch.zeros(2)
        return graph.sums

    monkeypatch.setattr(training, "_add_gradients", add_gradients)
    monkeypatch.setattr(training, "_can_be_recorded", lambda model: True)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RunAgain)
    monkeypatch.setattr(torch.cuda, "graph", RunAgain.record)
    again = train(replayed, batches(), config)
    assert untimed(again) == untimed(history) and equal(plain, replayed)
    assert all(weight.grad is None for weight in replayed.parameters())


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


def test_log_lines(tmp_path):
    def evaluate(model, step):
        assert not model.training and not torch.is_grad_enabled()
        return {"bleu": torch.tensor(float(step))}

    data = batches()
    config = replace(QUICK, validate_every=5, checkpoint_every=0)
    model = small(dropout=0.0)
    start = small(dropout=0.0)
    history = train(model, data, config, evaluate, tmp_path)
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").open()]
    assert lines == history.lines and not model.training
    assert [x["step"] for x in lines] == [3, 5, 6, 9, 10, 12]
    assert len(data) < 12  # so that there is a second epoch
    epochs = [(x["step"] - 1) // len(data) for x in lines]
    assert [x["epoch"] for x in lines] == epochs
    assert history.series("bleu") == ([5, 10, 12], [5.0, 10.0, 12.0])
    first = [b for b, _ in zip(data.epoch(0), range(3), strict=False)]
    assert lines[0]["tokens"] == sum(b.tokens for b in first)
    spent = lines[0]["tokens"] / lines[0]["tokens_per_second"]
    assert spent < lines[0]["seconds"] + 1
    assert lines[0]["learning_rate"] == 32**-0.5 * 3 * 10**-1.5
    assert len(checkpoint_files(tmp_path)) == 1  # at the end
    one = train(start, data, replace(QUICK, max_steps=1)).lines[-1]
    logits = small(dropout=0.0)(first[0].source_ids, first[0].target_ids)
    for name, share in ("loss", 0.1), ("nll", 0.0):
        nats = smoothed_loss(logits, first[0].labels, share).item()
        assert abs(one[name] - nats / first[0].tokens) < 1e-5


def test_accumulated_batches_weigh_by_their_tokens():
    """Two batches a step are one batch that holds both."""

    class Both(TokenBatches):
        def epoch(self, number, start=0):
            yield from (self.whole if self.joined else self.halves)

        def __len__(self):
            return 1 if self.joined else 2

    data = Both(copies(), tokens_per_batch=1000)
    pairs = copies(6, seed=3)
    from transformer_lib.batching import collate

    data.halves = [collate(pairs[:1]), collate(pairs[1:])]
    data.whole = [collate(pairs)]
    found = []
    for data.joined in (True, False):
        model = small(dropout=0.0).double()
        config = replace(QUICK, accumulate=2 - data.joined, max_steps=2)
        train(model, data, config)
        found.append(torch.cat([w.flatten() for w in model.parameters()]))
    assert torch.allclose(*found, atol=1e-9)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path):
    class Poisoned(TokenBatches):
        def epoch(self, number, start=0):
            for i, batch in enumerate(super().epoch(number, start)):
                if (number, start + i) == (0, 5):
                    with torch.no_grad():
                        model.output_weight.fill_(float("nan"))
                yield batch

    model = small()
    data = Poisoned(copies(), tokens_per_batch=40)
    config = replace(QUICK, log_every=0, checkpoint_every=4)
    with pytest.raises(FloatingPointError, match="is nan by step 8: lower"):
        train(model, data, config, folder=tmp_path)
    assert checkpoint_files(tmp_path)[-1].stem == "checkpoint-00000004"
    good = small()
    train(good, batches(), QUICK)
    train(
        model,
        batches(),
        replace(config, log_every=3),
        folder=tmp_path,
    )
    assert equal(good, model)


def test_settings_that_matter_may_not_change(tmp_path):
    train(small(), batches(), QUICK, folder=tmp_path)
    free = replace(QUICK, log_every=1, max_steps=13)
    history = train(small(), batches(), free, folder=tmp_path)
    assert history.lines[-1]["seconds"] >= history.lines[-2]["seconds"]
    for changes, named in (
        ({"seed": 1}, "seed=0, not 1"),
        ({"betas": (0.9, 0.997)}, "betas"),
        ({"max_steps": 12}, "beyond step 12"),
    ):
        config = replace(QUICK, **changes)
        with pytest.raises(ValueError, match=named):
            train(small(), batches(), config, folder=tmp_path)
    for changes in {"d_ff": 32}, {"h": 4}, {"scale_embeddings": False}:
        model = small(**changes)
        with pytest.raises(ValueError, match=[*changes][0]):
            train(model, batches(), free, folder=tmp_path)
        assert equal(model, small(**changes))  # nothing was loaded
    other = TokenBatches(copies(seed=9), tokens_per_batch=40)
    with pytest.raises(ValueError, match="trained with data="):
        train(small(), other, free, folder=tmp_path)


def test_gradients_that_a_reader_left_are_not_followed():
    fresh, used = small(dropout=0.0), small(dropout=0.0)
    used(torch.tensor([[5, 3]]), torch.tensor([[2, 6]])).sum().backward()
    for model in (fresh, used):
        train(model, batches(), replace(QUICK, max_steps=2))
    assert equal(fresh, used)


def test_a_score_may_not_have_a_name_of_the_log():
    with pytest.raises(TypeError, match="multiple values.*'loss'"):
        train(small(), batches(), QUICK, lambda *_: {"loss": 5.0})


def test_batches_to_validate_on_give_their_loss():
    model, held_out = small(), batches(shuffle=False)
    config = replace(QUICK, validate_every=0)
    history = train(model, batches(), config, held_out)
    loss = pytest.approx(validation_loss(model, held_out))
    assert history.series("validation_loss") == ([12], [loss])


def test_settings_of_pytorch_are_the_callers_again(monkeypatch):
    """On a GPU: TF32, and no cuDNN attention; for this run only."""
    model = small()
    there = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(model, "parameters", lambda: iter([there]))
    monkeypatch.setattr(torch.random, "fork_rng", nullcontext)
    caches = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"
    for cache in caches:
        monkeypatch.delenv(cache, raising=False)
    bf16 = replace(QUICK, precision="bf16")
    before = torch.get_float32_matmul_precision()
    with pytest.raises(OSError), training._prepared(model, bf16):
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        raise OSError
    assert torch.get_float32_matmul_precision() == before == "highest"
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert not os.environ.keys() & caches
    with training._prepared(small(), bf16):
        assert torch.get_float32_matmul_precision() == before
    assert {os.environ.pop(cache) for cache in caches} == {"8"}


def test_a_signal_during_the_last_validation_is_obeyed(tmp_path):
    def evaluate(model, step):
        os.kill(os.getpid(), signal.SIGTERM)

    config = replace(QUICK, validate_every=0)
    with pytest.raises(KeyboardInterrupt):
        train(small(), batches(), config, evaluate, tmp_path)
    history = train(small(), batches(), config, None, tmp_path)
    assert history.lines[-1]["step"] == 12


def test_clipping_shortens_the_gradient():
    moved = []
    for limit in (None, 1e-12):
        model, start = small(), small()
        config = replace(QUICK, max_steps=1, clip_norm=limit, epsilon=1.0)
        train(model, batches(), config)
        pairs = zip(model.parameters(), start.parameters(), strict=True)
        moved.append(sum((a - b).abs().sum() for a, b in pairs))
    assert moved[1] < 1e-6 * moved[0]


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory, root):
    """The folder in which two workers of torchrun have trained."""
    return trained_by(2, tmp_path_factory.mktemp("two"), root)


def trained_by(workers, folder, root):
    """The folder, once that many workers of torchrun have trained."""
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", str(workers)]
    path = [os.environ.get("PYTHONPATH"), str(root)]
    path += [str(root / "tests")]  # where `translators` is
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
    rank, workers = worker()
    model = small(dropout=0.0).double()
    if rank:  # the first worker's weights are everybody's
        torch.nn.init.zeros_(model.output_weight)
    # Of two workers a step has one batch each, of eight it has two.
    often = 2 if workers > 2 else 1
    config = replace(QUICK, clip_norm=0.5, accumulate=often)
    history = train(model, batches(), config)
    weights = {n: w.detach() for n, w in model.named_parameters()}
    save_file(weights, f"{folder}/weights-{rank}.safetensors")
    if rank == 0:
        text = json.dumps(untimed(history))
        with open(f"{folder}/lines.json", "w") as file:
            file.write(text)
    if workers > 2:
        return
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
    assert [path.stem[-1] for path in checkpoint_files(place)] == ["2"]


def test_two_workers_equal_one(two_workers):
    one = small(dropout=0.0).double()
    data = batches()
    sizes = [batch.tokens for batch in data.epoch(0)]
    assert sizes[0] != sizes[1]  # a mean of means would differ
    config = replace(QUICK, clip_norm=0.5, accumulate=2)
    history = train(one, data, config)
    came_to_the_same(two_workers, 2, one, history)


def came_to_the_same(folder, workers, one, history):
    """The weights of every worker, and what the first one logged."""
    for rank in range(workers):
        read = load_file(folder / f"weights-{rank}.safetensors")
        for name, weight in one.named_parameters():
            assert torch.allclose(read[name], weight, atol=1e-9, rtol=0)
    lines = json.loads((folder / "lines.json").read_text())
    for line, wanted in zip(lines, untimed(history), strict=True):
        assert line["tokens"] == wanted["tokens"]
        for name in ("loss", "nll", "learning_rate"):
            assert abs(line[name] - wanted[name]) < 1e-9


def test_eight_workers_equal_one(tmp_path, root):
    """As many as the paper had: each has an eighth of every step."""
    trained_by(8, tmp_path, root)
    one = small(dropout=0.0).double()
    data = batches()
    config = replace(QUICK, clip_norm=0.5, accumulate=16)
    history = train(one, data, config)
    came_to_the_same(tmp_path, 8, one, history)


def test_bf16_reaches_about_the_loss_of_fp32():
    nll = {}
    for precision in ("fp32", "bf16"):
        config = replace(QUICK, max_steps=60, precision=precision)
        model = small(dropout=0.0)
        nll[precision] = train(model, batches(), config).lines[-1]["nll"]
        assert model.output_weight.dtype == torch.float32
    assert nll["bf16"] != nll["fp32"]
    assert abs(nll["bf16"] / nll["fp32"] - 1) < 0.1


def plain_loop(model, data, steps, warmup_steps):
    """Section 5 in PyTorch's own words, a batch a step."""
    optimizer = torch.optim.Adam(model.parameters(), 1.0, (0.9, 0.98), 1e-9)
    stream = chain.from_iterable(map(data.epoch, count()))
    for step, batch in zip(range(1, steps + 1), stream, strict=False):
        logits = model(batch.source_ids, batch.target_ids)
        loss = cross_entropy(
            logits.flatten(0, 1),
            batch.labels.flatten(),
            ignore_index=0,
            label_smoothing=0.1,
        )
        optimizer.zero_grad()
        loss.backward()
        rate = min(step**-0.5, step * warmup_steps**-1.5)
        optimizer.param_groups[0]["lr"] = model.config.d_model**-0.5 * rate
        optimizer.step()


def test_the_papers_regime_learns_to_copy():
    """Post-norm, dropout, smoothing, Adam and warm-up of section 5."""
    ours, theirs = (small(N=2, dropout=0.0).double() for _ in range(2))
    data = batches()
    config = replace(QUICK, max_steps=len(data) + 9)
    train(ours, data, config)
    plain_loop(theirs, data, config.max_steps, config.warmup_steps)
    for weight, wanted in zip(
        ours.parameters(), theirs.parameters(), strict=True
    ):
        assert torch.allclose(weight, wanted, atol=1e-9, rtol=0)
    # Dropout acts in every step, on both sums and after each sub-layer.
    model, acting = small(h=4), []
    drops = [part for part in model.modules() if getattr(part, "p", 0)]
    for part in drops:
        assert part.p == 0.1
        part.register_forward_hook(
            lambda part, *_: acting.append(part.training)
        )
    often = replace(QUICK, max_steps=3, validate_every=1)
    train(model, data, often, evaluate=lambda model, step: {})
    assert len(acting) == 3 * (len(drops) + 1) and all(acting)
    model = small(h=4)
    assert model.config.norm == "post"
    data = TokenBatches(copies(1500, 7, seed=1), tokens_per_batch=500)
    config = replace(
        QUICK,
        max_steps=500,
        warmup_steps=200,
        learning_rate_scale=0.7,
        log_every=100,
        checkpoint_every=0,
    )
    train(model, data, config)
    unseen = copies(40, seed=2)
    width = max(len(source) for source, _ in unseen)
    rows = [ids + [0] * (width - len(ids)) for ids, _ in unseen]
    found = greedy_decode(model, torch.tensor(rows))
    right = sum(
        best[0] == ids
        for best, (ids, _) in zip(found.ids, unseen, strict=True)
    )
    assert right >= 30


if __name__ == "__main__":
    work(sys.argv[1])
