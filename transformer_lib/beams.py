# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.decoding import (
    DecoderCache,
    Hypotheses,
    evaluating,
    greedy_decode,
    length_limits,
    next_logs,
)
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer


def length_penalty(length: int, alpha: float) -> float:
    """lp = ((5 + length) / 6)^alpha; `length` counts eos.

    A hypothesis is ranked by its log-probability divided by lp.
    Section 6.1 sets alpha = 0.6; with 0, lp is 1.

    Chapter: beams-length-penalty
    """
    return ((5 + length) / 6) ** alpha


class _Beam:
    """One sentence's hypotheses: open ones, and those put away.

    Each is a pair, its log-probability and its ids after bos. Up to
    `size` are open. A tiny vocabulary leaves some at -inf; these stay
    open, so that every sentence has as many, but are not put away.

    Chapter: beams-search
    """

    def __init__(self, size: int, alpha: float, limit: int):
        self.size, self.alpha, self.limit = size, alpha, limit
        self.open: list[tuple] = [(0.0, [BOS])]
        self.closed: list[tuple] = []

    def extend(self, candidates: Iterable) -> list[int]:
        """Keep the best; which places of `open` they extend.

        A candidate is (log-probability, place in `open`, piece), the
        best first. Nothing is returned when the sentence is over.
        """
        before, self.open, parents = self.open, [], []
        for rank, (total, place, piece) in enumerate(candidates):
            one = total, [*before[int(place)][1], int(piece)]
            if piece == EOS:
                if rank < self.size and total > -math.inf:
                    self.closed.append(one)
            elif len(parents) < self.size:
                self.open.append(one)
                parents.append(int(place))
        if len(before[0][1]) == self.limit:
            real = [one for one in self.open if one[0] > -math.inf]
            self.closed += real  # they rank behind those that ended
        elif len(self.closed) < self.size:
            return parents
        self.open = []
        return []

    def best(self) -> list[tuple]:
        """(ended, score, log-probability, ids), the best first."""
        found = []
        for total, (_, *ids) in self.closed:
            score = total / length_penalty(len(ids), self.alpha)
            found.append((ids[-1] == EOS, score, total, ids))
        found.sort(key=lambda one: one[:2], reverse=True)
        return found[: self.size]


def beam_search(
    model, source_ids, beam_size=4, length_penalty=0.6, max_extra=50
) -> Hypotheses:
    """Keep the `beam_size` best beginnings a step, section 6.1.

    A sentence is over when `beam_size` hypotheses have ended, or at
    its limit.

    Args:
        source_ids: (batch, source_len), with eos, padding behind.
        length_penalty: the paper's alpha, 0 or more.
        max_extra: as in `greedy_decode`.

    Returns:
        Up to `beam_size` hypotheses a sentence, best score first.
        Those cut off at the limit rank behind all that ended.

    Raises:
        ValueError: for a beam that is not 1 to 1000, an alpha that is
            not a number from 0 up, and as `length_limits`.

    Chapter: beams-search
    """
    good = 1 <= beam_size <= 1000 and 0 <= length_penalty < math.inf
    if not good:
        raise ValueError(
            f"{beam_size=}, {length_penalty=}: 1 to 1000, 0 or more"
        )
    limits = length_limits(model, source_ids, max_extra)
    beams = [_Beam(beam_size, length_penalty, n) for n in limits]
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        going = beams
        while going:
            every = [one for beam in going for one in beam.open]
            width = len(every) // len(going)
            totals, ids = zip(*every, strict=True)
            last = source_ids.new_tensor([i[-1] for i in ids])
            logs = next_logs(model, last, source_ids, cache)
            logs += logs.new_tensor(totals)[:, None]
            sums = logs.view(len(going), -1)
            best, at = sums.topk(min(2 * beam_size, sums.size(1)))
            # One transfer; float32 holds places and ids exactly.
            found = [best, at // logs.size(1), at % logs.size(1)]
            found = torch.stack(found, dim=-1).tolist()
            rows = [
                i * width + parent
                for i, beam in enumerate(going)
                for parent in beam.extend(found[i])
            ]
            going = [beam for beam in going if beam.open]
            chosen = source_ids.new_tensor(rows)
            cache.select(chosen, source=len(rows) != len(every))
            source_ids = source_ids[chosen]
    best = [beam.best() for beam in beams]
    return Hypotheses(
        [[ids for *_, ids in ranked] for ranked in best],
        [[total for _, _, total, _ in ranked] for ranked in best],
        [[score for _, score, *_ in ranked] for ranked in best],
    )


def decode_all(
    model: Transformer,
    sources: Sequence[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
) -> list[list[int]]:
    """The best ids for many sentences, in the order of `sources`.

    `sources` holds the ids of each, ending in eos. With a `beam_size`
    of 1 the search is greedy.

    Raises:
        ValueError: as `beam_search`, or if `batch_size` is below 1.

    Chapter: beams-batches
    """
    if batch_size < 1:
        raise ValueError(f"{batch_size=} must be at least 1")
    best: list[list[int]] = [[]] * len(sources)
    order = sorted(range(len(best)), key=lambda i: -len(sources[i]))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        rows = [torch.tensor(sources[i]) for i in chosen]
        ids = pad_sequence(rows, True, PAD)
        ids = ids.to(model.output_weight.device)
        if beam_size == 1:
            found = greedy_decode(model, ids, max_extra)
        else:
            found = beam_search(
                model, ids, beam_size, length_penalty, max_extra
            )
        for i, ranked in zip(chosen, found.ids, strict=True):
            best[i] = ranked[0]
    return best
