# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Batches of similar length, measured in tokens: section 5.1.

Chapter: book/training/batching
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer, Tokenizer, checked_texts

_Pair = tuple[list[int], list[int]]  # source ids, target ids


def encode_pairs(
    corpus: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    max_length: int | None = None,
) -> list[_Pair]:
    """The pairs of a corpus as ids, each side ending in eos.

    A pair with a side of more than `max_length` ids, eos included, is
    left out.

    Raises:
        ValueError, TypeError: for what are not pairs, or not of texts.

    Chapter: batching-pairs
    """
    corpus = list(corpus)  # it may be a generator
    if not all(isinstance(pair, tuple) for pair in corpus):
        raise TypeError(
            "these are no pairs: give tuples (source, target), and of two "
            "lists list(zip(sources, targets))"
        )
    sources = encode_texts([source for source, _ in corpus], tokenizer)
    targets = encode_texts([target for _, target in corpus], tokenizer)
    pairs = list(zip(sources, targets, strict=True))
    if max_length is not None:
        pairs = [pair for pair in pairs if max(map(len, pair)) <= max_length]
    return pairs


def encode_texts(
    texts: Iterable[str], tokenizer: Tokenizer
) -> list[list[int]]:
    """Ids of each text, with its eos; ours on all cores.

    Raises:
        TypeError: for one text in place of a list, or for what is no
            `Tokenizer`.
        ValueError: if a tokenizer of your own adds special tokens.

    Chapter: batching-pairs
    """
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"{type(tokenizer)} lacks one of len, encode and decode: take a "
            "BPETokenizer, or wrap it as the chapter on tokenization does"
        )
    if type(tokenizer) is BPETokenizer:
        ids = tokenizer.encode_all(texts)
    else:
        ids = [tokenizer.encode(text) for text in checked_texts(texts)]
        if any({BOS, EOS} & {*sentence} for sentence in ids):
            raise ValueError(
                "encode gave bos or eos, 2 or 3, which are added here: "
                "it has to give the text alone"
            )
    return [[*sentence, EOS] for sentence in ids]


def check_pair(tokenizer: Tokenizer, model: nn.Module) -> None:
    """Refuse what is no tokenizer, or one of another size than the model.

    Raises:
        TypeError, ValueError: naming what is wrong.

    Chapter: batching-pairs
    """
    encode_texts([], tokenizer)
    size = model.config.vocab_size
    if len(tokenizer) != size:
        raise ValueError(f"{len(tokenizer)=}, vocab_size={size}: not a pair")


@dataclass
class Batch:
    """Some pairs side by side, padded on the right.

    Shapes: source_ids (batch, source_len), target_ids and labels
    (batch, target_len). Labels are the target one position ahead.
    `tokens` is the number of labels that are not padding.

    Chapter: batching-batch
    """

    source_ids: Tensor
    target_ids: Tensor
    labels: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        tensors = [self.source_ids, self.target_ids, self.labels]
        gpu = self.labels.is_cpu and torch.device(device).type == "cuda"
        if gpu:  # it copies from pinned memory while the CPU goes on
            tensors = [ids.pin_memory() for ids in tensors]
        moved = [ids.to(device, non_blocking=gpu) for ids in tensors]
        return Batch(*moved, tokens=self.tokens)


def collate(pairs: Sequence[_Pair]) -> Batch:
    """Pad pairs of ids that end in eos into one batch.

    Raises:
        ValueError: without pairs, or if a sentence contains the id of
            padding.

    Chapter: batching-batch
    """
    if len(pairs) == 0:
        raise ValueError("no pairs: a batch has at least one")
    sources, targets = zip(*pairs, strict=True)
    inputs = [[BOS, *target[:-1]] for target in targets]
    return Batch(
        source_ids=padded(sources),
        target_ids=padded(inputs),
        labels=padded(targets),
        tokens=sum(len(target) for target in targets),
    )


def padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of ids as a tensor (batch, length of the longest).

    Chapter: batching-batch
    """
    lengths = np.array([len(row) for row in rows])
    ids = np.fromiter(chain.from_iterable(rows), np.int64)
    if (ids == PAD).any():
        raise ValueError(f"an id is {PAD}, that of padding: leave it out")
    table = np.full((len(rows), lengths.max()), PAD, np.int64)
    table[np.arange(lengths.max()) < lengths[:, None]] = ids
    return torch.from_numpy(table)


class TokenBatches:
    """Batches of similar length, with a budget of tokens, section 5.1.

    Neither side of a batch holds more than `tokens_per_batch` ids,
    padding included. The batches of an epoch depend only on the seed
    and the epoch's number. With shuffle=False every epoch has the same
    batches, from short to long.

    Raises:
        ValueError: without pairs, naming the first that lacks eos, or
            if a side is longer than the budget.

    Chapter: batching-tokens
    """

    def __init__(
        self,
        pairs: Sequence[_Pair],
        tokens_per_batch: int = 25_000,
        seed: int = 0,
        shuffle: bool = True,
    ):
        if not hasattr(pairs, "__len__"):
            pairs = list(pairs)
        self.pairs = pairs
        self.tokens_per_batch = int(tokens_per_batch)  # of NumPy's, too
        self.seed = seed
        self.shuffle = shuffle
        if len(pairs) == 0:
            raise ValueError("there are no pairs, or all are too long")
        for number, pair in enumerate(pairs, 1):
            if any(len(ids) == 0 or ids[-1] != EOS for ids in pair):
                raise ValueError(
                    f"pair {number} lacks eos at an end: encode_pairs adds it"
                )
        lengths = ((len(source), len(target)) for source, target in pairs)
        # (pairs, 2)
        self.lengths = np.fromiter(lengths, np.dtype((np.int32, 2)))
        self.longest = int(self.lengths.max())
        if self.longest > tokens_per_batch:
            raise ValueError(f"one of {self.longest} ids, {tokens_per_batch=}")
        self.total = len(self._cut(np.arange(len(pairs))))

    @classmethod
    def in_order(cls, pairs: Iterable[_Pair]) -> Self:
        """Batches to measure on: not shuffled, no pair too long."""
        pairs = list(pairs)  # it may be a generator
        longest = max((len(ids) for pair in pairs for ids in pair), default=0)
        return cls(pairs, max(4096, longest), shuffle=False)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.total

    def fingerprint(self) -> str:
        """SHA-256 of the pairs' ids, in lists or tuples or arrays."""
        digest = sha256(self.lengths.tobytes())
        for source, target in self.pairs:
            digest.update(np.array([*source, *target], np.int64).tobytes())
        return digest.hexdigest()

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from `start` on."""
        chance = random.Random(f"{self.seed} {number}")
        order = list(range(len(self.pairs)))
        if self.shuffle:  # sorting keeps the order of equal lengths
            chance.shuffle(order)
        batches = self._cut(np.array(order))
        if self.shuffle:
            chance.shuffle(batches)
        for batch in batches[start:]:
            yield collate([self.pairs[i] for i in batch.tolist()])

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Numbers of pairs, sorted by length, cut where a batch is full."""
        order = order[_sorted_by_length(self.lengths[order])]
        begins = [0]
        longer = self.lengths[order].max(axis=1)
        for place, length in enumerate(longer.tolist()):
            # Sorted, so the newest pair is the longest of its batch:
            # all sequences are padded to its length.
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
    difference[longer % 2 == 0] *= -1  # falls where it is even
    return np.lexsort((difference, longer))  # the last one decides first
