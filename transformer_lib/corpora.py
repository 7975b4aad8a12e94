# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same.

Chapter: book/training/corpora
"""

import gzip
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from warnings import catch_warnings


@dataclass(frozen=True)
class ParallelCorpus(Sequence):
    """Pairs (source sentence, target sentence), read like a list.

    A slice is a smaller corpus. `source` and `target` name the
    languages, `split` the part of the whole.

    Chapter: corpora-parallel
    """

    pairs: list[tuple[str, str]]
    name: str = ""
    source: str = ""
    target: str = ""
    split: str = ""
    licence: str = ""

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return replace(self, pairs=self.pairs[place])
        return self.pairs[place]

    @property
    def sources(self) -> list[str]:
        """The source sentences alone."""
        return [source for source, _ in self.pairs]

    @property
    def targets(self) -> list[str]:
        """The target sentences alone."""
        return [target for _, target in self.pairs]


def read_parallel(source_file, target_file) -> list[tuple[str, str]]:
    """Pairs from two files: line n of one translates line n.

    Plain UTF-8 or, where the name ends in .gz, gzipped.

    Raises:
        ValueError: if the files differ in length, or one is cut
            short, is no UTF-8, or has a NUL or an empty line.

    Chapter: corpora-own
    """
    left, right = _lines(source_file), _lines(target_file)
    if len(left) != len(right):
        lines = f"{len(left)} and {len(right)} lines, give as many"
        raise ValueError(f"{source_file}, {target_file}: {lines}")
    return list(zip(left, right, strict=True))


_BROKEN = EOFError, ValueError, gzip.BadGzipFile, zipfile.BadZipFile
_BROKEN += (zlib.error,)


def _lines(path: str | Path) -> list[str]:
    """The sentences of a text file, one a line.

    Chapter: corpora-own
    """
    lines: list[str] = []
    try:
        content = _content(Path(path))
        end = b"\n" if b"\n" in content else b"\r"  # of old Macs
        for row in content.rstrip().split(end):
            line = row.decode("utf-8-sig").strip()
            if "\0" in line:
                raise ValueError("a NUL: save it as UTF-8, not -16")
            if not line:
                raise ValueError("no sentence stands here")
            lines.append(line)
    except _BROKEN as error:
        where = f"{path}, line {len(lines) + 1}"
        raise ValueError(f"{where}: {error}") from error
    return lines


def _content(path: Path) -> bytes:
    """What a file holds; of a zip archive, its largest file.

    Chapter: corpora-own
    """
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = max(archive.infolist(), key=lambda f: f.file_size)
            return archive.read(text)
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    return path.read_bytes()


def _split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and signs.

    By its hash, 1 in 100 goes to "test" and 1 to "validation".

    Chapter: corpora-tatoeba
    """
    letters = "".join(filter(str.isalnum, english.casefold()))
    lot = int(hashlib.sha256(letters.encode()).hexdigest(), 16) % 100
    return {0: "test", 1: "validation"}.get(lot, "train")


CORPORA = {  # pairs of languages, licence
    "little_spanish": (["en-es"], "this book's own"),
    "multi30k": (["de-en", "de-fr", "en-fr"], "research, education"),
    "tatoeba": (["de-en", "en-es"], "CC BY 2.0 FR, tatoeba.org"),
}

_DATA = files("transformer_lib") / "data"


def data_folder() -> Path:
    """TRANSFORMER_LIB_DATA if it is set; else ~/.cache.

    Chapter: corpora-files
    """
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    return Path(named or "~/.cache/transformer_lib").expanduser()


def fetch(file: str) -> Path:
    """The path of a corpus's file, downloaded if it is missing.

    Raises:
        FileNotFoundError: if it cannot be downloaded; the message
            says which file to put where.

    Chapter: corpora-files
    """
    path = data_folder() / file
    if path.is_file():
        return path
    with catch_warnings(action="ignore"):  # of widgets that lack
        import pooch

    pooch.get_logger().setLevel("WARNING")
    known = json.loads((_DATA / "downloads.json").read_text("utf-8"))
    url, sha = known[file]
    web = pooch.HTTPDownloader(headers={"User-Agent": "transformer"})
    try:
        pooch.retrieve(url, sha, file, data_folder(), downloader=web)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"no {path}: {error!s:.99}. Fetch {url}, put it there"
        ) from None
    return path


def _file(name: str, split: str, language: str) -> Path:
    """One side of a split, of Multi30k or in a folder.

    Chapter: corpora-files
    """
    if name == "multi30k":
        other = {"validation": "val", "test": "test_2016_flickr"}
        part = other.get(split, split)
        return fetch(f"multi30k/{part}.{language}.gz")
    plain = Path(name, f"{split}.{language}")
    for path in (plain, Path(f"{plain}.gz")):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"no {plain}, nor .gz: name {[*CORPORA]} or a folder of yours"
    )


def _tatoeba(language: str, split: str) -> list[tuple[str, str]]:
    """(English, other) pairs of a split.

    Chapter: corpora-files
    """
    code = {"de": "deu", "es": "spa"}[language]
    path = fetch(f"tatoeba/{code}-eng.zip")
    rows = [line.split("\t") for line in _lines(path)]
    if any(len(row) < 2 for row in rows):
        raise ValueError(f"{path}: a line has no tab")
    pairs = [(row[0].strip(), row[1].strip()) for row in rows]
    return [pair for pair in pairs if _split_of(pair[0]) == split]


def _little_spanish(_, split: str) -> list[tuple[str, str]]:
    """(English, Spanish) pairs of a split, from the shipped file.

    Chapter: corpora-files
    """
    rows = (_DATA / "little_spanish.tsv").read_text("utf-8")
    cells = (row.split("\t") for row in rows.splitlines())
    return [(en, es) for part, en, es in cells if part == split]


def load_corpus(
    name: str, source="en", target="es", split="train"
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    `name` is one of `CORPORA`, or a folder with files train.en,
    train.es and the like, plain or .gz. `split` is "train",
    "validation" or "test".

    Raises:
        ValueError: if there is no such language or split.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    languages, licence = CORPORA.get(name, ([], ""))
    pair = "-".join(sorted([source, target]))
    if split not in ("train", "validation", "test"):
        raise ValueError(f"{split=}: train, validation or test")
    if languages and pair not in languages:
        raise ValueError(f"{name} has {languages}, no {pair}")
    if name in ("little_spanish", "tatoeba"):
        read = _tatoeba if name == "tatoeba" else _little_spanish
        pairs = read(target if source == "en" else source, split)
        if target == "en":
            pairs = [(other, english) for english, other in pairs]
    else:
        left = _file(name, split, source)
        pairs = read_parallel(left, _file(name, split, target))
    return ParallelCorpus(pairs, name, source, target, split, licence)
