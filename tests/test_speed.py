"""How fast it is: rows, a record, going on where it stopped."""

import json

import pytest
import torch

from transformer_lib import speed
from transformer_lib.cost import synthetic_pairs
from transformer_lib.model import TransformerConfig
from transformer_lib.runs import load_run
from transformer_lib.speed import (
    WAYS,
    Way,
    matrix_precision,
    matrix_rate,
    record_speed,
    time_way,
)
from transformer_lib.tasks import Task

CPU = torch.device("cpu")
SMALL = TransformerConfig(60, N=1, d_model=16, d_ff=24, h=2)
CHANGES = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2}
CHANGES |= {"max_steps": 2, "tokens_per_batch": 512, "device": "cpu"}


@pytest.fixture
def some(monkeypatch):
    """Two ways instead of twelve, one of them for cards alone."""
    few = [Way("base"), Way("tiny", "tf32"), Way("big", "fp32")]
    monkeypatch.setitem(WAYS, "throughput", few)
    return Task(vocab_size=60, limit=80, changes=dict(CHANGES))


def test_ways_change_one_thing_at_a_time():
    ways = [vars(way) for way in WAYS["naive"]]
    for one, other in zip(ways, ways[1:], strict=False):
        assert sum(one[k] != other[k] for k in one) == 1
    assert ways[0]["by_sentence"] and ways[0]["explicit"]
    names = [way.name for way in WAYS["throughput"]]
    assert len(set(names)) == len(names) == 12


def test_a_way_is_timed():
    pairs = synthetic_pairs(40, 60)
    from transformer_lib.batching import TokenBatches

    batches = list(TokenBatches(pairs, 256).epoch(0))[:5]
    row = time_way(Way(), SMALL, batches, CPU)
    assert 0 < row["step_seconds"] < 5
    tokens = sum(batch.tokens for batch in batches[3:])
    speed = row["target_tokens_per_second"]
    assert speed * row["step_seconds"] * 2 == pytest.approx(tokens)
    assert 0 <= row["padding_share"] < 0.5
    assert row["model_tflops"] > 0


def test_precision_is_given_back():
    before = torch.get_float32_matmul_precision()
    with matrix_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    assert matrix_rate(CPU, "fp32", 64) > 1e6


def test_the_record(tmp_path, some):
    some.out, some.name = str(tmp_path / "x"), "speed"
    report = record_speed(some, "throughput", "the command")
    assert report["finished"] and report["command"] == "the command"
    assert [row["way"] for row in report["speed"]] == [
        "base, fp32",
        "big, fp32",
    ]
    run = load_run(tmp_path / "x")
    assert run.report == json.loads(json.dumps(report))
    card = (tmp_path / "x" / "card.md").read_text("utf-8")
    assert "big, fp32" in card and "The curve" not in card


def test_goes_on_behind_the_last_line(tmp_path, some, monkeypatch):
    some.out = str(tmp_path / "x")
    some.changes["max_minutes"] = 1e-9
    stopped = record_speed(some, "throughput")
    assert not stopped["finished"] and not stopped["speed"]
    del some.changes["max_minutes"]
    asked = []

    def timed(way, *rest):
        asked.append(way.size)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(way, *rest)

    real = speed.time_way
    monkeypatch.setattr(speed, "time_way", timed)
    with pytest.raises(KeyboardInterrupt):
        record_speed(some, "throughput")
    assert len(load_run(some.out).history.lines) == 1
    report = record_speed(some, "throughput")
    assert report["finished"] and asked == ["base", "big", "big"]


def test_unknown_ways(tmp_path):
    with pytest.raises(ValueError, match="throughput, naive"):
        record_speed(Task(out=str(tmp_path)), "fast")
    with pytest.raises(ValueError, match="folder"):
        record_speed(Task(), "naive")
