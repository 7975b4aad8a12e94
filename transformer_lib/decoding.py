# Collected from book/translating/decoding.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Greedy and beam search with a cache, section 6.1."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.model import Transformer
from transformer_lib.tokenization import BOS, EOS, PAD

__all__ = [
    "Beams",
    "DecoderCache",
    "Hypotheses",
    "SourceCache",
    "Stepper",
    "TargetCache",
    "beam_search",
    "decode_all",
    "evaluating",
    "greedy_decode",
    "length_limits",
    "length_penalty",
]


@dataclass
class Hypotheses:
    """What a search found for each sentence, best first.

    `ids[sentence][rank]` is a list of ids without bos; it ends in eos
    unless the search reached its limit first. `log_probabilities`
    (nats) and `scores` (those divided by the length penalty) are nested
    in the same way.

    Chapter: decoding-hypotheses
    """

    ids: list[list[list[int]]] = field(default_factory=list)
    log_probabilities: list[list[float]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)


class TargetCache:
    """One self-attention's keys and values of the target so far.

    Room for `max_length` positions is taken once and written in place;
    a second room of the same size makes reordering a single copy.

    Chapter: decoding-cache
    """

    def __init__(self, max_length: int):
        self.max_length, self.length = max_length, 0
        self.room: list[Tensor] = []  # (batch, h, max_length, d)
        self.spare: list[Tensor] = []

    def keys_values(
        self, attention: MultiHeadAttention, new: Tensor
    ) -> list[Tensor]:
        """Append (batch, new_len, d_model); keys and values of all."""
        parts = attention.keys_values(new)
        start, end = self.length, self.length + new.size(1)
        if not self.room:
            for part in parts:
                batch, h, _, d = part.shape
                room = part.new_empty(batch, h, self.max_length, d)
                self.room.append(room)
        for room, part in zip(self.room, parts):
            room[:, :, start:end] = part
        self.length = end
        return [room[:, :, :end] for room in self.room]

    def select(self, rows: Tensor) -> None:
        """Make row i what row `rows[i]` was."""
        if not self.spare or len(self.spare[0]) < len(rows):
            self.spare = [
                room.new_empty(len(rows), *room.shape[1:])
                for room in self.room
            ]
        self.spare = [spare[: len(rows)] for spare in self.spare]
        for room, spare in zip(self.room, self.spare):
            used, out = (
                x[:, :, : self.length] for x in (room, spare)
            )
            torch.index_select(used, 0, rows, out=out)
        self.room, self.spare = self.spare, self.room


class SourceCache:
    """One cross-attention's keys and values: computed once, kept.

    Chapter: decoding-cache
    """

    def __init__(self, attention: MultiHeadAttention, memory: Tensor):
        parts = attention.keys_values(memory)
        self.parts = [part.contiguous() for part in parts]

    def keys_values(
        self, attention: MultiHeadAttention, memory: Tensor
    ) -> list[Tensor]:
        """Keys and values of the source, (batch, h, source_len, d)."""
        return self.parts

    def select(self, rows: Tensor) -> None:
        """Make row i what row `rows[i]` was."""
        self.parts = [
            part.index_select(0, rows) for part in self.parts
        ]


class DecoderCache:
    """What `model.decode(..., cache=cache)` need not compute again.

    Holds, for every decoder layer, the keys and values of the source,
    computed here from `memory` (batch, source_len, d_model), and those
    of the target's first `length` positions, at most `max_length`.

    Chapter: decoding-cache
    """

    def __init__(
        self, model: Transformer, memory: Tensor, max_length: int
    ):
        layers = model.decoder.layers
        self.self_attention = [
            TargetCache(max_length) for _ in layers
        ]
        self.cross_attention = [
            SourceCache(layer.cross_attention, memory)
            for layer in layers
        ]

    @property
    def length(self) -> int:
        return self.self_attention[0].length

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Make row i what row `rows[i]` was: reorder, repeat or drop.

        With `sources=False` the source's part stays as it is, which is
        right when every row keeps its own sentence.
        """
        for cache in self.self_attention:
            cache.select(rows)
        for cache in self.cross_attention if sources else []:
            cache.select(rows)


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """No dropout and no gradients inside; afterwards as before.

    Chapter: decoding-step
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def length_limits(
    model: Transformer,
    source_ids: Tensor,
    max_extra: int | Tensor = 50,
) -> Tensor:
    """The most pieces each output may have, its eos counted: (batch,).

    Section 6.1: the source's own length (without eos) plus 50. A model
    with learned positions ends where its table ends.

    Raises:
        ValueError: if the ids are not (batch, source_len), or a limit
            is below 1.

    Chapter: decoding-step
    """
    if source_ids.dim() != 2:
        raise ValueError(
            "source_ids must be (batch, source_len), got shape "
            f"{tuple(source_ids.shape)}; one sentence is ids[None]"
        )
    pieces = (source_ids != PAD) & (source_ids != EOS)
    limits = pieces.sum(1) + max_extra
    if model.config.positions == "learned":
        limits = limits.clamp(max=model.config.max_length)
    if len(limits) and limits.min() < 1:
        raise ValueError(
            f"{max_extra=} leaves no room for an output of even one "
            "piece; the paper's value is 50"
        )
    return limits


class Stepper:
    """A batch of unfinished outputs, and the model that extends them.

    Chapter: decoding-step
    """

    def __init__(
        self, model: Transformer, source_ids: Tensor, max_length: int
    ):
        self.model, self.source_ids = model, source_ids
        self.memory = model.encode(source_ids)
        self.cache = DecoderCache(model, self.memory, max_length)

    def next(self, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k likeliest pieces after ids (batch,), best first.

        Log-probabilities and ids, (batch, k) each. pad and bos, which
        no sentence contains, are left out.
        """
        hidden = self.model.decode(
            last[:, None], self.memory, self.source_ids, self.cache
        )
        found = []
        for some in hidden[:, -1].split(
            128
        ):  # (128, vocab_size) fits
            scores = self.model.project(some).float().log_softmax(-1)
            scores[:, PAD] = scores[:, BOS] = -torch.inf
            found.append(scores.topk(k))
        values, ids = map(torch.cat, zip(*found))
        return values, ids

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Make row i what row `rows[i]` was."""
        self.cache.select(rows, sources)
        if sources:
            self.source_ids = self.source_ids.index_select(0, rows)
            self.memory = self.memory.index_select(0, rows)


def greedy_decode(
    model: Transformer,
    source_ids: Tensor,
    max_extra: int | Tensor = 50,
) -> Hypotheses:
    """Take the likeliest piece again and again, until eos.

    Args:
        source_ids: (batch, source_len), with eos, padded on the right.
        max_extra: how much longer than its source an output may get;
            one number, or one a sentence.

    Returns:
        One hypothesis a sentence; its score is its log-probability.

    Raises:
        ValueError: as `length_limits`.

    Chapter: decoding-greedy
    """
    limits = length_limits(model, source_ids, max_extra)
    longest = max(limits.tolist(), default=0)
    ids = source_ids.new_full((len(limits), longest), EOS)
    gains = torch.zeros(ids.shape, device=ids.device)
    with evaluating(model):
        stepper = Stepper(model, source_ids, longest)
        rows = torch.arange(len(limits), device=ids.device)
        done = torch.zeros_like(rows, dtype=torch.bool)
        last = torch.full_like(rows, BOS)
        for step in range(longest):
            gain, last = stepper.next(last, 1)
            gain, last = gain[:, 0], last[:, 0]
            ids[rows, step], gains[rows, step] = last, gain
            done |= (last == EOS) | (limits[rows] == step + 1)
            if 4 * done.sum() >= len(
                rows
            ):  # worth a copy of the cache
                kept = (~done).nonzero().squeeze(1)
                if not len(kept):
                    break
                rows, last, done = rows[kept], last[kept], done[kept]
                stepper.select(kept)
    found = Hypotheses()
    lists = ids.tolist(), gains.double().tolist(), limits.tolist()
    for row, gain, limit in zip(*lists):
        end = min(row.index(EOS) + 1 if EOS in row else limit, limit)
        found.ids.append([row[:end]])
        found.log_probabilities.append([sum(gain[:end])])
        found.scores.append([sum(gain[:end])])
    return found


def length_penalty(
    length: int | Tensor, alpha: float
) -> float | Tensor:
    """lp = ((5 + length) / 6)^alpha; `length` counts eos.

    A hypothesis is ranked by its log-probability divided by lp. Section
    6.1 sets alpha = 0.6; 0 leaves the log-probability as it is.

    Chapter: decoding-length-penalty
    """
    return ((5 + length) / 6) ** alpha


class Beams:
    """The open and the ended hypotheses of a batch of sentences.

    Chapter: decoding-beam
    """

    def __init__(self, limits: Tensor, beam_size: int, alpha: float):
        self.limits, self.beam_size, self.alpha = (
            limits,
            beam_size,
            alpha,
        )
        self.length = 0
        self.sentences = torch.arange(
            len(limits), device=limits.device
        )
        self.ended: list[list] = [[] for _ in limits]
        self.count = torch.zeros_like(limits)
        self.best = torch.full(limits.shape, -torch.inf).to(
            limits.device
        )
        self.totals = self.best[:, None].repeat(1, beam_size)
        self.totals[:, 0] = 0.0  # at first all beams are one: bos
        self.ids = limits.new_empty(self.totals.numel(), 0)

    def extend(
        self, gains: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Choose the next open hypotheses: (rows they extend, pieces).

        `gains` and `ids` (rows, k) are what `Stepper.next` returns.
        """
        size, k = self.beam_size, gains.size(1)
        totals = gains.view(-1, size, k) + self.totals[:, :, None]
        totals = totals.flatten(1)  # (sentences, size * k)
        totals, place = totals.topk(2 * size)  # at most size are eos
        first = torch.arange(len(totals), device=totals.device) * size
        rows = place // k + first[:, None]
        pieces = ids.view(len(totals), -1).gather(1, place)
        ends = pieces == EOS
        self.length += 1
        self.end(totals[:, :size], rows, ends[:, :size])
        self.totals, kept = totals.masked_fill(ends, -torch.inf).topk(
            size
        )
        rows = rows.gather(1, kept).flatten()
        pieces = pieces.gather(1, kept).flatten()
        self.ids = torch.cat([self.ids[rows], pieces[:, None]], 1)
        return rows, pieces

    def end(
        self, totals: Tensor, rows: Tensor, which: Tensor
    ) -> None:
        """Move hypotheses that chose eos, or met the limit, to `ended`."""
        which = which & (totals > -torch.inf)
        penalty = length_penalty(self.length, self.alpha)
        scores = (totals / penalty).masked_fill(~which, -torch.inf)
        self.best = self.best.maximum(scores.amax(1))
        self.count += which.sum(1)
        for place, rank in which.nonzero().tolist():
            ids = self.ids[rows[place, rank]].tolist()
            ids += [EOS] * (len(ids) < self.length)
            total = totals[place, rank].item()
            ended = self.ended[self.sentences[place]]
            ended.append(
                (ids[-1] == EOS, total / penalty, total, ids)
            )

    def close(self) -> Tensor:
        """Mark sentences that are over: (sentences,) boolean.

        Enough hypotheses have ended, or the best of them is out of
        reach, or the limit is met: then open ones fill the ranks left.
        """
        best_left = self.totals[:, 0] / length_penalty(
            self.limits, self.alpha
        )
        over = (self.count >= self.beam_size) | (
            self.best >= best_left
        )
        late = ~over & (self.length >= self.limits)
        if late.any():
            rows = torch.arange(
                self.totals.numel(), device=late.device
            )
            self.end(
                self.totals, rows.view_as(self.totals), late[:, None]
            )
        self.totals[over | late] = -torch.inf
        return over | late

    def select(self, kept: Tensor) -> Tensor:
        """Drop all sentences but `kept`; gives the rows that stay."""
        size = self.beam_size
        rows = (
            torch.arange(size, device=kept.device)
            + size * kept[:, None]
        )
        for name in "limits sentences count best totals".split():
            setattr(self, name, getattr(self, name)[kept])
        self.ids = self.ids[rows.flatten()]
        return rows.flatten()

    def hypotheses(self) -> Hypotheses:
        found = Hypotheses()
        for ended in self.ended:
            ended.sort(key=lambda one: one[:2], reverse=True)
            best = ended[: self.beam_size]
            found.ids.append([ids for *_, ids in best])
            found.scores.append([score for _, score, *_ in best])
            found.log_probabilities.append([one[2] for one in best])
        return found


def beam_search(
    model: Transformer,
    source_ids: Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int | Tensor = 50,
) -> Hypotheses:
    """Keep the `beam_size` best beginnings at every step, section 6.1.

    A sentence is over when `beam_size` hypotheses have ended, when no
    open one can overtake the best of them, or at its limit.

    Args:
        source_ids: (batch, source_len), with eos, padded on the right.
        length_penalty: the paper's alpha, 0 or more.
        max_extra: as in `greedy_decode`.

    Returns:
        Up to `beam_size` hypotheses a sentence, best score first. Those
        cut off at the limit rank behind all that ended.

    Raises:
        ValueError: for a beam below 1 or a negative alpha, and as
            `length_limits`.

    Chapter: decoding-beam
    """
    if beam_size < 1 or length_penalty < 0:
        raise ValueError(
            "beam_size must be 1 or more and length_penalty 0 or more, "
            f"got {beam_size=}, {length_penalty=}"
        )
    limits = length_limits(model, source_ids, max_extra)
    beams = Beams(limits, beam_size, length_penalty)
    if not len(limits):
        return beams.hypotheses()
    with evaluating(model):
        stepper = Stepper(model, source_ids, int(limits.max()))
        stepper.select(beams.sentences.repeat_interleave(beam_size))
        k = min(2 * beam_size, model.config.vocab_size)
        last = torch.full_like(stepper.source_ids[:, 0], BOS)
        while True:
            rows, last = beams.extend(*stepper.next(last, k))
            over = beams.close()
            drop = 8 * over.sum() >= len(
                over
            )  # worth copying sources
            if drop:
                kept = beams.select((~over).nonzero().squeeze(1))
                rows, last = rows[kept], last[kept]
                if not len(rows):
                    return beams.hypotheses()
            stepper.select(rows, sources=bool(drop))


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
) -> Hypotheses:
    """Search for any number of sentences, the like long ones together.

    Args:
        sources: ids of each sentence, ending in eos.
        beam_size: 1 is greedy.

    Returns:
        Hypotheses in the order of `sources`.

    Raises:
        ValueError: as `beam_search`, or if `batch_size` is below 1.

    Chapter: decoding-batches
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
            batch = greedy_decode(model, ids, max_extra)
        else:
            batch = beam_search(
                model, ids, beam_size, length_penalty, max_extra
            )
        for place, i in enumerate(chosen):
            for name, lists in vars(found).items():
                lists[i] = getattr(batch, name)[place]
    return found
