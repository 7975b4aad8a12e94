"""A training from its sentences to its record."""

import json

import pytest
import torch
from filelock import FileLock

from transformer_lib.checkpoints import checkpoints, load_model
from transformer_lib.recording import record_training
from transformer_lib.tasks import Task

CHANGES = {
    "N": 1,
    "d_model": 32,
    "d_ff": 64,
    "h": 2,
    "tokens_per_batch": 512,
    "max_steps": 6,
    "checkpoint_every": 2,
    "device": "cpu",
}


def small(folder, **more):
    changes = CHANGES | more.pop("changes", {})
    told = {"limit": 100, "vocab_size": 400, "changes": changes}
    return Task(out=str(folder), **told | more)


def test_the_record_is_whole(tmp_path):
    task = small(
        tmp_path / "x", samples=1, half=True, measures="a test"
    )
    report = record_training(task, "the command")
    assert report["finished"] and report["command"] == "the command"
    held = json.loads((tmp_path / "x/report.json").read_text())
    assert held == json.loads(json.dumps(report))
    assert "a test" in (tmp_path / "x/card.md").read_text()
    assert len(checkpoints(tmp_path / "x")) >= 3
    model, tokenizer, info = load_model(tmp_path / "x")
    assert info["languages"] == ["en", "es"] and len(tokenizer) <= 400
    assert report["result"]["averaged_checkpoints"] == 1


def test_the_last_tenth_is_averaged(tmp_path):
    changes = {"max_steps": 30, "checkpoint_every": 1}
    task = small(tmp_path / "x", changes=changes)
    report = record_training(task)
    assert report["result"]["averaged_checkpoints"] == 3


def test_two_at_once_in_one_folder_are_refused(tmp_path):
    task = small(tmp_path / "x")
    with FileLock(tmp_path / ".lock"):
        record_training(task)  # another folder's lock is no matter
    with FileLock(tmp_path / "x" / ".lock"):
        with pytest.raises(ValueError, match="another training"):
            record_training(task)
    record_training(task)
    assert not (tmp_path / "x" / ".lock").exists()


def test_two_recordings_are_equal(tmp_path):
    for name in "ab":
        record_training(small(tmp_path / name))
    a, b = (load_model(tmp_path / name)[0] for name in "ab")
    for one, other in zip(
        a.parameters(), b.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_another_training_is_refused(tmp_path):
    record_training(small(tmp_path / "x"))
    with pytest.raises(ValueError, match="pieces_asked=400, not 300"):
        record_training(small(tmp_path / "x", vocab_size=300))
    with pytest.raises(ValueError, match="dropout"):
        record_training(
            small(tmp_path / "x", changes={"dropout": 0.3})
        )


def test_a_folder_is_needed():
    with pytest.raises(ValueError, match="--out"):
        record_training(Task())


def test_bpe_dropout_is_part_of_the_training(tmp_path):
    changes = {"max_steps": 30, "checkpoint_every": 10}
    task = small(tmp_path / "x", bpe_dropout=0.2, changes=changes)
    report = record_training(task)
    assert report["data"]["bpe_dropout"] == 0.2
    with pytest.raises(ValueError, match="bpe_dropout=0.2, not 0.0"):
        record_training(small(tmp_path / "x"))
    halves = small(tmp_path / "y", bpe_dropout=0.2)
    halves.changes |= {"max_steps": 10, "checkpoint_every": 10}
    record_training(halves)
    halves.changes["max_steps"] = 30
    record_training(halves)
    a, b = (load_model(tmp_path / name)[0] for name in "xy")
    for one, other in zip(
        a.parameters(), b.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_a_model_too_large_is_refused_before_the_training(tmp_path):
    task = small(tmp_path / "x", most_mib=0.05)
    with pytest.raises(ValueError, match="MiB, more than 0.05"):
        record_training(task)
    assert not (tmp_path / "x" / "log.jsonl").exists()
    record_training(small(tmp_path / "y", most_mib=16, half=True))
    path = tmp_path / "y" / "model.safetensors"
    assert path.stat().st_size < 16 * 2**20


def test_own_files_are_not_tested_on_themselves(tmp_path):
    (tmp_path / "a").write_text("one two three\n" * 20)
    file = str(tmp_path / "a")
    own = {"source_file": file, "target_file": file, "test": "test"}
    with pytest.raises(ValueError, match="--test-source"):
        record_training(small(tmp_path / "x", **own))
    own |= {"test_source": file, "test_target": file}
    report = record_training(small(tmp_path / "x", **own))
    assert report["test"]["sentences"] == 20


def test_the_report_tells_what_was_spent(tmp_path):
    report = record_training(small(tmp_path / "x"))
    assert report["result"]["compile_seconds"] == 0
    assert report["result"]["peak_memory_mib"] > 50


def test_compiling_leaves_the_weights_and_is_found_by_train(
    tmp_path, monkeypatch
):
    compiled = []

    def traced(function, **how):
        compiled.append(how)
        return function

    monkeypatch.setattr(torch, "compile", traced)
    told = {"changes": {"compile": True}}
    report = record_training(small(tmp_path / "a", **told))
    assert compiled == [{"dynamic": True}] * 2, "asked for alike"
    assert report["result"]["compile_seconds"] > 0
    record_training(small(tmp_path / "b"))
    a, b = (load_model(tmp_path / name)[0] for name in "ab")
    for one, other in zip(
        a.parameters(), b.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_greedy_stands_beside_beam_search(tmp_path):
    task = small(tmp_path / "x", test="test")
    report = record_training(task)
    assert report["test"]["beam_size"] == 4
    assert 0 <= report["test"]["greedy_bleu"] <= 100
