# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.decoding import (
    DecoderCache,
    Hypotheses,
    evaluating,
    greedy_decode,
    length_limits,
    next_log_probabilities,
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


class Beam:
    """One sentence's hypotheses: open ones, and those put away.

    A path is a pair: the path before it, and one more piece. It
    begins with (None, bos).

    Chapter: beams-search
    """

    def __init__(self, size: int, alpha: float, limit: int):
        self.size, self.alpha, self.limit = size, alpha, limit
        self.length = 0
        self.open = [(0.0, (None, BOS))]  # (log-probability, path)
        self.closed: list[tuple] = []

    def extend(self, candidates: Iterable) -> list[int]:
        """Keep the best; which of `open` they extend, `size` places.

        A candidate is (log-probability, place in `open`, piece), the
        best first. Nothing is returned when the sentence is over.
        """
        before, self.open, parents = self.open, [], []
        self.length += 1
        for rank, (total, place, piece) in enumerate(candidates):
            if total == -math.inf:
                break
            path = before[int(place)][1], int(piece)
            if piece == EOS and rank < self.size:
                self.close(total, path)
            elif piece != EOS and len(parents) < self.size:
                self.open.append((total, path))
                parents.append(int(place))
        if len(self.closed) >= self.size:
            self.open = []
        elif self.length == self.limit:
            for total, path in self.open:
                self.close(total, path)
            self.open = []
        if not self.open:
            return []
        missing = self.size - len(parents)  # a tiny vocabulary
        self.open += [(-math.inf, (None, BOS))] * missing
        return parents + [0] * missing

    def close(self, total: float, path: tuple) -> None:
        """Put a hypothesis away, with its score."""
        score = total / length_penalty(self.length, self.alpha)
        self.closed.append((path[1] == EOS, score, total, path))

    def best(self) -> tuple[list, list, list]:
        """Ids, log-probabilities, scores; ended hypotheses first."""
        self.closed.sort(key=lambda one: one[:2], reverse=True)
        best = self.closed[: self.size]
        scores = [score for _, score, _, _ in best]
        totals = [total for _, _, total, _ in best]
        spelt = []
        for *_, path in best:
            ids = []
            while path[0] is not None:
                path, piece = path
                ids.append(piece)
            spelt.append(ids[::-1])
        return spelt, totals, scores


def beam_search(
    model: Transformer,
    source_ids: Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
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
        ValueError: for a beam below 1, an alpha that is not a number
            from 0 up, and as `length_limits`.

    Chapter: beams-search
    """
    if beam_size < 1 or not 0 <= length_penalty < math.inf:
        raise ValueError(
            "beam_size must be 1 or more and length_penalty 0 or "
            f"more, got {beam_size=}, {length_penalty=}"
        )
    limits = length_limits(model, source_ids, max_extra)
    beams = [Beam(beam_size, length_penalty, n) for n in limits]
    device, vocab_size = source_ids.device, model.config.vocab_size
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        going = beams
        while going:
            every = [one for beam in going for one in beam.open]
            width = len(every) // len(going)
            totals = torch.tensor([total for total, _ in every])
            last = torch.tensor([path[1] for _, path in every])
            logs = next_log_probabilities(
                model, last.to(device), source_ids, cache
            )
            logs += totals.to(device)[:, None]
            logs = logs.view(len(going), width * vocab_size)
            k = min(2 * beam_size, logs.size(1))
            sums, at = logs.topk(k)
            at, piece = at // vocab_size, at % vocab_size
            # One transfer; float32 holds places and ids exactly.
            found = torch.stack([sums, at, piece], dim=-1).tolist()
            rows = [
                i * width + parent
                for i, beam in enumerate(going)
                for parent in beam.extend(found[i])
            ]
            going = [beam for beam in going if beam.open]
            chosen = torch.tensor(rows, device=device).long()
            cache.select(chosen, source=len(rows) != len(every))
            source_ids = source_ids[chosen]
    best = [beam.best() for beam in beams]
    return Hypotheses(*([one[i] for one in best] for i in range(3)))


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
) -> Hypotheses:
    """Search for many sentences, those of like length together.

    Args:
        sources: ids of each sentence, ending in eos.
        beam_size: 1 is greedy.

    Returns:
        Hypotheses in the order of `sources`.

    Raises:
        ValueError: as `beam_search`, or if `batch_size` is below 1.

    Chapter: beams-batches
    """
    if batch_size < 1:
        raise ValueError(f"{batch_size=} must be at least 1")
    rows = [torch.tensor(ids) for ids in sources]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    found = Hypotheses(*([[]] * len(order) for _ in range(3)))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        ids = pad_sequence([rows[i] for i in chosen], True, PAD)
        ids = ids.to(model.output_weight.device)
        if beam_size == 1:
            batch = greedy_decode(model, ids, max_extra)
        else:
            batch = beam_search(
                model, ids, beam_size, length_penalty, max_extra
            )
        for name, lists in vars(found).items():
            for place, i in enumerate(chosen):
                lists[i] = getattr(batch, name)[place]
    return found
