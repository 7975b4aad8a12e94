"""The cache, one step, greedy decoding and the limits."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from translators import decode_in_parts

from transformer_lib.beams import beam_search, decode_all
from transformer_lib.decoding import (
    DecoderCache,
    _length_limits,
    _likeliest,
    greedy_decode,
)
from transformer_lib.embeddings import BOS, EOS, PAD, UNK
from transformer_lib.model import Transformer, TransformerConfig, evaluating

SMALL = TransformerConfig(
    7, N=2, d_model=16, d_ff=32, h=2, tie="none", dropout=0.1
)


def a_model(seed=0, config=SMALL, end=0.0):
    """Random weights whose choices are clear; `end` is added to eos.

    Each matrix is initialized separately: with "small", a random model
    repeats the token that it has just read.
    """
    torch.manual_seed(seed)
    model = Transformer(replace(config, init="xavier")).eval()
    with torch.no_grad():
        model.output_weight.mul_(4.0)
    bias = torch.zeros(config.vocab_size)
    bias[EOS] = end
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: y + bias.to(y.dtype)
    )
    return model


def sources(*lengths, seed=1):
    """Sentences of these lengths (without eos), padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, n in zip(ids, lengths, strict=True):
        row[:n] = torch.randint(4, 7, (n,), generator=generator)
        row[n] = EOS
    return ids


@torch.no_grad()
def naive(model, source, limit):
    """Greedy for one padded row, the whole prefix at every step."""
    ids = [BOS]
    while len(ids) <= limit and ids[-1] != EOS:
        logits = model(source[None], torch.tensor([ids]))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        ids.append(logits.argmax().item())
    return ids[1:]


@torch.no_grad()
def log_probabilities(model, source, outputs):
    """Of each output, by one uncached, teacher-forced pass."""
    rows = [torch.tensor(ids) for ids in outputs]
    labels = pad_sequence(rows, batch_first=True, padding_value=PAD)
    inputs = torch.cat([torch.full_like(labels[:, :1], BOS), labels], 1)
    logits = model(source.expand(len(rows), -1), inputs[:, :-1])
    logs = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    return (logs * (labels != PAD)).sum(1).tolist()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"norm": "pre"},
        {"positions": "learned"},
        {"positions": "none"},
        {"d_k": 5, "d_v": 3},
    ],
)
def test_cached_logits_equal_uncached(change):
    model = a_model(2, config=replace(SMALL, **change))
    source, ids = sources(1, 60, 7, 25), torch.randint(4, 7, (4, 12))
    ids[:, 0] = BOS
    with evaluating(model):
        hidden = decode_in_parts(model, ids, model.encode(source), source)
        found, expected = model.project(hidden), model(source, ids)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_cache_reordered_repeated_and_shrunk():
    model = a_model(5)
    source, ids = sources(2, 33, 8), torch.randint(4, 7, (3, 1))
    with evaluating(model):
        cache = DecoderCache(model, model.encode(source))
        for rows in [[2, 0, 1], [1, 1, 0, 2, 2], [4, 1], [1]]:
            model.decode(ids[:, -1:], None, source, cache)
            rows = torch.tensor(rows)
            cache.select(rows)
            source, new = source[rows], torch.randint(4, 7, rows.shape)
            ids = torch.cat([ids[rows], new[:, None]], 1)
        got = model.decode(new[:, None], None, source, cache)
        expected = model.decode(ids, model.encode(source), source)
    torch.testing.assert_close(got, expected[:, -1:], atol=1e-4, rtol=1e-4)


def test_greedy_goes_on_from_what_it_said():
    # Twelve rows: one that has ended stays in the batch for a while.
    batch = sources(1, 50, 12, 3, *[9] * 8)
    for change in (
        {"norm": "pre", "N": 3},
        {"positions": "learned", "tie": "three-way"},
        {"positions": "none"},
        {},
    ):
        model = a_model(0, config=replace(SMALL, **change), end=-2.0)
        found = greedy_decode(model.train(), batch, max_extra=6)
        model.eval()  # as the search had it
        for row, limit in enumerate([7, 56, 18, 9, *[15] * 8]):
            ids = naive(model, batch[row], limit)
            assert found.ids[row] == [ids]
            totals = log_probabilities(model, batch[row], [ids])
            told = found.log_probabilities[row]
            assert told == pytest.approx(totals, abs=1e-2)
    lengths = {len(ids[0]) for ids in found.ids}
    assert len(lengths) > 2, "they should end at different steps"
    after_first = {ids[0][6] for ids in found.ids}
    assert len(after_first) > 1, "they should differ when the first ends"
    assert found.scores == found.log_probabilities
    found.scores[0][0] = 0.0  # a list of its own
    assert found.log_probabilities[0][0] < 0.0


def test_length_limit_is_each_sentences_own():
    model = a_model(0, end=-99.0)  # eos is never likely
    batch = sources(1, 30, 3)
    batch[1, 4:9] = UNK  # as long as a known token
    assert _length_limits(model, batch) == [51, 80, 53]
    assert _length_limits(model, sources(600, 601)) == [650, 651]
    table = a_model(0, replace(SMALL, positions="learned", max_length=60))
    assert _length_limits(table, sources(1, 30)) == [51, 60]
    assert _length_limits(model, sources(1, 3), max_extra=-2) == [1, 1]
    for found in (
        greedy_decode(model, batch, max_extra=4),
        beam_search(model, batch, max_extra=4),
    ):
        for limit, ranked in zip([5, 34, 7], found.ids, strict=True):
            assert {len(ids) for ids in ranked} == {limit}
    for search in (greedy_decode, beam_search):
        assert len(search(model, batch[:1, :2]).ids[0][0]) == 51
    sentences = [[4, EOS], [5, UNK, 5, EOS]]
    for beam_size in (1, 4):
        found = decode_all(model, sentences, beam_size)
        assert [len(ids) for ids in found] == [51, 53]
        found = decode_all(model, sentences, beam_size, max_extra=4)
        assert [len(ids) for ids in found] == [5, 7]


def test_pad_and_bos_never_come_out():
    model = a_model(1)
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: y.index_fill(-1, torch.tensor([PAD, BOS]), 50.0)
    )
    batch = sources(4, 2)
    for search in (greedy_decode, beam_search):
        found = search(model, batch).ids
        tokens = {i for ranked in found for ids in ranked for i in ids}
        assert not tokens & {PAD, BOS}


def test_dropout_is_off_and_the_mode_restored():
    model = a_model(1).train()
    batch = sources(5, 9)
    first = beam_search(model, batch)
    assert model.training and model.encoder.layers[0].training
    assert first == beam_search(model.eval(), batch)
    assert not model.training
    model(batch, batch).sum().backward()  # nothing stands in the way


def test_no_sentences_are_no_work():
    nothing = sources(3)[:0]
    for search in (greedy_decode, beam_search):
        assert search(a_model(), nothing).ids == []


def test_a_model_in_float64_is_asked_in_float64():
    model, source = a_model(5, end=-2.0).double(), sources(5)
    found = greedy_decode(model, source, max_extra=5)
    totals = log_probabilities(model, source[0], found.ids[0])
    assert found.log_probabilities[0] == pytest.approx(totals, abs=1e-12)


def test_half_precision():
    model, batch = a_model(5, end=-2.0).bfloat16(), sources(5, 9, 2)
    for search in (greedy_decode, beam_search):
        found = search(model, batch, max_extra=5)
        assert all(ranked[0] for ranked in found.ids)


def test_one_sentence_is_a_batch_of_one():
    with pytest.raises(ValueError, match=r"ids\[None\], with an eos"):
        greedy_decode(a_model(), sources(3)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_likeliest_is_the_first_of_the_largest(dtype):
    logs = torch.randn(50, 300, dtype=dtype)
    logs[0, 7:] = logs[0].max() + 1  # many are the largest
    logs[1] = -torch.inf
    gains, places = _likeliest(logs)
    assert places[:2].tolist() == [7, 0]
    assert torch.equal(gains, logs.amax(-1))
    assert torch.equal(places, logs.argmax(-1))
