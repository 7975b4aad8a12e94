# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Decoding with a cache: one piece at a time, section 6.1.

Chapter: book/translating/decoding
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer


class _KeysValues:
    """One attention's keys and values: two of (batch, h, length, d).

    Those given at first, of the source, stay; without them every
    call adds a position of the target.

    Chapter: decoding-cache
    """

    def __init__(self, parts: Iterable[Tensor] = ()):
        self.parts = [part.contiguous() for part in parts]
        self.grows = not self.parts

    def keys_values(self, attention, new) -> list[Tensor]:
        """All of them, after those of `new`, (batch, 1, d_model)."""
        if self.grows:
            parts = attention.keys_values(new)
            if self.parts:
                pairs = zip(self.parts, parts, strict=True)
                parts = [torch.cat(pair, dim=2) for pair in pairs]
            self.parts = list(parts)
        return self.parts


class DecoderCache:
    """What `model.decode(..., cache=cache)` need not compute again.

    `layers` holds two for every decoder layer: the keys and values of
    the target's first `length` positions, and those of the source,
    from `memory` (batch, source_len, d_model).

    Chapter: decoding-cache
    """

    def __init__(self, model: Transformer, memory: Tensor):
        self.layers = []
        for layer in model.decoder.layers:
            across = layer.cross_attention.keys_values(memory)
            self.layers.append((_KeysValues(), _KeysValues(across)))

    @property
    def length(self) -> int:
        """How many positions of the target are kept."""
        parts = self.layers[0][0].parts
        return parts[0].size(2) if parts else 0

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Make row i what row `rows[i]` was: reorder, repeat or drop.

        With `source=False` the source's part is left as it is, where
        rows change places within their own sentence.
        """
        for both in self.layers:
            for kept in both if source else both[:1]:
                kept.parts = [part[rows] for part in kept.parts]


@dataclass
class Hypotheses:
    """What a search found for each sentence, best first.

    `ids[sentence][rank]` is a list of ids without bos; it ends in eos
    unless the search met its limit. `log_probabilities` (in nats) and
    `scores`, by which the ranks are given, are nested likewise.

    Chapter: decoding-greedy
    """

    ids: list[list[list[int]]]
    log_probabilities: list[list[float]]
    scores: list[list[float]]


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """No dropout and no gradients inside; afterwards as before.

    Chapter: decoding-greedy
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def length_limits(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> list[int]:
    """The most pieces of each output, its eos counted.

    Section 6.1: the source's length (without eos) plus 50. A model
    with learned positions ends where its table ends.

    Raises:
        ValueError: if the ids are not (batch, source_len), or a limit
            is below 1.

    Chapter: decoding-greedy
    """
    if source_ids.dim() != 2:
        raise ValueError(f"{source_ids.shape=}: a batch is ids[None]")
    pieces = (source_ids != PAD) & (source_ids != EOS)
    limits = pieces.sum(1) + max_extra
    if model.config.positions == "learned":
        limits = limits.clamp(max=model.config.max_length)
    found = limits.tolist()
    if min(found, default=1) < 1:
        raise ValueError(f"{max_extra=} leaves no room for a piece")
    return found


def next_logs(model, last, source_ids, cache) -> Tensor:
    """Log-probabilities of what follows: (batch, vocab_size).

    `last` (batch,) is the newest piece of each row, not yet in the
    cache. pad and bos, which no sentence contains, get -inf.

    Chapter: decoding-greedy
    """
    memory = None  # the cache has its keys and values
    hidden = model.decode(last[:, None], memory, source_ids, cache)
    logits = model.project(hidden[:, -1])
    logs = logits.float().log_softmax(-1)
    logs[:, PAD] = logs[:, BOS] = -torch.inf
    return logs


def greedy_decode(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> Hypotheses:
    """Take the likeliest piece again and again, until eos.

    Args:
        source_ids: (batch, source_len), with eos, padding behind.
        max_extra: how many pieces longer than its source an output
            may get.

    Returns:
        One hypothesis a sentence; its score is its log-probability.

    Raises:
        ValueError: as `length_limits`.

    Chapter: decoding-greedy
    """
    limits = length_limits(model, source_ids, max_extra)
    ids: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    rows = list(range(len(limits)))  # sentences that go on
    last = source_ids.new_full((len(rows),), BOS)
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        while rows:
            logs = next_logs(model, last, source_ids, cache)
            gains, last = logs.max(-1)
            # One transfer; float32 holds an id exactly.
            found = torch.stack([gains, last], dim=1).tolist()
            kept = []
            for i, (gain, piece) in enumerate(found):
                row = rows[i]
                ids[row].append(int(piece))
                totals[row] += gain
                if piece != EOS and len(ids[row]) < limits[row]:
                    kept.append(i)
            if len(kept) < len(rows):
                rows = [rows[i] for i in kept]
                chosen = torch.tensor(kept, device=last.device).long()
                last, source_ids = last[chosen], source_ids[chosen]
                cache.select(chosen)
    both = ([[total] for total in totals] for _ in range(2))
    return Hypotheses([[one] for one in ids], *both)
