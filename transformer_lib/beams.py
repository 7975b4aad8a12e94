# Collected from book/translating/beams.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.decoding import (
    Hypotheses,
    Stepper,
    evaluating,
    greedy_decode,
    length_limits,
)
from transformer_lib.model import Transformer
from transformer_lib.tokenization import BOS, EOS, PAD

__all__ = ["Beams", "beam_search", "decode_all", "length_penalty"]


def length_penalty(
    length: int | Tensor, alpha: float
) -> float | Tensor:
    """lp = ((5 + length) / 6)^alpha; `length` counts eos.

    A hypothesis is ranked by its log-probability divided by lp.
    Section 6.1 sets alpha = 0.6; with 0, lp is 1.

    Chapter: beams-length-penalty
    """
    return ((5 + length) / 6) ** alpha


class Beams:
    """The open and the ended hypotheses of a batch of sentences.

    Chapter: beams-search
    """

    def __init__(self, limits: Tensor, beam_size: int, alpha: float):
        self.limits, self.size, self.alpha = limits, beam_size, alpha
        self.ended: list[list] = [[] for _ in limits]
        self.sentences = list(range(len(limits)))  # that are not over
        self.totals = torch.zeros(
            len(limits), beam_size, device=limits.device
        )
        self.totals[:, 1:] = -torch.inf  # all begin as one: bos
        self.ids = limits.new_empty(self.totals.numel(), 0)

    def extend(
        self, gains: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The next open hypotheses: (rows they extend, pieces).

        `gains` and `ids` (rows, k) are what `Stepper.next` returns.
        """
        size, k = self.size, gains.size(1)
        totals = (gains + self.totals.view(-1, 1)).view(-1, size * k)
        totals, place = totals.topk(2 * size)
        first = torch.arange(0, len(gains), size, device=gains.device)
        rows = place // k + first[:, None]  # (sentences, 2 * size)
        pieces = ids.view(-1, size * k).gather(1, place)
        ends = pieces == EOS  # at most one a row, so `size` are left
        self.end(totals[:, :size], rows, ends[:, :size], [EOS])
        self.totals, kept = totals.masked_fill(ends, -torch.inf).topk(
            size
        )
        rows, pieces = (
            x.gather(1, kept).flatten() for x in (rows, pieces)
        )
        self.ids = torch.cat([self.ids[rows], pieces[:, None]], 1)
        return rows, pieces

    def end(
        self,
        totals: Tensor,
        rows: Tensor,
        which: Tensor,
        last: list[int],
    ) -> None:
        """Put hypotheses away, with `last` added to their ids."""
        penalty = length_penalty(
            self.ids.size(1) + len(last), self.alpha
        )
        which = which & (totals > -torch.inf)
        for place, rank in which.nonzero().tolist():
            ids = self.ids[rows[place, rank]].tolist() + last
            total = totals[place, rank].item()
            ended = self.ended[self.sentences[place]]
            ended.append((bool(last), total / penalty, total, ids))

    def close(self) -> Tensor:
        """Mark sentences that are over: (sentences,) boolean.

        Enough hypotheses have ended, or the best of them is out of
        reach, or the limit is met. Then open ones fill the ranks.
        """
        reach = self.totals[:, 0] / length_penalty(
            self.limits, self.alpha
        )
        best, over = [], []
        for ended in (self.ended[i] for i in self.sentences):
            best.append(
                max((one[1] for one in ended), default=-torch.inf)
            )
            over.append(len(ended) >= self.size)
        over = torch.tensor(over, device=reach.device)
        over |= torch.tensor(best, device=reach.device) >= reach
        late = ~over & (self.ids.size(1) >= self.limits)
        if late.any():
            rows = torch.arange(len(self.ids), device=late.device)
            rows = rows.view_as(self.totals)
            self.end(self.totals, rows, late[:, None], [])
        self.totals[over | late] = -torch.inf
        return over | late

    def select(self, kept: Tensor) -> Tensor:
        """Drop all sentences but `kept`; gives the rows that stay."""
        rows = torch.arange(len(self.ids), device=kept.device)
        rows = rows.view_as(self.totals)[kept].flatten()
        self.sentences = [self.sentences[i] for i in kept.tolist()]
        self.limits, self.totals = (
            self.limits[kept],
            self.totals[kept],
        )
        self.ids = self.ids[rows]
        return rows

    def hypotheses(self) -> Hypotheses:
        """What was found, ended hypotheses first, then by score."""
        found = Hypotheses()
        for ended in self.ended:
            ended.sort(key=lambda one: one[:2], reverse=True)
            best = ended[: self.size]
            found.scores.append([score for _, score, _, _ in best])
            found.log_probabilities.append([one[2] for one in best])
            found.ids.append([one[3] for one in best])
        return found


def _search(steps: Stepper, beams: Beams, k: int) -> None:
    """Extend the hypotheses until every sentence is over."""
    last = beams.limits.new_full((len(beams.ids),), BOS)
    while True:
        rows, last = beams.extend(*steps.next(last, k))
        over = beams.close()
        if over.all():
            return
        kept = None
        if not steps.fixed and 8 * over.sum() >= len(over):
            kept = (~over).nonzero().squeeze(1)  # worth a copy
            open_rows = beams.select(kept)
            rows, last = rows[open_rows], last[open_rows]
        steps.select(rows, kept)


def beam_search(
    model: Transformer,
    source_ids: Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int | Tensor = 50,
    stepper: type[Stepper] = Stepper,
) -> Hypotheses:
    """Keep the `beam_size` best beginnings a step, section 6.1.

    A sentence is over when `beam_size` hypotheses have ended, when no
    open one can overtake the best of them, or at its limit.

    Args:
        source_ids: (batch, source_len), with eos, padding behind.
        length_penalty: the paper's alpha, 0 or more.
        max_extra, stepper: as in `greedy_decode`.

    Returns:
        Up to `beam_size` hypotheses a sentence, best score first.
        Those cut off at the limit rank behind all that ended.

    Raises:
        ValueError: for a beam below 1, an alpha below 0, and as
            `length_limits`.

    Chapter: beams-search
    """
    if beam_size < 1 or length_penalty < 0:
        raise ValueError(
            "beam_size must be 1 or more and length_penalty 0 or "
            f"more, got {beam_size=}, {length_penalty=}"
        )
    limits = length_limits(model, source_ids, max_extra)
    beams = Beams(limits, beam_size, length_penalty)
    k = min(2 * beam_size, model.config.vocab_size)
    with evaluating(model):
        if len(limits):
            longest = int(limits.max())
            _search(stepper(model, source_ids, longest), beams, k)
    return beams.hypotheses()


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
    stepper: type[Stepper] = Stepper,
) -> Hypotheses:
    """Search for many sentences, those of like length together.

    Args:
        sources: ids of each sentence, ending in eos.
        beam_size: 1 is greedy.
        stepper: as in `greedy_decode`.

    Returns:
        Hypotheses in the order of `sources`.

    Raises:
        ValueError: as `beam_search`, or if `batch_size` is below 1.

    Chapter: beams-batches
    """
    if batch_size < 1:
        raise ValueError(f"{batch_size=} must be at least 1")
    sources = [torch.tensor(ids) for ids in sources]
    order = sorted(
        range(len(sources)), key=lambda i: -len(sources[i])
    )
    found = Hypotheses(*([[]] * len(order) for _ in range(3)))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        ids = pad_sequence([sources[i] for i in chosen], True, PAD)
        ids = ids.to(model.output_weight.device)
        if beam_size == 1:
            batch = greedy_decode(model, ids, max_extra, stepper)
        else:
            how = beam_size, length_penalty, max_extra, stepper
            batch = beam_search(model, ids, *how)
        for name, lists in vars(found).items():
            for i, one in zip(
                chosen, getattr(batch, name), strict=True
            ):
                lists[i] = one
    return found
