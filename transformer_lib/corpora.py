# Collected from book/training/corpora.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Parallel corpora: pairs of sentences that mean the same."""

import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from warnings import catch_warnings

from transformer_lib.grammar import little_spanish

__all__ = [
    "CORPORA",
    "ParallelCorpus",
    "SHA256",
    "corpus_files",
    "data_folder",
    "fetch",
    "load_corpus",
    "read_parallel",
    "split_of",
]


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


def _lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file, gzipped if it ends in .gz."""
    content = Path(path).read_bytes()
    try:
        if str(path).endswith(".gz"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig").rstrip()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path} is cut short, or no UTF-8 text "
            f"({error}): get it again, or convert it to UTF-8"
        ) from error
    if not text:
        raise ValueError(f"{path} is empty: give one sentence a line")
    # splitlines() would also cut at signs inside a sentence
    return [line.strip() for line in text.split("\n")]


def read_parallel(
    source_file: str | Path,
    target_file: str | Path,
    source: str = "",
    target: str = "",
) -> ParallelCorpus:
    """Two text files: line n of one translates line n of the other.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if one is empty, cut short or no UTF-8, or they
            differ in length.

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
    return ParallelCorpus(
        pairs, Path(source_file).name, source, target
    )


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


_PARTS = ["train", "val", "test_2016_flickr"]
_SIDES = ["de", "en", "fr"]
_NAMES = [f"{part}.{side}.gz" for part in _PARTS for side in _SIDES]
_SUMS = """
726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c
f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9
9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90
"""
SHA256 = dict(zip(_NAMES, _SUMS.split(), strict=True))


def data_folder() -> Path:
    """TRANSFORMER_LIB_DATA if it is set; else the user's cache.

    Chapter: corpora-files
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get("TRANSFORMER_LIB_DATA")
    return Path(named or f"{cache}/transformer_lib").expanduser()


def corpus_files(name: str) -> list[Path]:
    """The files of a corpus, whether they are there or not.

    Chapter: corpora-files
    """
    archives = ["deu-eng.zip", "spa-eng.zip"]
    files = {"multi30k": _NAMES, "tatoeba": archives}.get(name, [])
    return [data_folder() / name / file for file in files]


def fetch(name: str, file: str) -> Path:
    """The path of a corpus's file, downloaded if it is missing.

    A file that is there is used without a network. A download has its
    final name only once it is whole and its sum is right.

    Raises:
        ValueError: if the file that is there has another sum.
        FileNotFoundError: if it is missing and cannot be downloaded;
            the message says which file to put where.

    Chapter: corpora-files
    """
    path, url = data_folder() / name / file, CORPORA[name][1] + file
    known = SHA256.get(file)  # Tatoeba's address keeps no edition
    if path.is_file():
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if known and found != known:
            raise ValueError(
                f"{path} is corrupt: its sha256 is {found}, not "
                f"{known}. Delete it, and it is downloaded again"
            )
        return path
    try:
        with catch_warnings(action="ignore"):  # tqdm on widgets
            import pooch

        pooch.get_logger().setLevel("WARNING")
        agent = {"User-Agent": "transformer_lib"}
        web = pooch.HTTPDownloader(headers=agent, timeout=30)
        pooch.retrieve(url, known, file, path.parent, downloader=web)
    except (ImportError, OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{path} is missing and was not downloaded "
            f"({error!s:.99}). Fetch {url} and put it there"
        ) from None
    return path


def split_of(english: str) -> str:
    """The split of an English sentence, whatever its case and signs.

    By its hash, 1 in 100 goes to "test" and 1 to "validation".

    Chapter: corpora-tatoeba
    """
    letters = "".join(filter(str.isalnum, english.casefold()))
    lot = int(hashlib.sha256(letters.encode()).hexdigest(), 16) % 100
    return {0: "test", 1: "validation"}.get(lot, "train")


def _tatoeba(language: str, split: str) -> list[tuple[str, str]]:
    """(English, other) pairs of a split; equal pairs once."""
    code = {"de": "deu", "es": "spa"}[language]
    path = fetch("tatoeba", f"{code}-eng.zip")
    try:
        with zipfile.ZipFile(path) as archive:
            names = {Path(n).name: n for n in archive.namelist()}
            content = archive.read(names[f"{code}.txt"])
        rows = content.decode("utf-8-sig").split("\n")
    except (
        zipfile.BadZipFile,
        zlib.error,
        LookupError,
        ValueError,
    ) as e:
        raise ValueError(
            f"{path} is corrupt or holds no {code}.txt "
            f"({e!r}). Delete it, and it is downloaded again"
        ) from e
    cells = (row.split("\t") for row in rows)
    pairs = (
        (row[0].strip(), row[1].strip()) for row in cells if row[1:]
    )
    return [
        (english, other)
        for english, other in dict.fromkeys(pairs)
        if english and other and split_of(english) == split
    ]


def load_corpus(
    name: str,
    source: str = "en",
    target: str = "es",
    split: str = "train",
) -> ParallelCorpus:
    """A corpus in two of its languages, either way round.

    Args:
        name: one of `CORPORA`.
        split: "train", "validation" or "test"; Multi30k's own names
            "val" and "test_2016_flickr" do too.

    Raises:
        ValueError: if there is no such corpus, language or split, or
            a file is corrupt.
        FileNotFoundError: if a file is missing; it says what to do.

    Chapter: corpora-load
    """
    if name not in CORPORA:
        raise ValueError(
            f"no corpus {name!r}; there are {[*CORPORA]}"
        )
    languages, _, licence = CORPORA[name]
    lacks = name == "tatoeba" and "en" not in (source, target)
    if lacks or source == target or {source, target} - {*languages}:
        raise ValueError(
            f"{name} has no {source!r} to {target!r}: choose two of "
            f"{languages}, for tatoeba with 'en' among them"
        )
    kinds = "train", "validation", "test"
    parts = dict(zip(kinds, _PARTS, strict=True))
    own = {part: split for split, part in parts.items()}
    split = own.get(split, split) if name == "multi30k" else split
    if split not in parts:
        raise ValueError(f"no split {split!r}; there are {[*parts]}")
    if name == "multi30k":
        stem = parts[split]
        files = [
            fetch(name, f"{stem}.{x}.gz") for x in (source, target)
        ]
        pairs = read_parallel(*files).pairs
    elif name == "tatoeba":
        other = target if source == "en" else source
        pairs = _tatoeba(other, split)
    else:
        pairs = little_spanish(split)
    if name != "multi30k" and target == "en":
        pairs = [(other, english) for english, other in pairs]
    return ParallelCorpus(
        tuple(pairs), name, source, target, split, licence
    )
