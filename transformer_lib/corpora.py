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
    languages, `split` the part of the whole.

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
        """The source sentences alone."""
        return [source for source, _ in self.pairs]

    @property
    def targets(self) -> list[str]:
        """The target sentences alone."""
        return [target for _, target in self.pairs]


def read_parallel(
    *paths: str | Path, skip_bad_lines: bool = False
) -> Iterator[tuple[str, str]]:
    """Pairs from two files: line n of one translates line n.

    Or from one, with a tab between the two sentences of a line; what
    follows a second tab is passed over. Plain UTF-8, gzipped (.gz), or
    the largest file of an archive (.zip). The pairs come one by one: a
    file is never in memory as a whole.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for no file or more than two, if two differ in
            length, or one is cut short; or for a line that is empty
            on one side, is not UTF-8, holds a NUL or a carriage return
            or has over 10,000 characters, unless such pairs are to be
            skipped and counted.

    Chapter: corpora-own
    """
    if len(paths) not in (1, 2):
        raise ValueError(f"{len(paths)} files: give two, or one with tabs")
    skipped = 0
    names = " and ".join(str(path) for path in paths)
    files = [_rows(path) for path in paths]
    for number, rows in enumerate(zip_longest(*files, fillvalue=b""), 1):
        if not any(row.strip() for row in rows):
            continue  # empty on both sides, as at the end of files
        if b"" in rows:  # the fillvalue: each real row has its "\n"
            short = paths[rows.index(b"")]
            raise ValueError(f"{names}: {short} has no line {number}")
        # The last cell is for a row that has no tab.
        cells = rows if len(rows) == 2 else [*rows[0].split(b"\t"), b""]
        try:
            source, target = _sentence(cells[0]), _sentence(cells[1])
        except ValueError as error:
            skipped += 1
            if not skip_bad_lines:
                where = f"{names}, line {number}"
                raise ValueError(
                    f"{where}: {error}; mend it, or set skip_bad_lines"
                ) from error
        else:
            yield source, target
    if skipped:
        warn(f"{names}: skipped {skipped} of {number} lines", stacklevel=2)


def _sentence(cell: bytes) -> str:
    """The text of a line, or what is wrong with it.

    Chapter: corpora-own
    """
    text = cell.decode("utf-8-sig").strip()
    if "\0" in text or "\r" in text:
        raise ValueError(r"a \0 or \r: save as UTF-8, with \n")
    if not text:
        raise ValueError("a side is empty, or a tab is missing")
    if len(text) > 10_000:
        raise ValueError(f"a side has {len(text):,} characters, over 10,000")
    return text


_BROKEN = EOFError, ValueError, gzip.BadGzipFile, zipfile.BadZipFile
_BROKEN += (zlib.error,)


def _rows(path: str | Path) -> Iterator[bytes]:
    """The lines of a file; of a zip archive, of its largest file.

    Chapter: corpora-own
    """
    try:
        with _open(Path(path)) as file:
            for row in file:
                if row.endswith(b"\n"):
                    yield row
                else:  # the last row, or a whole file of an old Mac
                    rows = row.removesuffix(b"\r").split(b"\r")
                    yield from (each + b"\n" for each in rows)
    except _BROKEN as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete it and get it again"
        ) from error


def _open(path: Path):
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)
        largest = max(archive.infolist(), key=lambda info: info.file_size)
        return archive.open(largest)
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rb")


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

    Raises:
        FileNotFoundError: if it is not set and there is no home.

    Chapter: corpora-files
    """
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    try:
        return Path(named or "~/.cache/transformer_lib").expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(
            f"{error}: set TRANSFORMER_LIB_DATA to a folder"
        ) from None


def fetch(file: str) -> Path:
    """The path of a corpus's file, downloaded if it is missing.

    Raises:
        FileNotFoundError: if it cannot be downloaded; the message
            says which file to put where.
        ValueError: if a file that is there has other content, or
            `file` is none of these corpora's.

    Chapter: corpora-files
    """
    path = data_folder() / file
    downloads = json.loads((_DATA / "downloads.json").read_text("utf-8"))
    if file not in downloads:
        raise ValueError(f"{file=}: give one of {[*downloads]}")
    url, known_sha = downloads[file]
    if path.is_file():
        sha = hashlib.sha256(path.read_bytes()).hexdigest()
        if known_sha not in (None, sha):
            raise ValueError(f"{path} is not what {url} has: delete it")
        return path
    with catch_warnings(action="ignore"):  # of widgets that lack
        import pooch

    pooch.get_logger().setLevel("WARNING")
    web = pooch.HTTPDownloader(headers={"User-Agent": "transformer"})
    try:
        pooch.retrieve(url, known_sha, file, data_folder(), downloader=web)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"no {path}: {error!s:.99}. Fetch {url}, put it there"
        ) from None
    return path


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
    tabbed = f"{'-'.join(sorted([source, target]))}.tsv"
    for endings in ([source, target], [tabbed]):
        plain = [Path(name, f"{split}.{ending}") for ending in endings]
        files = [
            file if file.is_file() else Path(f"{file}.gz") for file in plain
        ]
        if all(file.is_file() for file in files):
            return files
    raise FileNotFoundError(
        f"no {name}/{split}.{source} and .{target}, nor .{tabbed}, "
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
    .tsv, and in its name, the languages stand in the order of the
    alphabet. `split` is "train", "validation" or "test".

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
    return ParallelCorpus(
        pairs,
        name=name,
        source=source,
        target=target,
        split=split,
        licence=licence,
    )
