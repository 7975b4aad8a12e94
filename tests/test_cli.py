"""The command line, as a reader uses it."""

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from translators import write_corpus

from transformer_book.records import load_run
from transformer_lib import __version__, cli
from transformer_lib.checkpoints import (
    average_checkpoints,
    checkpoint_files,
    load_model,
)
from transformer_lib.cli import main
from transformer_lib.experiment import describe_machine
from transformer_lib.translator import Translator

SMALL = (
    "--N 1 --d-model 32 --d-ff 64 --h 2 --vocab-size 400 --limit 200 "
    "--tokens-per-batch 512 --device cpu --log-every 1"
).split()
MODULE = [sys.executable, "-m", "transformer_lib"]


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "little"
    more = "--max-steps 8 --checkpoint-every 4 --average 2 --half"
    words = training(folder, *more.split(), "--test", "test")
    assert main([*words, "--validation-bleu"]) == 0
    return folder


def test_training_leaves_all_that_is_promised(trained):
    report = json.loads((trained / "report.json").read_text())
    assert report["training"]["max_steps"] == 8
    last, result = log(trained)[-1], report["result"]
    assert result["steps"] == 8 and result["other_choice"]  # of two
    per_second = last["tokens"] / last["seconds"]
    assert result["target_tokens_per_second"] == per_second
    sizes = [w.numel() for w in load_model(trained)[0].parameters()]
    assert result["parameters"] == sum(sizes)
    assert "--max-steps 8" in report["command"]
    assert report["machine"]["commit"] == describe_machine()["commit"]
    texts = (trained / "translations.txt").read_text()
    assert texts.count("\n") == 200  # --limit holds for the test too
    assert "validation_bleu" in log(trained)[-1]


def test_exports(trained, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(cli, "export_model", lambda *all: made.append(all))
    words = ["export", "--model", str(trained), "--to", "onnx"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    translator, *others = made[0]
    assert isinstance(translator, Translator)
    assert others == [str(tmp_path), "onnx", False]
    words = ["export", "--model", str(trained), "--out", "x", "--int8"]
    assert main(words) == 0 and made[1][1:] == ("x", "ctranslate2", True)


def test_a_run_that_is_stopped_goes_on(tmp_path, capsys):
    folder = tmp_path / "u"
    words = training(folder, "--max-steps", 10**6, "--checkpoint-every", 1)
    process = subprocess.Popen([*MODULE, *words], stderr=subprocess.PIPE)
    until = time.monotonic() + 120
    while not checkpoint_files(folder):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    assert main(words) == 2  # while the other one writes
    assert ".lock" in capsys.readouterr().err
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and b"stopped" in said
    steps = int(checkpoint_files(folder)[-1].stem[-8:])
    more = "--checkpoint-every", 1, "--average", 1, "--max-steps"
    assert main(training(folder, *more, steps + 2)) == 0
    assert [line["step"] for line in log(folder)] == [*range(1, steps + 3)]


def test_evaluate_and_average(trained, tmp_path, capsys, monkeypatch):
    evaluated = ["evaluate", "--model", str(trained)]
    words = "--beam-size 1 --length-penalty 0.5 --limit 30".split()
    assert main([*evaluated, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["beam_size"] == 1 and found["length_penalty"] == 0.5
    assert found["languages"] == ["en", "es"]
    assert found["sentences"] == 30 and "tok:13a" in found["signature"]
    assert main([*evaluated, "--languages", "es", "en"]) == 2
    assert "give --languages en es, or leave" in capsys.readouterr().err
    assert found["split"] == "test" and "translations" not in found
    out = tmp_path / "mean"
    words = ["average", "--model", str(trained), "--last", "1"]
    assert main([*words, "--out", str(out)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["mean of"] == [checkpoint_files(trained)[-1].name]
    last = average_checkpoints(checkpoint_files(trained)[-1:])
    model, _, info = load_model(out)
    for name, mean in last.items():
        assert torch.equal(model.state_dict()[name], mean)
    assert info["corpus"] == "little_spanish"
    monkeypatch.setenv("HOME", str(tmp_path))
    with monkeypatch.context() as patch:  # it is said before the work
        patch.delattr(cli, "average_checkpoints")
        assert main([*words, "--out", "~/mean"]) == 2
    assert "~/mean is there: name a new" in capsys.readouterr().err
    assert main([*words[:-1], "0", "--out", f"{out}0"]) == 2
    assert "no checkpoints" in capsys.readouterr().err
    assert main([*words[:-1], "99", "--out", f"{out}99"]) == 0
    assert len(json.loads(capsys.readouterr().out)["mean of"]) == 2


@pytest.mark.parametrize(
    "words, sizes",
    [
        ([], (128, 5000, 4096, 5)),
        (["--from", "little-spanish"], (512, 500, 4096, 5)),
        (["--preset", "big", "--preset", "base"], (512, 100_000, 25_000, 5)),
        (["--max-steps", "7", "--preset=big"], (1024, 7, 25_000, 20)),
    ],
)
def test_a_preset_says_what_is_not_given(words, sizes, monkeypatch):
    given = []
    monkeypatch.setattr(
        cli, "run_experiment", lambda *run, **more: given.append(run)
    )
    more = ["--languages", "de", "en", "--half", "--precision", "fp32"]
    assert main(["train", "--out", "new", *words, *more]) == 0
    experiment, out, command = given[0]
    training = experiment.training
    found = experiment.model.d_model, training.max_steps
    found += experiment.tokens_per_batch, experiment.average
    assert found == sizes and out == "new"
    assert experiment.languages == ("de", "en")
    assert experiment.half and training.precision == "fp32"
    assert command.startswith("python -m transformer_lib train --out new")


@pytest.mark.parametrize("page", ["README.md", "book/results/after.md"])
def test_the_two_hours_are_those_of_the_command_beside_them(
    page, root, monkeypatch
):
    """It has every setting of the recorded run that decides the weights."""
    given = []
    monkeypatch.setattr(
        cli, "run_experiment", lambda *run, **more: given.append(run)
    )
    text = (root / page).read_text("utf-8").replace("\\\n", " ")
    [words] = re.findall(r"-m transformer_lib (train .* --out mine)\n", text)
    assert main(words.split()) == 0
    experiment, *_ = given[0]
    run = load_run("tatoeba-de-en")
    trained_on = run.config["info"]
    assert experiment.corpus == trained_on["corpus"]
    assert [*experiment.languages] == trained_on["languages"]
    assert vars(experiment.model) == run.config["model"]
    assert experiment.average == run.report["result"]["averaged_checkpoints"]
    ours = vars(experiment) | vars(experiment.training)
    for name, value in run.report["training"].items():
        if name in ours.keys() - {"precision", "device", "validate_every"}:
            assert json.loads(json.dumps(ours[name])) == value, name
    assert 2 < run.report["result"]["seconds"] / 3600 < 2.25


def test_pages_name_commands_that_there_are(root, capsys):
    pages = [root / "README.md", *root.glob("book/*/*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    named = set(re.findall(r"-m transformer_lib ([a-z]+)", text))
    assert named >= {"train", "translate"}
    for command in named:
        with pytest.raises(SystemExit, match="^0$"):
            main([command, "--help"])


def test_a_folder_of_ones_own_needs_no_test_set(tmp_path, capsys):
    texts = {"en": "one two\n" * 9, "es": "uno dos\n" * 9}
    write_corpus(tmp_path, "train", "validation", **texts)
    out = tmp_path / "own"
    assert main(training(out, "--max-steps", 2, "--corpus", tmp_path)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["steps"] == 2 and printed["test"] == {}
    assert main(["evaluate", "--model", str(out)]) == 2
    assert "another split" in capsys.readouterr().err
    words = ["evaluate", "--model", str(out), "--split", "validation"]
    assert main(words) == 0


TREES = "Me gustan los árboles"


def test_a_pipe_is_answered_line_by_line_until_its_reader_goes_away():
    """A program that sends one line need not wait; it gets UTF-8."""
    with subprocess.Popen(
        [*MODULE, "translate", "--model", "little-spanish"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    ) as process:

        def send(line):
            process.stdin.write(line)
            process.stdin.flush()

        for _ in range(2):
            send(b"I like trees\n")
            assert process.stdout.readline().decode() == f"{TREES}\n"
        process.stdout.close()
        send(b"I like trees\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def translated(monkeypatch):
    """Calls of `translate`, which gives back what it is given."""
    calls = []
    monkeypatch.setattr(
        Translator,
        "translate",
        lambda self, texts, *how, split=False: (
            calls.append((texts, *how)) or list(texts)
        ),
    )
    return calls


@pytest.fixture
def translate(monkeypatch, tmp_path, capsys):
    """The exit code and what is said of bytes in standard input."""

    def run(content, *options):
        path = tmp_path / "input"
        path.write_bytes(content)
        with open(path, "rb") as file:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=file))
            words = ["translate", "--model", "little-spanish", *options]
            code = main(words)
        return code, *capsys.readouterr()

    return run


def test_what_is_there_already_is_one_batch(monkeypatch, translate):
    batches = translated(monkeypatch)
    content = b"I like trees\n" * 300 + b"no newline at the end"
    assert translate(content)[0] == 0
    lengths = [len(texts) for texts, *_ in batches if texts]
    assert lengths == [301] and batches[-1][0][-1] == "no newline at the end"
    translate(b" ".join([b"I"] * 512))  # as long as may be
    assert batches[-1][0][0].count("I") == 512
    assert batches[-1][1:] == (4, 0.6)  # the paper's beam and alpha


def test_the_encoding_is_that_of_the_beginning(monkeypatch, translate):
    """What is read later may begin with a line that isn't UTF-8."""
    translated(monkeypatch)
    content = b"I like trees\n" * 5042 + b"\xff\n" * 3  # just over 64 KiB
    code, printed, said = translate(content)
    assert code == 0 and printed.count("\n") == 5045
    assert said.count("is left empty: not UTF-8") == 3


def test_a_line_may_be_a_paragraph(translate):
    """Too long is then a sentence, not the line."""
    content = b"I like trees. " * 300 + b"\n\n" + b"word " * 2000
    code, printed, said = translate(content, "--split")
    assert code == 0 and "line 3 is left empty" in said
    first, *rest = printed.split("\n")
    assert first.count("gustan") == 300 and rest == ["", "", ""]


def test_lines_as_they_come(translate):
    """Other separators end no line; a bad line takes no other with it."""
    lines = [
        "\ufeffI like trees\r",
        "",
        "word " * 2000,
        "I like\u2028trees\x0b\x0c\x85\u2029",
        "I like trees",
        "I like trees\rI like trees",
    ]
    text = "\n".join(lines).encode() + b"\nI like \xff trees\nI \0 like\n"
    code, printed, said = translate(text)
    wanted = [TREES, "", "", TREES, TREES, "", "", "", ""]
    assert code == 0 and printed.split("\n") == wanted
    said = said.splitlines()
    assert [line[:20] for line in said] == [
        f"line {number} is left empty" for number in (3, 6, 7, 8)
    ]
    for line, reason in zip(
        said,
        ["over 512: --split", "a carriage return", "not UTF-8", "a NUL"],
        strict=True,
    ):
        assert reason in line


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_input_in_utf_16_is_refused(encoding, translate):
    code, printed, said = translate("I like trees\n".encode(encoding))
    assert code == 2 and printed == "" and "the input is UTF-16" in said


def test_alpha_is_an_option(monkeypatch, capsys):
    given = translated(monkeypatch)
    words = ["translate", "--model", "little-spanish", "--beam-size", "2"]
    words += ["--length-penalty", "1.5", "--", "A", "--debug"]
    assert main(words) == 0
    assert given == [(["A", "--debug"], 2, 1.5)]
    assert capsys.readouterr().out == "A\n--debug\n"


def test_what_is_the_process_own_is_set_by_the_command_alone(monkeypatch):
    """A call from Python leaves the caller's threads and settings."""

    def load(model, device):
        assert device == torch.device("cpu")
        threads.append(torch.get_num_threads())
        raise ValueError("no model is needed")

    threads, matmul = [], torch.backends.cuda.matmul
    monkeypatch.setattr(Translator, "from_pretrained", load)
    before = matmul.allow_tf32
    monkeypatch.setattr(logging.getLogger("transformer_lib"), "level", 0)
    for name in "LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY":
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    matmul.allow_tf32 = False
    assert main(["translate", "--model", "x", "--device", "cpu"]) == 2
    assert not matmul.allow_tf32 and "LRU_CACHE_CAPACITY" not in os.environ
    threads.clear()
    for command in "translate", "evaluate":
        torch.set_num_threads(2)
        words = [command, "--model", "little-spanish", "--device", "cpu"]
        assert main(words) == 2
        monkeypatch.setattr(sys, "argv", ["transformer-lib", *words])
        assert main() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")  # now as it says
    assert threads == [2, 1, 2, 2]
    assert os.environ["LRU_CACHE_CAPACITY"] == "8" and matmul.allow_tf32
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    matmul.allow_tf32 = before


def test_one_line_or_with_debug_the_traceback(capsys):
    words = ["translate", "--model", "gibberish", "Hello"]
    for more, traced in ([], False), (["--debug"], True):
        assert main([*words, *more]) == 2
        said = capsys.readouterr().err
        assert said.startswith("transformer_lib: 'gibberish' is no folder")
        assert ("Traceback" in said and "find_model" in said) == traced
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_what_skips_bad_lines_in_training_skips_them_in_evaluation(
    tmp_path, capsys
):
    write_corpus(tmp_path, en="one two\n" * 9, es="uno dos\n" * 9)
    (tmp_path / "test.en").write_text("one two\n\n" + "one two\n" * 7)
    words = training(tmp_path / "run", "--max-steps", 2, "--test", "test")
    skip = ["--skip-bad-lines"]
    with pytest.warns(UserWarning, match="skipped 1 of 9 lines"):
        assert main([*words, "--corpus", str(tmp_path), *skip]) == 0
        capsys.readouterr()
        words = ["evaluate", "--model", str(tmp_path / "run")]
        assert main([*words, *skip]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == 8
    assert main(words) == 2 and "a side is empty" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_service_may_close_a_stream(closed, tmp_path):
    """Without an input there are no lines; an output goes nowhere."""
    words = shlex.join([*MODULE, "translate", "--model", "little-spanish"])
    words += "" if closed == "<&-" else " 'I like trees'"
    shell = ["sh", "-c", f"{words} {closed}"]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == ("" if closed != "2>&-" else f"{TREES}\n")


@pytest.mark.parametrize(
    "error, said",
    [
        (torch.OutOfMemoryError("out of memory: fewer\nmore"), "fewer$"),
        (MemoryError(), "MemoryError$"),
        (OSError(28, "No space left on device", "a/b"), "No space .* 'a/b'"),
        (RuntimeError("size mismatch\nand more"), "size mismatch$"),
        (ImportError("x is missing: pip install x"), "pip install x$"),
    ],
)
def test_what_is_raised_is_one_line(
    error, said, tmp_path, monkeypatch, capsys
):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(cli, "run_experiment", fails)
    assert main(training(tmp_path / "x")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(said, line) and line.startswith("transformer_lib: ")


def test_fine_tuning_leaves_a_whole_folder(tmp_path, capsys, monkeypatch):
    texts = {"en": "I like trees\n" * 20, "es": "Arre\n" * 20}
    write_corpus(tmp_path / "own", **texts)
    monkeypatch.chdir(tmp_path)
    words = "train --from little-spanish --corpus own --max-steps 30 --device"
    words += " cpu --warmup-steps 10 --learning-rate-scale 0.1 --test test"
    assert main([*words.split(), "--out", "fine"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["evaluate", "--model", "../fine"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["exact"] == 1 and found["languages"] == ["en", "es"]
    assert found["beam_size"] == 4 and found["length_penalty"] == 0.6
    found = Translator.from_pretrained("../fine").translate("I like trees")
    assert found == "Arre"


def test_a_model_that_does_not_say_its_text_is_told_what_to_give(
    tmp_path, capsys
):
    ours = Translator.from_pretrained("little-spanish")
    Translator(ours.model, ours.tokenizer).save(tmp_path / "mine")
    words = ["evaluate", "--model", str(tmp_path / "mine")]
    assert main(words) == 2
    assert "its corpus: give --corpus" in capsys.readouterr().err
    assert main([*words, "--corpus", "little_spanish"]) == 2
    assert "its languages: give --languages" in capsys.readouterr().err


def test_steps_that_a_gpu_does_not_replay_are_said(capsys, monkeypatch):
    monkeypatch.setattr(cli, "why_not_replayed", lambda _: "it is on cuda:1")
    weight = SimpleNamespace(is_cuda=True)
    model = SimpleNamespace(parameters=lambda: iter([weight]))
    assert cli._gradients(model) is None
    assert "not replayed: it is on cuda:1" in capsys.readouterr().err
