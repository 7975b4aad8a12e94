"""A recorded run: settings, precision, and going on."""

import errno
import fcntl
import json
import math
import platform
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from translators import write_corpus

from transformer_lib import experiment
from transformer_lib.checkpoints import (
    checkpoint_files,
    load_config,
    load_model,
)
from transformer_lib.evaluation import HeldOut, evaluate
from transformer_lib.experiment import (
    Experiment,
    _choose_weights,
    describe_machine,
    pick_device,
    run_experiment,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer

QUICK = Experiment(
    model=TransformerConfig(300, N=1, d_model=16, d_ff=16, h=2),
    training=TrainingConfig(max_steps=3, log_every=1, checkpoint_every=1),
    tokens_per_batch=512,
    limit=40,
    average=1,
    device="cpu",
)


def trained_with(**changes):
    return replace(QUICK, training=replace(QUICK.training, **changes))


@pytest.fixture
def finished(tmp_path):
    assert run_experiment(QUICK, tmp_path / "run")
    return tmp_path / "run"


def test_auto_is_the_precision_that_the_cpu_has(tmp_path):
    info = Path("/proc/cpuinfo")
    if not info.exists():
        pytest.skip("this system does not say what its CPU can do")
    native = {"avx512_bf16", "amx_bf16"} & {*info.read_text().split()}
    native = native and hasattr(torch.cpu, "get_capabilities")  # since 2.13
    report = run_experiment(trained_with(precision="auto"), tmp_path)
    wanted = "bf16" if native else "fp32"
    assert report["training"]["precision"] == wanted


@pytest.mark.skipif(torch.accelerator.is_available(), reason="has a GPU")
def test_without_a_gpu_the_cpu_is_picked():
    assert pick_device() == torch.device("cpu")
    with pytest.raises(ValueError, match="no device 'cuda' here: try cpu"):
        pick_device("cuda")


def test_a_run_that_was_stopped_at_its_new_end_is_measured(finished):
    """Its last line has no validation: another step was to be the last."""
    history = SimpleNamespace(lines=[{"step": 3, "loss": 1.0}])
    model = load_model(finished).model
    found = _choose_weights(
        QUICK, model, finished, history, lambda name: {"validation_loss": 1.5}
    )
    assert found["validation_loss"] == 1.5


def test_a_run_goes_on_with_its_own_settings_only(finished, tmp_path):
    log = (finished / "log.jsonl").read_text()
    before = load_model(finished)[0].state_dict()
    report = json.loads((finished / "report.json").read_text())
    last = json.loads(log.splitlines()[-1])
    assert report["result"]["steps"] == last["step"] == 3
    assert report["result"]["seconds"] == last["seconds"]
    assert run_experiment(QUICK, finished) == report  # it is finished
    with pytest.MonkeyPatch.context() as torchrun:
        torchrun.setenv("RANK", "1")
        assert run_experiment(QUICK, finished) is None
    for other in (
        replace(QUICK, limit=39),
        replace(QUICK, half=True),
        replace(QUICK, model=replace(QUICK.model, d_ff=32)),
        trained_with(max_steps=5),
    ):
        with pytest.raises(ValueError, match="other options, but .* is fini"):
            run_experiment(other, finished)

    class Mine(Transformer):
        pass

    with pytest.raises(ValueError, match="class Transformer, not Mine"):
        run_experiment(QUICK, finished, model=Mine)
    with pytest.raises(ValueError, match="its command: $"):
        run_experiment(QUICK, finished, "train --from little-spanish")
    (finished / "report.json").unlink()
    for other in (
        replace(QUICK, limit=39),
        replace(QUICK, languages=("es", "en")),
        replace(QUICK, model=replace(QUICK.model, vocab_size=290)),
    ):
        with pytest.raises(ValueError, match="is of another run: "):
            run_experiment(other, finished)
        assert not (finished / "report.json").exists()
    assert run_experiment(QUICK, finished)
    assert (finished / "log.jsonl").read_text() == log
    for name, weight in load_model(finished)[0].state_dict().items():
        assert torch.equal(weight, before[name])
    (finished / "report.json").unlink()
    report = run_experiment(trained_with(max_steps=5), finished)
    assert report["result"]["steps"] == 5


def a_corpus(folder, **parts):
    for part in "train", "validation", "test":
        text = parts.get(part, "one two\n" * 9)
        write_corpus(folder, part, en=text, es=text)
    return replace(QUICK, corpus=str(folder))


def test_a_corpus_that_moved_is_the_same(tmp_path):
    """Its text is compared, not the way its path is written, or kept."""
    own = a_corpus(tmp_path / "own")
    out = tmp_path / "run"
    run_experiment(own, out)
    (out / "report.json").unlink()
    (tmp_path / "own").rename(tmp_path / "moved")
    moved = replace(own, corpus=tmp_path / "moved")
    report = run_experiment(moved, out)
    assert report["experiment"]["corpus"] == str(tmp_path / "moved")
    assert run_experiment(moved, out) == report


def test_validation_is_scored_in_its_language(tmp_path, monkeypatch):
    """Chinese is cut into characters: each translation here is exact."""
    texts = {"en": "a dog runs\n" * 9, "zh": "一只狗在跑。\n" * 9}
    write_corpus(tmp_path, "train", "validation", **texts)

    def greedy(self, model, beam_size):
        assert beam_size == 1
        return ["一只狗在跑。"] * len(self.sources)

    monkeypatch.setattr(HeldOut, "translate", greedy)
    own = replace(QUICK, corpus=str(tmp_path), languages=("en", "zh"))
    report = run_experiment(
        replace(own, validation_bleu=True), tmp_path / "run"
    )
    assert report["result"]["validation_bleu"] > 99
    assert report["result"]["samples"] == ["一只狗在跑。"] * 3


def test_seed_and_longest_sentence_reach_the_training(tmp_path, monkeypatch):
    given, train = [], experiment.train
    monkeypatch.setattr(
        experiment,
        "train",
        lambda *all, **more: given.append(all) or train(*all, **more),
    )
    still = trained_with(seed=7, learning_rate_scale=1e-30)
    own = replace(still, average=0, model=replace(QUICK.model, max_length=20))
    report = run_experiment(own, tmp_path)
    assert report["result"]["averaged_checkpoints"] == 1
    [(model, batches, *_)] = given
    torch.manual_seed(7)
    fresh = Transformer(model.config)
    assert torch.allclose(model.output_weight, fresh.output_weight)
    assert batches.seed == 7 and batches.lengths.max() == 20


def test_a_run_is_described_before_it_is_trained(tmp_path, monkeypatch):
    def stopped(*_, **__):
        config, tokenizer, info, _ = load_config(tmp_path)
        assert config.vocab_size == len(tokenizer)
        assert info["corpus"] == "little_spanish"
        assert info["languages"] == ["en", "es"]
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(QUICK, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


def test_what_is_tested_is_what_was_saved(tmp_path):
    """In half precision the weights are others than those in memory."""
    own = replace(QUICK, half=True, test="test", limit=20)
    report = run_experiment(own, tmp_path)
    saved, tokenizer, _ = load_model(tmp_path)
    scores = evaluate(saved, tokenizer, own.load("test"))
    lines = (tmp_path / "translations.txt").read_text("utf-8")
    assert lines == "\n".join(scores["translations"]) + "\n"
    assert report["test"]["nats_per_token"] == scores["nats_per_token"]


def test_the_precision_is_the_trainings():
    """Notebooks say it of an experiment."""
    exact = replace(Experiment.tiny(), precision="fp32")
    wanted = replace(Experiment.tiny().training, precision="fp32")
    assert exact.training == replace(exact, limit=5).training == wanted


def test_a_machine_is_described(tmp_path, monkeypatch):
    """Its commit is the book's, not that of a reader's project."""
    checkout = Path(__file__).parent.parent / "transformer_lib"
    monkeypatch.setattr(experiment, "files", lambda name: checkout)
    found = describe_machine()
    assert found["threads"] == torch.get_num_threads()
    assert found["kernels"] == torch.backends.cpu.get_cpu_capability()
    assert found["torch"] == torch.__version__
    info, names = Path("/proc/cpuinfo"), []
    if info.exists():
        names = re.findall(r"model name\s*: (.+)", info.read_text())
    assert found["processor"] in (names or [platform.machine()])
    assert re.fullmatch("[0-9a-f]{7,}(-dirty)?", found["commit"])
    place = tmp_path / "venv" / "transformer_lib"
    monkeypatch.setattr(experiment, "files", lambda name: place)
    (tmp_path / ".git").mkdir()
    assert describe_machine()["commit"] == "not recorded"
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".git").write_text("gitdir: nowhere\n")
    assert describe_machine()["commit"] == "not recorded"


def validating_like(losses, monkeypatch):
    """The model's losses, as they will be found: the mean's comes last."""
    rest = iter(losses)
    monkeypatch.setattr(experiment, "validation_loss", lambda *_: next(rest))


@pytest.mark.parametrize("average", [None, 3, 7])
def test_the_mean_is_of_the_last_five(average, tmp_path, monkeypatch):
    """Section 6.1, by the defaults: of eight checkpoints, five."""
    validating_like([3.0, 2.0], monkeypatch)
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


def test_a_mean_that_is_worse_than_the_last_is_not_saved(
    tmp_path, monkeypatch, capsys
):
    """As of a run that ends inside its warm-up."""
    validating_like([2.0, 3.0], monkeypatch)
    report = run_experiment(replace(QUICK, average=3), tmp_path)
    result = report["result"]
    assert result["averaged_checkpoints"] == 1
    assert result["validation_loss"] == 2.0
    assert result["other_choice"]["averaged_checkpoints"] == 3
    assert result["other_choice"]["validation_loss"] == 3.0
    said = capsys.readouterr().err
    assert "step 3: validation_loss 2.00" in said and "\r" not in said
    assert "mean of 3 checkpoints: validation_loss 3.00" in said
    assert "the last checkpoint alone is better" in said
    last = torch.load(checkpoint_files(tmp_path)[-1])["model"]
    for name, weight in load_model(tmp_path)[0].state_dict().items():
        assert torch.equal(weight, last[name])


# What is said, and what is refused, before a step is taken


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks(number, tmp_path, monkeypatch, capsys):
    """As NFS may be: it works, and a line says what it lacks."""

    def refused(*_):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert run_experiment(QUICK, tmp_path / "run")["result"]["steps"] == 3
    assert "no locks here: start no other run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 9.5}, {"average": 2.5}, {"half": "no"}]
)
def test_a_setting_that_cannot_be_right(wrong):
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name}=.*: give "):
        replace(QUICK, **wrong)


def test_each_text_is_read_and_tokenized_once(tmp_path, monkeypatch):
    """Validation and test, too, however often they are measured."""
    encoded, encode_all = [], BPETokenizer.encode_all

    def counted(self, texts):
        encoded.append(len(texts))
        return encode_all(self, texts)

    monkeypatch.setattr(BPETokenizer, "encode_all", counted)
    own = replace(trained_with(validate_every=1), validation_bleu=True)
    run_experiment(replace(own, test="test", average=2), tmp_path)
    encoded = [*filter(None, encoded)]  # a look at the tokenizer has none
    assert encoded == [40] * 6  # three parts of two sides


@pytest.mark.parametrize("max_length", [20, 2000])
def test_held_out_text_is_cut_where_the_model_ends(
    max_length, tmp_path, capsys
):
    """By one limit in validation, test and `evaluate`; it is counted."""
    long = "one two\n" * 4 + "two " * 3000 + "\n"
    own = a_corpus(tmp_path, validation=long, test=long)
    model = replace(QUICK.model, max_length=max_length)
    own = replace(own, model=model, validation_bleu=True, test="test")
    report = run_experiment(own, tmp_path / "run")
    assert report["test"]["left_out"] == 1
    assert report["test"]["sentences"] == 4
    said = capsys.readouterr().err
    assert said.count("1 of 5 pairs are left out") == 2
    assert said.index("left out of test") < said.index("step 3:")
    long = a_corpus(tmp_path, validation="two " * 3000 + "\n")
    with pytest.raises(ValueError, match="validation: there are no pairs"):
        run_experiment(long, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_another_programs_folder_stays_as_it_is(tmp_path):
    path = tmp_path / "translations.txt"
    path.write_text("a translator's own\n")
    with pytest.raises(ValueError, match="txt.*: name another folder"):
        run_experiment(QUICK, tmp_path)
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text() == "a translator's own\n"


def test_a_compiled_model_of_ones_own(tmp_path):
    """It trains, is averaged, saved and tested, and read as a plain one."""

    def compiled(config):
        return torch.compile(Transformer(config), backend="eager")

    own = replace(QUICK, average=2, test="test")
    report = run_experiment(own, tmp_path, model=compiled)
    assert report["result"]["other_choice"] and report["test"]
    assert run_experiment(own, tmp_path) == report
    plain = load_model(tmp_path).model
    assert not hasattr(plain, "_orig_mod")


def test_the_callers_dice_stay_as_they_are(tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run_experiment(QUICK, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


# A model that is trained already


def test_a_trained_model_is_trained_further(finished, tmp_path, capsys):
    """With its tokenizer; the folder is complete; it goes on as any."""
    own = a_corpus(tmp_path, train="tree house\n" * 40)
    still = replace(
        own,
        training=replace(
            Experiment.fine_tuning().training,
            max_steps=2,
            learning_rate_scale=1e-30,
        ),
    )
    run_experiment(still, tmp_path / "fine", start=finished)
    model, tokenizer, info = load_model(tmp_path / "fine")
    before, its_tokenizer, _ = load_model(finished)
    assert tokenizer.tokenizer.to_str() == its_tokenizer.tokenizer.to_str()
    assert model.config == before.config
    for weight, was in zip(
        model.parameters(), before.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, was)
    assert info["corpus"] == str(tmp_path)
    assert (tmp_path / "fine" / "report.json").exists()
    assert run_experiment(still, tmp_path / "fine", start=finished)
    for other in ("little-spanish", None):
        with pytest.raises(ValueError, match="other options"):
            run_experiment(still, tmp_path / "fine", start=other)
    path = tmp_path / "fine" / "report.json"
    report = json.loads(path.read_text())
    del report["experiment"]["start"]  # as reports were before they said it
    path.write_text(json.dumps(report))
    assert run_experiment(still, tmp_path / "fine", start=finished) == report
    del report["experiment"]
    path.write_text(json.dumps(report))
    with pytest.raises(ValueError, match="other options"):
        run_experiment(still, tmp_path / "fine", start=finished)
    assert "warning" not in capsys.readouterr().err


def test_a_report_is_json_also_of_a_run_that_diverged(tmp_path):
    """NaN, which only Python's reader knows, is null."""
    described = {"result": {"validation_loss": math.nan, "steps": 3}}
    report = experiment.write_report(tmp_path, "a command", described)
    assert report["result"] == {"validation_loss": None, "steps": 3}
    text = (tmp_path / "report.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == report
