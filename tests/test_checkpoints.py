"""Files: whole or absent, read back equal, refused when damaged."""

import json

import pytest
import torch
from safetensors.torch import load_file

from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoints,
    latest_checkpoint,
    load_checkpoint,
    load_model,
    read_log,
    save_checkpoint,
    save_model,
    write_atomically,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import adam
from transformer_lib.tokenization import BPETokenizer


def small(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"N": 1, "d_model": 16, "d_ff": 32} | changes
    return Transformer(TransformerConfig.tiny(30, **sizes))


def trained(seed=0):
    model = small(seed)
    optimizer = adam(model)
    optimizer.param_groups[0]["lr"] = 0.01
    ids = torch.randint(4, 30, (2, 5))
    for _ in range(2):
        model(ids, ids).logsumexp(-1).sum().backward()
        optimizer.step()
    return model, optimizer


def equal(one, other):
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) for name in a)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_write_atomically_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, lambda part: part.write_text("one"))
    assert path.read_text() == "one"

    def fails(part):
        part.write_text("half of tw")
        assert path.read_text() == "one"  # still there while writing
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("tie", ["three-way", "decoder", "none"])
def test_model_round_trip(tmp_path, tie):
    model = small(tie=tie)
    save_model(tmp_path, model, languages=["en", "es"])
    read, tokenizer, info = load_model(tmp_path)
    assert equal(model, read) and read.config == model.config
    assert tokenizer is None and info == {"languages": ["en", "es"]}
    assert not read.training
    written = load_file(tmp_path / "model.safetensors")
    count = sum(tensor.numel() for tensor in written.values())
    assert count == sum(w.numel() for w in model.parameters())
    tied = read.source_embedding.weight is read.output_weight
    assert tied == (tie == "three-way")


def test_half_takes_half_the_room_and_reads_as_float32(tmp_path):
    model = small()
    save_model(tmp_path / "full", model)
    save_model(tmp_path / "half", model, half=True)
    full, half = (
        (tmp_path / kind / "model.safetensors").stat().st_size
        for kind in ("full", "half")
    )
    assert half < 0.65 * full
    read = load_model(tmp_path / "half")[0]
    assert read.source_embedding.weight is read.output_weight
    for a, b in zip(
        model.parameters(), read.parameters(), strict=True
    ):
        assert b.dtype == torch.float32
        assert torch.allclose(a, b, atol=1e-3)


def test_tokenizer_travels_with_the_model(tmp_path):
    tokenizer = BPETokenizer.train(
        ["ein Hund", "a dog"], vocab_size=270
    )
    save_model(tmp_path, small(), tokenizer)
    read = load_model(tmp_path)[1]
    assert read.encode("a Hund") == tokenizer.encode("a Hund")


def test_missing_damaged_and_foreign_models(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_model(tmp_path)
    save_model(tmp_path, small())
    weights = tmp_path / "model.safetensors"
    good = weights.read_bytes()
    cut_short(weights)
    with pytest.raises(
        ValueError, match="model.safetensors is cut short"
    ):
        load_model(tmp_path)
    weights.write_text("something else entirely")
    with pytest.raises(ValueError, match="model.safetensors"):
        load_model(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        load_model(tmp_path)
    weights.write_bytes(good)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["d_ff"] = 48
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"another shape.*w_1.*32.*48"
    ):
        load_model(tmp_path)
    for text in ("{", "{}", '{"model": {"colour": 1}}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(
            ValueError, match="config.json is damaged"
        ):
            load_model(tmp_path)


def test_checkpoint_round_trip(tmp_path):
    model, optimizer = trained()
    state = {
        "epoch": 3,
        "settings": {"seed": 1, "betas": [0.9, 0.98]},
    }
    path = save_checkpoint(tmp_path, 7, model, optimizer, state)
    other = small(seed=5)
    moments = adam(other)
    assert load_checkpoint(path, other, moments) == {
        "step": 7,
        **state,
    }
    assert equal(model, other)
    for a, b in zip(
        model.parameters(), other.parameters(), strict=True
    ):
        mine, theirs = optimizer.state[a], moments.state[b]
        assert (
            mine.keys()
            == theirs.keys()
            == {"step", "exp_avg", "exp_avg_sq"}
        )
        assert all(
            torch.equal(mine[key], theirs[key]) for key in mine
        )
    path.unlink()  # what was read does not live in the file
    moments.step()


def test_only_the_last_checkpoints_are_kept(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    model, optimizer = trained()
    for step in (5, 10, 15, 100_000, 20):
        save_checkpoint(tmp_path, step, model, optimizer, {}, keep=3)
    steps = [int(path.stem[-8:]) for path in checkpoints(tmp_path)]
    assert steps == [15, 20, 100_000]
    assert latest_checkpoint(tmp_path).stem == "checkpoint-00100000"


def test_a_failing_disk_leaves_the_old_checkpoints(
    tmp_path, monkeypatch
):
    model, optimizer = trained()
    for step in (1, 2):
        save_checkpoint(tmp_path, step, model, optimizer, {}, keep=2)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fails(tensors, part, about):
        part.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(
        "transformer_lib.checkpoints.save_file", fails
    )
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(tmp_path, 3, model, optimizer, {}, keep=2)
    with pytest.raises(OSError, match="disk full"):
        save_model(tmp_path, model)
    assert {
        p.name: p.read_bytes() for p in tmp_path.iterdir()
    } == before


def test_damaged_and_foreign_checkpoints(tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {})
    with pytest.raises(
        ValueError, match=r"00000001.*another shape.*\[16"
    ):
        load_checkpoint(path, small(d_model=32))
    with pytest.raises(ValueError, match="another shape.*Missing"):
        load_checkpoint(path, small(N=2))
    with pytest.raises(ValueError, match="another shape"):
        load_checkpoint(path, small(tie="none", N=2, norm="pre"))
    cut_short(path)
    with pytest.raises(ValueError, match="cut short"):
        load_checkpoint(path, model)
    with pytest.raises(ValueError, match="cut short"):
        average_checkpoints([path])
    with pytest.raises(FileNotFoundError, match="gone"):
        load_checkpoint(tmp_path / "gone.safetensors", model)


def test_average_is_the_mean(tmp_path):
    runs = [trained(seed) for seed in range(5)]
    paths = [
        save_checkpoint(tmp_path, step, *run, {})
        for step, run in enumerate(runs)
    ]
    mean = average_checkpoints(paths)
    states = [model.state_dict() for model, _ in runs]
    assert mean.keys() == states[0].keys()
    for name, tensor in mean.items():
        wanted = torch.stack([s[name].double() for s in states]).mean(
            0
        )
        assert tensor.dtype == torch.float32
        assert torch.allclose(tensor.double(), wanted, atol=1e-7)
    model = small(seed=9)
    model.load_state_dict(mean)
    assert model.source_embedding.weight is model.output_weight
    alone = average_checkpoints(paths[:1])
    assert all(torch.equal(alone[k], states[0][k]) for k in alone)


def test_average_of_nothing_or_of_unlike_models(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        average_checkpoints([])
    model, optimizer = trained()
    one = save_checkpoint(tmp_path / "a", 1, model, optimizer, {})
    wide = small(d_ff=64)
    other = save_checkpoint(tmp_path / "b", 1, wide, adam(wide), {})
    with pytest.raises(ValueError, match="w_[12].*of one run"):
        average_checkpoints([one, other])


def test_read_log(tmp_path):
    assert read_log(tmp_path) == []
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1}\n{"step": 2, "loss": 3.5}\n{"step": 3, "lo'
    )
    assert read_log(tmp_path) == [
        {"step": 1},
        {"step": 2, "loss": 3.5},
    ]
    assert read_log(tmp_path, 1) == [{"step": 1}]


def test_others_may_read_the_files(tmp_path):
    save_model(tmp_path, small())
    modes = {
        x.name: x.stat().st_mode & 0o044 for x in tmp_path.iterdir()
    }
    assert set(modes.values()) == {0o044}, modes
