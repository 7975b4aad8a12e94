"""Beam search against brute force, greedy and itself."""

import inspect
import sys
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_decoding import SMALL, a_model, log_probabilities, sources

from transformer_book.conformance.decoding import reference
from transformer_lib.beams import (
    _best,
    beam_search,
    decode_all,
    length_divisor,
)
from transformer_lib.corpora import ParallelCorpus
from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.evaluation import evaluate
from transformer_lib.translator import Translator


class Letters:
    """A tokenizer that knows three letters."""

    def __len__(self):
        return 8

    def encode(self, text):
        return [4 + "abc".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abc"[token - 4] for token in ids)


def every_output(limit):
    """All that may come out: ended, or as long as the limit."""
    tokens = [i for i in range(7) if i not in (PAD, BOS, EOS)]
    for length in range(limit):
        for ids in product(tokens, repeat=length):
            yield [*ids, EOS]
    for ids in product(tokens, repeat=limit):
        yield list(ids)


@pytest.mark.parametrize("count", [1, 8, 40])
@pytest.mark.parametrize("vocab_size", [3, 50])
@pytest.mark.parametrize("width", [1, 4])
def test_the_candidates_are_the_best_of_all(width, vocab_size, count):
    """Of every token after every parent, sorted one by one."""
    totals = torch.randperm(3 * width * vocab_size).float()
    totals = totals.view(3, width, vocab_size)
    found = torch.stack(_best(totals, count), dim=2).tolist()
    for candidates, rows in zip(found, totals.tolist(), strict=True):
        every = [
            [total, parent, token]
            for parent, row in enumerate(rows)
            for token, total in enumerate(row)
        ]
        assert candidates == sorted(every, reverse=True)[:count]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_equals_brute_force(seed, alpha):
    """Every output comes out, and the best first, in a batch."""
    model, wide = a_model(seed), 400  # room for every beginning
    batch = sources(3, 1, 2, seed=seed)
    together = beam_search(model, batch, wide, alpha, max_extra=1)
    for row, limit in enumerate([4, 2, 3]):
        every = list(every_output(limit))
        totals = log_probabilities(model, batch[row], every)
        score = {
            tuple(ids): total / length_divisor(len(ids), alpha)
            for ids, total in zip(every, totals, strict=True)
        }
        found = [tuple(ids) for ids in together.ids[row]]
        assert sorted(found) == sorted(score)
        wanted = [score[ids] for ids in found]
        assert together.scores[row] == pytest.approx(wanted, abs=1e-3)
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


def test_the_papers_search(monkeypatch):
    """Beam 4, alpha 0.6, input length + 50, in every way in."""
    model, asked = a_model(config=replace(SMALL, vocab_size=8)), []
    corpus = ParallelCorpus([("ab", "c")])

    def spy(model, ids, *search):
        asked.append(search)
        return [[EOS] for _ in ids]

    with monkeypatch.context() as patch:
        patch.setattr("transformer_lib.beams.decode_all", spy)
        translator = Translator(model, Letters())
        for search in (), (3, 1.5):
            translator.translate("ab", *search)
            evaluate(model, Letters(), corpus, *search)
    assert asked == [(4, 0.6), (4, 0.6), (3, 1.5), (3, 1.5)]
    for function in beam_search, decode_all:
        options = inspect.signature(function).parameters
        assert options["beam_size"].default == 4
        assert options["length_penalty"].default == 0.6
        assert options["max_extra"].default == 50
    # Four beginnings a step, the likeliest, each with its own past.
    for seed in range(4):
        model, batch = a_model(seed, end=-1.0).double(), sources(5, 9, 2)
        found = beam_search(model, batch, max_extra=6)
        lists = [[i for i in ids if i != PAD] for ids in batch.tolist()]
        said = decode_all(model, lists, max_extra=6)
        for row, ranked in enumerate(found.ids):
            limit = len(lists[row]) - 1 + 6
            wanted = naive_search(model, batch[row], limit)
            assert ranked == wanted
            assert said[row] == wanted[0]
            totals = log_probabilities(model, batch[row], ranked)
            assert found.log_probabilities[row] == pytest.approx(totals)


def test_length_penalty_is_the_papers():
    assert length_divisor(1, 0.6) == 1
    assert length_divisor(7, 0.6) == pytest.approx(2**0.6)
    assert length_divisor(25, 0) == 1
    assert length_divisor(595, 0.6) == pytest.approx(100**0.6)
    assert length_divisor(7, 1.5) == pytest.approx(2**1.5)
    # None ends, or most do.
    for end, alpha in (-99.0, 0.6), (-2.0, 0.6), (1.0, 0.6), (1.0, 2.0):
        model, batch = a_model(5, end=end), sources(5, 9)
        found = beam_search(model, batch, length_penalty=alpha, max_extra=6)
        if alpha == 0.6:
            assert found == beam_search(model, batch, max_extra=6)
        for row, ranked in enumerate(found.ids):
            totals = log_probabilities(model, batch[row], ranked)
            scores = [
                total / ((5 + len(ids)) / 6) ** alpha
                for ids, total in zip(ranked, totals, strict=True)
            ]
            assert found.scores[row] == pytest.approx(scores, abs=1e-3)
            order = [
                (ids[-1] != EOS, -score)
                for ids, score in zip(ranked, found.scores[row], strict=True)
            ]
            assert order == sorted(order), "by these they are ranked"
    # A larger one makes longer outputs the best.
    lists = [[5, 6, 4, EOS], [4, 4, 6, 5, 6, EOS]]
    lengths = []
    for options in dict(length_penalty=0.0), {}, dict(length_penalty=9.0):
        found = decode_all(model, lists, **options, max_extra=6)
        for ids, said in zip(lists, found, strict=True):
            alone = beam_search(
                model, torch.tensor([ids]), **options, max_extra=6
            )
            assert said == alone.ids[0][0]
        lengths.append([len(ids) for ids in found])
    assert lengths[0] < lengths[-1]


def steps_of(model, batch, **options):
    """How often the model is asked for what follows."""
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
            # One of twelve that is over stays in the batch for a while.
            batch = sources(*(5, 12, 2) * 4, seed=seed)
            # With this alpha what it would still find is often better.
            together = beam_search(model, batch, size, 3.0, max_extra=5)
            for row, limit in enumerate([10, 17, 7] * 4):
                wanted = naive_search(model, batch[row], limit, size, 3.0)
                assert together.ids[row] == wanted
    # A model that is sure of eos has ended by as many steps as beams.
    for size in (1, 2, 3):
        model = a_model(1, end=50.0)
        found = beam_search(model, sources(5), beam_size=size)
        assert found.ids[0][0] == [EOS]
        assert len(steps_of(model, sources(5), beam_size=size)) <= size
    # One that never ends goes on to the limit.
    model = a_model(1, end=-99.0)
    assert len(steps_of(model, sources(5), max_extra=4)) == 9


def test_rows_that_ended_are_dropped():
    """When they are more than an eighth of the batch."""
    model = a_model(1, end=-99.0)
    rows = steps_of(model, sources(1, *[9] * 7), max_extra=1)
    assert rows[:3] == [8, 32, 32] and rows[-1] == 32, "one of eight stays"
    rows = steps_of(model, sources(1, 1, *[9] * 6), max_extra=1)
    assert rows[:3] == [8, 32, 24] and len(rows) == 10


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    max_extra=st.integers(0, 3),
    beam_size=st.integers(1, 5),
    end=st.sampled_from([-2.0, 0.0, 2.0]),
)
@example(seed=0, lengths=[1, 1, 1, 4], max_extra=0, beam_size=4, end=0.0)
def test_a_batch_is_its_sentences_one_by_one(
    seed, lengths, max_extra, beam_size, end
):
    """Sentences that end at very different steps, and empty ones.

    In float64 no two hypotheses are equal.
    """
    max_extra = max_extra or int(min(lengths) == 0)  # room for a token
    model = a_model(seed, end=end).double()
    batch = sources(*lengths, seed=seed)
    together = beam_search(model, batch, beam_size, max_extra=max_extra)
    for row, length in enumerate(lengths):
        source = batch[row : row + 1, : length + 1]
        alone = beam_search(model, source, beam_size, max_extra=max_extra)
        assert together.ids[row] == alone.ids[0]
        totals = together.log_probabilities[row]
        assert totals == pytest.approx(alone.log_probabilities[0], abs=1e-9)
        assert together.scores[row] == pytest.approx(alone.scores[0], abs=1e-9)
    greedy = greedy_decode(model, batch, max_extra)
    if beam_size == 1:
        assert greedy.ids == together.ids
    for row, length in enumerate(lengths):
        source = batch[row : row + 1, : length + 1]
        assert (
            greedy_decode(model, source, max_extra).ids[0] == greedy.ids[row]
        )


def test_rows_that_are_as_many_need_not_be_the_same_sentences():
    """Three sentences end, a fourth grows to as many rows."""
    for seed in range(40):
        model, batch = a_model(seed), sources(1, 1, 1, 4, seed=seed)
        together = beam_search(model, batch, 4, max_extra=0)
        alone = beam_search(model, batch[3:], 4, max_extra=0)
        totals = together.log_probabilities[3]
        assert totals == pytest.approx(alone.log_probabilities[0], abs=1e-3)


def test_hypotheses_of_no_probability_do_not_come_out():
    """A tiny vocabulary leaves places of the beam at -inf."""
    found = beam_search(a_model(0), sources(1), 9, max_extra=0)
    totals = found.log_probabilities[0]
    assert 0 < len(totals) < 9 and min(totals) > -1e9
    # Nor do they end a search.
    model, ids = a_model(2, config=replace(SMALL, vocab_size=5)), sources(1)
    found = beam_search(model, ids.clamp(max=4), 16, max_extra=8).ids[0]
    assert found == naive_search(model, ids.clamp(max=4), 9, 16)


def test_each_sentence_is_decoded_in_one_batch(monkeypatch):
    sizes, module = [], sys.modules["transformer_lib.beams"]
    greedy = module.greedy_decode

    def spy(model, ids, *rest, **named):
        sizes.append(len(ids))
        return greedy(model, ids, *rest, **named)

    monkeypatch.setattr(module, "greedy_decode", spy)
    lists = [[4] * n + [EOS] for n in range(1, 8)]
    together = decode_all(a_model(), lists, beam_size=1, batch_size=3)
    assert sizes == [3, 3, 1]
    assert decode_all(a_model(), lists, 1) == together
    assert sizes.pop() == 7, "a batch on a CPU has up to 64"
    # They may come one by one.
    assert decode_all(a_model(), iter(lists), 1, batch_size=1) == together
    assert sizes[3:] == [1] * 7


def test_an_empty_sentence_is_no_work():
    alone = decode_all(a_model(), [[4, 5, EOS]])
    found = decode_all(a_model(), [[EOS], [4, 5, EOS], []])
    assert found == [[EOS], *alone, [EOS]]


def test_the_stubs_reference_is_the_library():
    for seed in range(20):
        model = a_model(seed, end=-1.0).double()
        source = sources(4, seed=seed)

        @torch.no_grad()
        def next_logs(ids, model=model, source=source):
            logits = model(source, torch.tensor([[BOS, *ids]]))[0, -1]
            logs = logits.log_softmax(-1)
            logs[[PAD, BOS]] = -torch.inf
            return logs

        wanted = beam_search(model, source, 3, 0.6, max_extra=2).ids[0][0]
        assert reference(next_logs, 3, 0.6, 6, EOS) == wanted


def test_a_sentence_that_is_too_long_is_named():
    model = a_model()
    assert decode_all(model, [[4] * 512 + [EOS]], 1, max_extra=-511)
    with pytest.raises(ValueError, match="sentence 2 has 513 tokens"):
        decode_all(model, [[4, EOS], [4] * 513 + [EOS]])
    short = replace(SMALL, positions="learned", max_length=12)
    model = a_model(config=short)
    assert decode_all(model, [[4] * 11 + [EOS]])
    with pytest.raises(ValueError, match="sentence 2 has 12 tokens.* 11: s"):
        decode_all(model, [[4, EOS], [4] * 12 + [EOS]])
