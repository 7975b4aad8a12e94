# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.decoding import (
    DecoderCache,
    Hypotheses,
    check_not_nan,
    evaluating,
    greedy_decode,
    length_limits,
    next_logs,
)
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer


def length_divisor(length: int, alpha: float) -> float:
    """lp = ((5 + length) / 6)^alpha; `length` counts eos.

    A hypothesis is ranked by its log-probability divided by lp, the
    length penalty. Section 6.1 sets alpha = 0.6; with 0, lp is 1.

    Chapter: beams-length-penalty
    """
    return ((5 + length) / 6) ** alpha


class _Hypothesis(NamedTuple):
    """A beginning or a whole output, and how likely it is.

    Chapter: beams-search
    """

    log_probability: float
    ids: list[int]  # bos first


class _Beam:
    """One sentence's hypotheses: open ones, and closed ones.

    Up to `size` are open; closed ones ended, or met the limit. A tiny
    vocabulary leaves some open ones at -inf. These stay open, so that
    every sentence has equally many rows, but are never closed.

    Chapter: beams-search
    """

    def __init__(self, size: int, alpha: float, limit: int):
        self.size = size
        self.alpha = alpha
        self.limit = limit
        self.open = [_Hypothesis(0.0, [BOS])]
        self.closed: list[_Hypothesis] = []

    def extend(self, candidates: Iterable[Sequence[float]]) -> list[int]:
        """Extend `open` by the best candidates; returns their parents.

        A candidate is (log-probability, parent's place in `open`,
        piece), the best first. The parents are places in the old
        `open`; there are none when the sentence is over.
        """
        before = self.open
        self.open = []
        parents = []
        for rank, (total, parent, piece) in enumerate(candidates):
            check_not_nan(total)
            beginning = before[int(parent)].ids
            extended = _Hypothesis(total, [*beginning, int(piece)])
            if piece == EOS:
                if rank < self.size and total > -math.inf:
                    self.closed.append(extended)
            elif len(parents) < self.size:
                self.open.append(extended)
                parents.append(int(parent))
        # Before this step, bos and limit - 1 pieces: now they are full.
        if len(before[0].ids) == self.limit:
            for cut_off in self.open:  # ranked behind those that ended
                if cut_off.log_probability > -math.inf:
                    self.closed.append(cut_off)
        elif len(self.closed) < self.size:
            return parents
        self.open = []
        return []

    def score(self, hypothesis: _Hypothesis) -> float:
        pieces = len(hypothesis.ids) - 1  # bos does not count
        divisor = length_divisor(pieces, self.alpha)
        return hypothesis.log_probability / divisor

    def best(self) -> list[_Hypothesis]:
        """Up to `size`, the best score first; those cut off last."""
        ranked = sorted(
            self.closed,
            key=lambda found: (found.ids[-1] == EOS, self.score(found)),
            reverse=True,
        )
        return ranked[: self.size]


def _likeliest(
    totals: Tensor, sentences: int, count: int
) -> list[list[list[float]]]:
    """Each sentence's best: log-probability, parent, piece.

    `totals` (rows, vocab_size) has as many rows, one after the
    other, for every sentence; a parent counts from its first.

    Chapter: beams-search
    """
    by_parent = totals.view(sentences, -1, totals.size(1))
    # The best `count` candidates have at most `count` different pieces,
    # all among the `count` pieces that score highest behind their best
    # parent. Only candidates with these pieces are sorted.
    few = min(count, totals.size(1))
    pieces = by_parent.amax(1).topk(few).indices
    behind_each = pieces[:, None].expand(-1, by_parent.size(1), -1)
    among = by_parent.gather(2, behind_each).flatten(1)
    best, index = among.topk(min(count, among.size(1)))
    parent = index // few
    piece = pieces.gather(1, index % few)
    # One transfer; float32 holds parents and ids exactly.
    return torch.stack([best, parent, piece], dim=-1).tolist()


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
        length_penalty: the paper's alpha, from 0 to 100.
        max_extra: as in `greedy_decode`.

    Returns:
        Up to `beam_size` hypotheses a sentence, best score first.
        Those cut off at the limit rank behind all that ended.

    Raises:
        ValueError: for a beam that is not 1 to 1000, an alpha that is
            not a number from 0 to 100, and as `length_limits`.
        FloatingPointError: if the model's weights are not finite.

    Chapter: beams-search
    """
    if not (1 <= beam_size <= 1000 and 0 <= length_penalty <= 100):
        raise ValueError(
            f"{beam_size=}, {length_penalty=}: give a beam of 1 to 1000 "
            "and a penalty from 0 to 100; the paper's are 4 and 0.6"
        )
    limits = length_limits(model, source_ids, max_extra)
    beams = [_Beam(beam_size, length_penalty, limit) for limit in limits]
    # As in `greedy_decode`: None where no row is padded.
    padded = source_ids if (source_ids == PAD).any().item() else None
    with evaluating(model):
        memory = model.encode(source_ids)
        cache = DecoderCache(model, memory)
        active = beams
        while active:
            opened = [begun for beam in active for begun in beam.open]
            width = len(opened) // len(active)  # rows of a sentence
            last = source_ids.new_tensor([begun.ids[-1] for begun in opened])
            totals = next_logs(model, last, padded, cache)
            so_far = [begun.log_probability for begun in opened]
            totals += totals.new_tensor(so_far)[:, None]
            candidates = _likeliest(totals, len(active), 2 * beam_size)
            parents = []  # rows that the next step's rows extend
            for number, beam in enumerate(active):
                for parent in beam.extend(candidates[number]):
                    parents.append(number * width + parent)
            active = [beam for beam in active if beam.open]
            # The sentence of each row, before this step and after it.
            before = [row // width for row in range(len(opened))]
            after = [row // width for row in parents]
            chosen = source_ids.new_tensor(parents)
            # If no row changes its sentence, its source can stay.
            cache.select(chosen, source=after != before)
            padded = None if padded is None else padded[chosen]
    found = Hypotheses(ids=[], log_probabilities=[], scores=[])
    for beam in beams:
        best = beam.best()
        found.ids.append([output.ids[1:] for output in best])
        logs = [output.log_probability for output in best]
        found.log_probabilities.append(logs)
        found.scores.append([beam.score(output) for output in best])
    return found


_BATCH = {"cpu": 64}  # sentences; elsewhere 512 fill the device better


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
    `batch_size` there are 64 sentences in a batch on a CPU, and 512
    elsewhere.

    Raises:
        ValueError: as `beam_search`.

    Chapter: beams-batches
    """
    sources = list(sources)  # it may be a generator
    device = model.output_weight.device
    batch_size = batch_size or _BATCH.get(device.type, 512)
    best = [[EOS] for _ in sources]
    not_empty = [i for i, ids in enumerate(sources) if set(ids) - {EOS}]
    order = sorted(not_empty, key=lambda i: -len(sources[i]))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
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
            than the model's positions allow, or was read from bytes
            that are not UTF-8.

    Chapter: beams-texts
    """
    if isinstance(sentences, str):
        raise TypeError("sentences is one text: give a list, [text]")
    most = _MAX_TOKENS
    if model.config.positions == "learned":
        most = min(most, model.config.max_length - 1)  # and eos
    encoded = []
    for number, sentence in enumerate(sentences, 1):
        if any("\ud800" <= c < "\ue000" for c in sentence):  # surrogates
            raise ValueError(f"sentence {number} is not UTF-8: convert it")
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
