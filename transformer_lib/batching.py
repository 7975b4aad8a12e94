# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Batches of like length, measured in tokens: section 5.1.

Chapter: book/training/batching
"""

import math
import os
import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, distributed

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer, Tokenizer

_Corpus = Iterable[tuple[str, str]]  # source text, target text
_Pair = tuple[list[int], list[int]]  # source ids, target ids


def encode_pairs(
    corpus: _Corpus, tokenizer: Tokenizer, max_length: int | None = None
) -> list[_Pair]:
    """The pairs of a corpus as ids, with an eos at every end.

    A pair with a side of more than `max_length` ids, eos included, is
    left out.

    Raises:
        ValueError: if no pair is left.

    Chapter: batching-pairs
    """
    pairs = list(stream_pairs(corpus, tokenizer, max_length))
    if not pairs:
        raise ValueError(f"no pair is left, with {max_length=}")
    return pairs


def stream_pairs(
    corpus: _Corpus, tokenizer: Tokenizer, max_length: int | None = None
) -> Iterator[_Pair]:
    """The pairs of `encode_pairs`, one by one, however many.

    Chapter: batching-pairs
    """
    pairs = iter(corpus)
    while block := list(islice(pairs, 1000)):
        sources, targets = zip(*block, strict=True)
        source_rows = _encode_all(sources, tokenizer)
        target_rows = _encode_all(targets, tokenizer)
        rows = zip(source_rows, target_rows, strict=True)
        for source_ids, target_ids in rows:
            longer = max(len(source_ids), len(target_ids))
            if max_length is None or longer <= max_length:
                yield source_ids, target_ids


def _encode_all(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """The ids of texts, each with its eos; ours on all cores.

    Chapter: batching-pairs
    """
    if isinstance(tokenizer, BPETokenizer):
        ids = tokenizer.encode_all(texts)
    else:
        ids = [tokenizer.encode(text) for text in texts]
    return [[*sentence, EOS] for sentence in ids]


@dataclass
class Batch:
    """Some pairs side by side, padded on the right.

    Shapes: source_ids (batch, source_len), target_ids and labels
    (batch, target_len). Labels are the target one place ahead.
    `tokens` is the number of labels that are not padding.

    Chapter: batching-batch
    """

    source_ids: Tensor
    target_ids: Tensor
    labels: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        return Batch(
            source_ids=self.source_ids.to(device),
            target_ids=self.target_ids.to(device),
            labels=self.labels.to(device),
            tokens=self.tokens,
        )


def collate(pairs: Sequence[_Pair]) -> Batch:
    """Pad pairs of ids that end in eos into one batch.

    Raises:
        ValueError: if there is no pair, a side without ids, or padding
            in a side.

    Chapter: batching-batch
    """
    if not pairs or not all(len(side) for pair in pairs for side in pair):
        raise ValueError("a batch needs pairs, and a side at least its eos")
    if any(PAD in side for pair in pairs for side in pair):
        raise ValueError(f"an id is {PAD}, that of padding: leave it out")
    sources, labels = zip(*pairs, strict=True)
    targets = [[BOS, *target[:-1]] for target in labels]
    return Batch(
        source_ids=_padded(sources),
        target_ids=_padded(targets),
        labels=_padded(labels),
        tokens=sum(len(target) for target in labels),
    )


def _padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of ids as a tensor (batch, length of the longest).

    Chapter: batching-batch
    """
    width = max(len(row) for row in rows)
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


@dataclass(repr=False)
class TokenBatches:
    """Batches of like length, with a budget of tokens a side, 5.1.

    Neither side of a batch holds more than `tokens_per_batch` ids,
    padding included. The batches of an epoch depend on the seed and
    the epoch's number alone. `pairs` is any sequence: a list, or
    `StoredPairs`, as only the lengths are kept in memory.

    With `world_size` workers each gets every `world_size`-th batch
    and all get as many: where the number does not come out even, the
    first batches are given out again. Shuffled batches, for training,
    are by default those of this process under `torchrun`. Batches in
    a fixed order, for validation, are by default not shared out.

    Raises:
        ValueError: without pairs, if a side has no ids or more than
            the budget, or if `rank` is not below `world_size`.

    Chapter: batching-tokens
    """

    pairs: Sequence[_Pair]
    tokens_per_batch: int = 25_000
    seed: int = 0
    shuffle: bool = True
    rank: int | None = None
    world_size: int | None = None

    def __post_init__(self) -> None:
        if self.rank is None and self.world_size is None:
            self.rank, self.world_size = worker() if self.shuffle else (0, 1)
        if self.rank not in range(self.world_size or 0):
            raise ValueError(
                f"rank={self.rank}, world_size={self.world_size}: give both, "
                "and a rank from 0 to below world_size"
            )
        self.lengths: np.ndarray = _lengths(self.pairs)  # (pairs, 2)
        if not len(self.pairs) or not self.lengths.all():
            raise ValueError("no pairs, or a side without ids, not even eos")
        longest = self.lengths.max()
        if longest > self.tokens_per_batch:
            budget = f"tokens_per_batch={self.tokens_per_batch}"
            raise ValueError(f"{longest} ids > {budget}: set max_length")
        in_order = np.arange(len(self.pairs), dtype=np.int32)
        self.total: int = len(self._cut(in_order))

    @classmethod
    def in_order(cls, pairs: Sequence[_Pair]) -> Self:
        """Batches to measure on: not shuffled, none too long for one."""
        longest = max((max(map(len, pair)) for pair in pairs), default=0)
        return cls(pairs, max(4096, longest), shuffle=False)

    def __len__(self) -> int:
        """Batches of an epoch, the same number on each worker."""
        return math.ceil(self.total / self.world_size)

    def fingerprint(self) -> str:
        """SHA-256 of what the batches hold, the same on each worker."""
        settings = self.tokens_per_batch, self.seed, self.shuffle
        digest = sha256(repr((settings, self.world_size)).encode())
        for source, target in self.pairs:
            digest.update(repr((source, target)).encode())
        return digest.hexdigest()

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """This worker's batches of one epoch, from `start` on."""
        generator = random.Random(f"{self.seed} {number}")
        order = array("i", range(len(self.lengths)))  # small in memory
        if self.shuffle:  # sorting keeps the order of equal lengths
            generator.shuffle(order)
        batches = self._cut(np.asarray(order))
        if self.shuffle:
            generator.shuffle(batches)
        for index in range(start, len(self)):
            place = index * self.world_size + self.rank
            batch = batches[place % len(batches)]
            yield collate([self.pairs[i] for i in batch.tolist()])

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Sort numbers of pairs by length, cut where a batch is full."""
        order = order[_sorted_by_length(self.lengths[order])]
        longer = self.lengths[order].max(axis=1)
        begins = [0]
        # A memoryview gives ints, without a list of them.
        for place, length in enumerate(memoryview(longer)):
            # Sorted, so the newest pair is the longest of its batch:
            # all rows are padded to its length.
            rows = place + 1 - begins[-1]
            if rows * length > self.tokens_per_batch:
                begins.append(place)
        return np.split(order, begins[1:])


def _sorted_by_length(lengths: np.ndarray) -> np.ndarray:
    """Places of lengths (pairs, 2), by the longer side.

    Among these the difference of the sides rises for one length and
    falls for the next, so that neighbours stay alike where a length
    gives way to the next. Equal pairs keep their order.

    Chapter: batching-tokens
    """
    longer = lengths.max(axis=1)
    difference = lengths[:, 0] - lengths[:, 1]
    difference[longer % 2 == 0] *= -1  # to and fro
    return np.lexsort((difference, longer))  # the last one decides first


def _lengths(pairs: Sequence[_Pair]) -> np.ndarray:
    """The lengths of both sides, (pairs, 2); `StoredPairs` has them.

    Chapter: batching-tokens
    """
    if hasattr(pairs, "lengths"):
        return pairs.lengths
    sides = ((len(source), len(target)) for source, target in pairs)
    return np.fromiter(sides, np.dtype((np.int32, 2)), len(pairs))


def worker() -> tuple[int, int]:
    """The rank of this process under `torchrun`, and how many there are.

    (0, 1) for a process on its own.

    Chapter: batching-tokens
    """
    if not distributed.is_torchelastic_launched() or "RANK" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class StoredPairs(Sequence[_Pair]):
    """Pairs of ids in a folder, read when they are asked for.

    The file `ids` holds all ids in 16 bits; `places`, for each pair,
    where its source begins, its target begins, and its target ends.
    `store_pairs` writes both.

    Raises:
        FileNotFoundError: if the folder holds no pairs.
        ValueError: if its files are not whole.

    Chapter: batching-stored
    """

    def __init__(self, folder: str | Path):
        places = np.memmap(Path(folder, "places"), np.int64, "r")
        ids = np.memmap(Path(folder, "ids"), np.uint16, "r")
        if len(places) % 3 or places[-1] != len(ids):
            raise ValueError(f"{folder} is cut short: delete it, store again")
        self.ids: np.ndarray = np.asarray(ids)
        self.places: np.ndarray = np.asarray(places).reshape(-1, 3)

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of all sources and targets, (pairs, 2)."""
        return np.diff(self.places).astype(np.int32)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        start, middle, end = self.places[place]
        source, target = self.ids[start:middle], self.ids[middle:end]
        return source.tolist(), target.tolist()


def store_pairs(folder: str | Path, pairs: Iterable[_Pair]) -> StoredPairs:
    """Write pairs of ids below 65,536 as they come, one by one.

    The files get their names when both are whole.

    Raises:
        ValueError: if the folder holds pairs, or none came.
        OverflowError: if an id has no room in 16 bits.

    Chapter: batching-stored
    """
    folder = Path(folder)
    if (folder / "places").exists():
        raise ValueError(f"{folder} holds pairs: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as temporary:
        ids, places = Path(temporary, "ids"), Path(temporary, "places")
        with open(ids, "wb") as id_file, open(places, "wb") as place_file:
            end = 0
            for source, target in pairs:
                start, middle = end, end + len(source)
                end = middle + len(target)
                id_file.write(array("H", [*source, *target]))
                place_file.write(array("q", [start, middle, end]))
        if end == 0:
            raise ValueError("no pairs came: give some, or raise max_length")
        ids.replace(folder / "ids")
        places.replace(folder / "places")
    return StoredPairs(folder)
