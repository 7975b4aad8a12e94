# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Decoding with a cache: one token at a time, section 6.1.

Chapter: book/translating/decoding
"""

from dataclasses import dataclass

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
        self.layers = [
            layer.new_cache(memory) for layer in model.decoder.layers
        ]

    @property
    def length(self) -> int:
        """How many positions of the target are kept."""
        return self.layers[0].length

    def select(self, rows: Tensor, source: bool = True) -> None:
        """Row i becomes the old row `rows[i]`: reorders, repeats or drops.

        With `source=False` the source's part stays as it is, for rows
        that only change places within their own sentence.
        """
        for layer in self.layers:
            layer.select(rows, source)


@dataclass
class Hypotheses:
    """What decoding found for each sentence, best first.

    `ids[sentence][rank]` is a list of ids without bos; it ends in eos
    unless it reached its maximum length. `log_probabilities` (in nats)
    and `scores`, which give the order, are nested in the same way.

    Chapter: decoding-greedy
    """

    ids: list[list[list[int]]]
    log_probabilities: list[list[float]]
    scores: list[list[float]]


def _length_limits(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> list[int]:
    """The maximum length of each output, eos included.

    Section 6.1: the source's length (without eos) plus 50, at least
    one token. A model with learned positions ends where its table ends.

    Raises:
        ValueError: if `source_ids` is not (batch, source_len).

    Chapter: decoding-greedy
    """
    if source_ids.dim() != 2:
        raise ValueError(
            f"{source_ids.shape=}: give (batch, source_len); one "
            "sentence is ids[None], with an eos"
        )
    tokens = (source_ids != PAD) & (source_ids != EOS)
    most = tokens.sum(1) + max_extra
    if model.config.positions == "learned":
        most = most.clamp(max=model.config.max_length)
    return most.clamp(min=1).tolist()


def next_logs(
    model: Transformer,
    last: Tensor,
    source_ids: Tensor | None,
    cache: DecoderCache,
) -> Tensor:
    """Log-probabilities of what follows: (batch, vocab_size).

    `last` (batch,) is the newest token of each row, not yet in the
    cache; `source_ids` tells where the source is padded, None means no
    padding. pad and bos, which can never follow, get -inf.

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


def _likeliest(logs: Tensor) -> tuple[Tensor, Tensor]:
    """`logs.max(-1)`; on a CPU NumPy finds it ten times as fast.

    Chapter: decoding-greedy
    """
    if not logs.is_cpu:
        return logs.max(-1)
    places = torch.from_numpy(logs.numpy().argmax(-1))
    return logs.gather(1, places[:, None])[:, 0], places


def _rows_to_keep(going: Tensor) -> Tensor | slice:
    """An index of the rows to go on with; a slice is all of them.

    `going` (rows,) is True for those that have not ended. Only when
    more than an eighth have is it worth the time to drop them.

    Chapter: decoding-greedy
    """
    left = int(going.sum())  # a GPU is waited for here
    if 0 < left and 8 * left >= 7 * len(going):
        return slice(None)
    return going.nonzero()[:, 0]


def greedy_decode(
    model: Transformer, source_ids: Tensor, max_extra: int = 50
) -> Hypotheses:
    """Take the likeliest token again and again, until eos.

    Args:
        source_ids: (batch, source_len), ending in eos, right-padded.
        max_extra: how many tokens longer than its source an output
            may get.

    Returns:
        One hypothesis a sentence; its score is its log-probability.

    Chapter: decoding-greedy
    """
    limits = _length_limits(model, source_ids, max_extra)
    # Where no row is padded, no mask is needed.
    source = source_ids if (source_ids == PAD).any().item() else None
    trace = []
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        last = source_ids.new_full((len(limits),), BOS)
        sentences = torch.arange(len(limits), device=last.device)
        limit = last.new_tensor(limits)
        going = limit > 0
        for step in range(1, max(limits, default=0) + 1):
            gains, last = _likeliest(next_logs(model, last, source, cache))
            trace.append((sentences, gains, last))
            going = going & (last != EOS) & (limit > step)
            keep = _rows_to_keep(going)
            if isinstance(keep, slice):
                continue
            if len(keep) == 0:
                break
            sentences, limit = sentences[keep], limit[keep]
            last, going = last[keep], going[keep]
            source = None if source is None else source[keep]
            cache.select(keep)
    ids: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    for tensors in trace:
        lists = (tensor.tolist() for tensor in tensors)
        for i, gain, token in zip(*lists, strict=True):
            if ids[i][-1:] != [EOS] and len(ids[i]) < limits[i]:
                ids[i].append(token)
                totals[i] += gain
    return Hypotheses(
        ids=[[best] for best in ids],
        log_probabilities=[[total] for total in totals],
        scores=[[total] for total in totals],
    )
