# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
            ends = tokens == EOS
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
    steps: list[list] = [[] for _ in limits]  # of each sentence
    for tensors in trace:
        lists = (tensor.tolist() for tensor in tensors)
        for number, *step in zip(*lists, strict=True):
            steps[number].append(step)
    found = [
        _ranked(its_steps[:limit], beam_size, length_penalty)
        for its_steps, limit in zip(steps, limits, strict=True)
    ]
    ids, totals, scores = (
        [[hypothesis[part] for hypothesis in ranked] for ranked in found]
        for part in range(3)
    )
    return Hypotheses(ids, totals, scores)


def _ranked(
    steps: Sequence[list], beam_size: int, alpha: float
) -> list[tuple[list[int], float, float]]:
    """A sentence's hypotheses from its steps: ids, total and score.

    Chapter: beams-search
    """
    beam: list[tuple[list[int], float]] = [([], 0.0)]
    ended: list[tuple[list[int], float]] = []
    for best, parents, tokens in steps:
        if len(ended) >= beam_size:
            break  # it was over, and its rows still in the batch
        candidates = [
            ([*beam[parent][0], token], total)
            for total, parent, token in zip(best, parents, tokens, strict=True)
        ]
        ended += [x for x in candidates[:beam_size] if x[0][-1] == EOS]
        beam = [x for x in candidates if x[0][-1] != EOS][:beam_size]

    def ranked(hypotheses: list[tuple[list[int], float]]) -> list:
        scored = [
            (ids, total, total / length_divisor(len(ids), alpha))
            for ids, total in hypotheses
            if total != -math.inf  # pad and bos, in a tiny vocabulary
        ]
        return sorted(scored, key=itemgetter(2), reverse=True)

    return (ranked(ended) + ranked(beam))[:beam_size]


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
    sentences on a CPU, and about 16,000 tokens of them on a GPU.

    Raises:
        ValueError: if a sentence has more than 512 tokens, or more
            than the model's positions allow.

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
    device = model.output_weight.device
    best = [[EOS] for _ in sources]
    not_empty = [i for i, ids in enumerate(sources) if set(ids) - {EOS}]
    order = sorted(not_empty, key=lambda i: -len(sources[i]))
    while order:
        longest = len(sources[order[0]])
        fitting = 64 if device.type == "cpu" else max(1, 16_384 // longest)
        size = batch_size or fitting
        batch, order = order[:size], order[size:]
        rows = [torch.tensor(sources[i]) for i in batch]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        ids = ids.to(device)
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
    sources = [[*tokenizer.encode(text.strip()), EOS] for text in texts]
    lines = []
    for ids in decode_all(model, sources, beam_size, length_penalty):
        text = tokenizer.decode([token for token in ids if token != EOS])
        lines.append(" ".join(text.splitlines()))
    return lines
