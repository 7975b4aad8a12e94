"""Files: whole or absent, read back equal, refused when damaged."""

import copy
import json
import os
import random
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save_file
from translators import equal

from transformer_lib.batching import TokenBatches
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_checkpoint,
    load_model,
    probe,
    save_checkpoint,
    save_config,
    save_model,
    write_atomically,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.experiment import write_report
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig, adam
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train
from transformer_lib.translator import Translator


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


def sixteen_pairs():
    return TokenBatches([([i, 3], [i, i, 3]) for i in range(4, 20)], 12)


@pytest.mark.parametrize("tie", ["three-way", "decoder", "none"])
def test_model_round_trip(tmp_path, tie):
    model = small(tie=tie)
    save_model(tmp_path, model, info={"languages": ["en", "es"]})
    read, tokenizer, info = load_model(tmp_path)
    assert equal(model, read) and read.config == model.config
    assert tokenizer is None and info == {"languages": ["en", "es"]}
    assert not read.training
    written = load_file(tmp_path / "model.safetensors")
    count = sum(tensor.numel() for tensor in written.values())
    assert count == sum(w.numel() for w in model.parameters())
    tied = read.source_embedding.weight is read.output_weight
    assert tied == (tie == "three-way")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_are_the_same_but_for_rounding(dtype):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(300)).to(dtype)
    assert probe(model).isfinite().all()


@pytest.fixture
def saved(tmp_path):
    """A folder with a model and its tokenizer."""
    tokenizer = BPETokenizer.train(["ein Hund", "a dog"], 270)
    sizes = {"N": 1, "d_model": 16, "d_ff": 32}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(len(tokenizer), **sizes))
    save_model(tmp_path, model, tokenizer, info={"languages": ["de", "en"]})
    return tmp_path


def test_a_training_with_numbers_of_numpys_goes_on(tmp_path):
    """As a sweep has them; a file with numpy's own would be refused."""
    scale, epsilon = np.geomspace(0.5, 2, 3, dtype=np.float32)[:2]
    config = TrainingConfig(learning_rate_scale=scale, epsilon=epsilon)
    sizes = dict(N=np.int64(1), dropout=np.float32(0.5), bias=np.bool_(True))
    save_model(tmp_path / "model", small(**sizes))
    assert load_model(tmp_path / "model").model.config.bias is True
    batches = TokenBatches([([5, 6, 3], [7, 3]), ([8, 3], [9, 3])], 20)
    for steps in 2, 3:
        steps = replace(config, max_steps=steps)
        model = small(**sizes)
        history = train(model, batches, steps, folder=tmp_path)
    assert history.lines[-1]["step"] == 3


def test_of_a_model_with_a_compiled_part_the_plain_one_is_saved(tmp_path):
    model = small()
    model.encoder = torch.compile(model.encoder, backend="eager")
    layers = model.decoder.layers
    layers[0] = torch.compile(layers[0], backend="eager")
    save_model(tmp_path / "model", model)
    read = load_model(tmp_path / "model").model
    assert compute_the_same(model.eval(), read)
    path = save_checkpoint(tmp_path, model, adam(model), {"step": 1})
    plain, other = small(seed=5), small(seed=6)
    other.encoder = torch.compile(other.encoder, backend="eager")
    for one in plain, other:
        load_checkpoint(path, one)
        assert compute_the_same(one.eval(), read)

    def whole(config):
        return torch.compile(Transformer(config), backend="eager")

    def part(config):
        built = Transformer(config)
        built.pre_softmax = torch.compile(built.pre_softmax, backend="eager")
        return built

    for build in whole, part:
        built = load_model(tmp_path / "model", build).model
        assert compute_the_same(built, read)


def compute_the_same(one, other):
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    with torch.no_grad():
        return torch.allclose(one(source, target), other(source, target))


def untied(model):
    weight = torch.randn_like(model.pre_softmax.weight)
    model.pre_softmax.weight = torch.nn.Parameter(weight)


def not_a_number(model):
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.w_1.weight[0, 0] = float("nan")


def too_large_for_half(model):
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.w_1.weight[0, 0] = 1e5


def hooked(model):
    part = model.encoder.layers[0].feed_forward
    part.register_forward_pre_hook(lambda module, given: (given[0] * -2,))


@pytest.mark.parametrize(
    "change",
    [untied, not_a_number, too_large_for_half, hooked],
)
def test_what_could_not_be_read_does_not_replace_a_good_model(
    tmp_path, change
):
    good, model = small(), small()
    save_model(tmp_path, good, half=True)
    change(model)
    with pytest.raises(ValueError, match="holds NaN|could not be loaded"):
        save_model(tmp_path, model, half=True)
    assert equal(load_model(tmp_path).model, good.half().float())


def test_weights_untied_by_hand_are_put_into_no_tied_model(tmp_path):
    model, other = small(), small()
    untied(model)
    path = save_checkpoint(tmp_path, model, adam(model), {"step": 1})
    with pytest.raises(RuntimeError, match="embedding.weight are tied, but"):
        load_checkpoint(path, other)
    save_config(tmp_path, other)
    with pytest.raises(ValueError, match="another model's .* are tied, but"):
        load_model(tmp_path, weights=average_checkpoints([path]))


def test_weights_tied_by_hand_are_read_again(tmp_path):
    model = small(tie="none").eval()
    model.pre_softmax.weight = model.target_embedding.weight
    save_model(tmp_path, model)
    assert compute_the_same(load_model(tmp_path).model, model)


class Mine(Transformer):
    def project(self, hidden):
        return super().project(hidden) / 2


class Scaled(Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("scale", torch.tensor(float("nan")))


@dataclass(frozen=True)
class Wider(TransformerConfig):
    window: int = 4


class WithMore(Transformer):
    def __init__(self, config, more):
        super().__init__(config)


def test_a_class_of_ones_own_is_named_in_the_folder(tmp_path):
    model = Mine(small().config).eval()
    save_model(tmp_path, model)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    assert content["class"] == "Mine"
    with pytest.raises(ValueError, match="of the class Mine, not Transformer"):
        load_model(tmp_path)
    assert compute_the_same(load_model(tmp_path, Mine).model, model)
    with pytest.raises(ValueError, match="'more'.*a class of your own"):
        save_model(tmp_path, WithMore(small().config, 3))
    with pytest.raises(ValueError, match="scale holds NaN"):
        save_model(tmp_path, Scaled(small().config))
    with pytest.raises(TypeError, match="DataParallel has no TransformerCon"):
        save_model(tmp_path, torch.nn.DataParallel(small()))
    mine = Mine(Wider.tiny(30))
    with pytest.raises(TypeError, match="Mine has no TransformerConfig"):
        save_model(tmp_path, mine)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"owner": "another program"}'),
        ("tokenizer.json", '{"theirs": 1}'),
        ("model.safetensors", "their weights"),
        ("log.jsonl", '{"step": 1, "loss": 2.5}\n'),
        ("report.json", "[1, 2]"),
        ("report.json", '{"result": '),
    ],
)
def test_no_file_of_another_program_is_touched(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    batches = TokenBatches([([5, 6, 3], [7, 3])], 20)
    for write in (
        lambda: save_model(tmp_path, small()),
        lambda: save_config(tmp_path, small()),
        lambda: train(small(), batches, TrainingConfig(), folder=tmp_path),
        lambda: write_report(tmp_path, "a command", {"result": {"steps": 1}}),
    ):
        with pytest.raises(ValueError, match=f"{name} is another program's"):
            write()
    assert [x.name for x in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


def test_a_folder_is_the_system_s_own(tmp_path, monkeypatch):
    """Modes by the umask, the home folder, links."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    home, disk = tmp_path / "model", tmp_path / "disk"
    save_model(home, small(seed=1))
    (home / "model.safetensors").rename(disk)
    (home / "model.safetensors").symlink_to(disk)
    before = os.umask(0o027)
    try:
        save_model("~/model", small())
    finally:
        os.umask(before)
    assert (home / "model.safetensors").is_symlink()
    assert not disk.is_symlink() and not (tmp_path / "~").exists()
    for path in home.iterdir():
        assert path.stat().st_mode & 0o777 == 0o640
    assert equal(load_model("~/model").model, small())
    (tmp_path / "later").symlink_to(tmp_path / "not yet")
    save_model("later", small())
    assert (tmp_path / "not yet" / "config.json").exists()
    save_checkpoint("~/run", small(), adam(small()), {"step": 1})
    [path] = checkpoint_files("~/run")
    assert load_checkpoint("~/run/checkpoint-00000001.pt") == {"step": 1}
    assert path == tmp_path / "run" / "checkpoint-00000001.pt"


def test_an_empty_path_is_not_this_folder(tmp_path, monkeypatch):
    """As a script's variable is that nobody has set; nor is a typing slip."""
    save_model(tmp_path, small())
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    batches = TokenBatches([([5, 6, 3], [7, 3])], 20)
    steps = TrainingConfig(max_steps=1)
    for call in (
        lambda given: save_model(given, small()),
        lambda given: save_checkpoint(given, small(), [], {"step": 1}),
        lambda given: train(small(), batches, steps, folder=given),
        load_model,
        checkpoint_files,
        BPETokenizer.load,
        load_corpus,
        Translator.from_pretrained,
    ):
        with pytest.raises(ValueError, match="a path is empty"):
            call("")
        with pytest.raises(FileNotFoundError, match="^~nobody-here/x: Could"):
            call("~nobody-here/x")
    assert {*tmp_path.iterdir()} == before


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


def test_a_training_writes_a_checkpoint_every_so_many_steps(tmp_path):
    there, weights = {}, {}

    def evaluate(model, step):
        """What the steps before this one left in the folder."""
        files = checkpoint_files(tmp_path)
        there[step] = [int(path.stem[-8:]) for path in files]
        weights[step] = copy.deepcopy(model)

    often = dict(checkpoint_every=4, keep_checkpoints=2, validate_every=1)
    config = TrainingConfig(max_steps=14, **often)
    train(small(), sixteen_pairs(), config, evaluate, tmp_path)
    assert there == {
        step: [at for at in (4, 8, 12) if at < step][-2:]
        for step in range(1, 15)
    }
    files = checkpoint_files(tmp_path)
    assert [int(path.stem[-8:]) for path in files] == [12, 14]
    for path, step in zip(files, (12, 14), strict=True):
        read = small(seed=1)
        assert load_checkpoint(path, read)["step"] == step
        assert equal(read, weights[step])


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
    for name, tensor in average_checkpoints(paths[:1]).items():
        assert tensor.equal(states[0][name])
    double = small().double()
    path = save_checkpoint(
        tmp_path / "double", double, adam(double), {"step": 1}
    )
    for name, tensor in average_checkpoints([path, path]).items():
        assert tensor.equal(double.state_dict()[name])
    with pytest.raises(ValueError, match="at least one"):
        average_checkpoints([])
    for one in paths[0], str(paths[0]):
        assert average_checkpoints(one).keys() == mean.keys()
    other = small(norm="pre"), small(h=2), Mine(small().config), small().half()
    for unlike in other:
        paths[1] = save_checkpoint(
            tmp_path / "unlike", unlike, adam(unlike), {"step": 1}
        )
        for order in paths, paths[::-1]:
            with pytest.raises(ValueError, match="hold unlike models"):
                average_checkpoints(order)


def test_a_disk_that_is_full_is_called_so(tmp_path):
    """In the system's words, and not in PyTorch's of positions in a file."""
    resource = pytest.importorskip("resource")  # not on Windows
    old = save_checkpoint(tmp_path, small(), [], {"step": 1})
    content = old.read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        with pytest.raises(OSError, match="1.pt is not written: .*too large"):
            save_checkpoint(tmp_path, small(), [], {"step": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [*tmp_path.iterdir()] == [old] and old.read_bytes() == content


def test_two_writers_of_one_path_do_not_meet(tmp_path, monkeypatch):
    path, sync = tmp_path / "file.txt", os.fsync

    def inner(file):
        monkeypatch.setattr(os, "fsync", sync)
        write_atomically(path, "inner")
        assert path.read_text() == "inner"

    monkeypatch.setattr(os, "fsync", inner)
    write_atomically(path, "outer")
    assert path.read_text() == "outer"


def some_steps(folder):
    torch.set_num_threads(1)
    model = small()
    config = TrainingConfig(max_steps=30, checkpoint_every=1, log_every=1)
    train(model, sixteen_pairs(), config, folder=folder)
    save_model(folder, model)


def test_a_run_that_is_killed_at_any_moment_goes_on(tmp_path):
    """kill -9, again and again: the same weights as in one go."""
    processes = get_context("forkserver")  # which has torch already
    processes.set_forkserver_preload([__name__])

    def begin(name):
        process = processes.Process(target=some_steps, args=[tmp_path / name])
        process.start()
        return process

    chance, kills = random.Random(0), 0
    for _ in range(4):
        before = checkpoint_files(tmp_path / "killed")[-1:]
        process = begin("killed")
        while process.is_alive():
            time.sleep(chance.uniform(0.01, 0.1))
            for path in checkpoint_files(tmp_path / "killed"):
                try:
                    load_checkpoint(path)  # whenever one looks, it is whole
                except (FileNotFoundError, ValueError):
                    # Deleted meanwhile, for a newer one?
                    assert not path.exists()
            steps = checkpoint_files(tmp_path / "killed")
            new = steps[-1:] != before
            if new and (not kills or chance.random() < 0.3):
                process.kill()
                process.join()
                kills += 1
    assert kills
    for name in "killed", "whole":
        process = begin(name)
        process.join()
        assert process.exitcode == 0
    one, other = (load_model(tmp_path / x)[0] for x in ("killed", "whole"))
    assert equal(one, other)


def test_a_run_with_another_interval_deletes_nothing_of_the_mean(tmp_path):
    def steps_of(max_steps, every):
        config = TrainingConfig(max_steps=max_steps, checkpoint_every=every)
        train(small(), sixteen_pairs(), config, folder=tmp_path)
        return [int(x.stem[-8:]) for x in checkpoint_files(tmp_path)]

    assert steps_of(10, 2) == [2, 4, 6, 8, 10]
    assert steps_of(12, 3) == [4, 6, 8, 10, 12]
    assert steps_of(13, 3) == [6, 8, 10, 12, 13]
    # 13 was only the end of a run, and its place is taken
    assert steps_of(15, 3) == [6, 8, 10, 12, 15]


def test_a_flipped_bit_of_a_checkpoint_is_seen_or_changes_nothing(tmp_path):
    model, optimizer = trained()
    state = {"step": 1, "position": 3, "log": "a line"}
    path = save_checkpoint(tmp_path, model, optimizer, state)
    good, seen = path.read_bytes(), 0
    for place in range(0, len(good), len(good) // 100):
        flipped = bytearray(good)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        other = small(seed=5)
        try:
            found = load_checkpoint(path, other)
        except ValueError as error:
            assert "00000001.pt is damaged" in str(error)
            seen += 1
        else:
            assert found == state and equal(model, other)
    assert seen > 50
    path.write_bytes(good[:2000])
    for read in load_checkpoint, lambda path: average_checkpoints([path]):
        with pytest.raises(ValueError, match="00000001.pt is damaged"):
            read(path)
    with pytest.raises(FileNotFoundError, match="gone"):
        load_checkpoint(tmp_path / "gone.pt", model)


def test_what_is_no_checkpoint_of_this_training_is_named(tmp_path):
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, {"step": 1})
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    other = small(seed=1)
    with pytest.raises(RuntimeError, match="with Adam, not with SGD"):
        load_checkpoint(path, other, sgd)
    assert equal(other, small(seed=1))
    torch.save(model.state_dict(), path)
    with pytest.raises(ValueError, match="not a checkpoint .'model'"):
        load_checkpoint(path, model)


def test_no_code_of_a_checkpoint_is_run(tmp_path):
    class Guest:
        def __reduce__(self):
            return exec, ("raise SystemExit('it ran')",)

    path = tmp_path / "checkpoint-00000001.pt"
    torch.save({"model": {}, "state": Guest()}, path)
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(path, small())


def test_a_folder_never_holds_the_tokenizer_of_another_model(saved):
    save_model(saved, small())
    assert not (saved / "tokenizer.json").exists()
    assert load_model(saved).tokenizer is None


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (dict(tokenizer=range(30)), TypeError, "range is no BPETokenizer"),
        (dict(tokenizer=BPETokenizer.train([], 260)), ValueError, "not a p"),
        (dict(info={"when": object()}), TypeError, "JSON serializable"),
        (dict(hlaf=True), TypeError, "hlaf"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, given, kind, words):
    with pytest.raises(kind, match=words):
        save_model(tmp_path / "new", small(), **given)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "not JSON", '{"model": {"n": 1}, "info": {}}']
)
def test_a_config_of_another_program_is_named(saved, text):
    (saved / "config.json").write_text(text)
    with pytest.raises(ValueError, match="config.json describes no model"):
        load_model(saved)


def test_missing_damaged_and_foreign_models(saved):
    def refused(what, kind=ValueError, folder=saved):
        with pytest.raises(kind, match=what):
            load_model(folder)

    refused("config.json", FileNotFoundError, saved / "nowhere")
    weights = saved / "model.safetensors"
    good = weights.read_bytes()
    for bad in (good[: len(good) // 2], b"something else entirely"):
        weights.write_bytes(bad)
        refused("model.safetensors is damaged")
    weights.unlink()
    refused("has not ended", FileNotFoundError)
    held = load(good)
    name = "decoder.layers.0.self_attention.w_k.weight"
    for value in "nan", "inf":
        save_file(held | {name: held[name] * float(value)}, weights)
        refused("model.safetensors holds NaN")
    weights.write_bytes(good)
    path = saved / "config.json"
    config = json.loads(path.read_text())
    for size, value in ("d_ff", 48), ("N", 2):
        changed = config["model"] | {size: value}
        path.write_text(json.dumps(config | {"model": changed}))
        refused("another model's")
