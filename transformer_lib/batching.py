# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Batches of like length, measured in tokens: section 5.1.

Chapter: book/training/batching
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer


class EncodedPairs(list[tuple[list[int], list[int]]]):
    """(source ids, target ids), each with its eos.

    `dropped` counts the pairs left out because they were too long.

    Chapter: batching-pairs
    """

    dropped: int = 0


def encode_pairs(
    corpus: Iterable[tuple[str, str]],
    tokenizer: BPETokenizer,
    max_length: int | None = None,
) -> EncodedPairs:
    """Every pair of a corpus as ids with an eos at the end.

    A pair with a side of more than `max_length` ids, eos included, is
    left out and counted. It is never cut: a sentence without its end
    would teach the model to stop anywhere.

    Raises:
        ValueError: if no pair is left.

    Chapter: batching-pairs
    """
    pairs = EncodedPairs()
    for source, target in corpus:
        source_ids = tokenizer.encode(source) + [EOS]
        target_ids = tokenizer.encode(target) + [EOS]
        longer = max(len(source_ids), len(target_ids))
        if max_length is not None and longer > max_length:
            pairs.dropped += 1
        else:
            pairs.append((source_ids, target_ids))
    if not pairs:
        raise ValueError(
            f"no pair is left: {pairs.dropped} were longer than "
            f"{max_length=}"
        )
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
        pin = torch.device(device).type == "cuda"  # copy, do not wait

        def move(ids: Tensor) -> Tensor:
            ids = ids.pin_memory() if pin else ids
            return ids.to(device, non_blocking=True)

        return Batch(
            move(self.source_ids),
            move(self.target_ids),
            move(self.labels),
            self.tokens,
        )


def collate(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """Pad pairs of ids that end in eos into one batch.

    Chapter: batching-batch
    """
    sources = [source for source, _ in pairs]
    labels = [target for _, target in pairs]
    targets = [[BOS, *target[:-1]] for target in labels]
    return Batch(
        source_ids=_padded(sources),
        target_ids=_padded(targets),
        labels=_padded(labels),
        tokens=sum(map(len, labels)),
    )


def _padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of ids as a tensor (batch, length of the longest).

    Chapter: batching-batch
    """
    width = max(map(len, rows))
    return torch.tensor(
        [row + [PAD] * (width - len(row)) for row in rows]
    )


class TokenBatches:
    """Batches of like length, with a budget of tokens a side, 5.1.

    Neither side of a batch holds more than `tokens_per_batch` ids,
    padding included. The batches of an epoch depend on the seed and
    the epoch's number alone. With `world_size` workers each gets
    every `world_size`-th batch and all get as many: where the number
    does not come out even, the first batches are given out again.

    Raises:
        ValueError: if a sentence is longer than the budget, there are
            no pairs, or `rank` is not below `world_size`.

    Chapter: batching-tokens
    """

    def __init__(
        self,
        pairs: Sequence[tuple[list[int], list[int]]],
        tokens_per_batch: int = 25_000,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.keys = [_by_length(pair) for pair in pairs]
        longest = max((longer for longer, _ in self.keys), default=0)
        if not 0 < longest <= tokens_per_batch:
            raise ValueError(
                f"{tokens_per_batch=} for {len(pairs)} pairs, the "
                f"longest of {longest} ids: raise the budget, or "
                "leave out long pairs with "
                "encode_pairs(..., max_length=...)"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"{rank=} is not below {world_size=}")
        self.pairs, self.tokens_per_batch = pairs, tokens_per_batch
        self.seed, self.shuffle = seed, shuffle
        self.rank, self.world_size = rank, world_size
        self.total = len(self._cut(range(len(pairs))))

    def __len__(self) -> int:
        """Batches of an epoch on this worker, always as many."""
        return -(-self.total // self.world_size)  # rounded up

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch for this worker, from `start` on."""
        order = list(range(len(self.pairs)))
        chance = random.Random(f"{self.seed} {number}")
        if self.shuffle:  # sorting keeps the order of equal lengths
            chance.shuffle(order)
        batches = self._cut(order)
        if self.shuffle:
            chance.shuffle(batches)
        for turn in range(start, len(self)):
            mine = turn * self.world_size + self.rank
            places = batches[mine % len(batches)]
            yield collate([self.pairs[place] for place in places])

    def _cut(self, order: Iterable[int]) -> list[list[int]]:
        """Sort places by length, cut where the budget is full."""
        batches: list[list[int]] = [[]]
        for place in sorted(order, key=self.keys.__getitem__):
            longer, rows = self.keys[place][0], len(batches[-1]) + 1
            if rows * longer > self.tokens_per_batch:
                batches.append([])
            batches[-1].append(place)
        return batches


def _by_length(pair: tuple[list[int], list[int]]) -> tuple[int, int]:
    """Sort by the longer side, then by the difference.

    The difference rises for one length and falls for the next, so
    that neighbours stay alike where a length gives way to the next.

    Chapter: batching-tokens
    """
    source, target = map(len, pair)
    longer = max(source, target)
    difference = source - target
    return longer, difference if longer % 2 else -difference
