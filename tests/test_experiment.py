"""A recorded training: settings, precision, and what may go wrong."""

import json
from dataclasses import replace

import pytest
import torch

from transformer_lib import experiment
from transformer_lib.checkpoints import checkpoint_files, save_config
from transformer_lib.experiment import (
    Experiment,
    pick_precision,
    recipe,
    run_experiment,
)
from transformer_lib.model import Transformer

CPU = torch.device("cpu")
QUICK = Experiment(
    vocab_size=300,
    limit=40,
    average=1,
    changes=dict(
        N=1,
        d_model=16,
        d_ff=16,
        h=2,
        tokens_per_batch=512,
        max_steps=3,
        log_every=1,
        checkpoint_every=1,
        device="cpu",
        precision="fp32",
    ),
)


def changed(**changes):
    return replace(QUICK, changes=QUICK.changes | changes)


@pytest.fixture
def finished(tmp_path):
    assert run_experiment(QUICK, tmp_path / "run")
    return tmp_path / "run"


def test_presets_take_the_papers_steps():
    def steps(preset, **changes):
        return recipe(preset, 300, 5, changes)[1].max_steps

    assert steps("tiny") == 5000
    assert steps("big", max_steps=7) == 7
    for average, kept in ((5, 5), (20, 20), (1, 5)):
        assert recipe("base", 300, average, {})[1].keep_checkpoints == kept


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"limit": 0}, "limit=0: give 1"),
        ({"limit": -3}, "limit=-3"),  # not all but three
        ({"average": 0}, "average=0"),
        ({"average": 2.0}, "average=2.0: give 1 or more, whole"),
        ({"languages": "en"}, "languages='en': give two"),
        ({"changes": {"dmodel": 16}}, "no setting 'dmodel': give a field"),
        (
            {"average": 3, "changes": {"keep_checkpoints": 2}},
            "keep_checkpoints=2 is too few for a mean of 3",
        ),
        ({"preset": "huge"}, "preset='huge': .*tiny"),
    ],
)
def test_what_no_experiment_can_mean_is_named(wrong, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        run_experiment(replace(QUICK, **wrong), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_corpus_is_named_by_a_text(tmp_path):
    with pytest.raises(TypeError, match="corpus=.*: give its name as text"):
        Experiment(corpus=tmp_path)


@pytest.mark.parametrize("native", [True, False])
def test_precision_auto_is_what_the_processor_can_do(
    native, monkeypatch, capsys
):
    able = {"amx_bf16": native, "avx2": True}
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: able, raising=False
    )
    wanted = "bf16" if native else "fp32"
    assert pick_precision("auto", CPU) == wanted
    assert recipe("tiny", 300, 5, {"device": "cpu"})[1].precision == wanted
    assert capsys.readouterr().err == ""
    assert pick_precision("bf16", CPU) == "bf16"
    assert ("imitates bf16" in capsys.readouterr().err) != native


def test_precision_auto_goes_on_as_the_training_began(finished, monkeypatch):
    """Whatever the machine could do; the report names what was used."""
    (finished / "report.json").unlink()
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"amx_bf16": True},
        raising=False,
    )
    assert run_experiment(changed(precision="auto"), finished)
    report = json.loads((finished / "report.json").read_text())
    assert report["training"]["precision"] == "fp32"


def test_a_finished_training_without_its_results_is_not_called_so(finished):
    assert run_experiment(QUICK, finished) is None
    report = (finished / "report.json").read_text()
    (finished / "report.json").write_text("")
    with pytest.raises(ValueError, match="damaged"):
        run_experiment(QUICK, finished)
    (finished / "report.json").write_text(report)
    (finished / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="lost"):
        run_experiment(QUICK, finished)
    (finished / "report.json").unlink()
    assert run_experiment(QUICK, finished)  # from its checkpoints
    assert (finished / "model.safetensors").is_file()


def test_fewer_steps_than_were_taken_are_refused(finished):
    (finished / "report.json").unlink()
    before = (finished / "log.jsonl").read_text()
    with pytest.raises(ValueError, match="0003.pt is beyond max_steps=2"):
        run_experiment(changed(max_steps=2), finished)
    assert not (finished / "report.json").exists()
    assert (finished / "log.jsonl").read_text() == before


def test_a_part_without_pairs_is_refused(tmp_path):
    for part in "train", "validation":
        for language in "en", "es":
            (tmp_path / f"{part}.{language}").write_text("one two\n" * 9)
    for language in "en", "es":
        (tmp_path / f"test.{language}").write_text("")
    own = replace(QUICK, corpus=str(tmp_path), test="test")
    with pytest.raises(ValueError, match="no pairs for test"):
        run_experiment(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_long_a_sentence_is_found_before_the_first_step(tmp_path):
    long = changed(positions="learned", max_length=12)
    with pytest.raises(ValueError, match="max_length=12: .*validation"):
        run_experiment(long, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "part, asked",
    [("validation", {"validation_bleu": True}), ("test", {"test": "test"})],
)
def test_too_long_to_translate_is_found_before_the_first_step(
    tmp_path, part, asked
):
    for name in "train", "validation", "test":
        text = "qz " * 600 if name == part else "one two"
        for language in "en", "es":
            (tmp_path / f"{name}.{language}").write_text(f"{text}\n" * 9)
    own = replace(QUICK, corpus=str(tmp_path), **asked)
    with pytest.raises(ValueError, match="reads up to 512: split it"):
        run_experiment(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_another_training_took_meanwhile(tmp_path, monkeypatch):
    """It began after the folder was read, and before the lock."""
    folder = tmp_path / "run"

    class Late(Transformer):
        def __init__(self, config):
            super().__init__(config)
            if not folder.exists():
                theirs = Transformer(config)
                save_config(folder, theirs, None, corpus="of another")

    monkeypatch.setattr(experiment, "Transformer", Late)
    with pytest.raises(ValueError, match="meanwhile"):
        run_experiment(QUICK, folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["info"]["corpus"] == "of another"
    assert not checkpoint_files(folder)
