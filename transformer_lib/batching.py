# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Batches of like length, measured in tokens: section 5.1.

Chapter: book/training/batching
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer

_Pair = tuple[list[int], list[int]]  # source ids, target ids


def encode_pairs(
    corpus, tokenizer: BPETokenizer, max_length: int | None = None
) -> list[_Pair]:
    """The pairs of a corpus as ids, with an eos at every end.

    A pair with a side of more than `max_length` ids, eos included, is
    left out. It is never cut: a sentence without its end would teach
    the model to stop anywhere.

    Raises:
        ValueError: if no pair is left.

    Chapter: batching-pairs
    """
    pairs = []
    for source, target in corpus:
        source_ids = tokenizer.encode(source) + [EOS]
        target_ids = tokenizer.encode(target) + [EOS]
        longer = max(len(source_ids), len(target_ids))
        if max_length is None or longer <= max_length:
            pairs.append((source_ids, target_ids))
    if not pairs:
        raise ValueError(f"no pair is left, with {max_length=}")
    return pairs


@dataclass
class Batch:
    """Some pairs side by side, padded on the right.

    Shapes: source_ids (batch, source_len), target_ids and labels
    (batch, target_len). Labels are the target one place ahead.
    `tokens` is the number of labels that are no padding.

    Chapter: batching-batch
    """

    source_ids: Tensor
    target_ids: Tensor
    labels: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        ids = [self.source_ids, self.target_ids, self.labels]
        if torch.device(device).type == "cuda":
            ids = [x.pin_memory() for x in ids]  # copy, do not wait
        ids = [x.to(device, non_blocking=True) for x in ids]
        return Batch(*ids, self.tokens)


def collate(pairs: Sequence[_Pair]) -> Batch:
    """Pad pairs of ids that end in eos into one batch.

    Chapter: batching-batch
    """
    sources, labels = zip(*pairs, strict=True)
    targets = [[BOS, *target[:-1]] for target in labels]
    ids = [_padded(rows) for rows in (sources, targets, labels)]
    return Batch(*ids, tokens=sum(map(len, labels)))


def _padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of ids as a tensor (batch, length of the longest).

    Chapter: batching-batch
    """
    width = max(map(len, rows))
    rows = [row + [PAD] * (width - len(row)) for row in rows]
    return torch.tensor(rows)


@dataclass(repr=False)
class TokenBatches:
    """Batches of like length, with a budget of tokens a side, 5.1.

    Neither side of a batch holds more than `tokens_per_batch` ids,
    padding included. The batches of an epoch depend on the seed and
    the epoch's number alone. `pairs` is any sequence: a list, or one
    that reads a file, as only lengths are kept. With `world_size`
    workers each gets every `world_size`-th batch and all get as many:
    where the number does not come out even, the first batches are
    given out again.

    Raises:
        ValueError: if a sentence is longer than the budget, or
            `rank` is not below `world_size`.

    Chapter: batching-tokens
    """

    pairs: Sequence[_Pair]
    tokens_per_batch: int = 25_000
    seed: int = 0
    shuffle: bool = True
    rank: int = 0
    world_size: int = 1

    def __post_init__(self):
        self.lengths = [(len(x), len(y)) for x, y in self.pairs]
        longest = max(map(max, self.lengths))
        if longest > self.tokens_per_batch:
            budget = f"tokens_per_batch={self.tokens_per_batch}"
            raise ValueError(f"{longest} ids > {budget}: set max_length")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"{self.rank=} of {self.world_size=}")
        self.total = len(self._cut(range(len(self.lengths))))

    def __len__(self) -> int:
        """Batches of an epoch on this worker, always as many."""
        return -(-self.total // self.world_size)  # rounded up

    def fingerprint(self) -> str:
        """SHA-256 of what the batches hold, the same on each worker."""
        settings = self.tokens_per_batch, self.seed, self.shuffle
        digest = sha256(repr((settings, self.world_size)).encode())
        for pair in self.pairs:
            digest.update(repr(pair).encode())
        return digest.hexdigest()

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """This worker's batches of one epoch, from `start` on."""
        order = [*range(len(self.lengths))]
        chance = random.Random(f"{self.seed} {number}")
        if self.shuffle:  # sorting keeps the order of equal lengths
            chance.shuffle(order)
        batches = self._cut(order)
        if self.shuffle:
            chance.shuffle(batches)
        for turn in range(start, len(self)):
            mine = turn * self.world_size + self.rank
            batch = batches[mine % len(batches)]
            yield collate([self.pairs[i] for i in batch])

    def _cut(self, order: Iterable[int]) -> list[list[int]]:
        """Sort pairs by length, cut where the budget is full."""
        batches: list[list[int]] = [[]]
        lengths = self.lengths
        for i in sorted(order, key=lambda i: _by_length(*lengths[i])):
            rows, longer = len(batches[-1]) + 1, max(lengths[i])
            if rows * longer > self.tokens_per_batch:
                batches.append([])
            batches[-1].append(i)
        return batches


def _by_length(source: int, target: int) -> tuple[int, int]:
    """Sort by the longer side, then by the difference.

    The difference rises for one length and falls for the next, so
    that neighbours stay alike where a length gives way to the next.

    Chapter: batching-tokens
    """
    longer, difference = max(source, target), source - target
    return longer, difference if longer % 2 else -difference
