"""Beam search against brute force, greedy and itself."""

import inspect
import sys
from dataclasses import replace
from itertools import product
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from translators import SMALL, a_model, log_probabilities, sources

from transformer_lib.beams import (
    beam_search,
    decode_all,
    length_divisor,
    longest_source,
    translate_all,
)
from transformer_lib.decoding import Hypothesis
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.evaluation import evaluate
from transformer_lib.translator import Translator


def ids_of(found):
    """Of each sentence, the ids of its hypotheses."""
    return [[hypothesis.ids for hypothesis in ranked] for ranked in found]


def every_output(limit):
    """All that may come out: ended, or as long as the limit."""
    tokens = [i for i in range(7) if i not in (PAD, BOS, EOS)]
    for length in range(limit):
        for ids in product(tokens, repeat=length):
            yield [*ids, EOS]
    for ids in product(tokens, repeat=limit):
        yield list(ids)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_equals_brute_force(seed, alpha):
    """Every output comes out, and the best first, in a batch."""
    model, wide = a_model(seed), 1400  # room for every beginning
    batch = sources(4, 1, 2, seed=seed)
    together = beam_search(model, batch, wide, alpha, max_extra=1)
    for row, limit in enumerate([5, 2, 3]):
        every = list(every_output(limit))
        totals = log_probabilities(model, batch[row], every)
        score = {
            tuple(ids): total / length_divisor(len(ids), alpha)
            for ids, total in zip(every, totals, strict=True)
        }
        found = [tuple(hypothesis.ids) for hypothesis in together[row]]
        assert sorted(found) == sorted(score)
        told = [hypothesis.score for hypothesis in together[row]]
        wanted = [score[ids] for ids in found]
        assert told == pytest.approx(wanted, abs=1e-3)
        ended = [ids for ids in found if ids[-1] == EOS]
        cut = [ids for ids in found if ids[-1] != EOS]
        assert found == ended + cut, "ended ones come first"
        for ids in ended, cut:
            best = max(score[i] for i in ids)
            assert score[ids[0]] == pytest.approx(best, abs=1e-3)


@torch.no_grad()
def naive_search(model, source, limit, size=4, alpha=0.6):
    """Section 6.1 for one sentence, without a cache: the best first."""
    beam, closed = [(0.0, [BOS])], []
    while len(closed) < size and len(beam[0][1]) <= limit:
        read = torch.tensor([ids for _, ids in beam])
        logits = model(source.expand(len(beam), -1), read)[:, -1]
        logs = logits.log_softmax(-1).tolist()
        longer = [
            (total + log, [*ids, token])
            for (total, ids), row in zip(beam, logs, strict=True)
            for token, log in enumerate(row)
            if token not in (PAD, BOS)
        ]
        longer = sorted(longer, reverse=True)[: 2 * size]
        closed += [found for found in longer[:size] if found[1][-1] == EOS]
        beam = [found for found in longer if found[1][-1] != EOS][:size]

    def score(found):
        total, ids = found
        return total / ((5 + len(ids) - 1) / 6) ** alpha

    ranked = sorted(closed, key=score, reverse=True)
    if len(beam[0][1]) > limit:
        ranked += sorted(beam, key=score, reverse=True)
    return [ids[1:] for _, ids in ranked[:size]]


def test_the_papers_search():
    """Beam 4, alpha 0.6, input length + 50, in every way in."""
    ways = beam_search, decode_all, translate_all, evaluate
    for function in (*ways, Translator.translate):
        options = inspect.signature(function).parameters
        assert options["beam_size"].default == 4
        assert options["length_penalty"].default == 0.6
        if function in (beam_search, decode_all):
            assert options["max_extra"].default == 50
    # Four beginnings a step, the likeliest, each with its own past.
    for seed in range(4):
        model, batch = a_model(seed, end=-1.0).double(), sources(5, 9, 2)
        lists = [[i for i in ids if i != PAD] for ids in batch.tolist()]
        found = beam_search(model, batch, max_extra=6)
        assert ids_of(decode_all(model, lists, max_extra=6)) == ids_of(found)
        for row, ranked in enumerate(ids_of(found)):
            limit = len(lists[row]) - 1 + 6
            assert ranked == naive_search(model, batch[row], limit)
            totals = log_probabilities(model, batch[row], ranked)
            told = [hypothesis.log_probability for hypothesis in found[row]]
            assert told == pytest.approx(totals)


def test_length_penalty_is_the_papers():
    assert length_divisor(1, 0.6) == 1
    assert length_divisor(7, 0.6) == pytest.approx(2**0.6)
    assert length_divisor(25, 0) == 1
    assert length_divisor(7, 1.5) == pytest.approx(2**1.5)
    # None ends, or most do.
    for end, alpha in (-99.0, 0.6), (-2.0, 0.6), (1.0, 2.0):
        model, batch = a_model(5, end=end), sources(5, 9)
        lists = [[i for i in ids if i != PAD] for ids in batch.tolist()]
        found = beam_search(model, batch, length_penalty=alpha, max_extra=6)
        for ranked in found:
            for ids, log_probability, score in ranked:
                wanted = log_probability / ((5 + len(ids)) / 6) ** alpha
                assert score == pytest.approx(wanted)
            order = [(one.ids[-1] != EOS, -one.score) for one in ranked]
            assert order == sorted(order), "by these they are ranked"
        said = decode_all(model, lists, length_penalty=alpha, max_extra=6)
        assert ids_of(said) == ids_of(found)
    assert beam_search(model, batch, length_penalty=0.6) == beam_search(
        model, batch
    )


def steps_of(model, batch, **options):
    """How many rows the model is asked for at each step."""
    calls = []
    hook = model.pre_softmax.register_forward_hook(
        lambda module, x, y: calls.append(len(y))
    )
    beam_search(model, batch, **options)
    hook.remove()
    return calls


def test_over_when_the_beam_has_ended_and_not_before():
    # In a batch each sentence is over by itself.
    for size in (1, 4):
        for seed, end in enumerate([1.0, -4.0, -1.0]):
            model = a_model(seed, end=end).double()
            batch = sources(*(5, 12, 0) * 4, seed=seed)
            # With this alpha what it would still find is often better.
            together = beam_search(model, batch, size, 3.0, max_extra=5)
            for row, limit in enumerate([10, 17, 5] * 4):
                wanted = naive_search(model, batch[row], limit, size, 3.0)
                assert ids_of(together)[row] == wanted
    # A model that is sure of eos has ended by as many steps as beams.
    for size in (1, 2, 3):
        model = a_model(1, end=50.0)
        [[best, *_]] = beam_search(model, sources(5), beam_size=size)
        assert best.ids == [EOS]
        assert len(steps_of(model, sources(5), beam_size=size)) <= size
    # One that never ends goes on to the limit.
    model = a_model(1, end=-99.0)
    assert len(steps_of(model, sources(5), max_extra=4)) == 9


def test_hypotheses_of_no_probability_do_not_come_out():
    """A tiny vocabulary leaves places of the beam at -inf."""
    (found,) = beam_search(a_model(0), sources(1), 9, max_extra=0)
    assert [len(hypothesis.ids) for hypothesis in found] == [1] * 5
    # Nor do they end a search.
    model, ids = a_model(2, config=replace(SMALL, vocab_size=5)), sources(1)
    ids = ids.clamp(max=4)
    (found,) = ids_of(beam_search(model, ids, 16, max_extra=8))
    assert found == naive_search(model, ids, 9, 16)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_sentences_keep_their_places_in_batches_of_any_size(
    batch_size, monkeypatch
):
    """They may come one by one; inside, the longest come first."""
    module = sys.modules["transformer_lib.beams"]
    monkeypatch.setattr(module, "_CPU", batch_size)
    model = a_model(end=-1.0).double()
    lists = [[4 + n % 3] * n + [EOS] for n in (3, 1, 7, 2, 5)]
    found = decode_all(model, iter(lists), 2)
    for ids, ranked in zip(lists, found, strict=True):
        [alone] = beam_search(model, torch.tensor([ids]), 2)
        assert ids_of([ranked]) == ids_of([alone])


def test_a_sentence_too_long_for_a_gpus_batch_is_one(monkeypatch):
    model = a_model(config=replace(SMALL, max_length=20_000)).to("meta")
    module, found = sys.modules["transformer_lib.beams"], [[None]]
    monkeypatch.setattr(module, "greedy_decode", lambda *_: found)
    assert decode_all(model, [[4] * 20_000 + [EOS]], 1) == found


def test_an_empty_sentence_is_no_work():
    (alone,) = decode_all(a_model(), [[4, 5, EOS]])
    found = decode_all(a_model(), [[EOS], [4, 5, EOS], []])
    empty = Hypothesis([EOS], 0.0, 0.0)
    assert found == [[empty], alone, [empty]]


REFUSED = [
    ({"beam_size": 0}, "beam_size=0"),
    ({"beam_size": 2.5}, "beam_size=2.5"),
    ({"length_penalty": -0.6}, "length_penalty=-0.6"),
    ({"length_penalty": 1000.0}, "length_penalty=1000.0"),
    ({"length_penalty": float("nan")}, "length_penalty=nan"),
]


@pytest.mark.parametrize("options, named", REFUSED)
def test_a_search_that_means_nothing_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        beam_search(a_model(), sources(3), **options)
    with pytest.raises(ValueError, match=named):
        decode_all(a_model(), [], **options)


def test_one_text_or_one_sentence_is_no_list_of_them():
    """Its letters would be translated one by one."""
    model = a_model()
    with pytest.raises(TypeError, match="one text, 'ab': give a list"):
        translate_all(model, MagicMock(), "ab")
    with pytest.raises(TypeError, match="4 is no list of ids"):
        decode_all(model, [4, 5, EOS])
    with pytest.raises(TypeError, match="ab is no list of ids"):
        decode_all(model, ["ab"])
    with pytest.raises(ValueError, match="list'>: give .batch, len"):
        beam_search(model, [[4, 5, EOS]])


def test_whole_numbers_of_numpy_are_numbers():
    source = torch.tensor([[4, 5, EOS]])
    wanted = beam_search(a_model(), source, 3)
    assert beam_search(a_model(), source, np.int64(3)) == wanted


@pytest.mark.parametrize(
    "config, most",
    [
        (SMALL, 512),
        (replace(SMALL, max_length=1200), 1200),
        (replace(SMALL, positions="learned", max_length=12), 11),
        (replace(SMALL, positions="learned", max_length=900), 899),
    ],
)
def test_a_sentence_that_is_too_long_is_named(config, most):
    model = a_model(config=config)
    assert longest_source(model) == most
    assert decode_all(model, [[4] * most + [EOS]], 1, max_extra=1 - most)
    message = f"sentence 2 has {most + 1} tokens.* up to {most}: split it"
    with pytest.raises(ValueError, match=message):
        decode_all(model, [[4, EOS], [4] * (most + 1) + [EOS]])
