"""A recorded run: settings, precision, and going on."""

import json
import subprocess
from dataclasses import replace

import pytest
import torch

from transformer_lib import experiment
from transformer_lib.checkpoints import (
    checkpoint_files,
    load_model,
    save_model,
)
from transformer_lib.corpora import ParallelCorpus
from transformer_lib.experiment import (
    Experiment,
    describe_machine,
    finite,
    pick_device,
    pick_precision,
    run_experiment,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig

CPU = torch.device("cpu")
QUICK = Experiment(
    model=TransformerConfig(300, N=1, d_model=16, d_ff=16, h=2),
    training=TrainingConfig(max_steps=3, log_every=1, checkpoint_every=1),
    tokens_per_batch=512,
    limit=40,
    average=1,
    device="cpu",
    precision="fp32",
)


def trained_with(**changes):
    return replace(QUICK, training=replace(QUICK.training, **changes))


@pytest.fixture
def finished(tmp_path):
    assert run_experiment(QUICK, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("native", [True, False])
def test_precision_auto_is_what_the_cpu_can_do(native, monkeypatch, capsys):
    able = {"amx_bf16": native, "avx2": True}
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: able, raising=False
    )
    assert pick_precision("auto", CPU) == ("bf16" if native else "fp32")
    assert capsys.readouterr().err == ""
    assert pick_precision("bf16", CPU) == "bf16"
    assert ("bf16 is slow" in capsys.readouterr().err) != native


def test_the_best_device_is_picked(monkeypatch):
    accelerator = torch.accelerator
    monkeypatch.setattr(accelerator, "is_available", lambda: False)
    assert pick_device() == pick_device("cpu") == CPU
    with pytest.raises(ValueError, match="no device 'cuda' here: try cpu"):
        pick_device("cuda")
    gpu = torch.device("cuda")
    monkeypatch.setattr(accelerator, "is_available", lambda: True)
    monkeypatch.setattr(accelerator, "current_accelerator", lambda: gpu)
    monkeypatch.setenv("LOCAL_RANK", "3")  # a worker of torchrun
    assert pick_device() == pick_device("cuda") == torch.device("cuda:3")
    assert pick_device("cpu") == CPU
    assert pick_device("cuda:1") == torch.device("cuda:1")


def test_precision_auto_goes_on_as_the_run_began(finished, monkeypatch):
    """Whatever the machine could do; the report names what was used."""
    (finished / "report.json").unlink()
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"amx_bf16": True},
        raising=False,
    )
    assert run_experiment(replace(QUICK, precision="auto"), finished)
    report = json.loads((finished / "report.json").read_text())
    assert report["training"]["precision"] == "fp32"


def test_a_run_goes_on_with_its_own_settings_only(finished, tmp_path):
    log = (finished / "log.jsonl").read_text()
    before = load_model(finished)[0].state_dict()
    assert run_experiment(QUICK, finished) is None  # it is finished
    (finished / "report.json").unlink()
    for other in (
        trained_with(seed=1),
        trained_with(max_steps=2),
        replace(QUICK, limit=39),
        replace(QUICK, languages=("es", "en")),
        replace(QUICK, model=replace(QUICK.model, dropout=0.2)),
        replace(QUICK, model=replace(QUICK.model, vocab_size=290)),
    ):
        with pytest.raises(ValueError, match=" (was|is beyond) "):
            run_experiment(other, finished)
        assert not (finished / "report.json").exists()
    assert run_experiment(QUICK, finished)
    assert (finished / "log.jsonl").read_text() == log
    for name, weight in load_model(finished)[0].state_dict().items():
        assert torch.equal(weight, before[name])
    assert run_experiment(trained_with(max_steps=5), finished) is None


def test_a_folder_with_a_model_is_not_trained_in(tmp_path):
    save_model(tmp_path, Transformer(QUICK.model))
    with pytest.raises(ValueError, match="holds a model"):
        run_experiment(QUICK, tmp_path)
    assert load_model(tmp_path)[0].config == QUICK.model


def a_corpus(folder, **parts):
    for part in "train", "validation", "test":
        for language in "en", "es":
            path = folder / f"{part}.{language}"
            path.write_text(parts.get(part, "one two\n" * 9))
    return replace(QUICK, corpus=str(folder))


def test_a_corpus_that_moved_is_the_same(tmp_path):
    """Its text is compared, not the way its path is written."""
    (tmp_path / "own").mkdir()
    own = a_corpus(tmp_path / "own")
    out = tmp_path / "run"
    run_experiment(own, out)
    (out / "report.json").unlink()
    (tmp_path / "own").rename(tmp_path / "moved")
    assert run_experiment(replace(own, corpus=f"{tmp_path}/moved/"), out)


def test_a_part_without_pairs_is_refused(tmp_path):
    own = replace(a_corpus(tmp_path, test=""), test="test")
    with pytest.raises(ValueError, match="no pairs for test"):
        run_experiment(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_report_holds_what_json_has_not(tmp_path, monkeypatch):
    infinite = float("inf")
    assert finite({"a": [infinite, 1.5], "b": -infinite, "c": "x"}) == {
        "a": [None, 1.5],
        "b": None,
        "c": "x",
    }
    monkeypatch.setattr(experiment, "perplexity", lambda loss: infinite)
    report = run_experiment(QUICK, tmp_path / "run")
    assert report["result"]["validation_perplexity"] is None
    for path in (tmp_path / "run").glob("*.json*"):
        assert "Infinity" not in path.read_text()


def test_what_is_averaged_is_kept(tmp_path):
    """However few checkpoints the settings would keep."""
    steps = trained_with(max_steps=8, keep_checkpoints=2)
    report = run_experiment(replace(steps, average=6), tmp_path / "six")
    assert report["result"]["averaged_checkpoints"] == 6
    report = run_experiment(replace(steps, average=0), tmp_path / "none")
    assert report["result"]["averaged_checkpoints"] == 1


def test_a_commit_is_the_books_own(tmp_path, monkeypatch, capfd):
    place = tmp_path / "venv" / "transformer_lib"
    monkeypatch.setattr(experiment, "files", lambda name: place)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert describe_machine()["commit"] == "not recorded"
    # Nor does what git says of a repository end the run, or its report.
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".git").write_text("gitdir: nowhere\n")
    assert describe_machine()["commit"] == "not recorded"
    assert capfd.readouterr().err == ""


def test_a_corpus_is_described_by_its_text():
    pairs = ParallelCorpus([("a", "b")], "own", "en", "es", "train", "")
    other = ParallelCorpus([("a", "c")], "own", "en", "es", "train", "")
    one, two = (experiment._describe(x)["sha256"] for x in (pairs, other))
    assert one != two


@pytest.mark.parametrize("average", [None, 3, 7])
def test_the_mean_is_of_the_last_five(average, tmp_path):
    """Section 6.1, by the defaults: of eight checkpoints, five."""
    eight = trained_with(max_steps=8, warmup_steps=10)
    used = average or Experiment().average
    assert used == average or used == 5
    report = run_experiment(replace(eight, average=used), tmp_path)
    assert report["result"]["averaged_checkpoints"] == used
    files = checkpoint_files(tmp_path)
    assert len(files) == max(used, 5)
    states = [torch.load(file)["model"] for file in files[-used:]]
    saved = load_model(tmp_path)[0].state_dict()
    assert saved.keys() == states[0].keys()
    for name, weight in saved.items():
        wanted = torch.stack([state[name] for state in states]).mean(0)
        torch.testing.assert_close(weight, wanted)
        assert not torch.equal(weight, states[-1][name])
