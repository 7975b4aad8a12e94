"""The command line, as a reader uses it."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
import tomllib
from contextlib import suppress

import pytest
import torch

from transformer_lib import cli, experiment
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_model,
    save_checkpoint,
    save_model,
)
from transformer_lib.cli import main
from transformer_lib.experiment import Experiment
from transformer_lib.model import TransformerConfig
from transformer_lib.rivals import RecurrentTranslator
from transformer_lib.schedule import TrainingConfig
from transformer_lib.translator import Translator

SMALL = (
    "--N 1 --d-model 32 --d-ff 64 --h 2 --vocab-size 400 --limit 200 "
    "--tokens-per-batch 512 --device cpu --log-every 1 --threads 1"
).split()


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def training(folder, *more):
    return ["train", *SMALL, "--out", str(folder), *map(str, more)]


def log(folder):
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def weights(folder):
    return load_model(folder)[0].state_dict()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "little"
    more = "--max-steps 8 --checkpoint-every 4 --average 2 --half"
    words = training(folder, *more.split(), "--test", "test")
    assert main([*words, "--validation-bleu"]) == 0
    return folder


def test_training_leaves_all_that_is_promised(trained):
    report = json.loads((trained / "report.json").read_text())
    assert list(report) == [
        *("name", "command", "training", "result", "machine", "test")
    ]
    assert report["training"]["max_steps"] == 8
    assert report["result"]["steps"] == 8
    assert report["result"]["averaged_checkpoints"] == 2
    assert "--max-steps 8" in report["command"]
    assert report["machine"]["commit"] != "not recorded"
    config = json.loads((trained / "config.json").read_text())
    assert config["info"]["languages"] == ["en", "es"]
    texts = (trained / "translations.txt").read_text()
    assert texts.count("\n") == 200  # --limit holds for the test too
    assert "validation_bleu" in log(trained)[-1]
    for name, mean in average_checkpoints(checkpoint_files(trained)).items():
        assert torch.allclose(weights(trained)[name], mean, atol=1e-3)


def test_a_readers_own_repository_is_not_ours(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    place = tmp_path / "venv" / "transformer_lib"
    monkeypatch.setattr(experiment, "files", lambda name: place)
    assert experiment.describe_machine()["commit"] == "not recorded"


def test_a_finished_training_is_left_alone(trained, capsys):
    before = (trained / "model.safetensors").stat().st_mtime_ns
    for path in checkpoint_files(trained):  # deleted for room
        path.rename(path.with_suffix(".moved"))
    try:
        for steps in (8, 9):
            assert main(training(trained, "--max-steps", steps)) == 0
            assert "is finished" in capsys.readouterr().err
            assert len(log(trained)) == 8
    finally:
        for path in trained.glob("*.moved"):
            path.rename(path.with_suffix(".pt"))
    for more, said in (
        (("--N", 2), "N=1, not 2"),
        (("--languages", "es", "en"), "languages="),
        (("--seed", 1), "seed=0, not 1"),
        (("--limit", 190), "pairs=200, not 190|sha256="),
    ):
        words = training(trained, "--max-steps", 8, *more)
        assert main(words) == 2
        line = capsys.readouterr().err
        assert any(part in line for part in said.split("|")), line
    after = (trained / "model.safetensors").stat().st_mtime_ns
    assert after == before


def test_translates_arguments_and_lines(trained, capsys, monkeypatch):
    said = Translator.from_pretrained(trained).translate("I like trees")
    words = ["translate", "--model", str(trained)]
    assert main([*words, "I like trees"]) == 0
    assert capsys.readouterr().out == said + "\n"
    lines = ["I like trees"] * 65 + ["", "word " * 2000, "A"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    assert main([*words, "--beam-size", "1"]) == 2
    found = capsys.readouterr()
    out = found.out.split("\n")
    assert len(out) == 69 and out[65] == out[66] == "" and out[67]
    assert "line 67: " in found.err


def test_evaluate_average_and_data(trained, tmp_path, capsys):
    words = ["evaluate", "--model", str(trained), "--limit", "20"]
    assert main([*words, "--to", str(tmp_path / "t")]) == 0
    said = capsys.readouterr().out
    assert "bleu: " in said and "tok:13a" in said
    assert (tmp_path / "t").read_text().count("\n") == 20
    out = tmp_path / "mean"
    words = ["average", "--model", str(trained), "--last", "1"]
    assert main([*words, "--out", str(out)]) == 0
    last = average_checkpoints(checkpoint_files(trained)[-1:])
    for name, mean in last.items():
        assert torch.equal(weights(out)[name], mean)
    assert main([*words, "--out", str(out)]) == 2  # it holds a model
    assert main(training(out, "--max-steps", 8)) == 2  # no training's
    assert load_model(out)[2]["mean_of"] == ["checkpoint-00000008"]
    words[2] = str(out)
    assert main([*words, "--out", str(tmp_path / "none")]) == 2
    assert "mean has no checkpoints" in capsys.readouterr().err
    assert main(["data"]) == 0
    said = capsys.readouterr().out
    assert "train pairs: 5000\n" in said and "licence: " in said


def test_a_training_that_ends_before_its_first_line(
    tmp_path, capsys, monkeypatch
):
    """Stopped, then given the steps that it has: the line is caught up."""

    def saved_and_stopped(*parts, **options):
        save_checkpoint(*parts, **options)
        raise KeyboardInterrupt

    how = "--log-every", 50, "--checkpoint-every", 2, "--max-steps"
    with monkeypatch.context() as patch:
        stop = "transformer_lib.training.save_checkpoint"
        patch.setattr(stop, saved_and_stopped)
        assert main(training(tmp_path, *how, 9)) == 130
    assert main(training(tmp_path, *how, 2)) == 0
    assert "steps: 2\n" in capsys.readouterr().out


def test_an_unfinished_training_translates_nothing(tmp_path, capsys):
    folder = tmp_path / "u"
    words = training(folder, "--max-steps", 10**6, "--checkpoint-every", 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_lib", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not checkpoint_files(folder):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    assert main(words) == 2  # while the other one writes
    assert "another training writes" in capsys.readouterr().err
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on" in said
    steps = int(checkpoint_files(folder)[-1].stem[-8:])
    for command in "translate", "evaluate":
        assert main([command, "--model", str(folder)]) == 2
        assert "has not ended" in capsys.readouterr().err
    more = "--checkpoint-every", 1, "--average", 1, "--max-steps"
    assert main(training(folder, *more, steps + 2)) == 0
    whole = tmp_path / "whole"
    assert main(training(whole, *more, steps + 2)) == 0
    for name, weight in weights(whole).items():
        assert torch.equal(weight, weights(folder)[name])


def test_a_folder_of_ones_own(tmp_path, capsys):
    texts = {"en": "one two\nthree\n", "es": "uno dos\ntres\n"}
    for language, text in texts.items():
        for part, times in (
            ("train", 20),
            ("validation", 2),
            ("test", 1),
        ):
            path = tmp_path / f"{part}.{language}"
            path.write_text(text * times)
    out = tmp_path / "own"
    words = training(out, "--max-steps", 6, "--corpus", tmp_path)
    assert main([*words, "--checkpoint-every", "1"]) == 0
    result = json.loads((out / "report.json").read_text())["result"]
    assert result["averaged_checkpoints"] == 5  # by default
    said = capsys.readouterr().out
    rate = result["target_tokens_per_second"]
    assert f"second: {round(rate, 4)}\n" in said
    assert "validation_perplexity" in log(out)[-1]
    assert main(["evaluate", "--model", str(out)]) == 0
    assert "sentences: 2" in capsys.readouterr().out
    (tmp_path / "train.es").write_text("uno dos\nTRES\n" * 20)
    assert main(words) == 2  # other text under the same name
    assert "sha256=" in capsys.readouterr().err
    (tmp_path / "test.en").unlink()
    words = training(tmp_path / "new", "--corpus", tmp_path)
    assert main([*words, "--test", "test"]) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words, named",
    [
        ("", "COMMAND"),
        ("fly", "fly"),
        ("train", "--out"),
        ("train --out x --preset huge", "huge"),
        ("train --out x --corpus nope", "nope"),
        ("train --out x --dropot 0.3", "--dropot"),
        ("train --out x --h 3", "h=3"),
        (f"train --out x --N {10**15}", "N="),
        (f"train --out x --N 1000 --d-ff {2**31}", "memory"),
        (f"train --out x --seed {10**20}", "seed="),
        ("train --out x --max-steps 0", "max_steps"),
        ("train --out x --average 0", "--average"),
        ("train --out x --device cpu:x", "cpu:x"),
        ("train --out x --test nope", "nope"),
        ("translate --model nope Hello", "nope"),
        ("evaluate --model nope", "nope"),
        ("evaluate --model little-spanish --split nope", "nope"),
        ("average --model nope --out x", "nope"),
        ("export --model nope --out x", "nope"),
        ("export --model little-spanish --out x --to nope", "nope"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_no_folder(
    words, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("transformer_lib: ")
    assert said.count("\n") == 1 and named in said
    assert not list(tmp_path.iterdir())


def test_a_model_without_languages_is_not_evaluated(trained, tmp_path, capsys):
    save_model(tmp_path, *load_model(trained)[:2])
    words = ["evaluate", "--model", str(tmp_path), "--corpus"]
    assert main([*words, "little_spanish"]) == 2
    assert "names no languages" in capsys.readouterr().err


def test_a_folder_of_save_model_is_no_training(trained, tmp_path, capsys):
    save_model(tmp_path, *load_model(trained)[:2])
    assert main(training(tmp_path, "--max-steps", 8)) == 2
    assert "holds a model" in capsys.readouterr().err


def test_help_has_a_text_for_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for kind in TransformerConfig(8), TrainingConfig(), Experiment():
        for name in {*vars(kind)} - {"changes"}:
            assert f"--{name.replace('_', '-')}" in said
            assert name == "changes" or f" {name}: " in said  # what it is
    assert "(25000)" in said and "(512)" in said
    assert "{auto,fp32,bf16}" in said and "{post,pre}" in said
    for option in commands()["train"]._actions:
        assert option.help


def commands():
    return cli._parser()._actions[-1].choices


@pytest.mark.parametrize("name", commands())
def test_help_has_an_example(name, capsys, tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    start = "\nExample: python -m transformer_lib "
    example = capsys.readouterr().out.partition(start)[2]
    words = shlex.split(example.splitlines()[0])
    assert words[0] == name and cli._parser().parse_args(words)
    monkeypatch.chdir(tmp_path)
    if "little-spanish" in words:  # it ships, so that they run
        assert main(words) == 0


def test_exit_codes(trained, capsys):
    """0, 1 and 2 are tested where they happen; here, their list."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    for code in "0 done", "1 our fault", "2 bad input", "130 stop":
        assert code in said
    for command, code in (
        ("translate --model little-spanish Trees", 0),
        ("translate --model nope Trees", 2),
    ):
        assert main(command.split()) == code


def test_a_fault_of_ours_is_a_traceback_and_a_1():
    """A dictionary without names stands in for the fault."""
    fault = "from transformer_lib import cli\ncli.pick_device = "
    fault += "{}.__getitem__\nraise SystemExit(cli.main(['translate',"
    fault += " '--model', 'little-spanish', 'Trees']))"
    done = subprocess.run(
        [sys.executable, "-c", fault], capture_output=True, text=True
    )
    assert done.returncode == 1 and "KeyError" in done.stderr


@pytest.mark.parametrize("way", ["-m", "console script"])
def test_stopped_while_torch_is_loaded(way, tmp_path, root):
    """An import that is interrupted, in the place of torch's."""
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")
    words = ["-m", "transformer_lib", "data"]
    if way == "console script":  # what an installer writes
        project = tomllib.loads((root / "pyproject.toml").read_text())
        entry = project["project"]["scripts"]["transformer-lib"]
        module, name = entry.split(":")
        words = f"import sys; from {module} import {name}; "
        words = ["-c", f"{words}sys.exit({name}())", "data"]
    paths = os.pathsep.join([str(tmp_path), str(root)])
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert (done.returncode, done.stderr) == (130, b"")


def document(capsys):
    """What stands on the standard output: one JSON document."""
    return json.loads(capsys.readouterr().out)


def test_json(trained, tmp_path, capsys):
    words = ["evaluate", "--model", str(trained), "--limit", "9"]
    assert main([*words, "--json"]) == 0
    found = document(capsys)
    assert found["sentences"] == 9 and 0 <= found["bleu"] <= 100
    assert main(["data", "--json"]) == 0
    found = document(capsys)
    assert found["train"]["pairs"] == 5000
    assert found["validation"]["first"][0][0].isascii()
    words = ["average", "--model", str(trained), "--out"]
    assert main([*words, str(tmp_path / "mean"), "--json"]) == 0
    assert len(document(capsys)["mean_of"]) == 2
    out = tmp_path / "small"
    words = training(out, "--max-steps", 2, "--test", "test")
    assert main([*words, "--json"]) == 0
    found = document(capsys)
    report = json.loads((out / "report.json").read_text())
    assert found == report["result"] | {"test": report["test"]}
    assert main([*words, "--json"]) == 0  # finished already
    assert document(capsys) == {}
    assert main(["evaluate", "--model", "nope", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_the_mean_of_a_model_with_any_info(trained, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    held = json.loads((folder / "config.json").read_text())
    odd = {"model": 1, "folder": 2, "config": 4}
    held["info"] |= odd
    del held["class"], held["sha256"]  # as in an older folder
    (folder / "config.json").write_text(json.dumps(held))
    words = ["average", "--model", str(folder), "--out"]
    assert main([*words, str(tmp_path / "mean")]) == 0
    assert load_model(tmp_path / "mean")[2].items() >= odd.items()


def test_a_rival_in_a_folder_translates(trained, tmp_path):
    """In a process of its own, where nobody has imported it."""
    tokenizer = load_model(trained)[1]
    config = TransformerConfig.tiny(len(tokenizer), N=1, d_model=8, d_ff=8)
    model = RecurrentTranslator(config)
    save_model(tmp_path, model, tokenizer, languages=["en", "es"])
    words = ["translate", "--model", str(tmp_path), "--device", "cpu", "A"]
    done = subprocess.run(
        [sys.executable, "-m", "transformer_lib", *words],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", ["terminal", "pipe"])
def test_progress(place, tmp_path):
    """A bar on a terminal, plain lines in a pipe."""
    terminal = place == "terminal"
    theirs, ours = os.openpty() if terminal else os.pipe()
    if terminal:
        termios.tcsetwinsize(theirs, (24, 80))
    words = training(tmp_path / "new", "--max-steps", 4)
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_lib", *words],
        stdout=subprocess.PIPE,
        stderr=ours,
    )
    os.close(ours)
    said = b""
    with suppress(OSError):  # how a terminal says that it is over
        while part := os.read(theirs, 4096):
            said += part
    out, _ = process.communicate(timeout=120)
    os.close(theirs)
    assert process.returncode == 0 and out.startswith(b"steps: 4\n")
    assert b"200 pairs of 200 fit" in said
    assert b"step 4: validation_loss " in said
    said = said.replace(b"\r\n", b"\n")
    assert (b"4/4" in said) == (b"\r" in said) == terminal


def test_exports(trained, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(cli, "export", lambda *all: made.append(all))
    words = ["export", "--model", str(trained), "--to", "onnx"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    translator, *others = made[0]
    assert isinstance(translator, Translator)
    assert others == [str(tmp_path), "onnx", False]
    assert main(["export", "--model", str(trained), "--out", "x"]) == 0
    assert made[1][1:] == ("x", "ctranslate2", False)


def test_two_workers(tmp_path):
    words = training(tmp_path / "two", "--max-steps", 4)
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    torchrun += ["--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "transformer_lib", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [x["step"] for x in log(tmp_path / "two")] == [1, 2, 3, 4]
    assert done.stdout.count("steps: 4") == 1
    Translator.from_pretrained(tmp_path / "two").translate("Trees")
