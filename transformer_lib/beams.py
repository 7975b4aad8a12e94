# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from transformer_lib.batching import _encode, _padded
from transformer_lib.decoding import (
    DecoderCache,
    Hypotheses,
    _length_limits,
    _rows_to_keep,
    greedy_decode,
    next_logs,
)
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer, evaluating
from transformer_lib.tokenization import Tokenizer


def length_divisor(length: int, alpha: float) -> float:
    """lp = ((5 + length) / 6)^alpha; `length` counts eos.

    A hypothesis is ranked by its log-probability divided by lp, the
    length penalty. Section 6.1 sets alpha = 0.6; with 0, lp is 1.

    Chapter: beams-length-penalty
    """
    return ((5 + length) / 6) ** alpha


def _best(totals: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each sentence's best candidates: log-probability, parent, token.

    `totals` is (sentences, width, vocab_size), the results are
    (sentences, count); a parent is one of the `width` hypotheses.

    Chapter: beams-search
    """
    few = min(count, totals.size(2))
    by_parent, tokens = totals.topk(few)
    best, place = by_parent.flatten(1).topk(min(count, few * totals.size(1)))
    return best, place // few, tokens.flatten(1).gather(1, place)


def beam_search(
    model: Transformer,
    source_ids: Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
) -> Hypotheses:
    """Keep the `beam_size` best hypotheses at each step, section 6.1.

    A sentence is over when `beam_size` hypotheses have ended, or at
    its maximum length.

    Args:
        source_ids: (batch, source_len), ending in eos, right-padded.
        length_penalty: the paper's alpha, at least 0.
        max_extra: as in `greedy_decode`.

    Returns:
        Up to `beam_size` hypotheses a sentence, best score first.
        Those cut off at the limit rank behind all that ended.

    Chapter: beams-search
    """
    limits = _length_limits(model, source_ids, max_extra)
    source = source_ids if (source_ids == PAD).any().item() else None
    trace = []
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        last = source_ids.new_full((len(limits), 1), BOS)
        numbers = torch.arange(len(limits), device=last.device)
        sentences, limit = numbers, last.new_tensor(limits)
        ended = torch.zeros_like(limit)  # how many hypotheses
        so_far = torch.zeros(last.shape, device=last.device)
        for step in range(1, max(limits, default=0) + 1):
            logs = next_logs(model, last.flatten(), source, cache)
            totals = logs.view(*last.shape, -1).add_(so_far[..., None])
            best, parents, tokens = _best(totals, 2 * beam_size)
            trace.append((sentences, best, parents, tokens))
            ends = (tokens == EOS) & (best > -torch.inf)
            ended = ended + ends[:, :beam_size].sum(1)
            # Those that go on come first, in their order.
            order = ends.int().sort(dim=1, stable=True).indices
            count, width = last.shape  # sentences, rows of each
            survivors = order[:, : min(beam_size, best.size(1) - width)]
            so_far, parents, last = (
                x.gather(1, survivors) for x in (best, parents, tokens)
            )
            rows = numbers[:count, None] * width + parents
            keep = _rows_to_keep((ended < beam_size) & (limit > step))
            sentences, limit, ended, so_far, last, rows = (
                x[keep] for x in (sentences, limit, ended, so_far, last, rows)
            )
            if len(sentences) == 0:
                break
            # If no row changes its sentence, its source can stay.
            same = rows.shape == (count, width)
            cache.select(rows.flatten(), source=not same)
            if source is not None and not same:
                source = source[rows.flatten()]
    return _hypotheses(trace, np.array(limits), beam_size, length_penalty)


def _hypotheses(
    trace: list[tuple[Tensor, ...]],
    limits: np.ndarray,
    beam_size: int,
    alpha: float,
) -> Hypotheses:
    """What a search has found, from its steps.

    A step holds the numbers of the sentences (n,) and their candidates,
    best first: log-probabilities, parents and tokens, each (n, count).

    Chapter: beams-search
    """
    shape = len(trace), len(limits), 2 * beam_size
    parts = [np.full(shape, fill) for fill in (-np.inf, 0, PAD)]
    for step, tensors in enumerate(trace):
        numbers, *found = (tensor.cpu().numpy() for tensor in tensors)
        for part, new in zip(parts, found, strict=True):
            part[step, numbers, : new.shape[1]] = new
    best, parents, tokens = parts
    steps, ranks = np.arange(len(trace))[:, None], np.arange(shape[2])
    ends = (tokens == EOS) & (best > -np.inf)
    goes_on = np.argsort(ends, axis=2, kind="stable")  # these come first
    ended = ends[:, :, :beam_size].sum(2)
    going = ended.cumsum(0) - ended < beam_size  # or it was over before
    going &= steps < limits
    at_last = (steps == going.sum(0) - 1)[..., None]
    cut = at_last & ~ends & ((~ends).cumsum(2) <= beam_size)
    complete = (cut | ends & (ranks < beam_size)) & going[..., None]
    # pad and bos, in a tiny vocabulary, have -inf
    step, number, rank = (complete & (best > -np.inf)).nonzero()
    total, is_cut = best[step, number, rank], cut[step, number, rank]
    # Back from each one's last token to its first.
    ids = np.zeros((len(step), len(trace)), int)
    for t in range(len(trace) - 1, -1, -1):
        on = step >= t
        at = t, number[on], rank[on]
        ids[on, t] = tokens[at]
        if t > 0:
            rank[on] = goes_on[t - 1, number[on], parents[at]]
    divisors = [length_divisor(t + 1, alpha) for t in range(len(trace))]
    score = total / np.array(divisors)[step]
    order = np.lexsort((-score, is_cut, number))
    result = Hypotheses(ids=[], log_probabilities=[], scores=[])
    for sentence in range(len(limits)):
        kept = order[number[order] == sentence][:beam_size]
        result.ids.append([ids[i, : step[i] + 1].tolist() for i in kept])
        result.log_probabilities.append(total[kept].tolist())
        result.scores.append(score[kept].tolist())
    return result


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int | None = None,
) -> list[list[int]]:
    """The best ids for many sentences, in the order of `sources`.

    Each ends in eos; an empty sentence stays empty. With a `beam_size`
    of 1 decoding is greedy. Without a `batch_size` a batch has 64
    sentences on a CPU; on a GPU 1,024, or about 16,000 tokens of them.

    Raises:
        ValueError: for a `beam_size` below 1, or if a sentence has
            more than 512 tokens, or more than the model's positions
            allow.

    Chapter: beams-batches
    """
    sources = list(sources)  # it may be a generator
    most = 512  # whole pages translate badly, and slowly
    if model.config.positions == "learned":
        most = min(most, model.config.max_length - 1)  # and eos
    for number, ids in enumerate(sources, 1):
        if len(ids) > most + 1:
            raise ValueError(
                f"sentence {number} has {len(ids) - 1} tokens; the model "
                f"reads up to {most}: split it"
            )
    if beam_size < 1:
        raise ValueError(f"{beam_size=}: give 1 or more")
    device = model.output_weight.device
    best = [[EOS] for _ in sources]
    not_empty = [i for i, ids in enumerate(sources) if set(ids) - {EOS}]
    order = sorted(not_empty, key=lambda i: -len(sources[i]))
    while order:
        longest = len(sources[order[0]])
        fitting = 64 if device.type == "cpu" else min(1024, 16_384 // longest)
        size = batch_size or fitting
        batch, order = order[:size], order[size:]
        ids = _padded([sources[i] for i in batch]).to(device)
        if beam_size == 1:
            found = greedy_decode(model, ids, max_extra)
        else:
            found = beam_search(
                model, ids, beam_size, length_penalty, max_extra
            )
        for i, ranked in zip(batch, found.ids, strict=True):
            best[i] = ranked[0]
    return best


def _translate(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> list[str]:
    """The translation of each text, on one line, in the same order.

    Chapter: beams-texts
    """
    sources = _encode(texts, tokenizer)
    found = decode_all(model, sources, beam_size, length_penalty)
    outputs = (tokenizer.decode([x for x in ids if x != EOS]) for ids in found)
    return [" ".join(text.splitlines()) for text in outputs]
