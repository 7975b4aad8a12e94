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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any
from warnings import catch_warnings, warn


def _split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and punctuation.

    By its hash, 1 in 100 goes to "test" and 1 to "validation".

    Chapter: corpora-tatoeba
    """
    letters = "".join(filter(str.isalnum, english.casefold()))
    lot = int(hashlib.sha256(letters.encode()).hexdigest(), 16) % 100
    return {0: "test", 1: "validation"}.get(lot, "train")


@dataclass(frozen=True)
class ParallelCorpus(Sequence[tuple[str, str]]):
    """Pairs (source sentence, target sentence), read like a list.

    A slice is a smaller corpus. `source` and `target` name the
    languages.

    Raises:
        TypeError: if `pairs` is no list of pairs; the first is looked at.

    Chapter: corpora-own
    """

    pairs: Sequence[tuple[str, str]] = field(repr=False)  # too many
    name: str = ""
    source: str = ""
    target: str = ""
    split: str = ""

    def __post_init__(self) -> None:
        match self.pairs:
            case [] | [tuple([str(), str()]), *_]:
                return
        raise TypeError(
            f"pairs is {self.pairs!r:.60}: give a list of tuples (source, "
            "target); of two lists, list(zip(sources, targets))"
        )

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
    or the largest file of a .zip; they are read line by line.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if two files differ in length, or one is damaged or
            UTF-16; or for a line that is empty on one side, is not
            UTF-8, or has a carriage return or a NUL inside, unless
            such pairs are to be skipped and counted.

    Chapter: corpora-own
    """
    paths = [path] if translation is None else [path, translation]
    names = " and ".join(str(path) for path in paths)
    number = skipped = 0
    files_lines = [_lines(path) for path in paths]
    for number, lines in enumerate(zip_longest(*files_lines), 1):
        if not any(line and line.strip() for line in lines):
            continue  # empty in both, as at the end of files
        if None in lines:
            ended = paths[lines.index(None)]
            raise ValueError(f"{names}: {ended} has no line {number}")
        try:
            if translation is None:
                lines = lines[0].split(b"\t")[:2]
            if len(lines) < 2:
                raise ValueError("a tab is missing")
            source, target = map(decode_line, lines)
            if not (source and target):
                raise ValueError("a side is empty")
        except ValueError as error:
            if not skip_bad_lines:
                raise ValueError(
                    f"{names}, line {number}: {error}; or set skip_bad_lines"
                ) from None
            skipped += 1
        else:
            yield source, target
    if skipped:
        warn(f"{names}: skipped {skipped} of {number} lines", stacklevel=2)


def as_path(given: str | Path) -> Path:
    """A path, with "~" expanded.

    Raises:
        ValueError: for an empty one, which pathlib takes for this folder.
        FileNotFoundError: for the home folder of an unknown user.

    Chapter: corpora-own
    """
    if given == "":
        raise ValueError("a path is empty: name a file or a folder")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(f"{given}: {error}") from None


def decode_line(line: bytes) -> str:
    """The text of a line; its letters and accents joined (NFC).

    Raises:
        ValueError: if it is not UTF-8, or has a carriage return or a
            NUL inside.

    Chapter: corpora-own
    """
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error})") from None
    text = unicodedata.normalize("NFC", text).strip()
    if "\r" in text:
        raise ValueError("a carriage return inside: end lines with \\n")
    if "\0" in text:
        raise ValueError("a NUL inside, as in packed files")
    return text


def check_encoding(start: bytes, name: str | Path) -> None:
    """Refuse what begins as UTF-16 or packed files do, and UTF-8 never.

    Raises:
        ValueError: naming what it is.

    Chapter: corpora-own
    """
    if {0, 0xFD, 0xFE, 0xFF} & {*start[:2]}:
        raise ValueError(f"{name} is UTF-16, or packed: give UTF-8")


# How a damaged or half-fetched file makes itself known.
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)


def _lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file; only \\n ends one.

    Chapter: corpora-own
    """
    try:
        with _open(as_path(path)) as file:
            check_encoding(file.peek(2), path)
            yield from file
    except _DAMAGE as error:
        raise ValueError(
            f"{path} cannot be read ({error}): it is damaged or not whole, "
            "get it again"
        ) from error


def _open(path: Path) -> IO[bytes]:
    """A file, unpacked; of a zip archive, its largest file.

    Browsers unpack files and keep their names: a file's first two bytes
    say whether it is gzipped.

    Chapter: corpora-own
    """
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)
        files_in = archive.infolist()
        if not files_in:
            raise zipfile.BadZipFile("there is no file in it")
        return archive.open(max(files_in, key=lambda file: file.file_size))
    file = path.open("rb")
    if not file.peek(2).startswith(b"\x1f\x8b"):
        return file
    file.close()
    return gzip.open(path)


_DATA = files("transformer_lib") / "data"


def data_folder() -> Path:
    """The folder that the environment's TRANSFORMER_LIB_DATA names.

    Without that variable it is ~/.cache/transformer_lib.

    Chapter: corpora-files
    """
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    return as_path(named or "~/.cache/transformer_lib")


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
    missing = not (folder / file).exists()
    try:
        path = pooch.retrieve(url, checksum, file, folder, downloader=web)
        if missing:  # pooch's is for its owner, and this for all
            with suppress(OSError):  # not every file system has modes
                os.chmod(path, 0o644)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"no {folder / file}: {error!s:.99}. Fetch {url}, put it there, "
            "or name another folder as TRANSFORMER_LIB_DATA"
        ) from None
    return Path(path)


_Pairs = list[tuple[str, str]]


def _little_spanish(source: str, target: str, split: str) -> _Pairs:
    text = (_DATA / "little_spanish.tsv").read_text("utf-8")
    rows = [row.split("\t") for row in text.strip().split("\n")]
    return _turned([row[1:] for row in rows if row[0] == split], source)


def _multi30k(source: str, target: str, split: str) -> _Pairs:
    part = {"validation": "val", "test": "test_2016_flickr"}.get(split, split)
    sides = [f"multi30k/{part}.{language}.gz" for language in (source, target)]
    return list(read_parallel(*map(_fetch, sides)))


def _tatoeba(source: str, target: str, split: str) -> _Pairs:
    file = "deu-eng.zip" if "de" in (source, target) else "spa-eng.zip"
    every = read_parallel(_fetch(f"tatoeba/{file}"))
    return _turned([x for x in every if _split_of(x[0]) == split], source)


def _turned(rows: Sequence[Sequence[str]], source: str) -> _Pairs:
    """Pairs (English, other language), the source first.

    Chapter: corpora-files
    """
    if source == "en":
        return [(english, other) for english, other in rows]
    return [(other, english) for english, other in rows]


# Pairs of languages, and what reads a split.
_CORPORA = {
    "little_spanish": (["en-es"], _little_spanish),
    "multi30k": (["de-en", "de-fr", "en-fr"], _multi30k),
    "tatoeba": (["de-en", "en-es"], _tatoeba),
}


def load_corpus(
    name: str | Path,
    source: str = "en",
    target: str = "es",
    split: str = "train",
    skip_bad_lines: bool = False,
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    `name` is little_spanish, multi30k or tatoeba, or a folder with
    files train.en and train.es and the like, plain or gzipped (.gz). A
    `Path` is a folder. `split` is "train", "validation" or "test".
    `skip_bad_lines` is for a folder; the others have none.

    Warns:
        UserWarning: if a folder has the name of the book's corpus.

    Raises:
        ValueError: if there is no such language or split, or no pair in
            it; or as `read_parallel`.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"{split=}: train, validation or test")
    if source == target:
        raise ValueError(f"{source=} is the target, too: name two languages")
    if isinstance(name, str) and name in _CORPORA:
        languages, read = _CORPORA[name]
        both = "-".join(sorted([source, target]))
        if both not in languages:
            raise ValueError(f"{name} has {languages}, not {both}")
        if Path(name).is_dir():
            warn(f"{name} is the book's corpus, not ./{name}", stacklevel=2)
        pairs = read(source, target, split)
    else:
        folder = as_path(name).absolute()
        name = str(folder)  # it is found from anywhere
        sides = [_side(folder, split, part) for part in (source, target)]
        pairs = list(read_parallel(*sides, skip_bad_lines=skip_bad_lines))
    if not pairs:
        raise ValueError(f"{name} has no pairs for {split}")
    return ParallelCorpus(pairs, name, source, target, split)


def _side(folder: Path, split: str, language: str) -> Path:
    """The file of one side of a split, in a folder of one's own.

    Chapter: corpora-load
    """
    path = folder / f"{split}.{language}"
    for file in path, Path(f"{path}.gz"):
        if os.path.lexists(file):  # what is there says what it lacks
            return file
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{str(folder)!r} is neither a folder nor one of {[*_CORPORA]}"
        )
    there = sorted(file.name for file in folder.glob("*.*"))
    raise FileNotFoundError(
        f"{folder} has no {path.name} (or .gz), but {there[:9]}: name another "
        "split, or other languages"
    )
