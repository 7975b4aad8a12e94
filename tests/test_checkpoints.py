"""Files: whole or absent, read back equal, refused when damaged."""

import copy
import json
import pathlib
from collections import namedtuple
from dataclasses import replace
from datetime import date
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers.normalizers import Lowercase

from transformer_lib import checkpoints
from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_checkpoint,
    load_config,
    load_model,
    save_checkpoint,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.layers import FeedForward
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.rivals import (
    ConvolutionalTranslator,
    RecurrentTranslator,
)
from transformer_lib.schedule import TrainingConfig, adam
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train


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
    write_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    write_atomically(path, lambda part: part.write_text("one"))

    def fails(part):
        part.write_text("half of tw")
        assert path.read_text() == "one"  # still there while writing
        raise OSError("disk full")

    with pytest.raises(OSError, match="file.txt was not written.*full"):
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
    for a, b in zip(model.parameters(), read.parameters(), strict=True):
        assert b.dtype == torch.float32
        assert torch.allclose(a, b, atol=1e-3)


def test_a_sharp_model_is_saved_in_half(tmp_path):
    """Halved, the table of sines alone would move its logits."""
    torch.manual_seed(0)
    model = small()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)
    save_model(tmp_path, model, half=True)
    ids = torch.arange(4, 8)[None]
    for weight in model.parameters():
        weight.data = weight.data.half().float()
    read = load_model(tmp_path)[0].eval()
    assert torch.equal(read(ids, ids), model.eval()(ids, ids))


def test_a_shipped_model_is_read(root):
    model, tokenizer, info = load_model(root / "pretrained/little-spanish")
    assert info["languages"] == ["en", "es"]
    path = root / "pretrained/little-spanish/model.safetensors"
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


def without_digests(folder):
    """config.json as it was written before there were any."""
    path = folder / "config.json"
    held = json.loads(path.read_text())
    del held["class"], held["sha256"]
    path.write_text(json.dumps(held))


def test_missing_damaged_and_foreign_models(saved):
    def refused(what, kind=ValueError, folder=saved):
        with pytest.raises(kind, match=what):
            load_model(folder)

    refused("config.json", FileNotFoundError, saved / "nowhere")
    weights = saved / "model.safetensors"
    good = weights.read_bytes()
    without_digests(saved)
    for bad in (good[: len(good) // 2], b"something else entirely"):
        weights.write_bytes(bad)
        refused("model.safetensors is damaged")
    weights.unlink()
    refused("has not ended", FileNotFoundError)
    weights.write_bytes(good)
    path = saved / "config.json"
    right = path.read_text()
    for name, value in (
        ("d_ff", 48),
        ("d_model", 48),
        ("N", 2),
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
    without_digests(tmp_path)
    path = tmp_path / "model.safetensors"
    held = load_file(path)
    name = "decoder.layers.0.self_attention.w_k.weight"
    save_file(held | {name: spoil(held[name])}, path)
    with pytest.raises(ValueError, match=rf"{name}.*holds NaN, infin"):
        load_model(tmp_path)


@pytest.mark.parametrize("field", ["d_k", "d_v", "d_ff", "max_length"])
def test_sizes_are_refused_before_they_cost_memory(tmp_path, field):
    save_model(tmp_path, small(positions="learned"))
    path = tmp_path / "config.json"
    held = json.loads(path.read_text())
    held["model"][field] = 10**9
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="changed after it was saved"):
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
    with pytest.raises(ValueError, match="give two|is no text"):
        save_model(tmp_path, small(), **info)
    assert not [*tmp_path.iterdir()]


# What is compared when it is read


@pytest.fixture
def saved(tmp_path):
    """A folder with a model and its tokenizer."""
    tokenizer = BPETokenizer.train(["ein Hund", "a dog"], 270)
    sizes = {"N": 1, "d_model": 16, "d_ff": 32}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(len(tokenizer), **sizes))
    save_model(tmp_path, model, tokenizer, languages=["de", "en"])
    return tmp_path


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("place", [-1, -2, -400, 5000])
def test_a_flipped_bit_in_the_weights_is_seen(saved, place):
    flip(saved / "model.safetensors", place)
    with pytest.raises(ValueError, match="safetensors is not the file"):
        load_model(saved)


def test_any_flipped_bit_in_config_json_is_seen_or_changes_nothing(saved):
    path = saved / "config.json"
    good, before = path.read_bytes(), load_config(saved)
    for place in range(0, len(good), 3):
        path.write_bytes(good)
        flip(path, place, bit=place % 7)
        try:
            after = load_config(saved)
        except (ValueError, FileNotFoundError):
            continue
        for name in ("kind", "config", "info"):
            assert getattr(after, name) == getattr(before, name)


@pytest.mark.parametrize(
    "changes",
    [{"h": 2}, {"positions": "none"}, {"scale_embeddings": False}],
)
def test_sizes_edited_in_config_json_are_seen(saved, changes):
    """They keep all shapes: nothing else would notice."""
    path = saved / "config.json"
    held = json.loads(path.read_text())
    held["model"] |= changes
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="changed after it was saved"):
        load_model(saved)
    without_digests(saved)  # what an older folder could not notice
    load_model(saved)


def test_ids_swapped_in_tokenizer_json_are_seen(saved):
    path = saved / "tokenizer.json"
    held = json.loads(path.read_text())
    words = held["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="tokenizer.json is not the file"):
        load_model(saved)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        load_model(saved)


def test_a_model_saved_without_a_tokenizer_has_none(saved):
    save_model(saved, small())
    assert load_model(saved)[1] is None
    assert not (saved / "tokenizer.json").exists()


def test_a_new_config_does_not_keep_the_weights_of_the_old(saved):
    save_config(saved, small(h=8))  # of the same shapes
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        load_model(saved)


def test_a_training_with_numbers_of_numpys_goes_on(tmp_path):
    """As a sweep has them; a file with numpy's own would be refused."""
    sweep = np.geomspace(0.5, 2, 3)
    config = TrainingConfig(
        max_steps=2,
        learning_rate_scale=sweep[0],
        epsilon=np.float64(1e-8),
        betas=(np.float64(0.9), np.float64(0.98)),
        device="cpu",
    )
    pairs = [([5, 6, 3], [7, 3]), ([8, 3], [9, 3])]
    batches = TokenBatches(pairs, tokens_per_batch=20)
    changes = {"dropout": np.float64(0.1)}
    train(small(**changes), batches, config, folder=tmp_path)
    more = replace(config, max_steps=3)
    history = train(small(**changes), batches, more, folder=tmp_path)
    assert history.lines[-1]["step"] == 3


class Norm(StrEnum):
    POST = "post"


@pytest.mark.parametrize(
    "value", [Path("x"), date(2017, 6, 12), np.zeros(2), Norm.POST]
)
def test_a_state_that_could_not_be_read_back_is_refused(tmp_path, value):
    model, optimizer = trained()
    good = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    state = {"step": 2, "scores": [value]}
    with pytest.raises(TypeError, match="a checkpoint cannot hold"):
        save_checkpoint(tmp_path, model, optimizer, state, keep=1)
    assert checkpoint_files(tmp_path) == [good]
    pair = namedtuple("Pair", "x y")(1, 2)  # becomes a plain one
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 3, "a": pair})
    assert load_checkpoint(path, model, optimizer)["a"] == (1, 2)
    counts = {"step": 4, "counts": {np.int64(3): np.float32(0.5)}}
    path = save_checkpoint(tmp_path, model, optimizer, counts)
    assert load_checkpoint(path)["counts"] == {3: 0.5}


def test_a_disk_that_does_not_answer_is_no_damage(saved, monkeypatch):
    def read_text(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(pathlib.Path, "read_text", read_text)
    with pytest.raises(PermissionError, match="not yours"):
        load_model(saved)


# What is refused before anything is written


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def spoilt(value):
    model = small()
    with torch.no_grad():
        model.encoder.layers[0].self_attention.w_k.weight[0, 0] = value
    return model


def exchanged():
    model = small()
    model.encoder.layers[0].feed_forward = torch.nn.Linear(16, 16)
    return model


class NeedsItsWidth(ConvolutionalTranslator):
    """Its config alone does not build it."""

    def __init__(self, config, k):
        self.k = k
        super().__init__(config)


class Gelu(FeedForward):
    """The weights of a feed-forward network, and another function."""

    def forward(self, x):
        return self.w_2(torch.nn.functional.gelu(self.w_1(x)))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.encoder.layers[0], "feed_forward", Gelu(16, 32)),
        lambda m: setattr(m, "config", replace(m.config, h=2)),
        lambda m: setattr(m.source_embedding, "factor", 1.0),
        lambda m: setattr(m, "positions", None),
        lambda m: setattr(m.source_embedding, "factor", float("nan")),
    ],
)
def test_a_model_that_answers_otherwise_is_not_written(saved, change):
    """No weight shows that it computes other things."""
    model, before = small(), contents(saved)
    change(model)
    with pytest.raises(ValueError, match="answers otherwise"):
        save_model(saved, model)
    assert contents(saved) == before


@pytest.mark.parametrize(
    "model, how, said",
    [
        (lambda: spoilt(float("nan")), {}, r"back \(encoder.*w_k.*holds NaN"),
        (lambda: spoilt(float("-inf")), {}, "w_k.*holds NaN"),
        (lambda: spoilt(1e5), {"half": True}, "w_k.*holds NaN"),
        (exchanged, {}, "(?s)nothing was saved.*feed_forward.w_1"),
        (
            lambda: NeedsItsWidth(small().config, 5),
            {},
            "(?s)nothing was saved.*'k'",
        ),
        (small, {"place": pathlib.Path("x")}, "not JSON serializable"),
        (small, {"rate": float("nan")}, "not JSON compliant"),
        (lambda: torch.nn.Linear(2, 2), {}, "Linear is no Transformer"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(saved, model, how, said):
    before = contents(saved)
    with pytest.raises((ValueError, TypeError), match=said):
        save_model(saved, model(), **how)
    assert contents(saved) == before


def test_a_tokenizer_is_written_if_it_can_be_read_back(saved):
    model, tokenizer, _ = load_model(saved)
    before = contents(saved)
    with pytest.raises(ValueError, match="another model's tokenizer"):
        save_model(saved, small(), tokenizer)
    tokenizer.tokenizer.normalizer = Lowercase()
    with pytest.raises(ValueError, match="another make"):
        save_model(saved, model, tokenizer=tokenizer)
    assert contents(saved) == before
    tokenizer.tokenizer.normalizer = None
    save_model(saved, model, tokenizer=tokenizer)  # by its name, too
    assert load_model(saved)[1].encode("a dog") == tokenizer.encode("a dog")


def test_a_disk_that_is_full_for_the_draft_is_named(saved, monkeypatch):
    """A draft lies in the system's temporary folder, often a small one."""

    def full(model, path):
        raise SafetensorError("I/O error: No space left on device")

    before = contents(saved)
    monkeypatch.setattr(checkpoints, "write_safetensors", full)
    with pytest.raises(OSError, match=r"model.safetensors was not written"):
        save_model(saved, small())
    assert contents(saved) == before


@pytest.mark.parametrize("said", ["can't allocate memory", "unable to mmap"])
def test_full_memory_is_not_called_damage(tmp_path, monkeypatch, said):
    """PyTorch raises RuntimeError for it, as for a damaged file."""
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})

    def full(*arguments, **options):
        raise RuntimeError(f"{said}: Cannot allocate memory (12)")

    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(MemoryError, match="no memory to read"):
        load_checkpoint(path, model, optimizer)


def test_a_disk_that_fills_leaves_the_model_that_was_there(saved, monkeypatch):
    """Whichever of the new files no longer fits."""
    model, tokenizer, _ = load_model(saved)
    before = contents(saved)
    copyfile = checkpoints.shutil.copyfile
    for room in range(3):  # files
        left = iter([True] * room + [False])

        def copy(source, target, left=left):
            if not next(left):
                raise OSError("No space left on device")
            return copyfile(source, target)

        monkeypatch.setattr(checkpoints.shutil, "copyfile", copy)
        other = Transformer(replace(model.config, N=2))
        with pytest.raises(OSError, match="was not written.*No space"):
            save_model(saved, other, tokenizer)
        assert contents(saved) == before


def test_of_a_compiled_model_the_plain_one_is_saved(tmp_path):
    model = small()
    save_model(tmp_path, torch.compile(model))
    assert equal(load_model(tmp_path)[0], model)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "kind", [Transformer, RecurrentTranslator, ConvolutionalTranslator]
)
def test_each_translator_is_read_back_as_what_it_is(tmp_path, kind, half):
    """Large widths that a kind does not use must not be counted."""
    config = TransformerConfig.tiny(30, N=2, d_model=16, d_ff=24)
    model = kind(config).eval()
    save_model(tmp_path, model, half=half)
    read = load_model(tmp_path)[0]
    assert type(read) is kind and read.config == model.config
    ids = torch.randint(4, 30, (2, 5))
    rough = 0.1 if half else 0.0
    torch.testing.assert_close(
        read(ids, ids), model(ids, ids), atol=rough, rtol=0
    )
    held = json.loads((tmp_path / "config.json").read_text())
    assert held["class"] == kind.__name__


def test_a_class_that_nobody_imported_is_named(tmp_path):
    class Passing(Transformer):
        pass

    save_model(tmp_path, Passing(small().config))
    assert type(load_model(tmp_path)[0]) is Passing
    Passing.__name__ = "Elsewhere"
    with pytest.raises(ValueError, match="'Passing'.*import the module"):
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
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        mine, theirs = optimizer.state[a], moments.state[b]
        assert mine.keys() == theirs.keys()
        assert {"step", "exp_avg", "exp_avg_sq"} == set(mine)
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    path.unlink()  # what was read does not live in the file
    moments.param_groups[0]["lr"] = 0.01
    moments.step()


@pytest.mark.parametrize("step", [-1, 1.0, "1", None])
def test_a_step_that_no_file_name_can_hold_is_refused(tmp_path, step):
    model, optimizer = trained()
    with pytest.raises(ValueError, match="step=.* a whole number from 0"):
        save_checkpoint(tmp_path, model, optimizer, {"step": step})
    with pytest.raises(ValueError, match="step=None"):
        save_checkpoint(tmp_path, model, optimizer, {})
    with pytest.raises(ValueError, match="keep=0: give 1 or more"):
        save_checkpoint(tmp_path, model, optimizer, {"step": 1}, keep=0)
    assert not list(tmp_path.iterdir())


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
    # Of those that a stop left between, only the newest stays.
    for step in (4, 7, 8, 12, 14, 16, 18):
        save_checkpoint(tmp_path / "b", model, optimizer, {"step": step}, 2, 4)
    steps = [int(x.stem[-8:]) for x in checkpoint_files(tmp_path / "b")]
    assert steps == [12, 16, 18]


def test_a_training_writes_a_checkpoint_every_so_many_steps(tmp_path):
    there, weights = {}, {}

    def evaluate(model, step):
        """What the steps before this one left in the folder."""
        files = checkpoint_files(tmp_path)
        there[step] = [int(path.stem[-8:]) for path in files]
        weights[step] = copy.deepcopy(model.state_dict())

    pairs = [([i, 3], [i, i, 3]) for i in range(4, 20)]
    often = dict(checkpoint_every=4, keep_checkpoints=2, validate_every=1)
    config = TrainingConfig(max_steps=14, device="cpu", **often)
    train(small(), TokenBatches(pairs, 12), config, evaluate, tmp_path)
    assert there == {
        step: [at for at in (4, 8, 12) if at < step][-2:]
        for step in range(1, 15)
    }
    files = checkpoint_files(tmp_path)
    assert [int(path.stem[-8:]) for path in files] == [8, 12, 14]
    for path, step in zip(files, (8, 12, 14), strict=True):
        read = small(seed=1)
        assert load_checkpoint(path, read)["step"] == step
        for name, weight in read.state_dict().items():
            assert torch.equal(weight, weights[step][name])


def test_steps_of_nine_digits_are_found_and_sorted(tmp_path):
    model, optimizer = trained()
    for step in (99_999_999, 10**8, 10**8 + 1):
        save_checkpoint(tmp_path, model, optimizer, {"step": step}, keep=2)
    names = [path.stem for path in checkpoint_files(tmp_path)]
    assert names == ["checkpoint-100000000", "checkpoint-100000001"]


def test_a_checkpoint_under_another_steps_name_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, *trained(), {"step": 6})
    late = path.rename(tmp_path / "checkpoint-00000099.pt")
    with pytest.raises(ValueError, match="00000099.*after step 6"):
        load_checkpoint(late, small())
    mine = late.rename(tmp_path / "best.pt")
    assert load_checkpoint(mine, small()) == {"step": 6}


def test_nothing_is_lost_to_a_full_disk_or_to_nan(tmp_path, monkeypatch):
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
    with pytest.raises(FloatingPointError, match="step=3: a weight"):
        save(3)
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert after == before


def test_damaged_and_foreign_checkpoints(tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    for changes in ({"d_model": 32}, {"N": 2}, {"norm": "pre"}):
        other = small(seed=1, **changes)
        with pytest.raises(ValueError, match="(?s)0001.pt.*model.*options"):
            load_checkpoint(path, other)
        assert equal(other, small(seed=1, **changes))  # nothing was put in
    path.write_bytes(path.read_bytes()[:2000])
    for read in (lambda: load_checkpoint(path, model),
                 lambda: average_checkpoints([path])):  # fmt: skip
        with pytest.raises(ValueError, match="00000001.pt is damaged"):
            read()
    with pytest.raises(FileNotFoundError, match="gone"):
        load_checkpoint(tmp_path / "gone.pt", model)


NAME = "decoder.layers.0.self_attention.w_k.weight"
SPOILT = {
    "empty": lambda held: held.clear(),
    "no weights": lambda held: held.update(model=None),
    "a weight": lambda held: held["model"].update({NAME: "x"}),
    "a number of it": lambda held: held["model"][NAME][0].add_(1e-3),
    "whole numbers": lambda held: held["model"].update(
        {NAME: held["model"][NAME].to(torch.int8)}
    ),
    "no optimizer": lambda held: held.pop("optimizer"),
    "empty moments": lambda held: held["optimizer"]["state"].clear(),
    "moments": lambda held: held["optimizer"]["state"][0].clear(),
    "a moment": lambda held: held["optimizer"]["state"][0].update(
        exp_avg=torch.zeros(3)
    ),
    "its step": lambda held: held["optimizer"]["state"][0]["step"].add_(1),
    "no state": lambda held: held.pop("state"),
    "state": lambda held: held.update(state=5),
    "step": lambda held: held["state"].update(step=99),
    "position": lambda held: held["state"].update(position=-7),
    "no digests": lambda held: held.pop("sha256"),
}


def test_a_checkpoint_of_other_ties_is_of_another_model(tmp_path):
    """Of the same shapes: the last of three matrices would win."""
    models = {tie: small(tie=tie) for tie in ("none", "decoder", "three-way")}
    for tie, model in models.items():
        folder = tmp_path / tie
        path = save_checkpoint(folder, model, adam(model), {"step": 1})
        load_checkpoint(path, small(1, tie=tie))
        if tie == "three-way":
            continue
        other = small(1, tie="three-way")
        with pytest.raises(ValueError, match="another model .*are not tied"):
            load_checkpoint(path, other)
        assert equal(other, small(1, tie="three-way"))


@pytest.mark.parametrize("way", SPOILT)
def test_a_checkpoint_of_other_content(way, tmp_path):
    model, optimizer = trained()
    state = {"step": 1, "position": 3}
    path = save_checkpoint(tmp_path, model, optimizer, state)
    assert load_checkpoint(path, model, optimizer) == state
    held = torch.load(path)
    SPOILT[way](held)
    torch.save(held, path)
    with pytest.raises(ValueError, match="checkpoint-00000001.pt is damaged"):
        load_checkpoint(path, model, optimizer)
    if "weight" in way or way == "empty":
        with pytest.raises(ValueError, match="no checkpoint"):
            average_checkpoints([path])


def test_any_flipped_bit_of_a_checkpoint_is_seen_or_changes_nothing(tmp_path):
    model, optimizer = trained()
    state = {"step": 1, "position": 3, "log": "a line"}
    path = save_checkpoint(tmp_path, model, optimizer, state)
    good, seen = path.read_bytes(), 0
    other = small(seed=5)
    for place in range(0, len(good), len(good) // 200):
        path.write_bytes(good)
        flip(path, place, bit=place % 8)
        try:
            found = load_checkpoint(path, other)
        except (ValueError, FileNotFoundError):
            seen += 1
            continue
        assert found == state and equal(model, other)
    assert seen > 100


def test_a_file_that_cannot_be_opened_is_not_called_damaged(
    tmp_path, monkeypatch
):
    path = save_checkpoint(tmp_path, *trained(), {"step": 1})

    def refuse(*args, **how):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(PermissionError):
        load_checkpoint(path, small())


def test_the_settings_of_an_optimizer_stay_its_own(tmp_path):
    model, optimizer = trained()
    optimizer.param_groups[0]["betas"] = (0.5, 0.5)
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    other = adam(model)
    load_checkpoint(path, model, other)
    assert other.param_groups[0]["betas"] == (0.9, 0.98)
    other.param_groups[0]["lr"] = 0.01
    other.step()


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
    with pytest.raises(ValueError, match=f"{other} is of another model"):
        average_checkpoints(iter([paths[0], other]))


def test_a_config_from_before_starts_had_names_says_xavier(tmp_path):
    """Whatever the default is now, those models were drawn so."""
    save_config(tmp_path, small(init="small"))
    assert load_config(tmp_path).config.init == "small"
    without_digests(tmp_path)
    path = tmp_path / "config.json"
    held = json.loads(path.read_text())
    del held["model"]["init"]
    path.write_text(json.dumps(held))
    assert load_config(tmp_path).config.init == "xavier"
