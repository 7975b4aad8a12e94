# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.decoding import (
    DecoderCache,
    Hypotheses,
    greedy_decode,
    length_limits,
    next_logs,
    rows_to_keep,
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

    Raises:
        ValueError: for a beam below 1 or an alpha below 0, and as
            `length_limits`.
        FloatingPointError: if the model's weights are not finite.

    Chapter: beams-search
    """
    if not (beam_size >= 1 and length_penalty >= 0):
        raise ValueError(
            f"{beam_size=}, {length_penalty=}: give a beam of at least 1 "
            "and a penalty of at least 0; the paper's are 4 and 0.6"
        )
    limits = length_limits(model, source_ids, max_extra)
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
            ends = tokens == EOS
            # Those that go on come first, in their order.
            order = ends.int().sort(dim=1, stable=True).indices
            width = last.size(1)  # rows of a sentence
            survivors = order[:, : min(beam_size, best.size(1) - width)]
            trace.append((sentences, best, parents, tokens, survivors))
            # A tiny vocabulary leaves candidates at -inf: no outputs.
            real_ends = ends & (best > -math.inf)
            ended = ended + real_ends[:, :beam_size].sum(1)
            keep = rows_to_keep((ended < beam_size) & (limit > step))
            if keep is not None and len(keep) == 0:
                break
            so_far, parents, last = (
                x.gather(1, survivors) for x in (best, parents, tokens)
            )
            rows = numbers[: len(last), None] * width + parents
            same = keep is None and last.size(1) == width
            if keep is not None:
                sentences, limit, ended = (
                    x[keep] for x in (sentences, limit, ended)
                )
                so_far, last, rows = (x[keep] for x in (so_far, last, rows))
            # If no row changes its sentence, its source can stay.
            cache.select(rows.flatten(), source=not same)
            if source is not None and not same:
                source = source[rows.flatten()]
    steps: list[list] = [[] for _ in limits]  # of each sentence
    for tensors in trace:
        lists = (tensor.tolist() for tensor in tensors)
        for number, *step in zip(*lists, strict=True):
            steps[number].append(step)
    found = [
        _ranked(its_steps, limit, beam_size, length_penalty)
        for its_steps, limit in zip(steps, limits, strict=True)
    ]
    return Hypotheses(
        ids=[[ids for ids, _, _ in ranked] for ranked in found],
        log_probabilities=[[total for _, total, _ in r] for r in found],
        scores=[[score for _, _, score in ranked] for ranked in found],
    )


def _ranked(
    steps: Sequence[Sequence[list]],
    limit: int,
    beam_size: int,
    alpha: float,
) -> list[tuple[list[int], float, float]]:
    """A sentence's hypotheses from its steps: ids, total and score.

    Chapter: beams-search
    """
    beam: list[list[int]] = [[]]
    ended: list[tuple[list[int], float]] = []
    cut_off: list[tuple[list[int], float]] = []
    for best, parents, tokens, survivors in steps[:limit]:
        if len(ended) >= beam_size:
            break  # it was over, and its rows still in the batch
        extended = [
            [*beam[parent], token]
            for parent, token in zip(parents, tokens, strict=True)
        ]
        candidates = list(zip(extended, best, strict=True))
        for ids, total in candidates[:beam_size]:
            if ids[-1] == EOS and total != -math.inf:
                ended.append((ids, total))
        beam = [extended[place] for place in survivors]
        cut_off = [candidates[place] for place in survivors]
    cut_off = [one for one in cut_off if one[1] != -math.inf]

    def score(hypothesis: tuple[list[int], float]) -> float:
        ids, total = hypothesis
        return total / length_divisor(len(ids), alpha)

    ranked = sorted(ended, key=score, reverse=True)
    ranked += sorted(cut_off, key=score, reverse=True)
    return [(*one, score(one)) for one in ranked[:beam_size]]


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int | None = None,
) -> list[list[int]]:
    """The best ids for many sentences, in the order of `sources`.

    `sources` holds the ids of each, ending in eos. An empty sentence
    stays empty. With a `beam_size` of 1 decoding is greedy. Without a
    `batch_size` a batch has 64 sentences on a CPU, and sentences of
    about 16,000 tokens on a GPU.

    Raises:
        ValueError: as `beam_search`.

    Chapter: beams-batches
    """
    sources = list(sources)  # it may be a generator
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
                model,
                ids,
                beam_size=beam_size,
                length_penalty=length_penalty,
                max_extra=max_extra,
            )
        for i, ranked in zip(batch, found.ids, strict=True):
            best[i] = ranked[0]
    return best


_MAX_TOKENS = 512  # whole pages translate badly, and slowly


def encode_sentences(
    model: Transformer, tokenizer: Tokenizer, sentences: Iterable[str]
) -> list[list[int]]:
    """Ids of each sentence, as a source: with eos.

    Raises:
        TypeError: if `sentences` is one string instead of a list.
        ValueError: if a sentence has more than 512 tokens, or more
            than the model's positions allow.

    Chapter: beams-texts
    """
    if isinstance(sentences, str):
        raise TypeError("sentences is one text: give a list, [text]")
    most = _MAX_TOKENS
    if model.config.positions == "learned":
        most = min(most, model.config.max_length - 1)  # and eos
    encoded = []
    for number, sentence in enumerate(sentences, 1):
        ids = tokenizer.encode(sentence.strip())
        if len(ids) > most:
            raise ValueError(
                f"sentence {number} has {len(ids)} tokens; the model "
                f"reads up to {most}: split it"
            )
        encoded.append([*ids, EOS])
    return encoded


def translate_texts(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int | None = None,
) -> list[str]:
    """The translation of each text, on one line, in the same order.

    Raises:
        TypeError, ValueError: as `encode_sentences` and `decode_all`.

    Chapter: beams-texts
    """
    sources = encode_sentences(model, tokenizer, texts)
    outputs = decode_all(
        model, sources, beam_size, length_penalty, max_extra, batch_size
    )
    lines = []
    for ids in outputs:
        text = tokenizer.decode([token for token in ids if token != EOS])
        lines.append(" ".join(text.splitlines()))
    return lines
