# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Decoding with a cache: one piece at a time, section 6.1.

Chapter: book/translating/decoding
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer, evaluating


class DecoderCache:
    """What `model.decode(..., cache=cache)` need not compute again.

    `layers` holds what `new_cache` of each decoder layer made: the keys
    and values of the source, from `memory` (batch, source_len,
    d_model), and those of the target's first `length` positions.

    Chapter: decoding-cache
    """

    def __init__(self, model: Transformer, memory: Tensor):
        self.layers: list[Any] = [
            layer.new_cache(memory) for layer in model.decoder.layers
        ]

    @property
    def length(self) -> int:
        """How many positions of the target are kept."""
        return self.layers[0].length

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Make row i what row `rows[i]` was: reorder, repeat or drop.

        With `source=False` the source's part is left as it is: for
        rows that only change places within their own sentence.
        """
        for layer in self.layers:
            layer.select(rows, source)


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


def length_limits(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> list[int]:
    """The most pieces of each output, its eos counted.

    Section 6.1: the source's length (without eos) plus 50. A model
    with learned positions ends where its table ends.

    Raises:
        ValueError: if `source_ids` is not (batch, source_len),
            source_len is 0, or a limit is below 1.

    Chapter: decoding-greedy
    """
    if source_ids.dim() != 2 or source_ids.size(1) == 0:
        raise ValueError(
            f"{source_ids.shape=}: give (batch, source_len); one "
            "sentence is ids[None], with an eos"
        )
    pieces = (source_ids != PAD) & (source_ids != EOS)
    most = pieces.sum(1) + max_extra
    if model.config.positions == "learned":
        most = most.clamp(max=model.config.max_length)
    limits = most.tolist()
    if min(limits, default=1) < 1:
        raise ValueError(f"{max_extra=} leaves no room for a piece: raise it")
    return limits


def next_logs(
    model: Transformer,
    last: Tensor,
    source_ids: Tensor | None,
    cache: DecoderCache,
) -> Tensor:
    """Log-probabilities of what follows: (batch, vocab_size).

    `last` (batch,) is the newest piece of each row, not yet in the
    cache; `source_ids` says where the source is padded, None that it
    has no padding. pad and bos, which are never a right next piece,
    get -inf.

    Chapter: decoding-greedy
    """
    # No memory: the cache has its keys and values.
    hidden = model.decode(last[:, None], None, source_ids, cache)
    logits = model.project(hidden[:, -1])
    # In float32 at least: float16 would lose much of a small probability.
    precision = torch.promote_types(logits.dtype, torch.float32)
    logs = logits.to(precision).log_softmax(-1)
    logs[:, PAD] = -torch.inf
    logs[:, BOS] = -torch.inf
    return logs


def check_not_nan(log_probability: float) -> None:
    """Raises FloatingPointError for NaN: the weights are damaged.

    Chapter: decoding-greedy
    """
    if math.isnan(log_probability):
        raise FloatingPointError(
            "the model's weights are not finite: load or train it again"
        )


def _likeliest(logs: Tensor) -> tuple[Tensor, Tensor]:
    """What `logs.max(-1)` gives: the largest of each row, and its place.

    On a CPU NumPy finds the place many times as fast as PyTorch.

    Chapter: decoding-greedy
    """
    if not logs.is_cpu:
        return logs.max(-1)
    places = torch.from_numpy(logs.numpy().argmax(-1))
    return logs.gather(1, places[:, None]).squeeze(1), places


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
        FloatingPointError: if the model's weights are not finite.

    Chapter: decoding-greedy
    """
    limits = length_limits(model, source_ids, max_extra)
    ids: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    active = list(range(len(limits)))  # the sentence of each row
    last = source_ids.new_full((len(active),), BOS)
    # Where no row is padded, no mask is needed.
    padded = source_ids if (source_ids == PAD).any().item() else None
    with evaluating(model):
        memory = model.encode(source_ids)
        cache = DecoderCache(model, memory)
        while active:
            logs = next_logs(model, last, padded, cache)
            gains, last = _likeliest(logs)
            # One transfer, the ids as floats: exact in float32 to 2**24.
            choices = torch.stack([gains, last], dim=1).tolist()
            unfinished = []  # rows that go on
            for row, (gain, piece) in enumerate(choices):
                sentence = active[row]
                check_not_nan(gain)
                ids[sentence].append(int(piece))
                totals[sentence] += gain
                if piece != EOS and len(ids[sentence]) < limits[sentence]:
                    unfinished.append(row)
            if len(unfinished) < len(active):
                active = [active[row] for row in unfinished]
                rows = last.new_tensor(unfinished)
                last = last[rows]
                padded = None if padded is None else padded[rows]
                cache.select(rows)
    return Hypotheses(
        ids=[[best] for best in ids],
        log_probabilities=[[total] for total in totals],
        scores=[[total] for total in totals],
    )
