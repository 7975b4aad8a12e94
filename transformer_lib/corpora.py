# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same.

Chapter: book/training/corpora
"""

import gzip
import hashlib
import json
import os
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any
from warnings import catch_warnings, warn


@dataclass(frozen=True)
class ParallelCorpus(Sequence[tuple[str, str]]):
    """Pairs (source sentence, target sentence), read like a list.

    A slice is a smaller corpus. `source` and `target` name the
    languages.

    Chapter: corpora-parallel
    """

    pairs: list[tuple[str, str]] = field(repr=False)  # too many
    name: str = ""
    source: str = ""
    target: str = ""
    split: str = ""
    licence: str = ""

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return replace(self, pairs=self.pairs[place])
        return self.pairs[place]

    @property
    def sources(self) -> list[str]:
        """The source sentences."""
        return [source for source, _ in self.pairs]

    @property
    def targets(self) -> list[str]:
        """The target sentences."""
        return [target for _, target in self.pairs]


def read_parallel(
    path: str | Path,
    translation: str | Path | None = None,
    *,
    skip_bad_lines: bool = False,
) -> Iterator[tuple[str, str]]:
    """Pairs from two files: line n of one translates line n.

    Or from one, with a tab between the two sentences of a line; what
    follows a second tab is left out. Files are UTF-8, plain, gzipped
    (.gz) or the largest file of a .zip; they are read line by line.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if two files differ in length, or one is damaged; or
            for a line that is empty on one side or is not UTF-8, unless
            such pairs are to be skipped and counted.

    Chapter: corpora-own
    """
    paths = [path] if translation is None else [path, translation]
    names = " and ".join(map(str, paths))
    number = skipped = 0
    lines = map(_lines, paths)
    for number, row in enumerate(zip_longest(*lines, fillvalue=b""), 1):
        if not b"".join(row).strip():
            continue  # empty on both sides, as at the end of files
        if b"" in row:  # the fillvalue: real lines end in "\n"
            short = paths[row.index(b"")]
            raise ValueError(f"{names}: {short} has no line {number}")
        cells = row if translation else [*row[0].split(b"\t"), b""]
        try:
            source, target = _sentence(cells[0]), _sentence(cells[1])
        except ValueError as error:
            skipped += 1
            if not skip_bad_lines:
                raise ValueError(
                    f"{names}, line {number}: {error}; correct it, or set "
                    "skip_bad_lines"
                ) from error
        else:
            yield source, target
    if skipped:
        warn(f"{names}: skipped {skipped} of {number} lines", stacklevel=2)


def _sentence(line: bytes) -> str:
    """The text of a line; its letters and accents joined (NFC).

    Chapter: corpora-own
    """
    text = unicodedata.normalize("NFC", line.decode("utf-8-sig")).strip()
    if not text:
        raise ValueError("a side is empty, or a tab is missing")
    return text


_BROKEN = EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error


def _lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file; of a zip archive, of its largest file.

    Chapter: corpora-own
    """
    with open(path, "rb") as file:
        try:
            if str(path).endswith(".gz"):
                yield from gzip.open(file)
            elif str(path).endswith(".zip"):
                archive = zipfile.ZipFile(file)
                largest = max(archive.infolist(), key=lambda x: x.file_size)
                yield from archive.open(largest)
            else:
                yield from file
        except _BROKEN as error:  # RuntimeError: an encrypted archive
            raise ValueError(
                f"{path} cannot be read ({error}): delete it and get it again"
            ) from error


def _split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and punctuation.

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
    """The folder that the environment's TRANSFORMER_LIB_DATA names.

    Without that variable it is ~/.cache/transformer_lib.

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
    folder = data_folder()
    downloads = json.loads((_DATA / "downloads.json").read_text("utf-8"))
    url, checksum = downloads[file]
    with catch_warnings(action="ignore"):  # of widgets that lack
        import pooch

    pooch.get_logger().setLevel("WARNING")
    web = pooch.HTTPDownloader(headers={"User-Agent": "transformer"})
    try:
        path = pooch.retrieve(url, checksum, file, folder, downloader=web)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"no {folder / file}: {error!s:.99}. Fetch {url}, put it there"
        ) from None
    return Path(path)


def _files(name: str, split: str, source: str, target: str) -> list[Any]:
    """The files of a split, one for each language or one for both.

    Chapter: corpora-files
    """
    if name == "tatoeba":
        other = target if source == "en" else source
        code = {"de": "deu", "es": "spa"}[other]
        return [fetch(f"tatoeba/{code}-eng.zip")]
    if name == "multi30k":
        part = {"validation": "val", "test": "test_2016_flickr"}
        file = f"multi30k/{part.get(split, split)}"
        return [fetch(f"{file}.{source}.gz"), fetch(f"{file}.{target}.gz")]
    if name == "little_spanish":
        return [_DATA / "little_spanish.tsv"]
    both = "-".join(sorted([source, target]))
    for endings in ([source, target], [f"{both}.tsv"]):
        plain = [Path(name, f"{split}.{ending}") for ending in endings]
        found = [x if x.is_file() else Path(f"{x}.gz") for x in plain]
        if all(x.is_file() for x in found):
            return found
    raise FileNotFoundError(
        f"no {name}/{split}.{source} and .{target}, nor .{both}.tsv, "
        f"nor .gz: name {[*CORPORA]} or a folder of yours"
    )


def load_corpus(
    name: str,
    source: str = "en",
    target: str = "es",
    split: str = "train",
    skip_bad_lines: bool = False,
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    `name` is one of `CORPORA`, or a folder with files train.en and
    train.es, or train.en-es.tsv, and the like, plain or .gz. In the
    .tsv, and in its name, the languages are in alphabetical order.
    `split` is "train", "validation" or "test".

    Raises:
        ValueError: if there is no such language or split; or as
            `read_parallel`.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    languages, licence = CORPORA.get(name, ([], ""))
    both = "-".join(sorted([source, target]))
    if split not in ("train", "validation", "test"):
        raise ValueError(f"{split=}: train, validation or test")
    if languages and both not in languages:
        raise ValueError(f"{name} has {languages}, no {both}")
    files = _files(name, split, source, target)
    if name == "little_spanish":
        rows = files[0].read_text("utf-8").rstrip("\n").split("\n")
        cells = [row.split("\t") for row in rows]
        pairs = [(en, es) for part, en, es in cells if part == split]
    else:
        pairs = list(read_parallel(*files, skip_bad_lines=skip_bad_lines))
    if name == "tatoeba":
        pairs = [pair for pair in pairs if _split_of(pair[0]) == split]
    first = "en" if languages else min(source, target)
    if len(files) == 1 and source != first:  # one file serves both ways
        pairs = [pair[::-1] for pair in pairs]
    return ParallelCorpus(pairs, name, source, target, split, licence)
