"""Files: whole or absent, read back equal, refused when damaged."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_checkpoint,
    load_model,
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
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) for name in a
    )


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, lambda part: part.write_text("one"))

    def fails(part):
        part.write_text("half of tw")
        assert path.read_text() == "one"  # still there while writing
        raise OSError("disk full")

    with pytest.raises(
        OSError, match="file.txt was not written.*full"
    ):
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
    modes = [x.stat().st_mode & 0o044 for x in tmp_path.iterdir()]
    assert set(modes) == {0o044}  # others may read them


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


def test_a_shipped_model_is_read(root):
    model, tokenizer, info = load_model(root / "runs/little-spanish")
    assert info["languages"] == ["en", "es"]
    path = root / "runs/little-spanish/model.safetensors"
    for name, weight in load_file(path).items():
        assert torch.equal(model.state_dict()[name], weight.float())
    assert model.source_embedding.weight is model.output_weight


def test_no_code_of_a_checkpoint_is_run(tmp_path):
    class Guest:
        def __reduce__(self):
            return exec, ("raise SystemExit('it ran')",)

    path = tmp_path / "checkpoint-00000001.pt"
    torch.save({"model": {}, "state": Guest()}, path)
    with pytest.raises(ValueError, match="no checkpoint"):
        load_checkpoint(path, small())


def test_missing_damaged_and_foreign_models(tmp_path):
    def refused(what, kind=ValueError):
        with pytest.raises(kind, match=what):
            load_model(tmp_path)

    refused("config.json", FileNotFoundError)
    tokenizer = BPETokenizer.train(["ein Hund", "a dog"], 270)
    sizes = {"N": 1, "d_model": 16, "d_ff": 32}
    model = Transformer(
        TransformerConfig.tiny(len(tokenizer), **sizes)
    )
    save_model(tmp_path, model, tokenizer)
    weights = tmp_path / "model.safetensors"
    good = weights.read_bytes()
    for bad in (good[: len(good) // 2], b"something else entirely"):
        weights.write_bytes(bad)
        refused("model.safetensors is cut short")
    weights.unlink()
    refused("has not ended", FileNotFoundError)
    weights.write_bytes(good)
    path = tmp_path / "config.json"
    right = path.read_text()
    for name, value in (
        ("d_ff", 48),
        ("d_model", 10**7),
        ("N", 1000),
    ):
        config = json.loads(right)
        config["model"][name] = value
        path.write_text(json.dumps(config))
        refused("another model's")
    config["model"] = json.loads(right)["model"] | {"vocab_size": 999}
    path.write_text(json.dumps(config))
    refused("another model's tokenizer")
    for text in ("{", "{}", '{"model": {"colour": 1}}', "[" * 10**5):
        path.write_text(text)
        refused("config.json is damaged")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.to(torch.int8),
        lambda w: w.index_fill(0, torch.tensor([1]), float("nan")),
        lambda w: w.index_fill(0, torch.tensor([1]), float("-inf")),
    ],
)
def test_weights_that_are_no_numbers_are_named(tmp_path, spoil):
    save_model(tmp_path, small())
    path = tmp_path / "model.safetensors"
    held = load_file(path)
    name = "decoder.layers.0.self_attention.w_k.weight"
    save_file(held | {name: spoil(held[name])}, path)
    with pytest.raises(ValueError, match=rf"{name}.*finite float"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "field, value",
    [
        ("d_k", 10**9),
        ("d_v", 10**9),
        ("d_ff", 10**9),
        ("max_length", 10**9),
    ],
)
def test_sizes_are_refused_before_they_cost_memory(
    tmp_path, field, value
):
    save_model(tmp_path, small(positions="learned"))
    path = tmp_path / "config.json"
    held = json.loads(path.read_text())
    held["model"][field] = value
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="it is too small"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "info",
    [
        {"languages": 5},
        {"languages": "en"},
        {"languages": ["en"]},
        {"languages": ["en", 5]},
        {"languages": None},
        {"corpus": 5},
    ],
)
def test_info_of_another_type(tmp_path, info):
    save_model(tmp_path, small(), **info)
    with pytest.raises(ValueError, match="config.json is damaged"):
        load_model(tmp_path)


def test_checkpoint_round_trip(tmp_path):
    model, optimizer = trained()
    state = {
        "step": 7,
        "epoch": 3,
        "settings": {"seed": 1, "betas": [0.9, 0.98]},
    }
    path = save_checkpoint(tmp_path, model, optimizer, state)
    other = small(seed=5)
    moments = adam(other)
    read = load_checkpoint(path, other, moments)
    assert read == state and equal(model, other)
    for a, b in zip(
        model.parameters(), other.parameters(), strict=True
    ):
        mine, theirs = optimizer.state[a], moments.state[b]
        assert mine.keys() == theirs.keys()
        assert {"step", "exp_avg", "exp_avg_sq"} == set(mine)
        assert all(
            torch.equal(mine[key], theirs[key]) for key in mine
        )
    path.unlink()  # what was read does not live in the file
    moments.step()


def test_only_the_last_checkpoints_are_kept(tmp_path):
    model, optimizer = trained()
    strangers = (
        "checkpoint-best",
        "checkpoint-00000099x",
        "checkpoint-1",
    )
    for name in strangers:
        (tmp_path / f"{name}.pt").touch()
    assert checkpoint_files(tmp_path) == []
    for step in (5, 10, 15, 100_000, 20):
        state = {"step": step}
        save_checkpoint(tmp_path, model, optimizer, state, keep=3)
    steps = [int(x.stem[-8:]) for x in checkpoint_files(tmp_path)]
    assert steps == [15, 20, 100_000]
    assert len(list(tmp_path.iterdir())) == 6  # strangers are let be


def test_nothing_is_lost_to_a_full_disk_or_to_nan(
    tmp_path, monkeypatch
):
    model, optimizer = trained()

    def save(step):
        state = {"step": step}
        save_checkpoint(tmp_path, model, optimizer, state, keep=2)

    save(1)
    save(2)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fails(whole, part):
        part.write_bytes(b"half")
        raise RuntimeError("No space left on device")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="00000003.*No space"):
        save(3)
    monkeypatch.undo()
    with torch.no_grad():
        model.output_weight[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="after step 3"):
        save(3)
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert after == before


def test_damaged_and_foreign_checkpoints(tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    for changes in ({"d_model": 32}, {"N": 2}, {"norm": "pre"}):
        with pytest.raises(
            ValueError, match="00000001.*another model"
        ):
            load_checkpoint(path, small(**changes))
    path.write_bytes(path.read_bytes()[:2000])
    for read in (lambda: load_checkpoint(path, model),
                 lambda: average_checkpoints([path])):  # fmt: skip
        with pytest.raises(ValueError, match="cut short"):
            read()
    with pytest.raises(FileNotFoundError, match="gone"):
        load_checkpoint(tmp_path / "gone.pt", model)


FRESH = {"step": 0, "log": "", "since": {"loss": 0}}
SPOILT = {
    "empty": lambda held: held.clear(),
    "no weights": lambda held: held.update(model=None),
    "a weight": lambda held: held["model"].update({NAME: "x"}),
    "no optimizer": lambda held: held.pop("optimizer"),
    "moments": lambda held: held["optimizer"]["state"][0].clear(),
    "a moment": lambda held: held["optimizer"]["state"][0].update(
        exp_avg=torch.zeros(3)
    ),
    "its step": lambda held: held["optimizer"]["state"][0].update(
        step=[]
    ),
    "no state": lambda held: held.pop("state"),
    "state": lambda held: held.update(state=5),
    "step": lambda held: held["state"].update(step=None),
    "before": lambda held: held["state"].update(step=-7),
    "since": lambda held: held["state"].update(since={"loss": ""}),
}
NAME = "decoder.layers.0.self_attention.w_k.weight"


@pytest.mark.parametrize("way", SPOILT)
def test_a_checkpoint_of_other_content(way, tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    found = load_checkpoint(path, model, optimizer, FRESH)
    assert found == FRESH | {"step": 1}
    held = torch.load(path)
    SPOILT[way](held)
    torch.save(held, path)
    with pytest.raises(ValueError, match="checkpoint-00000001.pt is"):
        load_checkpoint(path, model, optimizer, FRESH)
    if "weight" in way or way == "empty":
        with pytest.raises(ValueError, match="no checkpoint"):
            average_checkpoints([path])


def test_the_settings_of_an_optimizer_stay_its_own(tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    held = torch.load(path)
    held["optimizer"]["param_groups"] = [{"betas": None}]
    torch.save(held, path)
    load_checkpoint(path, model, optimizer)
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.98)
    optimizer.step()


def test_halves_that_a_killed_training_left_are_cleared(tmp_path):
    model, optimizer = trained()
    (tmp_path / ".checkpoint-00000001.pt.1.part").touch()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 2})
    assert [*tmp_path.iterdir()] == [path]


def test_average_is_the_mean(tmp_path):
    runs = [trained(seed) for seed in range(5)]
    paths = [
        save_checkpoint(tmp_path, *run, {"step": step})
        for step, run in enumerate(runs)
    ]
    mean = average_checkpoints(paths)
    states = [model.state_dict() for model, _ in runs]
    assert mean.keys() == states[0].keys()
    for name, tensor in mean.items():
        all_five = torch.stack([s[name].double() for s in states])
        assert tensor.dtype == torch.float32
        wanted = all_five.mean(0).float()
        assert torch.allclose(tensor, wanted, atol=1e-7)
    model = small(seed=9)
    model.load_state_dict(mean)
    assert model.source_embedding.weight is model.output_weight
    with pytest.raises(ValueError, match="at least one"):
        average_checkpoints([])
    wide = small(d_ff=64)
    state = {"step": 1}
    other = save_checkpoint(tmp_path / "b", wide, adam(wide), state)
    with pytest.raises(ValueError, match="of one model"):
        average_checkpoints([paths[0], other])
