"""The command line, as a reader uses it."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from transformer_lib.checkpoints import checkpoints, load_model
from transformer_lib.cli import main
from transformer_lib.translator import Translator

SMALL = (
    "--N 1 --d-model 32 --d-ff 64 --h 2 --vocab-size 400 --limit 200 "
    "--tokens-per-batch 512 --device cpu --log-every 1"
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


def module(*words):
    """The command in a process of its own, with one thread."""
    return [sys.executable, "-m", "transformer_lib", *words]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "little"
    words = training(
        folder, "--max-steps", 8, "--checkpoint-every", 4
    )
    assert main([*words, "--samples", "2", "--test", "test"]) == 0
    return folder


def test_training_leaves_all_that_is_promised(trained):
    there = {path.name for path in trained.iterdir()}
    assert there >= {
        "config.json",
        "tokenizer.json",
        "log.jsonl",
        "model.safetensors",
        "report.json",
        "card.md",
        "translations.txt",
    }
    assert checkpoints(trained)
    report = json.loads((trained / "report.json").read_text())
    assert report["finished"] and report["result"]["steps"] == 8
    assert "--max-steps 8" in report["command"]
    assert len(log(trained)[-1]["samples"]) == 2
    texts = (trained / "translations.txt").read_text()
    assert texts.count("\n") == 200  # --limit holds for the test too


def test_the_folder_is_a_model(trained, capsys):
    translator = Translator.from_pretrained(trained)
    assert translator.languages == ("en", "es")
    said = translator.translate("I like trees")
    words = ["translate", "--model", str(trained), "I like trees"]
    assert main(words) == 0
    assert capsys.readouterr().out == said + "\n"


def test_translates_the_standard_input_line_by_line(
    trained, capsys, monkeypatch
):
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("I like trees\n\nA\n")
    )
    words = ["translate", "--model", str(trained), "--beam-size", "1"]
    assert main(words) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[3] == ""


def test_evaluate_prints_bleu_with_its_signature(trained, capsys):
    words = ["evaluate", "--model", str(trained), "--limit", "20"]
    assert main([*words, "--split", "validation"]) == 0
    said = capsys.readouterr().out
    assert (
        "bleu: " in said and "tok:13a" in said and "version:" in said
    )


def test_average_writes_a_model(trained, tmp_path, capsys):
    out = tmp_path / "mean"
    words = ["average", "--model", str(trained), "--last", "2"]
    assert main([*words, "--out", str(out)]) == 0
    paths = checkpoints(trained)[-2:]
    assert len(paths) == 2
    from transformer_lib.checkpoints import average_checkpoints

    for name, mean in average_checkpoints(paths).items():
        assert torch.equal(weights(out)[name], mean)


def test_data_says_what_is_there(capsys):
    assert main(["data"]) == 0
    said = capsys.readouterr().out
    assert "train: " in said and "licence: " in said


def test_a_stopped_training_goes_on_as_if_it_had_not(
    tmp_path, capsys
):
    more = "--checkpoint-every", 3, "--max-steps"
    assert main(training(tmp_path / "a", *more, 9)) == 0
    assert main(training(tmp_path / "b", *more, 5)) == 0
    assert main(training(tmp_path / "b", *more, 9)) == 0
    for name, weight in weights(tmp_path / "a").items():
        assert torch.equal(weight, weights(tmp_path / "b")[name])


def test_a_killed_training_resumes(tmp_path, capsys):
    torch.set_num_threads(1)
    more = "--checkpoint-every", 5, "--max-steps", 60, "--threads", 1
    words = training(tmp_path / "killed", *more)
    process = subprocess.Popen(
        module(*words), stderr=subprocess.DEVNULL
    )
    limit = time.monotonic() + 120
    while not checkpoints(tmp_path / "killed"):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = len(log(tmp_path / "killed"))
    assert main(words) == 0
    steps = [line["step"] for line in log(tmp_path / "killed")]
    assert steps == list(range(1, 61)) and first < 60
    assert main(training(tmp_path / "whole", *more)) == 0
    for name, weight in weights(tmp_path / "whole").items():
        assert torch.equal(weight, weights(tmp_path / "killed")[name])


def test_a_terminated_training_stops_politely(tmp_path):
    more = "--checkpoint-every", 1, "--max-steps", 100_000
    words = training(tmp_path / "long", *more, "--threads", 1)
    process = subprocess.Popen(
        module(*words), stderr=subprocess.PIPE, text=True
    )
    limit = time.monotonic() + 120
    while not checkpoints(tmp_path / "long"):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on" in said


def test_a_budget_ends_with_a_model_and_the_command_goes_on(
    tmp_path, capsys
):
    words = training(tmp_path / "b", "--max-minutes", 0.02)
    began = time.monotonic()
    assert main(words) == 0
    assert time.monotonic() - began < 30
    first = log(tmp_path / "b")[-1]["step"]
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    assert not report["finished"]
    Translator.from_pretrained(tmp_path / "b").translate("Trees")
    assert main(words) == 0
    assert log(tmp_path / "b")[-1]["step"] > first


def test_own_files(tmp_path, capsys):
    (tmp_path / "a").write_text("one two\nthree\n" * 20)
    (tmp_path / "b").write_text("uno dos\ntres\n" * 20)
    files = []
    for name, place in ("source", "a"), ("target", "b"):
        files += [f"--{name}-file", str(tmp_path / place)]
        files += [f"--validation-{name}", str(tmp_path / place)]
    out = tmp_path / "own"
    assert main(training(out, "--max-steps", 3, *files)) == 0
    assert "validation_perplexity" in log(out)[-1]
    words = ["evaluate", "--model", str(out), *files[:2], *files[4:6]]
    assert main(words) == 0
    assert main([*words[:-2]]) == 2


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
        ("train --out x --max-steps 0", "step"),
        ("train --out x --table3 Z", "Z"),
        ("train --out x --source-file gone", "gone"),
        ("train --out x --source-file g --target-file h", "'g'|g is"),
        ("translate --model nope Hello", "nope"),
        ("evaluate --model nope", "nope"),
        ("evaluate --model little-spanish --split nope", "nope"),
        ("average --model nope --out x", "nope"),
        ("runs --queue nope.yml", "nope.yml"),
        ("runs --card nope", "nope"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("transformer_lib: ") and said.count("\n") == 1
    )
    assert any(name in said for name in named.split("|"))
    assert not list(tmp_path.glob("x/model.safetensors"))


def test_another_training_is_kept_out_of_the_folder(trained, capsys):
    before = (trained / "model.safetensors").read_bytes()
    assert main(training(trained, "--max-steps", 8, "--N", 2)) == 2
    assert "N=1, not 2" in capsys.readouterr().err
    words = training(
        trained, "--max-steps", 8, "--languages", "es", "en"
    )
    assert main(words) == 2
    assert "languages=" in capsys.readouterr().err
    assert (trained / "model.safetensors").read_bytes() == before


def test_two_workers(tmp_path):
    words = training(tmp_path / "two", "--max-steps", 4)
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    torchrun += ["--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "transformer_lib", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line["step"] for line in log(tmp_path / "two")] == [
        1,
        2,
        3,
        4,
    ]
    Translator.from_pretrained(tmp_path / "two").translate("Trees")
