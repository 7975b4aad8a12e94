"""A training from its sentences to its record."""

import json

import pytest
import torch

from transformer_lib.checkpoints import checkpoints, load_model
from transformer_lib.recording import (
    Task,
    read_split,
    recipe,
    record_training,
)

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


@pytest.mark.parametrize("size", ["tiny", "base", "big"])
def test_sizes(size):
    model, _ = recipe(Task(preset=size), 500)
    widths = {"tiny": 128, "base": 512, "big": 1024}
    assert (model.d_model, model.vocab_size) == (widths[size], 500)


@pytest.mark.parametrize(
    "name", ["paper", "tensor2tensor", "annotated"]
)
def test_recipes_are_the_library_s_own(name):
    from transformer_lib.training import preset

    assert recipe(Task(preset=name), 500) == preset(name, 500)


def test_changes_have_the_last_word():
    task = Task(
        table3="B: d_k=16", changes={"d_k": 8, "max_steps": 7}
    )
    model, training = recipe(task, 500)
    assert (model.d_k, model.N, training.max_steps) == (8, 6, 7)


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


def test_own_files_come_in_pairs(tmp_path):
    (tmp_path / "a").write_text("one\n")
    with pytest.raises(ValueError, match="translations"):
        read_split(Task(source_file=str(tmp_path / "a")), "train")
    both = str(tmp_path / "a"), str(tmp_path / "a")
    task = Task(source_file=both[0], target_file=both[1])
    assert read_split(task, "validation") is None
    assert list(read_split(task, "train")) == [("one", "one")]
