"""Training: resumed, accumulated, shared out, killed, and learning."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import checkpoints, save_checkpoint
from transformer_lib.corpora import load_corpus
from transformer_lib.decoding import greedy_decode
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import (
    TrainingConfig,
    adam,
    update,
    updates,
)
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import ROWS, preset, table3, train

QUICK = TrainingConfig(
    max_steps=12,
    warmup_steps=10,
    log_every=3,
    checkpoint_every=4,
    device="cpu",
)
TIMES = ("seconds", "tokens_per_second")


def copies(count=50, longest=7, pieces=12, seed=0):
    """Pairs whose target is the source itself."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        length = int(torch.randint(2, longest + 1, (), generator=g))
        ids = torch.randint(
            4, pieces, (length,), generator=g
        ).tolist() + [3]
        pairs.append((ids, ids))
    return pairs


def small(**changes):
    torch.manual_seed(0)
    sizes = {"N": 1, "d_model": 32, "d_ff": 64, "h": 2} | changes
    return Transformer(TransformerConfig.tiny(12, **sizes))


def batches(**settings):
    return TokenBatches(copies(), tokens_per_batch=40, **settings)


def equal(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def untimed(lines):
    return [
        {k: v for k, v in x.items() if k not in TIMES} for x in lines
    ]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_resumed_equals_uninterrupted(tmp_path, accumulate):
    config = replace(QUICK, accumulate=accumulate, log_every=4)
    whole = small()
    history = train(
        whole, batches(), config, folder=tmp_path / "whole"
    )
    assert history.finished
    folder = tmp_path / "broken"
    for steps in (4, 8, 12):
        part = small()
        torch.rand(steps)  # other random numbers than before
        broken = train(
            part,
            batches(),
            replace(config, max_steps=steps),
            folder=folder,
        )
    assert equal(whole, part)
    assert untimed(broken.lines) == untimed(history.lines)
    assert (
        12 * accumulate % len(batches())
    )  # it ended inside an epoch
    one, two = (
        checkpoints(tmp_path / name)[-1].read_bytes()
        for name in ("whole", "broken")
    )
    assert len(one) == len(two)


def test_a_finished_run_is_left_alone(tmp_path):
    model = small()
    first = train(model, batches(), QUICK, folder=tmp_path)
    again = small()
    second = train(again, batches(), QUICK, folder=tmp_path)
    assert equal(model, again) and second.finished
    assert second.lines == first.lines


def test_log_lines(tmp_path):
    seen = []

    def evaluate(model, step):
        assert not model.training and not torch.is_grad_enabled()
        seen.append(step)
        return {"bleu": float(step)}

    data = batches()
    config = replace(QUICK, validate_every=5, checkpoint_every=0)
    history = train(small(), data, config, evaluate, tmp_path)
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").open()]
    assert lines == history.lines
    assert [x["step"] for x in lines] == [3, 5, 6, 9, 10, 12]
    assert seen == [5, 10, 12]
    assert history.series("bleu") == ([5, 10, 12], [5.0, 10.0, 12.0])
    fields = (
        "step epoch loss nll learning_rate tokens tokens_per_second"
    )
    assert set(fields.split()) | {"seconds"} == set(lines[0])
    tokens = sum(
        b.tokens
        for b, _ in zip(data.epoch(0), range(3), strict=False)
    )
    assert lines[0]["tokens"] == tokens  # no padding among them
    assert lines[0]["learning_rate"] == 32**-0.5 * 3 * 10**-1.5
    assert len(checkpoints(tmp_path)) == 1  # at the end


def test_validation_batches_are_judged_by_their_loss():
    history = train(small(), batches(), QUICK, batches(shuffle=False))
    steps, losses = history.series("validation_loss")
    assert steps == [12] and 0 < losses[0] < 4


def test_max_minutes_stops_and_goes_on(tmp_path):
    config = replace(QUICK, max_steps=10_000, max_minutes=0.5 / 60)
    history = train(small(), batches(), config, folder=tmp_path)
    assert not history.finished
    step = history.lines[-1]["step"]
    assert 0 < step < 10_000 and len(checkpoints(tmp_path)) > 0
    again = train(small(), batches(), config, folder=tmp_path)
    assert again.lines == history.lines  # the time is used up
    longer = replace(config, max_minutes=None, max_steps=step + 2)
    assert train(small(), batches(), longer, folder=tmp_path).finished


def test_another_run_in_the_folder_is_refused(tmp_path):
    train(small(), batches(), QUICK, folder=tmp_path)
    with pytest.raises(ValueError, match="seed=0, this one has 1"):
        train(
            small(),
            batches(),
            replace(QUICK, seed=1),
            folder=tmp_path,
        )
    with pytest.raises(ValueError, match="another shape"):
        train(small(d_ff=32), batches(), QUICK, folder=tmp_path)
    other = TokenBatches(copies(90), tokens_per_batch=40)
    with pytest.raises(ValueError, match="batches="):
        train(small(), other, QUICK, folder=tmp_path)


def test_no_batches():
    with pytest.raises(ValueError, match="no batches"):
        train(small(), [], QUICK)


def test_a_cut_log_is_mended(tmp_path):
    train(
        small(),
        batches(),
        replace(QUICK, max_steps=8),
        folder=tmp_path,
    )
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 9, "loss": 1.0}\n{"step": 1')
    train(small(), batches(), QUICK, folder=tmp_path)
    steps = [
        json.loads(x)["step"] for x in (tmp_path / "log.jsonl").open()
    ]
    assert steps == [3, 4, 6, 8, 9, 12]


KILLED = """
import sys; sys.path.insert(0, {tests!r})
from test_training import QUICK, batches, replace, small, train
config = replace(QUICK, max_steps=100_000, checkpoint_every=1, log_every=1)
train(small(), batches(), config, folder={folder!r})
"""


def test_kill_9_leaves_a_folder_that_goes_on(tmp_path, root):
    code = KILLED.format(
        tests=str(root / "tests"), folder=str(tmp_path)
    )
    # As many threads as here: sums of other parts round otherwise.
    threads = str(torch.get_num_threads())
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=alone(OMP_NUM_THREADS=threads),
    )
    until = time.monotonic() + 60
    while len(checkpoints(tmp_path)) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reached = int(checkpoints(tmp_path)[-1].stem[-8:])
    config = replace(QUICK, max_steps=reached + 2, log_every=1)
    model = small()
    history = train(model, batches(), config, folder=tmp_path)
    steps = [x["step"] for x in history.lines]
    assert steps == list(range(1, reached + 3))
    other = small()
    train(other, batches(), replace(config, checkpoint_every=0))
    assert equal(model, other)


def alone(**more):
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("RANK", "WORLD_SIZE")
    }
    env |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return env | more


def first_gradients(data, accumulate, rank=0):
    """Of the first update, in double precision, by parameter."""
    model = small(dropout=0.0).double()
    group, _ = next(updates(data, accumulate))
    update(model, adam(model), group, 1, QUICK, rank)
    named = model.named_parameters()
    return {name: weight.grad for name, weight in named}


WORKER = """
import sys; sys.path.insert(0, {tests!r})
from dataclasses import replace
import torch
from safetensors.torch import save_file
from test_training import QUICK, batches, small, train
from test_training import first_gradients
from transformer_lib.schedule import start_workers

rank, workers, device = start_workers("cpu")
mine = dict(rank=rank, world_size=workers)
save_file(
    first_gradients(batches(**mine), 1, rank),
    {folder!r} + f"/gradients-{{rank}}.safetensors",
)
model = small(dropout=0.0).double()
if rank:  # the first worker's weights are everybody's
    model = small(dropout=0.0, N=1).double()
    with torch.no_grad():
        model.output_weight.zero_()
config = replace(QUICK, clip_norm=0.5)
history = train(model, batches(**mine), config)
save_file(
    {{str(i): w.detach() for i, w in enumerate(model.parameters())}},
    {folder!r} + f"/double-{{rank}}.safetensors",
)
whole = small()
train(whole, batches(**mine), replace(QUICK, accumulate=2),
      folder={folder!r} + "/whole")
for steps in (4, 12):
    part = small()
    config = replace(QUICK, accumulate=2, max_steps=steps)
    train(part, batches(**mine), config, folder={folder!r} + "/broken")
pairs = zip(whole.parameters(), part.parameters())
assert all(torch.equal(a, b) for a, b in pairs), "resumed differs"
config = replace(QUICK, max_steps=10_000, max_minutes=0.2 / 60)
assert not train(small(), batches(**mine), config).finished
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory, root):
    """The folder in which two Gloo workers have trained."""
    folder = tmp_path_factory.mktemp("workers")
    code = WORKER.format(
        tests=str(root / "tests"), folder=str(folder)
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    there = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=alone(**there, RANK=str(rank), LOCAL_RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    return folder


def test_two_workers_give_the_gradients_of_one(two_workers):
    """Their size too, which Adam would not notice."""
    data = batches()
    first, second = (b.tokens for b in islice(data.epoch(0), 2))
    assert first != second  # a mean of means would differ
    expected = first_gradients(data, 2)
    for rank in range(2):
        path = two_workers / f"gradients-{rank}.safetensors"
        found = load_file(path)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            assert gradient.abs().max() > 1e-6, name
            torch.testing.assert_close(
                found[name], gradient, atol=1e-9, rtol=0
            )


def test_two_workers_equal_one(two_workers):
    one = small(dropout=0.0).double()
    data = batches()
    assert len(data) % 2 == 0  # or a batch would be given out twice
    train(one, data, replace(QUICK, clip_norm=0.5, accumulate=2))
    for rank in range(2):
        read = load_file(two_workers / f"double-{rank}.safetensors")
        for i, weight in enumerate(one.parameters()):
            assert torch.allclose(
                read[str(i)], weight, atol=1e-9, rtol=0
            )


def test_two_workers_resume_exactly_and_one_writes(two_workers):
    for name in (
        "whole",
        "broken",
    ):  # equality is asserted in the workers
        lines = [
            json.loads(x)
            for x in (two_workers / name / "log.jsonl").open()
        ]
        assert lines[-1]["step"] == 12
        tokens = sum(b.tokens for b in batches().epoch(0))
        assert lines[0]["tokens"] <= tokens * 3


@pytest.fixture(scope="module")
def spanish():
    corpus = load_corpus("little_spanish")
    pairs = [corpus[i] for i in range(0, len(corpus), 4)]
    tokenizer = BPETokenizer.train(
        [t for p in pairs for t in p], vocab_size=600
    )
    return encode_pairs(pairs, tokenizer), len(tokenizer)


def test_bf16_reaches_the_loss_of_fp32(spanish):
    pairs, vocab_size = spanish
    losses = {}
    for precision in ("fp32", "bf16"):
        torch.manual_seed(0)
        sizes = dict(N=1, d_model=64, d_ff=128)
        model = Transformer(
            TransformerConfig.tiny(vocab_size, **sizes)
        )
        config = replace(
            QUICK,
            max_steps=60,
            warmup_steps=100,
            log_every=20,
            checkpoint_every=0,
            precision=precision,
        )
        data = TokenBatches(pairs, tokens_per_batch=400)
        history = train(model, data, config)
        losses[precision] = history.lines[-1]["nll"]
        assert model.output_weight.dtype == torch.float32
    assert losses["fp32"] < 4  # from 6.4: it has learnt something
    assert losses["bf16"] != losses["fp32"]
    assert abs(losses["bf16"] / losses["fp32"] - 1) < 0.02


def test_copy_task_is_solved():
    model = small(h=4, dropout=0.0, norm="pre")
    data = TokenBatches(
        copies(1500, 6, 12, seed=1), tokens_per_batch=500
    )
    config = replace(
        QUICK,
        max_steps=400,
        warmup_steps=150,
        learning_rate_scale=0.7,
        label_smoothing=0.0,
        log_every=100,
        checkpoint_every=0,
    )
    history = train(model, data, config)
    assert history.lines[-1]["nll"] < 0.1
    unseen = copies(40, 6, 12, seed=2)
    source = [ids for ids, _ in unseen]
    width = max(map(len, source))
    rows = [ids + [0] * (width - len(ids)) for ids in source]
    found = greedy_decode(model, torch.tensor(rows))
    right = sum(
        f[0] == ids for f, ids in zip(found.ids, source, strict=True)
    )
    assert right >= 38


def test_compiled_training_equals_plain(monkeypatch):
    calls = []

    def compiler(function, **settings):
        calls.append(settings)
        return function

    monkeypatch.setattr(torch, "compile", compiler)
    one, two = small(), small()
    train(one, batches(), QUICK)
    train(two, batches(), replace(QUICK, compile=True))
    assert equal(one, two) and calls == [{"dynamic": True}]


def test_presets():
    model, training = preset("paper", 37_000)
    assert model == TransformerConfig.base(37_000)
    assert training == TrainingConfig()
    model, training = preset("tensor2tensor", 37_000)
    assert (model.norm, model.relu_dropout) == ("pre", 0.1)
    assert model.attention_dropout == 0.1 and model.tie == "three-way"
    assert training.smoothing == "others" and training.betas == (
        0.9,
        0.997,
    )
    model, training = preset("annotated", 37_000)
    assert model.tie == "none" and model.bias and model.norm == "pre"
    assert training.warmup_steps == 3000 and training.accumulate == 10
    with pytest.raises(ValueError, match="'bart'.*annotated"):
        preset("bart", 37_000)


def test_rows_of_table_3():
    assert len(ROWS) == 20
    base = TransformerConfig.base(37_000)
    rows = {row: table3(row, 37_000) for row in ROWS}
    assert rows["base"] == (base, TrainingConfig())
    for row in ROWS[1:-1]:
        model, training = rows[row]
        changed = (model != base) + (training != TrainingConfig())
        assert changed == 1, row
    for h in (1, 4, 16, 32):
        assert rows[f"A: h={h}"][0] == replace(base, h=h)
    assert rows["B: d_k=16"][0] == replace(base, d_k=16)
    assert rows["C: N=8"][0] == replace(base, N=8)
    assert rows["C: d_model=1024"][0] == replace(base, d_model=1024)
    assert rows["C: d_ff=4096"][0] == replace(base, d_ff=4096)
    assert rows["D: dropout=0.0"][0] == replace(base, dropout=0.0)
    smoothed = rows["D: label_smoothing=0.2"][1]
    assert smoothed == TrainingConfig(label_smoothing=0.2)
    assert rows["E: learned positions"][0].positions == "learned"
    big, training = rows["big"]
    assert big == TransformerConfig.big(37_000)
    assert (training.max_steps, training.average) == (300_000, 20)
    with pytest.raises(ValueError, match="'F'.*A: h=1"):
        table3("F", 37_000)


def test_a_checkpoint_that_fails_does_not_spoil_the_run(
    tmp_path, monkeypatch
):
    def fails(folder, step, *rest):
        if step == 8:
            raise OSError("disk full")
        return save_checkpoint(folder, step, *rest)

    with monkeypatch.context() as broken:
        broken.setattr(
            "transformer_lib.training.save_checkpoint", fails
        )
        with pytest.raises(OSError, match="disk full"):
            train(small(), batches(), QUICK, folder=tmp_path)
    model, whole = small(), small()
    history = train(model, batches(), QUICK, folder=tmp_path)
    train(whole, batches(), QUICK)
    assert equal(model, whole)
    assert [x["step"] for x in history.lines] == [3, 4, 6, 8, 9, 12]


def test_train_leaves_the_model_in_evaluation_mode():
    model = small()
    train(model, batches(), replace(QUICK, max_steps=1))
    assert not model.training
    assert adam(model).defaults["lr"] == 0
