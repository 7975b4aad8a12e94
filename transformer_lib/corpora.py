# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same.

Chapter: book/training/corpora
"""

import hashlib
import json
import os
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from gzip import BadGzipFile, GzipFile
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any
from warnings import catch_warnings, warn
from zipfile import BadZipFile, ZipFile


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
            source, target = map(_sentence, cells[:2])
        except ValueError as error:
            skipped += 1
            if not skip_bad_lines:
                message = f"{names}, line {number}: {error}"
                raise ValueError(f"{message}; or set skip_bad_lines") from None
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


def _lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file; of a zip archive, of its largest file.

    Chapter: corpora-own
    """
    try:
        if str(path).endswith(".zip"):
            archive = ZipFile(path)
            largest = max(archive.infolist(), key=lambda x: x.file_size)
            yield from archive.open(largest)
        else:
            opened = GzipFile if str(path).endswith(".gz") else open
            with opened(path, "rb") as file:
                yield from file
    except (EOFError, RuntimeError, BadZipFile, BadGzipFile, zlib.error) as e:
        message = f"{path} cannot be read ({e}): delete it and get it again"
        raise ValueError(message) from e


def _split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and punctuation.

    By its hash, 1 in 100 goes to "test" and 1 to "validation".

    Chapter: corpora-tatoeba
    """
    letters = "".join(filter(str.isalnum, english.casefold()))
    lot = int(hashlib.sha256(letters.encode()).hexdigest(), 16) % 100
    return {0: "test", 1: "validation"}.get(lot, "train")


_CORPORA = {  # pairs of languages, licence
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


def _fetch(file: str) -> Path:
    """The path of a corpus's file, downloaded if it is missing.

    Chapter: corpora-files
    """
    folder = data_folder()
    downloads = json.loads((_DATA / "downloads.json").read_text("utf-8"))
    url, checksum = downloads[file]
    with catch_warnings(action="ignore"):  # no widgets here
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


def _file(name: str, split: str, language: str) -> Path:
    """One side of a split: of Multi30k, or of a folder of one's own.

    Chapter: corpora-files
    """
    if name == "multi30k":
        part = {"validation": "val", "test": "test_2016_flickr"}
        return _fetch(f"multi30k/{part.get(split, split)}.{language}.gz")
    path = Path(name, f"{split}.{language}")
    path = path if path.is_file() else Path(f"{path}.gz")
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path.with_suffix('')} or {path.name}: name one of "
            f"{[*_CORPORA]}, a folder of yours, its languages, another split"
        )
    return path


def load_corpus(
    name: str,
    source: str = "en",
    target: str = "es",
    split: str = "train",
    skip_bad_lines: bool = False,
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    `name` is little_spanish, multi30k or tatoeba, or a folder with
    files train.en and train.es and the like, plain or .gz. `split` is
    "train", "validation" or "test".

    Raises:
        ValueError: if there is no such language or split, or no pair in
            it; or as `read_parallel`.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    languages, licence = _CORPORA.get(name, ([], ""))
    both = "-".join(sorted([source, target]))
    if split not in ("train", "validation", "test"):
        raise ValueError(f"{split=}: train, validation or test")
    if languages and both not in languages:
        raise ValueError(f"{name} has {languages}, not {both}")
    if name == "little_spanish":
        text = (_DATA / "little_spanish.tsv").read_text("utf-8")
        rows = [row.split("\t") for row in text.strip().split("\n")]
        pairs = [(en, es) for part, en, es in rows if part == split]
    elif name == "tatoeba":
        file = {"de-en": "deu-eng.zip", "en-es": "spa-eng.zip"}[both]
        every = read_parallel(_fetch(f"tatoeba/{file}"))
        pairs = [pair for pair in every if _split_of(pair[0]) == split]
    else:
        one, other = (_file(name, split, side) for side in (source, target))
        pairs = list(read_parallel(one, other, skip_bad_lines=skip_bad_lines))
    if name in ("little_spanish", "tatoeba") and source != "en":
        pairs = [pair[::-1] for pair in pairs]
    if not pairs:
        raise ValueError(f"{name} has no pairs for {split}")
    return ParallelCorpus(pairs, name, source, target, split, licence)
