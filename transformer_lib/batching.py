# Collected from book/training/batching.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Batches of like length, measured in tokens: section 5.1."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lib.corpora import ParallelCorpus
from transformer_lib.tokenization import (
    BOS,
    EOS,
    PAD,
    BPETokenizer,
    WordTokenizer,
)

__all__ = [
    "Batch",
    "EncodedPairs",
    "Ids",
    "TokenBatches",
    "collate",
    "encode_pairs",
    "padding_share",
]


Ids = list[int]


class EncodedPairs(list[tuple[Ids, Ids]]):
    """(source ids, target ids), each with its eos.

    `dropped` counts the pairs left out because they were too long.

    Chapter: batching-pairs
    """

    dropped: int = 0


def encode_pairs(
    corpus: ParallelCorpus | Iterable[tuple[str, str]],
    tokenizer: BPETokenizer | WordTokenizer,
    max_length: int | None = None,
) -> EncodedPairs:
    """Every pair of a corpus as ids with an eos at the end.

    A pair with a side of more than `max_length` ids, eos included, is
    left out and counted. It is never cut: a sentence without its end
    would teach the model to stop anywhere.

    Raises:
        ValueError: if a sentence is empty, or no pair is left.

    Chapter: batching-pairs
    """
    pairs = EncodedPairs()
    for line, pair in enumerate(corpus, 1):
        for side, text in zip(
            ("source", "target"), pair, strict=True
        ):
            if not text.strip():
                raise ValueError(
                    f"the {side} sentence on line {line} is empty: "
                    "remove the pair, both sides of it"
                )
        source, target = (tokenizer.encode(t) + [EOS] for t in pair)
        if max_length and max(len(source), len(target)) > max_length:
            pairs.dropped += 1
        else:
            pairs.append((source, target))
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
    tokens: int = -1

    def __post_init__(self):
        if self.tokens < 0:
            self.tokens = int((self.labels != PAD).sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        ids = (self.source_ids, self.target_ids, self.labels)
        moved = (x.to(device, non_blocking=True) for x in ids)
        return Batch(*moved, self.tokens)


def _padded(rows: Sequence[Ids]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [row + [PAD] * (width - len(row)) for row in rows]
    )


def collate(pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """Pad pairs of ids that end in eos into one batch.

    Chapter: batching-batch
    """
    sources, targets = zip(*pairs, strict=True)
    return Batch(
        source_ids=_padded(sources),
        target_ids=_padded(
            [[BOS, *target[:-1]] for target in targets]
        ),
        labels=_padded(targets),
    )


class TokenBatches:
    """Batches of like length, with a budget of tokens a side.

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
        pairs: Sequence[tuple[Ids, Ids]],
        tokens_per_batch: int = 25_000,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ):
        longest = max(
            (max(map(len, pair)) for pair in pairs), default=0
        )
        if not 0 < longest <= tokens_per_batch:
            raise ValueError(
                f"{tokens_per_batch=} for {len(pairs)} "
                f"pairs, the longest of {longest} ids: "
                "raise the budget, or leave out long pairs "
                "with encode_pairs(..., max_length=...)"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"{rank=} is not below {world_size=}")
        self.pairs, self.tokens_per_batch = pairs, tokens_per_batch
        self.seed, self.shuffle = seed, shuffle
        self.rank, self.world_size = rank, world_size
        self._batches = len(self._cut(range(len(pairs))))

    def __len__(self) -> int:
        """Batches of an epoch on this worker, always as many."""
        return -(-self._batches // self.world_size)

    def _cut(self, order: Iterable[int]) -> list[list[int]]:
        """Sort places by length, cut where the budget is full."""
        batches: list[list[int]] = [[]]
        key = [_by_length(pair) for pair in self.pairs]
        for place in sorted(order, key=key.__getitem__):
            rows = len(batches[-1]) + 1
            if rows * key[place][0] > self.tokens_per_batch:
                batches.append([])
            batches[-1].append(place)
        return batches

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch for this worker."""
        order = list(range(len(self.pairs)))
        chance = random.Random(f"{self.seed} {number}")
        if self.shuffle:  # sorting keeps the order of equal lengths
            chance.shuffle(order)
        batches = self._cut(order)
        if self.shuffle:
            chance.shuffle(batches)
        for turn in range(len(self)):
            mine = turn * self.world_size + self.rank
            places = batches[mine % len(batches)]
            yield collate([self.pairs[place] for place in places])


def _by_length(pair: tuple[Ids, Ids]) -> tuple[int, int]:
    """Sort by the longer side, then by the difference, to and fro."""
    source, target = map(len, pair)
    longer = max(source, target)
    return longer, (source - target) * (-1) ** longer


def padding_share(batches: Iterable[Batch]) -> float:
    """The part of both sides of some batches that is padding.

    Chapter: batching-tokens
    """
    sides = [s for b in batches for s in (b.source_ids, b.labels)]
    padding = sum(int((side == PAD).sum()) for side in sides)
    return padding / sum(side.numel() for side in sides)
