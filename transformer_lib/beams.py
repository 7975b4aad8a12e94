# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Beam search and its length penalty, section 6.1.

Chapter: book/translating/beams
"""

import math
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

from torch import Tensor

from transformer_lib.batching import encode_texts, padded
from transformer_lib.decoding import (
    DecoderCache,
    Hypothesis,
    check_source,
    checked_hypothesis,
    greedy_decode,
    length_limits,
    next_log_probabilities,
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


def check_options(beam_size: int, length_penalty: float) -> None:
    """Refuse a beam or a length penalty that means nothing.

    Raises:
        ValueError: for a `beam_size` that is not a whole number from 1
            on, or a `length_penalty` that is not between 0 and 100.

    Chapter: beams-batch
    """
    if not isinstance(beam_size, Integral) or beam_size < 1:
        raise ValueError(f"{beam_size=}: give a whole number, 1 or more")
    if not 0 <= length_penalty <= 100:
        raise ValueError(f"{length_penalty=}: give a number, 0 to 100")


_Open = tuple[list[int], float, int]  # ids, log-probability, row


def _divide(
    candidates: list[_Open], beam_size: int
) -> tuple[list[_Open], list[_Open]]:
    """The candidates that end in this step, and those that go on.

    They are a sentence's, the likeliest first. With a tiny vocabulary
    there may be too few to go on: impossible ones fill the beam.

    Chapter: beams-batch
    """
    ended = [one for one in candidates[:beam_size] if one[0][-1] == EOS]
    going = [one for one in candidates if one[0][-1] != EOS]
    full = [(i, -math.inf, row) for i, _, row in candidates if i[-1] == EOS]
    return ended, (going + full)[:beam_size]


def beam_search(
    model: Transformer,
    source_ids: Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
) -> list[list[Hypothesis]]:
    """Keep the `beam_size` best hypotheses at each step, section 6.1.

    A sentence is over when `beam_size` hypotheses have ended, or at
    its maximum length.

    Args:
        source_ids: (batch, source_len), ending in eos, right-padded.
        beam_size: how many unfinished outputs a sentence keeps.
        length_penalty: the paper's alpha, from 0 to 100.
        max_extra: as in `greedy_decode`.

    Returns:
        For each sentence up to `beam_size` hypotheses, best score first.
        Those cut off at the limit rank behind all that ended.

    Raises:
        ValueError: as `greedy_decode`, and for a `beam_size` that is no
            whole number from 1 on, or another `length_penalty`.

    Chapter: beams-batch
    """
    check_options(beam_size, length_penalty)
    check_source(model, source_ids)
    limits = length_limits(model, source_ids, max_extra)
    # Where no row is padded, no mask is needed.
    source = source_ids if (source_ids == PAD).any() else None
    found: list[list[Hypothesis]] = [[] for _ in limits]

    def put_away(sentence: int, hypotheses: list[_Open]) -> None:
        for ids, total, _ in hypotheses:
            if total != -math.inf:
                score = total / length_divisor(len(ids) - 1, length_penalty)
                best = checked_hypothesis(ids[1:], total, score)
                found[sentence].append(best)

    with evaluating(model):
        cache = DecoderCache(model, model.encode(source_ids))
        beams: dict[int, list[_Open]] = {}  # of each open sentence
        for number in range(len(limits)):
            beams[number] = [([BOS], 0.0, number)]
        while beams:
            rows = [one for beam in beams.values() for one in beam]
            last = source_ids.new_tensor([ids[-1] for ids, _, _ in rows])
            log_p = next_log_probabilities(model, last, source, cache)
            log_p += log_p.new_tensor([total for _, total, _ in rows])[:, None]
            every, vocab_size = log_p.view(len(beams), -1), log_p.size(1)
            best, places = every.topk(min(2 * beam_size, every.size(1)))
            step = zip(beams, best.tolist(), places.tolist(), strict=True)
            beams = {}
            for number, (sentence, *both) in enumerate(step):
                candidates = []
                for total, place in zip(*both, strict=True):
                    place += number * every.size(1)
                    row, token = divmod(place, vocab_size)
                    candidates.append(([*rows[row][0], token], total, row))
                ended, going = _divide(candidates, beam_size)
                put_away(sentence, ended)
                if len(going[0][0]) > limits[sentence]:
                    put_away(sentence, going)
                elif len(found[sentence]) < beam_size:
                    beams[sentence] = going
            keep = [row for beam in beams.values() for _, _, row in beam]
            keep = last.new_tensor(keep)
            # Rows that stay with their sentence keep its source.
            stay = len(beams) == len(every) and len(keep) == len(rows)
            cache.select(keep, source=not stay)
            if source is not None and not stay:
                source = source[keep]
    for hypotheses in found:  # those that ended first, then by score
        hypotheses.sort(key=lambda one: (one.ids[-1] != EOS, -one.score))
    return [hypotheses[:beam_size] for hypotheses in found]


def longest_source(model: Transformer) -> int:
    """How many tokens, without eos, a sentence to translate may have.

    The `max_length` of the model's configuration; one less where
    positions are learned, because eos has one of them.

    Chapter: beams-batches
    """
    return min(model.config.max_length, model.config.longest - 1)


_CPU = 64  # sentences of a batch


def decode_all(
    model: Transformer,
    sources: Iterable[list[int]],
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
) -> list[list[Hypothesis]]:
    """The hypotheses for many sentences, in the order of `sources`.

    A source is a list of ids that ends in eos; for an empty one there
    is one hypothesis, eos. With a `beam_size` of 1 decoding is greedy,
    and a score is the log-probability, whatever the length penalty.
    A batch has 64 sentences on a CPU; on a GPU 1,024, or about 16,000
    tokens of them.

    Raises:
        ValueError: as `beam_search`, or if a sentence has more than
            `longest_source` tokens; then nothing is decoded.
        TypeError: for a source that is no list of ids.

    Chapter: beams-batches
    """
    check_options(beam_size, length_penalty)
    sources = list(sources)  # it may be a generator
    most = longest_source(model)
    for number, ids in enumerate(sources, 1):
        if isinstance(ids, int | str):
            raise TypeError(f"{ids} is no list of ids: give a list of lists")
        if len(ids) > most + 1:  # and eos
            raise ValueError(
                f"sentence {number} has {len(ids) - 1} tokens; the model "
                f"reads up to {most}: split it"
            )
    device = next(model.parameters()).device
    found = [[Hypothesis([EOS], 0.0, 0.0)] for _ in sources]
    order = [i for i, ids in enumerate(sources) if set(ids) - {EOS}]
    order.sort(key=lambda i: -len(sources[i]))
    while order:
        longest = len(sources[order[0]])
        fitting = _CPU if device.type == "cpu" else 16_384 // longest
        size = min(max(fitting, 1), 1024)
        batch, order = order[:size], order[size:]
        ids = padded([sources[i] for i in batch]).to(device)
        if beam_size == 1:
            results = greedy_decode(model, ids, max_extra)
        else:
            results = beam_search(
                model, ids, beam_size, length_penalty, max_extra
            )
        for i, hypotheses in zip(batch, results, strict=True):
            found[i] = hypotheses
    return found


class Translation(NamedTuple):
    """A `Hypothesis` as text, on one line.

    Chapter: beams-texts
    """

    text: str
    log_probability: float
    score: float


def translate_all(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> list[list[Translation]]:
    """The translations of each text, best first, in the same order.

    Two of them may be the same text, cut into other tokens.

    Raises:
        TypeError: for a text that is not a string, or one text in place
            of a list.
        ValueError: as `decode_all`.

    Chapter: beams-texts
    """
    sources = encode_texts(texts, tokenizer)
    found = decode_all(model, sources, beam_size, length_penalty)
    return as_texts(tokenizer, found)


def as_texts(
    tokenizer: Tokenizer, found: list[list[Hypothesis]]
) -> list[list[Translation]]:
    """What `decode_all` found, as texts of one line each.

    Chapter: beams-texts
    """

    def one_line(ids: list[int]) -> str:
        text = tokenizer.decode([i for i in ids if i != EOS])
        return " ".join(text.splitlines())

    return [
        [
            Translation(one_line(ids), log_probability, score)
            for ids, log_probability, score in hypotheses
        ]
        for hypotheses in found
    ]
