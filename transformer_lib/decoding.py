# Collected from book/translating/decoding.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Decoding with a cache: one piece at a time, section 6.1."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.model import Transformer
from transformer_lib.tokenization import BOS, EOS, PAD

__all__ = [
    "DecoderCache",
    "Hypotheses",
    "SourceCache",
    "Stepper",
    "TargetCache",
    "evaluating",
    "greedy_decode",
    "length_limits",
]


@dataclass
class Hypotheses:
    """What a search found for each sentence, best first.

    `ids[sentence][rank]` is a list of ids without bos; it ends in eos
    unless the search met its limit. `log_probabilities` (in nats) and
    `scores`, by which the ranks are given, are nested likewise.

    Chapter: decoding-hypotheses
    """

    ids: list[list[list[int]]] = field(default_factory=list)
    log_probabilities: list[list[float]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)


class TargetCache:
    """One self-attention's keys and values of the target so far.

    Room for `max_length` positions is taken once, written in place.
    A spare room of the same size makes reordering a single copy.

    Chapter: decoding-cache
    """

    def __init__(self, max_length: int):
        self.max_length, self.length = max_length, 0
        self.room: list[Tensor] = []  # (batch, h, max_length, d)
        self.spare: list[Tensor] = []

    def keys_values(
        self, attention: MultiHeadAttention, new: Tensor
    ) -> list[Tensor]:
        """Append (batch, new_len, d_model); all keys and values."""
        parts = attention.keys_values(new)
        start, self.length = self.length, self.length + new.size(1)
        for x in parts if not self.room else []:
            shape = *x.shape[:2], self.max_length, x.size(3)
            self.room.append(x.new_empty(shape))
        used = [x[:, :, : self.length] for x in self.room]
        for x, part in zip(used, parts, strict=True):
            x[:, :, start:] = part
        return used

    def select(self, rows: Tensor) -> None:
        if not self.spare or len(self.spare[0]) < len(rows):
            self.spare = [
                x.new_empty(len(rows), *x.shape[1:])
                for x in self.room
            ]
        self.spare = [x[: len(rows)] for x in self.spare]
        for x, y in zip(self.room, self.spare, strict=True):
            used, out = (z[:, :, : self.length] for z in (x, y))
            torch.index_select(used, 0, rows, out=out)
        self.room, self.spare = self.spare, self.room


class SourceCache:
    """One cross-attention's keys and values: computed once, kept.

    Chapter: decoding-cache
    """

    def __init__(self, attention: MultiHeadAttention, memory: Tensor):
        parts = attention.keys_values(memory)
        self.parts = [part.contiguous() for part in parts]

    def keys_values(self, *_) -> list[Tensor]:
        """The source's keys and values, (batch, h, source_len, d)."""
        return self.parts

    def select(self, rows: Tensor) -> None:
        self.parts = [x.index_select(0, rows) for x in self.parts]


class DecoderCache:
    """What `model.decode(..., cache=cache)` need not compute again.

    For every decoder layer it holds the keys and values of the
    source, from `memory` (batch, source_len, d_model), and those of
    the target's first `length` positions, at most `max_length`.

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

    def select(
        self, rows: Tensor, sources: Tensor | None = None
    ) -> None:
        """Make row i what row `rows[i]` was: reorder, repeat or drop.

        The same for `sources`, with None for no change. There may be
        several rows for each source: the beams of one sentence.
        """
        for cache in self.self_attention:
            cache.select(rows)
        if sources is not None:
            for cache in self.cross_attention:
                cache.select(sources)


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
    """The most pieces of each output, its eos counted: (batch,).

    Section 6.1: the source's length (without eos) plus 50. A model
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
    if (limits < 1).any():
        raise ValueError(
            f"{max_extra=} leaves no room for even one piece; the "
            "paper's value is 50"
        )
    return limits


class Stepper:
    """A batch of unfinished outputs, and what extends them.

    To be used where no gradients are kept, as in `evaluating`. From
    one that is `fixed`, rows never leave.

    Chapter: decoding-step
    """

    fixed = False

    def __init__(
        self, model: Transformer, source_ids: Tensor, max_length: int
    ):
        self.model, memory = model, model.encode(source_ids)
        self.cache = DecoderCache(model, memory, max_length)
        padded = (source_ids == PAD).any()  # asked once
        self.source_ids = source_ids if padded else None

    def hidden(self, last: Tensor) -> Tensor:
        """The decoder's output for ids (batch,): (batch, d_model)."""
        last = last[:, None]
        return self.model.decode(
            last, None, self.source_ids, self.cache
        )[:, -1]

    def next(self, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k likeliest pieces after ids (batch,), best first.

        Log-probabilities and ids, (batch, k) each. pad and bos, which
        no sentence contains, are left out.
        """
        portion = max(1, 2**21 // self.model.config.vocab_size)
        found = []
        for some in self.hidden(last).split(portion):
            scores = self.model.project(some).float()
            torch.log_softmax(scores, -1, out=scores)
            scores[:, PAD] = scores[:, BOS] = -torch.inf
            best = scores.topk(k) if k > 1 else scores.max(1, True)
            found.append(best)
        values, ids = map(torch.cat, zip(*found, strict=True))
        return values, ids

    def select(
        self, rows: Tensor, sources: Tensor | None = None
    ) -> None:
        """As `DecoderCache.select`."""
        self.cache.select(rows, sources)
        if sources is not None and self.source_ids is not None:
            self.source_ids = self.source_ids[sources]


def greedy_decode(
    model: Transformer,
    source_ids: Tensor,
    max_extra: int | Tensor = 50,
    stepper: type[Stepper] = Stepper,
) -> Hypotheses:
    """Take the likeliest piece again and again, until eos.

    Args:
        source_ids: (batch, source_len), with eos, padding behind.
        max_extra: how many pieces longer than its source an output
            may get; one number, or one a sentence.
        stepper: what makes a step, such as `ReplayedStepper`.

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
        steps = stepper(model, source_ids, longest)
        rows = torch.arange(len(limits), device=ids.device)
        done, last = rows < 0, torch.full_like(rows, BOS)
        for step in range(longest):
            gain, last = (x[:, 0] for x in steps.next(last, 1))
            ids[rows, step], gains[rows, step] = last, gain
            done |= (last == EOS) | (limits[rows] == step + 1)
            ended = int(done.sum())
            if ended == len(done):
                break
            if steps.fixed or 4 * ended < len(done):
                continue  # too few to be worth a copy of the cache
            kept = (~done).nonzero().squeeze(1)
            rows, last, done = rows[kept], last[kept], done[kept]
            steps.select(kept, kept)
    found = Hypotheses()
    lists = ids.tolist(), gains.tolist(), limits.tolist()
    for row, gain, limit in zip(*lists, strict=True):
        end = min([*row, EOS].index(EOS) + 1, limit)
        found.ids.append([row[:end]])
        found.log_probabilities.append([sum(gain[:end])])
    return Hypotheses(found.ids, *[found.log_probabilities] * 2)
