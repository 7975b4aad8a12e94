# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same.

Chapter: book/training/corpora
"""

import gzip
import hashlib
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

    pairs: tuple[tuple[str, str], ...]
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


def read_parallel(
    source_file: str | Path,
    target_file: str | Path,
    source: str = "",
    target: str = "",
) -> ParallelCorpus:
    """Two text files: line n of one translates line n of the other.

    Plain UTF-8 or, where the name ends in .gz, gzipped.

    Raises:
        ValueError: if the files differ in length, or one is cut
            short, no UTF-8, or has a line that is no sentence; it
            names file and line.

    Chapter: corpora-own
    """
    left, right = _lines(source_file), _lines(target_file)
    if len(left) != len(right):
        raise ValueError(
            f"{source_file} has {len(left)} lines and {target_file} "
            f"{len(right)}: line n of one must translate line n of "
            "the other"
        )
    pairs = tuple(zip(left, right, strict=True))
    name = Path(source_file).name
    return ParallelCorpus(pairs, name, source, target)


def _lines(path: str | Path) -> list[str]:
    """The sentences of a text file, one a line.

    Chapter: corpora-own
    """
    content = Path(path).read_bytes()
    try:
        if str(path).endswith(".gz"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig").rstrip()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is no whole gzip file ({error}): get it again"
        ) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line} is not UTF-8: convert the file"
        ) from error
    end = "\n" if "\n" in text else "\r"  # \r\n: strip() does it
    lines = [line.strip() for line in text.split(end)]
    for number, line in enumerate(lines, 1):
        if fault := _fault(line):
            raise ValueError(f"{path}, line {number} {fault}")
    return lines


def _fault(line: str, longest: int = 10_000) -> str:
    """Why a line is no sentence; nothing, if it is one.

    Chapter: corpora-own
    """
    if not line:
        return "is empty: remove it, and its partner"
    if "\0" in line:
        return "holds a NUL, as UTF-16 does: convert it to UTF-8"
    if len(line) > longest:
        return f"has {len(line)} characters: at most {longest} do"
    return ""


def _split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and signs.

    By its hash, 1 in 100 goes to "test" and 1 to "validation".

    Chapter: corpora-tatoeba
    """
    letters = "".join(filter(str.isalnum, english.casefold()))
    lot = int(hashlib.sha256(letters.encode()).hexdigest(), 16) % 100
    return {0: "test", 1: "validation"}.get(lot, "train")


CORPORA = {  # languages, address, licence
    "little_spanish": (["en", "es"], "", "this book's own"),
    "multi30k": (
        ["de", "en", "fr"],
        "https://raw.githubusercontent.com/multi30k/dataset/master/"
        "data/task1/raw/",
        "for research and education; captions of Flickr30k images",
    ),
    "tatoeba": (
        ["de", "en", "es"],
        "https://www.manythings.org/anki/",
        "CC BY 2.0 FR; tatoeba.org and www.manythings.org/anki",
    ),
}


_DATA = files("transformer_lib") / "data"
_PARTS = {  # our name of a split: Multi30k's
    "train": "train",
    "validation": "val",
    "test": "test_2016_flickr",
}


def data_folder() -> Path:
    """TRANSFORMER_LIB_DATA if it is set; else the user's cache.

    Chapter: corpora-files
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    return Path(named or f"{cache}/transformer_lib").expanduser()


def fetch(name: str, file: str) -> Path:
    """The path of a corpus's file, downloaded if it is missing.

    Raises:
        FileNotFoundError: if it cannot be downloaded; the message
            says which file to put where.

    Chapter: corpora-files
    """
    path, url = data_folder() / name / file, CORPORA[name][1] + file
    if path.is_file():
        return path
    words = (_DATA / "SHA256SUMS").read_text("utf-8").split()
    sums = dict(zip(words[1::2], words[::2], strict=True))
    known = sums.get(f"{name}/{file}")  # Tatoeba's files change
    try:
        with catch_warnings(action="ignore"):  # tqdm on widgets
            import pooch

        pooch.get_logger().setLevel("WARNING")
        agent = {"User-Agent": "transformer_lib"}
        web = pooch.HTTPDownloader(headers=agent, timeout=30)
        pooch.retrieve(url, known, file, path.parent, downloader=web)
    except (ImportError, OSError, ValueError) as error:
        missing = isinstance(error, ImportError)
        why = "install pooch" if missing else f"{error!s:.99}"
        raise FileNotFoundError(
            f"{path} is missing and was not downloaded ({why}). "
            f"Fetch {url} and put it there"
        ) from None
    return path


def _tatoeba(language: str, split: str) -> list[tuple[str, str]]:
    """(English, other) pairs of a split; equal pairs once.

    Chapter: corpora-files
    """
    code = {"de": "deu", "es": "spa"}[language]
    path = fetch("tatoeba", f"{code}-eng.zip")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            [name] = [n for n in names if n.endswith(f"{code}.txt")]
            text = archive.read(name).decode("utf-8-sig")
    except (zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path} is no whole archive with a {code}.txt: delete "
            "it, and it is downloaded again"
        ) from error
    cells = (row.split("\t") for row in text.split("\n"))
    pairs = ((c[0].strip(), c[1].strip()) for c in cells if c[1:])
    return [
        pair
        for pair in dict.fromkeys(pairs)
        if all(pair) and _split_of(pair[0]) == split
    ]


def _little_spanish(_, split: str) -> list[tuple[str, str]]:
    """(English, Spanish) pairs of a split, from the shipped file.

    Chapter: corpora-files
    """
    rows = (_DATA / "little_spanish.tsv").read_text("utf-8")
    cells = (row.split("\t") for row in rows.splitlines())
    return [(en, es) for part, en, es in cells if part == split]


def load_corpus(
    name: str,
    source: str = "en",
    target: str = "es",
    split: str = "train",
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    `split` is "train", "validation" or "test".

    Raises:
        ValueError: if there is no such corpus, language or split.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    if name not in CORPORA or split not in _PARTS:
        raise ValueError(
            f"no {split!r} of {name!r}: the corpora are {[*CORPORA]}, "
            f"their splits {[*_PARTS]}"
        )
    languages, _, licence = CORPORA[name]
    odd = name == "tatoeba" and "en" not in (source, target)
    if odd or source == target or {source, target} - {*languages}:
        raise ValueError(
            f"{name} has no {source!r} to {target!r}: choose two of "
            f"{languages}, for tatoeba with 'en' among them"
        )
    if name == "multi30k":
        part = _PARTS[split]
        left = fetch(name, f"{part}.{source}.gz")
        right = fetch(name, f"{part}.{target}.gz")
        pairs = read_parallel(left, right).pairs
    else:
        other = target if source == "en" else source
        read = _tatoeba if name == "tatoeba" else _little_spanish
        pairs = tuple(read(other, split))
        if target == "en":
            pairs = tuple(
                (other, english) for english, other in pairs
            )
    return ParallelCorpus(pairs, name, source, target, split, licence)
