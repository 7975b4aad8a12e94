"""Damaged files and odd sentences: one line, never a hang.

Hypothesis makes the tries. Each runs in a process of its own, under an
alarm and a limit on its memory, on a copy of a small training. What
has failed once is kept in `seeds` and tried first.
"""

import copy
import gzip
import io
import json
import os
import resource
import shutil
import signal
import time
import traceback
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch._dynamo  # noqa: F401  (seconds, which no try need take)
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from transformer_lib import cli
from transformer_lib.corpora import load_corpus
from transformer_lib.translator import Translator

SEEDS = Path(__file__).parent / "seeds"
SECONDS = 30  # for what takes a tenth of one
MEMORY = 2**30  # bytes, beside those of the program itself
TRAIN = (
    "train --corpus corpus --vocab-size 270 --N 1 --d-model 8 "
    "--d-ff 8 --h 2 --tokens-per-batch 256 --log-every 1 "
    "--checkpoint-every 2 --device cpu --threads 1 --max-steps"
)
TRANSLATE = "translate --beam-size 1 --model run hi"
TRY = settings(
    max_examples=40,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

# Damage. A strategy for each kind of file, from a whole one.

NASTY = b'\0|\xff|\xed\xa0\x80|\xef\xbb\xbf|-1|1e999|NaN|null|"|{}|[]|\n|\t'
PIECES = st.one_of(
    st.just(b""),
    st.sampled_from([*NASTY.split(b"|"), b"9" * 50, b"[" * 9999]),
    st.binary(max_size=16),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 9),
        st.sampled_from([2**31, 2**63, 10**30, -(10**9), 10**6]),
        st.floats(),
        st.text(max_size=9),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=5,
)


def edited(content: bytes):
    """Bytes cut out, put in, exchanged and doubled."""
    end = len(content)
    place = st.one_of(st.integers(0, min(end, 200)), st.integers(0, end))
    length = st.one_of(st.integers(-9, 9), st.integers(-end, end))
    edits = st.tuples(place, length, PIECES)

    def apply(all_of_them):
        held = content
        for at, size, piece in all_of_them:
            held = held[:at] + piece + held[max(0, at + size) :]
        return held

    return st.lists(edits, min_size=1, max_size=4).map(apply)


def places(held, path=()):
    """The path of each value in lists and dictionaries."""
    yield path
    if isinstance(held, dict | list):
        keys = held if isinstance(held, dict) else range(len(held))
        for key in list(keys)[:30]:
            yield from places(held[key], (*path, key))


def spoilt(held):
    """Values exchanged or left out, wherever they stand."""

    def apply(changes):
        whole = [copy.deepcopy(held)]
        for path, gone, value in changes:
            inner, *keys = whole, 0, *path
            try:
                for key in keys[:-1]:
                    inner = inner[key]
                inner[keys[-1]] = value
                if gone and path:
                    del inner[keys[-1]]
            except (LookupError, TypeError):
                pass  # an earlier change took it away
        return whole[0]

    path = st.sampled_from([*places(held)])
    changes = st.tuples(path, st.booleans(), VALUES)
    return st.lists(changes, min_size=1, max_size=3).map(apply)


def or_inside(unpack, pack, damage=edited):
    """Damage to a file, or to what is packed in it."""
    return lambda content: st.one_of(
        edited(content), damage(unpack(content)).map(pack)
    )


as_json = or_inside(json.loads, lambda x: json.dumps(x).encode(), spoilt)
as_gzip = or_inside(gzip.decompress, gzip.compress)


def as_weights(content: bytes):
    """Damage to a safetensors file, or to its header."""
    end = 8 + int.from_bytes(content[:8], "little")
    return or_inside(
        lambda whole: whole[8:end],
        lambda x: len(x).to_bytes(8, "little") + x + content[end:],
        as_json,
    )(content)


def saved(held) -> bytes:
    file = io.BytesIO()
    torch.save(held, file)
    return file.getvalue()


as_checkpoint = or_inside(
    lambda content: torch.load(io.BytesIO(content)), saved, spoilt
)


def zipped(text: bytes, times: int = 1) -> bytes:
    file = io.BytesIO()
    how = zipfile.ZIP_DEFLATED, True, 1  # the quickest
    with zipfile.ZipFile(file, "w", *how) as archive:
        with archive.open("deu.txt", "w", force_zip64=True) as inner:
            for _ in range(times):
                inner.write(text)
    return file.getvalue()


as_zip = or_inside(
    lambda content: zipfile.ZipFile(io.BytesIO(content)).read("deu.txt"),
    zipped,
)


def as_lines(content: bytes):
    """Sentences of any characters, lone surrogates among them."""
    line = st.text(st.characters(exclude_characters="\n"))
    lines = st.lists(line, min_size=1, max_size=5).map("\n".join)
    return lines.map(lambda x: x.encode("utf-8", "surrogatepass"))


# What is damaged, how, and the command that reads it.

TARGETS = {
    "run/config.json": (as_json, TRANSLATE),
    "run/tokenizer.json": (as_json, TRANSLATE),
    "run/model.safetensors": (as_weights, TRANSLATE),
    "run/checkpoint-00000004.pt": (
        as_checkpoint,
        "average --model run --out mean",
    ),
    "part/config.json": (as_json, f"{TRAIN} 6 --out part"),
    "part/checkpoint-00000004.pt": (as_checkpoint, f"{TRAIN} 6 --out part"),
    "part/log.jsonl": (edited, f"{TRAIN} 6 --out part"),
    "corpus/train.en": (edited, f"{TRAIN} 2 --out new"),
    "packed/train.en.gz": (as_gzip, "data --corpus packed"),
    "tabs/train.en-es.tsv": (
        edited,
        TRAIN.replace("corpus corpus", "corpus tabs --skip-bad-lines")
        + " 2 --out new",
    ),
    "data/tatoeba/deu-eng.zip": (
        as_zip,
        "data --corpus tatoeba --languages de en",
    ),
    "lines": (as_lines, ""),
}


def read(line: str, translator: Translator | None = None) -> int:
    """The exit code of a command; without one, of `lines` as a batch.

    A batch gives what each of its sentences gives alone.
    """
    if line:
        code = cli.main(line.split())
        print("", flush=True)
        return code
    text = Path("lines").read_bytes().decode("utf-8", "surrogatepass")
    lines, search = text.split("\n"), (2, 0.6, 10)
    try:
        together = translator.translate(lines, *search)
    except ValueError as error:
        print(f"transformer_lib: {error}", flush=True)
        return 2
    for line, found in zip(lines, together, strict=True):
        assert translator.translate(line, *search) == found
    return 0


def make(base: Path) -> None:
    """A corpus of each kind and a training, all of them whole."""
    for folder in "corpus", "packed", "data/tatoeba":
        (base / folder).mkdir(parents=True)
    rows = []
    for split in "train", "validation", "test":
        texts = load_corpus("little_spanish", split=split)
        rows += ["\t".join((*pair, "by us")) for pair in texts]
        texts = texts[:40]
        for language, lines in ("en", texts.sources), ("es", texts.targets):
            content = "\n".join(lines).encode()
            path = base / "corpus" / f"{split}.{language}"
            path.write_bytes(content)
            path = base / "packed" / f"{path.name}.gz"
            path.write_bytes(gzip.compress(content))
    path = base / "data/tatoeba/deu-eng.zip"
    path.write_bytes(zipped("\n".join(rows).encode()))
    shutil.copytree(base / "corpus", base / "tabs")
    for path in (base / "tabs").glob("train.*"):
        path.unlink()
    texts = load_corpus("little_spanish")[:40]
    rows = "\n".join(map("\t".join, texts))
    (base / "tabs/train.en-es.tsv").write_text(rows)
    (base / "lines").touch()
    assert attempt(base, f"{TRAIN} 4 --out run")[0] == "taken"
    shutil.copytree(base / "run", base / "part")
    for name in "report.json", "model.safetensors":
        (base / "part" / name).unlink()


def attempt(here: Path, *what) -> tuple[str, str]:
    """What a process of its own makes of a folder: kind, last words."""
    told = here / "told"
    pid = os.fork()
    if not pid:
        code = 1
        try:
            file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in 0, 1, 2:
                os.dup2(file, stream)
            os.chdir(here)
            os.environ["TRANSFORMER_LIB_DATA"] = str(here / "data")
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.alarm(SECONDS)
            code = read(*what)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = told.read_text("utf-8", "replace").strip()
    last = said.split("\n")[-1]
    if code == 0:
        kind = "taken"
    elif code == 2 and last.startswith(("transformer_lib: ", "line ")):
        kind = "refused"
    else:
        kind = "hangs" if code == -signal.SIGALRM else "crashes"
    return kind, f"{code}: {last[:500]}"


def keep(file: str, content: bytes) -> None:
    """Write what failed where the next time begins, if it is small."""
    kept = SEEDS / file / sha256(content).hexdigest()[:12]
    if len(content) < 2**20:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(content)


def fuzz(row, seconds: float) -> None:
    """Try what was kept, then new ones until the time is up."""
    torch.set_num_threads(1)
    spanish = Translator.from_pretrained("little-spanish", "cpu")
    spanish.model.double()  # in which nothing ties by chance
    turn, known, kinds = 0, set(), Counter()
    with TemporaryDirectory() as temporary:
        base, here = Path(temporary, "base"), Path(temporary, "here")
        make(base)

        def one(file: str, content: bytes) -> None:
            if turn and time.monotonic() > until:
                return
            shutil.copytree(base, here)
            (here / file).write_bytes(content)
            kind, said = attempt(here, TARGETS[file][1], spanish)
            shutil.rmtree(here)
            row.tried += 1
            kinds[kind] += 1
            told = file, said.partition("rror")[0]
            if kind in ("crashes", "hangs") and told not in known:
                known.add(told)
                row.tell(kind, f"{file}: {said}")
                keep(file, content)

        for file in TARGETS:
            one(file, (base / file).read_bytes())
        assert kinds == {"taken": len(TARGETS)}, "the whole ones"
        much = bytes(2**24), MEMORY // 2**24 * 3 // 2
        one("data/tatoeba/deu-eng.zip", zipped(*much))
        one("packed/train.en.gz", gzip.compress(much[0]) * much[1])
        for path in sorted(SEEDS.rglob("*")):
            if path.is_file():
                file = path.parent.relative_to(SEEDS)
                one(str(file), path.read_bytes())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            turn += 1
            for file, (damage, _) in TARGETS.items():
                content = damage((base / file).read_bytes())
                tries = given(st.just(file), content)(one)
                seed(turn)(TRY(tries))()
    row.note = f"{len(TARGETS)} kinds; refused {kinds['refused']}"
