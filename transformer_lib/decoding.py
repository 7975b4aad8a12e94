# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Decoding with a cache: one token at a time, section 6.1.

Chapter: book/translating/decoding
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.layers import LayerCache
from transformer_lib.model import Transformer, check_ids, evaluating


class DecoderCache(list[LayerCache]):
    """What `model.decode(..., cache=cache)` need not compute again.

    A list of what `new_cache` of each decoder layer made: the keys and
    values of the source, from `memory` (batch, source_len, d_model),
    and those of the target's first positions.

    Chapter: decoding-cache
    """

    def __init__(self, model: Transformer, memory: Tensor):
        super().__init__(
            layer.new_cache(memory) for layer in model.decoder.layers
        )

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Row i becomes the old row `rows[i]`: reorders, repeats or drops.

        With `source=False` the source's part stays as it is, for rows
        that only change places within their own sentence.
        """
        for layer in self:
            layer.select(rows, source)


class Hypothesis(NamedTuple):
    """One output that a search has found for a sentence.

    `ids` are without bos; they end in eos, unless the hypothesis was
    cut off at its maximum length. `log_probability` is in nats. The
    hypothesis with the highest `score` is the best one.

    Chapter: decoding-greedy
    """

    ids: list[int]
    log_probability: float
    score: float


def check_source(model: Transformer, source_ids: Tensor) -> None:
    """Refuse what is no batch of sentences, whatever the model.

    Raises:
        ValueError: if `source_ids` is not (batch, source_len), holds
            anything but ids of the vocabulary, is padded on the left,
            or if a sentence does not end in eos.

    Chapter: decoding-greedy
    """
    check_ids(source_ids)
    last = model.config.vocab_size - 1
    for ids in source_ids.tolist():
        if unknown := [i for i in ids if not 0 <= i <= last]:
            raise ValueError(
                f"the source has the id {unknown[0]}, but the model's ids "
                f"are 0 to {last}"
            )
        sentence = [i for i in ids if i != PAD]
        if sentence[-1:] != [EOS] or ids[: len(sentence)] != sentence:
            raise ValueError(
                f"a sentence is {ids}: give its ids and eos, {EOS}, as in "
                "training, and pad it on the right"
            )


def length_limits(
    model: Transformer, source_ids: Tensor, max_extra: int
) -> list[int]:
    """The maximum length of each output, eos included.

    Section 6.1: the source's length (without eos) plus 50, at least
    one token, and no more than the model has positions.

    Chapter: decoding-greedy
    """
    tokens = (source_ids != PAD) & (source_ids != EOS)
    most = tokens.sum(1) + max_extra
    return most.clamp(1, model.config.longest).tolist()


def next_log_probabilities(
    model: Transformer,
    last: Tensor,
    source_ids: Tensor | None,
    cache: DecoderCache,
) -> Tensor:
    """Of every possible next token: (batch, vocab_size), in nats.

    `last` (batch,) is the newest token of each row, not yet in the
    cache, and is added to it; `source_ids` tells where the source is
    padded, None means no padding. pad and bos, which can never follow,
    get -inf.

    Raises:
        ValueError: past the `max_length` of the model's positions.

    Chapter: decoding-greedy
    """
    # No memory: the cache has its keys and values.
    hidden = model.decode(last[:, None], None, source_ids, cache)
    logits = model.project(hidden[:, -1])
    # In float32 at least: float16 would lose much of a small probability.
    precision = torch.promote_types(logits.dtype, torch.float32)
    logs = logits.log_softmax(-1, dtype=precision)
    logs[:, PAD] = -torch.inf
    logs[:, BOS] = -torch.inf
    return logs


def _likeliest(log_p: Tensor) -> tuple[Tensor, Tensor]:
    """`log_p.max(-1)`; on a CPU NumPy finds it ten times as fast.

    Chapter: decoding-greedy
    """
    if not log_p.is_cpu:
        return log_p.max(-1)
    places = torch.from_numpy(log_p.numpy().argmax(-1))
    return log_p.gather(1, places[:, None])[:, 0], places


def checked_hypothesis(
    ids: list[int], log_probability: float, score: float
) -> Hypothesis:
    """A `Hypothesis`, if the model's numbers are numbers.

    Raises:
        ValueError: for NaN.

    Chapter: decoding-greedy
    """
    if math.isnan(log_probability):
        raise ValueError(
            "the model's log-probabilities are NaN: its weights are "
            "damaged or not yet loaded, or float16 is too narrow for them"
        )
    return Hypothesis(ids, log_probability, score)


def greedy_decode(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> list[list[Hypothesis]]:
    """Take the likeliest token again and again, until eos.

    Args:
        source_ids: (batch, source_len), ending in eos, right-padded.
        max_extra: how many tokens longer than its source an output
            may get.

    Returns:
        For each sentence a list with one hypothesis, whose score is its
        log-probability.

    Raises:
        ValueError: for a `source_ids` that is no batch of sentences,
            and for a model whose weights are not numbers.

    Chapter: decoding-greedy
    """
    check_source(model, source_ids)
    limits = length_limits(model, source_ids, max_extra)
    # Where no row is padded, no mask is needed.
    source = source_ids if (source_ids == PAD).any() else None
    ids: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    rows = [*range(len(limits))]  # the sentences that have not ended
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        last = source_ids.new_full((len(rows),), BOS)
        while rows:
            log_p = next_log_probabilities(model, last, source, cache)
            gains, last = _likeliest(log_p)
            step = zip(rows, gains.tolist(), last.tolist(), strict=True)
            going = []
            for row, (sentence, gain, token) in enumerate(step):
                ids[sentence].append(token)
                totals[sentence] += gain
                if token != EOS and len(ids[sentence]) < limits[sentence]:
                    going.append(row)
            if len(going) < len(rows):
                rows = [rows[row] for row in going]
                keep = last.new_tensor(going)
                last = last[keep]
                source = None if source is None else source[keep]
                cache.select(keep)
    return [
        [checked_hypothesis(output, total, total)]
        for output, total in zip(ids, totals, strict=True)
    ]
