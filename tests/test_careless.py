"""A table of careless and hostile input: one line, nothing left.

Each try goes through `main` or a loader with a tiny model. Whatever
comes in, the exit code is 0 or 2, what is wrong is said in one line,
and no file is changed, half written or claimed.
"""

import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer_lib import checkpoints, cli, experiment
from transformer_lib.checkpoints import (
    load_model,
    save_checkpoint,
    save_model,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import adam
from transformer_lib.tokenization import BPETokenizer

ENGLISH = "a dog runs\na cat sleeps\nthe tree grows\n"
SPANISH = "un perro corre\nun gato duerme\nel árbol crece\n"
SPLITS = "train", "validation", "test"
FAR_ENOUGH = "far enough for this test"


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a corpus and, in `model`, a model."""
    folder = tmp_path_factory.mktemp("made")
    for split in SPLITS:
        (folder / f"{split}.en").write_text(ENGLISH, "utf-8")
        (folder / f"{split}.es").write_text(SPANISH, "utf-8")
    texts = (ENGLISH + SPANISH).splitlines()
    tokenizer = BPETokenizer.train(texts, 270)
    config = TransformerConfig(len(tokenizer), N=1, d_model=8, d_ff=8, h=2)
    torch.manual_seed(0)
    save_model(
        folder / "model",
        Transformer(config),
        tokenizer,
        languages=["en", "es"],
        corpus="corpus",
    )
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of the corpus and of the model, in the current folder."""
    shutil.copytree(made, tmp_path / "corpus")
    (tmp_path / "corpus/model").rename(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "no"))

    def train(*all):
        raise ValueError(FAR_ENOUGH)

    monkeypatch.setattr(experiment, "train", train)
    return tmp_path


def content(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def tried(here, capsys, *words):
    """(exit code, what was said) of a command, which left nothing."""
    before = content(here)
    try:
        code = cli.main(list(words))
    finally:
        after = content(here)
    said = SimpleNamespace(**capsys.readouterr()._asdict())
    assert code in (0, 2)
    if FAR_ENOUGH in said.err:
        said.err = re.sub(r"^\d+ pairs of \d+ fit\n", "", said.err)
    if code == 2:
        assert said.err.count("\n") == 1, said.err
        assert said.err.startswith(("transformer_lib: ", "line "))
        assert len(said.err) < 1000
    if FAR_ENOUGH in said.err:
        out = here / "out"
        kept = {path.name for path in out.iterdir()}
        assert kept == {"config.json", "tokenizer.json", ".lock"}
        after = {p: x for p, x in after.items() if out not in p.parents}
    else:
        assert not (here / "out").exists()
    assert after == before
    return code, said


# Options. HUGE is more than any memory, so that it is never taken.

HUGE = str(10**15)
ODD = "nan", "inf", "-1", "0", HUGE, "x", "", "1e3", "0x10", "\u00bd"
NO_NUMBERS = "nan", "inf", "-1", "x", "", "0x10", "\u00bd"
TRAIN = (
    "train --out out --corpus corpus --vocab-size 270 --N 1 "
    "--d-model 8 --d-ff 8 --h 2 --device cpu --threads 1"
).split()
SETTINGS = (
    "N d-model d-ff h d-k d-v dropout attention-dropout relu-dropout "
    "max-length label-smoothing warmup-steps tokens-per-batch "
    "accumulate max-steps learning-rate-scale epsilon clip-norm seed "
    "log-every validate-every checkpoint-every keep-checkpoints "
    "vocab-size limit average threads"
).split()


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("option", SETTINGS)
def test_numbers_of_a_training(option, value, here, capsys):
    code, said = tried(here, capsys, *TRAIN, f"--{option}", value)
    assert code == 2
    if value in NO_NUMBERS:
        assert option in said.err.replace("_", "-")
    if value == HUGE and FAR_ENOUGH not in said.err:
        # the remedy for it, or the field that is wrong
        named = option in said.err.replace("_", "-")
        assert named or "memory is full" in said.err


def model_words(command):
    more = ["a dog"] if command == "translate" else []
    more += ["--corpus", "corpus"] if command == "evaluate" else []
    more += ["--out", "out"] if command == "average" else []
    return [command, "--model", "model", *more]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "command, option",
    [
        ("translate", "beam-size"),
        ("translate", "length-penalty"),
        ("translate", "threads"),
        ("evaluate", "limit"),
        ("evaluate", "beam-size"),
        ("average", "last"),
    ],
)
def test_numbers_of_the_others(command, option, value, here, capsys):
    words = model_words(command)
    code, said = tried(here, capsys, *words, f"--{option}", value)
    if value in NO_NUMBERS and (option, value) != (
        "length-penalty",
        "-1",
    ):
        assert code == 2 and option in said.err.replace("_", "-")
    if (option, value) == ("beam-size", HUGE):
        assert code == 2  # and at once


# Models


def sizes(**changes):
    """config.json with other sizes."""
    return lambda held: held["model"].update(changes)


def info(**changes):
    return lambda held: held["info"].update(changes)


CONFIGS = [
    *(sizes(**{name: value})
      for name in ("vocab_size", "N", "d_model", "d_ff", "h", "norm",
                   "d_k", "max_length", "dropout", "positions", "tie")
      for value in (-1, 0, 1.5, "8", [8], {}, True, 10**30)
      if not (name == "dropout" and value == 0)
      and not (name == "max_length" and value == 10**30)),
    *(info(languages=value)
      for value in (5, "en", ["en"], ["en", 5], None, {}, True)),
    *(info(corpus=value) for value in (5, None, ["corpus"], {})),
    lambda held: held.pop("model"),
    lambda held: held["model"].pop("vocab_size"),
    lambda held: held.update(model=5),
    lambda held: held.update(info=5),
    lambda held: held["model"].update(colour="red"),
]  # fmt: skip


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_fields_of_a_config(number, older, here, capsys):
    path = here / "model/config.json"
    held = json.loads(path.read_text())
    if older:
        forget_digests(held)
    CONFIGS[number](held)
    path.write_text(json.dumps(held))
    code, _ = tried(here, capsys, *model_words("translate"))
    assert code == 2, held


SPOILT = {
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "half": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-2],
    "twice": lambda content: content + content,
    "zeros": lambda content: bytes(len(content)),
    "a page": lambda content: b"<html><body>404</body></html>",
    "latin-1": lambda content: b"\xfc" + content,
    "a list": lambda content: b"[]",
    "a null": lambda content: b"null",
    "nested": lambda content: b"[" * 10**5,
    "long": lambda content: struct.pack("<Q", 2**60) + content[8:],
}


@pytest.mark.parametrize("way", SPOILT)
@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "model.safetensors"]
)
def test_files_of_a_model(file, way, here, capsys):
    path = here / "model" / file
    path.write_bytes(SPOILT[way](path.read_bytes()))
    code, said = tried(here, capsys, *model_words("translate"))
    assert code == 2 and file in said.err


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "model.safetensors"]
)
@pytest.mark.parametrize("folder", [False, True])
def test_missing_files_of_a_model(file, folder, here, capsys):
    (here / "model" / file).unlink()
    if folder:
        (here / "model" / file).mkdir()
    code, said = tried(here, capsys, *model_words("translate"))
    assert code == 2 and "model" in said.err


def forget_digests(held):
    """config.json as it was written before there were any."""
    del held["class"], held["sha256"]


def rewritten(here, change):
    """The weights as others may write them, in an older folder."""
    path = here / "model/config.json"
    held = json.loads(path.read_text())
    forget_digests(held)
    path.write_text(json.dumps(held))
    path = here / "model/model.safetensors"
    save_file({n: change(w) for n, w in load_file(path).items()}, path)


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_weights_of_other_floats(kind, here, capsys):
    rewritten(here, lambda weight: weight.to(kind))
    assert tried(here, capsys, *model_words("translate"))[0] == 0


# Texts

ONE = b"a dog runs\n"
BAD_TEXTS = {
    "empty": b"",
    "blank": b"\n\n\n",
    "spaces": b" \t \n" * 3,
    "a blank line": ONE + b"\n" + ONE,
    "no-break spaces": ONE + "\u00a0\u2003\n".encode() + ONE,
    "one too few": ONE * 2,
    "one too many": ONE * 4,
    "blank first": b"\n" + ONE * 2,
    "nul": ONE + b"a\0b\n" + ONE,
    "latin-1": ONE + b"gr\xfcn\n" + ONE,
    "cut in a letter": ONE * 2 + b"\xc3",
    "surrogate": ONE * 2 + b"\xed\xa0\x80\n",
    "overlong": ONE * 2 + b"\xc0\xaf\n",
    "utf-16": (ONE * 3).decode().encode("utf-16"),
    "utf-16-le": (ONE * 3).decode().encode("utf-16-le"),
    "utf-16-be": (ONE * 3).decode().encode("utf-16-be"),
    "utf-32-le": (ONE * 3).decode().encode("utf-32-le"),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "a long line": b"word " * 200_000 + b"\n" + ONE * 2,
    "all on one line": b" ".join([ONE.strip()] * 3),
}
GOOD_TEXTS = {
    "mark": b"\xef\xbb\xbf" + ONE * 3,
    "crlf": ONE.replace(b"\n", b"\r\n") * 3,
    "cr": ONE.replace(b"\n", b"\r") * 3,
    "no last end": (ONE * 3).strip(),
    "ends twice": ONE * 3 + b"\n\n",
    "right to left": "\u05db\u05dc\u05d1 \u202e\u05e8\u05e5\n".encode() * 3,
    "emoji": "\U0001f415\U0001f3ff\u200d\U0001f4a8\n".encode() * 3,
    "combining": ("a" + "\u0301" * 99 + "\n").encode() * 3,
    "unicode ends": "a\u2028b\x85c\x0bd\n".encode() * 3,
    "specials": b"<pad> <bos> <eos> <unk>\n" * 3,
    "controls": b"a\x1b[31m\x07\x08b\n" * 3,
}


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("kind", BAD_TEXTS)
def test_corpora_that_are_refused(kind, split, here, capsys):
    path = here / "corpus" / f"{split}.en"
    path.write_bytes(BAD_TEXTS[kind])
    code, said = tried(here, capsys, *TRAIN)
    assert code == 2 and FAR_ENOUGH not in said.err
    assert kind == "a long line" or str(path.name) in said.err


@pytest.mark.parametrize("kind", BAD_TEXTS)
def test_bad_corpora_on_both_sides(kind, here, capsys):
    for language in "en", "es":
        path = here / "corpus" / f"train.{language}"
        path.write_bytes(BAD_TEXTS[kind])
    fits = "one too few", "one too many", "all on one line"
    fits += "a blank line", "blank first"
    said = tried(here, capsys, *TRAIN)[1]
    if kind not in fits:
        assert FAR_ENOUGH not in said.err


@pytest.mark.parametrize("kind", GOOD_TEXTS)
def test_corpora_that_are_taken(kind, here, capsys):
    (here / "corpus/train.en").write_bytes(GOOD_TEXTS[kind])
    assert FAR_ENOUGH in tried(here, capsys, *TRAIN)[1].err


LINES = {
    "nothing": b"",
    "spaces": b"   \n",
    "end": b"\n",
    "a million": b"x" * 10**6,
    "a million words": b"a " * 500_000,
    "too many pieces": b"qz" * 600,
    "nul": b"a\0b",
    "latin-1": "gr\u00fcn".encode("latin-1"),
    "utf-16": "a dog".encode("utf-16"),
    "surrogate": b"\xed\xa0\x80",
    "right to left": "\u05db\u05dc\u05d1 \u202e".encode(),
    "emoji": "\U0001f415\u200d\U0001f4a8".encode(),
    "combining": ("a" + "\u0301" * 30).encode(),
    "specials": b"<eos><pad> <bos>",
    "an option": b"--model",
    "controls": bytes(range(1, 32)).replace(b"\n", b""),
}
REFUSED = "million", "too many", "latin-1", "utf-16", "surrogate"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("kind", LINES)
def test_lines_to_translate(kind, errors, here, capsys, monkeypatch):
    raw = io.BytesIO(LINES[kind])
    text = io.TextIOWrapper(raw, "utf-8", errors)
    monkeypatch.setattr(sys, "stdin", text)
    words = ["translate", "--model", "model", "--beam-size", "1"]
    code, said = tried(here, capsys, *words)
    assert (code == 2) == any(part in kind for part in REFUSED)
    if errors != "strict" and code == 2:
        assert said.err.startswith("line 1: ")


def test_a_line_that_is_not_utf8_takes_no_other_with_it(here, capsys):
    """Where the terminal's settings have Python read strictly."""
    done = in_a_process(
        "translate --model model --device cpu",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        input="a dog\ngr\udcfcn\na cat\n",
        encoding="utf-8",
        errors="surrogateescape",
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("line 2: it is not UTF-8")
    first, second, third = done.stdout.splitlines()
    assert first and third and not second


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_and_a_reader_that_left_are_heard_of(here):
    """Python writes what it has buffered only as it ends."""
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = in_a_process("data >/dev/full", env=buffered)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert done.stderr.count("\n") == 1
    reading, writing = os.pipe()
    os.close(reading)
    left = subprocess.run(
        [sys.executable, "-m", "transformer_lib", "data"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=buffered,
    )
    os.close(writing)
    assert (left.returncode, left.stderr) == (141, "")


@pytest.mark.parametrize("option", ["--out", "--corpus"])
def test_a_name_that_is_not_utf8_is_refused_at_once(option, here, capsys):
    code, said = tried(here, capsys, *TRAIN, option, "caf\udce9")
    assert code == 2 and "is not UTF-8: rename it" in said.err


@pytest.mark.parametrize("kind", LINES)
def test_arguments_to_translate(kind, here, capsys):
    text = LINES[kind].decode("utf-8", "surrogateescape")
    words = ["translate", "--model", "model", "--beam-size", "1"]
    code, _ = tried(here, capsys, *words, "--", text)
    assert (code == 2) == any(part in kind for part in REFUSED)


@pytest.mark.parametrize(
    "words",
    [
        "train",
        "train --out corpus/train.en",
        "train --out corpus/train.en/x",
        "train --out out --languages en",
        "train --out out --languages en xx --corpus corpus",
        "train --out out --corpus model",
        "train --out out --corpus no",
        "train --out out --preset",
        "train --out out --norm both",
        "train --out out --tie 3",
        "train --out out --betas 1 2",
        "train --out out --betas nan nan",
        "train --out out --precision fp8",
        "train --out out --device cuda:99",
        "train --out out --smoothing nope",
        "train --out out --corpus tatoeba",
        "translate --model corpus a",
        "translate --model config.json a",
        "translate a",
        "translate --model model --device nope a",
        "evaluate --model model --corpus no",
        "evaluate --model model --corpus ../x",
        "evaluate --model model --corpus corpus --split ../x",
        "evaluate --model model --corpus corpus --to model",
        "average --model model --out out",
        "average --model corpus --out out",
        "average --model model --out model",
        "data --corpus nope",
        "data --languages en",
        "data --corpus multi30k --languages en es",
    ],
)
def test_command_lines(words, here, capsys, monkeypatch):
    def no(*all, **more):
        raise OSError("no network in this test")

    import pooch

    monkeypatch.setattr(pooch, "retrieve", no)
    assert tried(here, capsys, *words.split())[0] == 2


# What was lost or silently wrong


def test_an_empty_name_is_not_the_current_folder(here, capsys):
    for words in (
        [*TRAIN[:1], *TRAIN[3:], "--out", ""],
        ["average", "--model", "model", "--out", ""],
        ["translate", "--model", "", "a"],
    ):
        code, said = tried(here, capsys, *words)
        assert code == 2 and "empty" in said.err


EVALUATE = "evaluate --model model --corpus corpus --device cpu --to"


@pytest.mark.parametrize("to", ["model/config.json", "corpus/test.es"])
def test_evaluate_replaces_no_file(to, here, capsys):
    code, said = tried(here, capsys, *EVALUATE.split(), to)
    assert code == 2 and "is there already" in said.err


def test_evaluate_writes_to_a_pipe(here, capsys):
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main([*EVALUATE.split(), "pipe"]) == 0
    assert os.read(reader, 10**5).count(b"\n") == 3
    os.close(reader)
    assert Path("pipe").is_fifo()


def test_evaluate_replaces_no_link(here, capsys):
    Path("kept").write_text("kept")
    Path("link").symlink_to("kept")
    assert cli.main([*EVALUATE.split(), "link"]) == 2
    assert Path("link").is_symlink() and Path("kept").read_text() == "kept"


def test_scores_are_not_lost_with_their_file(here, capsys):
    code, said = tried(here, capsys, *EVALUATE.split(), "model/config.json/x")
    assert code == 2 and "bleu: " in said.out


def test_a_byte_order_mark_is_no_text(here, capsys, monkeypatch):
    given = []
    translate = cli.Translator.translate

    def spy(self, texts, *search):
        given.extend(texts)
        return translate(self, texts, *search)

    monkeypatch.setattr(cli.Translator, "translate", spy)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffa dog\na cat\n"))
    assert cli.main(["translate", "--model", "model"]) == 0
    assert given == ["a dog", "a cat"]


def test_a_mean_of_another_models_checkpoints(here, capsys):
    config = TransformerConfig(270, N=1, d_model=4, d_ff=8, h=2)
    other = Transformer(config)
    save_checkpoint("model", other, adam(other), {"step": 1})
    words = model_words("average")
    code, said = tried(here, capsys, *words)
    assert code == 2 and "of another model" in said.err


def test_a_mean_that_is_not_finite_is_not_saved(here, capsys):
    model = load_model("model")[0]
    path = save_checkpoint("model", model, adam(model), {"step": 1})
    content = torch.load(path, weights_only=True)
    weights = content["model"]
    next(iter(weights.values())).fill_(torch.nan)
    content["sha256"]["model"] = checkpoints._digest(weights)
    torch.save(content, path)
    code, said = tried(here, capsys, *model_words("average"))
    assert code == 2 and "NaN, infinity" in said.err


@pytest.mark.parametrize("command", ["export", "train"])
def test_only_a_training_goes_on(command, here, capsys, monkeypatch):
    def stop(*all, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "export", stop)
    monkeypatch.setattr(cli, "run_experiment", stop)
    words = [command, "--out", "new"]
    words += ["--model", "model"] if command == "export" else []
    assert cli.main(words) == 130
    said = capsys.readouterr().err
    assert ("the same command goes on" in said) == (command == "train")


FAULTS = {
    "CUDA error: an illegal memory access was encountered": None,
    "CUDA out of memory. Tried to allocate 2 GiB": "memory is full",
    "DefaultCPUAllocator: can't allocate memory": "memory is full",
    "shape mismatch": None,
}


@pytest.mark.parametrize("text", FAULTS)
def test_memory_is_full_only_if_it_is(text, here, capsys, monkeypatch):
    def fail(*all):
        raise RuntimeError(text)

    monkeypatch.setattr(cli, "export", fail)
    words = ["export", "--model", "model", "--out", "new"]
    if FAULTS[text]:
        assert cli.main(words) == 2
        assert FAULTS[text] in capsys.readouterr().err
    else:
        with pytest.raises(RuntimeError):
            cli.main(words)


def in_a_process(words, python="", **more):
    return subprocess.run(
        f"{shlex.quote(sys.executable)} {python} -m transformer_lib {words}",
        shell=True,
        capture_output=True,
        text=True,
        **more,
    )


def test_without_docstrings(here):
    done = in_a_process("translate --model model --device cpu a", "-OO")
    assert (done.returncode, done.stderr) == (0, "")
    assert in_a_process("train --help", "-OO").stdout.count("--d-model")


def test_without_a_standard_error(here):
    done = in_a_process(f"{shlex.join(TRAIN)} --max-steps 1 2>&-")
    assert done.returncode == 0 and "steps: 1\n" in done.stdout


def test_an_output_of_ascii_alone(here):
    text = Path("corpus/test.es").read_text("utf-8")
    Path("corpus/test.en").write_text(text, "utf-8")
    words = "data --corpus corpus --languages es en"
    (here / "corpus/train.es").write_text("é\n" * 3, "utf-8")
    ascii_alone = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = in_a_process(words, env=ascii_alone)
    assert done.returncode == 2 and "PYTHONIOENCODING" in done.stderr
