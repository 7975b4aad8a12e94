# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same.

Chapter: book/training/corpora
"""

import codecs
import gzip
import hashlib
import json
import os
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import compress, zip_longest
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
    if lot == 0:
        return "test"
    if lot == 1:
        return "validation"
    return "train"


@dataclass(frozen=True)
class ParallelCorpus(Sequence[tuple[str, str]]):
    """Pairs (source sentence, target sentence), read like a list.

    A slice is a smaller corpus. `source` and `target` name the
    languages. `lines` are the numbers of the pairs' lines in their
    files, where they come from files of one's own.

    Raises:
        TypeError: if `pairs` is no list of tuples, or a name no text.

    Chapter: corpora-own
    """

    pairs: Sequence[tuple[str, str]] = field(repr=False)  # too many
    name: str = ""
    source: str = ""
    target: str = ""
    split: str = ""
    licence: str = ""
    lines: Sequence[int] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        pairs = self.pairs
        are_pairs = isinstance(pairs, (list, tuple)) and all(
            isinstance(pair, tuple) for pair in pairs[:1]
        )
        if not are_pairs:
            raise TypeError(
                f"pairs is {pairs!r:.60}: give a list of tuples (source, "
                "target); of two lists, list(zip(sources, targets))"
            )
        for name in ("name", "source", "target", "split", "licence"):
            if not isinstance(getattr(self, name), str):
                value = getattr(self, name)
                raise TypeError(f"{name} is {value!r:.60}: give a text")

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            pairs, lines = self.pairs[place], self.lines[place]
            return replace(self, pairs=pairs, lines=lines)
        return self.pairs[place]

    @property
    def sources(self) -> list[str]:
        """The source sentences."""
        return [source for source, _ in self.pairs]

    @property
    def targets(self) -> list[str]:
        """The target sentences."""
        return [target for _, target in self.pairs]

    def chosen(self, choice: Iterable[bool]) -> "ParallelCorpus":
        """The corpus of the pairs for which `choice` is true."""
        choice = list(choice)
        pairs = list(compress(self.pairs, choice))
        lines = list(compress(self.lines, choice))
        return replace(self, pairs=pairs, lines=lines)


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
        ValueError: if two files differ in length, or one is damaged or
            UTF-16; or for a line that is empty on one side, is not
            UTF-8 or has a carriage return inside, unless such pairs
            are to be skipped and counted.

    Chapter: corpora-own
    """
    for _, source, target in _numbered(path, translation, skip_bad_lines):
        yield source, target


def _numbered(
    path: str | Path, translation: str | Path | None, skip_bad_lines: bool
) -> Iterator[tuple[int, str, str]]:
    """The pairs of `read_parallel`, each after the number of its line.

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
                source, target = _two_cells(lines[0])
            else:
                source, target = _sentence(lines[0]), _sentence(lines[1])
        except ValueError as error:
            if not skip_bad_lines:
                raise ValueError(
                    f"{names}, line {number}: {error}; or set skip_bad_lines"
                ) from None
            skipped += 1
        else:
            yield number, source, target
    if skipped:
        warn(f"{names}: skipped {skipped} of {number} lines", stacklevel=3)


def decode_line(line: bytes) -> str:
    """The text of a line; its letters and accents joined (NFC).

    Raises:
        ValueError: if it is not UTF-8 or has a carriage return inside.

    Chapter: corpora-own
    """
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error})") from None
    text = unicodedata.normalize("NFC", text).strip()
    if "\r" in text or "\0" in text:
        name = "carriage return" if "\r" in text else "NUL"
        raise ValueError(f"a {name} inside a sentence: end lines with \\n")
    return text


def _sentence(line: bytes) -> str:
    text = decode_line(line)
    if not text:
        raise ValueError("a side is empty")
    return text


def _two_cells(line: bytes) -> tuple[str, str]:
    """The first two cells of a line with tabs.

    Chapter: corpora-own
    """
    cells = line.split(b"\t")
    if len(cells) < 2:
        raise ValueError("a tab is missing")
    return _sentence(cells[0]), _sentence(cells[1])


# How a damaged or half-fetched file makes itself known.
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)


def _lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file; only \\n ends one.

    Chapter: corpora-own
    """
    try:
        with _open(Path(path)) as file:
            for number, line in enumerate(file):
                if number == 0 and is_utf16(line):
                    raise ValueError(f"{path} is UTF-16: save it as UTF-8")
                yield line
    except _DAMAGE as error:
        raise ValueError(
            f"{path} cannot be read ({error}): delete it and get it again"
        ) from error


def _open(path: Path) -> IO[bytes]:
    """A file, unpacked; of a zip archive, its largest file.

    Chapter: corpora-own
    """
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        return archive.open(max(sizes, key=sizes.__getitem__))
    if path.suffix == ".gz":
        return gzip.open(path)
    return path.open("rb")


def is_utf16(content: bytes) -> bool:
    """Whether the beginning of a file is UTF-16, with a mark or without.

    In the UTF-8 of ordinary text no byte is 0.

    Chapter: corpora-own
    """
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.startswith(marks) or b"\0" in content


_CORPORA = {  # pairs of languages, licence
    "little_spanish": (["en-es"], "this book's own"),
    "multi30k": (["de-en", "de-fr", "en-fr"], "research, education"),
    "tatoeba": (["de-en", "en-es"], "CC BY 2.0 FR, tatoeba.org"),
}

SPLITS = ("train", "validation", "test")

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
    packed = Path(f"{path}.gz")
    if path.is_file() or packed.is_file():
        return path if path.is_file() else packed
    if not Path(name).is_dir():
        raise FileNotFoundError(
            f"{name!r} is neither a folder nor one of {[*_CORPORA]}"
        )
    parts = [path for x in SPLITS for path in Path(name).glob(f"{x}.*")]
    there = sorted({path.name.removesuffix(".gz") for path in parts})
    endings = sorted({file.partition(".")[2] for file in there})
    remedy = "files of both languages, such as train.en and train.es"
    if len(endings) > 1:
        remedy = f"its languages, such as --languages {' '.join(endings[:2])}"
    raise FileNotFoundError(
        f"{name} has no {path.name} (or .gz): it has {there}; name another "
        f"split, or {remedy}"
    )


def load_corpus(
    name: str | Path,
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
    name, lines = str(name), []
    languages, licence = _CORPORA.get(name, ([], ""))
    both = "-".join(sorted([source, target]))
    if split not in SPLITS:
        raise ValueError(f"{split=}: train, validation or test")
    if source == target:
        raise ValueError(f"{source=} is the target, too: name two languages")
    if languages and both not in languages:
        raise ValueError(f"{name} has {languages}, not {both}")
    if name == "little_spanish":
        pairs = _little_spanish(split)
    elif name == "tatoeba":
        pairs = _tatoeba(both, split)
    else:
        one, other = _file(name, split, source), _file(name, split, target)
        rows = list(_numbered(one, other, skip_bad_lines))
        pairs = [(text, translation) for _, text, translation in rows]
        lines = [number for number, _, _ in rows]
    if name not in _CORPORA:
        name = str(Path(name).absolute())  # it is found from anywhere
    if name in ("little_spanish", "tatoeba") and source != "en":
        pairs = [(other, english) for english, other in pairs]
    if not pairs:
        raise ValueError(f"{name} has no pairs for {split}")
    return ParallelCorpus(pairs, name, source, target, split, licence, lines)


def _little_spanish(split: str) -> list[tuple[str, str]]:
    """The pairs (English, Spanish) of a split.

    Chapter: corpora-load
    """
    text = (_DATA / "little_spanish.tsv").read_text("utf-8")
    rows = [row.split("\t") for row in text.strip().split("\n")]
    return [(en, es) for part, en, es in rows if part == split]


def _tatoeba(languages: str, split: str) -> list[tuple[str, str]]:
    """The pairs (English, other language) of a split.

    Chapter: corpora-load
    """
    file = {"de-en": "deu-eng.zip", "en-es": "spa-eng.zip"}[languages]
    every = read_parallel(_fetch(f"tatoeba/{file}"))
    return [pair for pair in every if _split_of(pair[0]) == split]
