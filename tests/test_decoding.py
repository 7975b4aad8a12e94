"""The cache, one step, greedy decoding and the limits."""

from dataclasses import replace

import pytest
import torch

from transformer_lib.beams import (
    beam_search,
    decode_all,
    length_penalty,
)
from transformer_lib.decoding import (
    DecoderCache,
    evaluating,
    greedy_decode,
    length_limits,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BOS, EOS, PAD

SMALL = TransformerConfig(
    7, N=2, d_model=16, d_ff=32, h=2, tie="none", dropout=0.1
)


def a_model(seed=0, config=SMALL, end=0.0):
    """Random weights whose choices are clear; `end` is added to eos."""
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    with torch.no_grad():
        model.output_weight.mul_(4.0)
    bias = torch.zeros(config.vocab_size)
    bias[EOS] = end
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: y + bias.to(y.dtype)
    )
    return model


def sources(*lengths, vocab_size=7, seed=1):
    """Sentences of these lengths (without eos), padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(
            4, vocab_size, (length,), generator=generator
        )
        row[length] = EOS
    return ids


@torch.no_grad()
def log_probability(model, source, ids):
    """Of one output by one uncached, teacher-forced pass."""
    logits = model(source[None], torch.tensor([[BOS, *ids[:-1]]]))[0]
    logs = logits.log_softmax(-1)
    return sum(logs[i, id_].item() for i, id_ in enumerate(ids))


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
    source = sources(1, 60, 7, 25)
    ids = torch.randint(4, 7, (4, 12))
    ids[:, 0] = BOS
    with evaluating(model):
        expected = model(source, ids)
        cache = DecoderCache(model, model.encode(source), 12)
        for step in range(12):
            hidden = model.decode(
                ids[:, step : step + 1], None, source, cache
            )
            logits = model.project(hidden[:, 0])
            torch.testing.assert_close(
                logits, expected[:, step], atol=1e-5, rtol=1e-5
            )
            assert cache.length == step + 1


def test_cache_takes_several_positions_at_once():
    model = a_model(2)
    source, ids = sources(4, 9), torch.randint(4, 7, (2, 10))
    with evaluating(model):
        expected = model.decode(ids, model.encode(source), source)
        cache = DecoderCache(model, model.encode(source), 10)
        parts = [
            model.decode(part, None, source, cache)
            for part in ids.split([3, 1, 6], dim=1)
        ]
    torch.testing.assert_close(torch.cat(parts, 1), expected)


def test_cache_reordered_repeated_and_shrunk():
    model = a_model(5)
    source, ids = sources(2, 33, 8), torch.randint(4, 7, (3, 6))
    with evaluating(model):
        memory = model.encode(source)
        cache = DecoderCache(model, memory, 8)
        model.decode(ids[:, :4], memory, source, cache)
        for rows in [[2, 0, 1], [1, 1, 0, 2, 2], [4, 1], [1]]:
            rows = torch.tensor(rows)
            source, ids = source[rows], ids[rows]
            memory = memory[rows]
            cache.select(rows, rows)
            new = torch.randint(4, 7, (len(rows), 1))
            ids = torch.cat([ids[:, : cache.length], new], 1)
            got = model.decode(new, memory, source, cache)
            expected = model.decode(ids, memory, source)[:, -1:]
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("padded", [False, True])
def test_rows_share_a_source(padded):
    """Beams of one sentence, over keys and values that stand once."""
    model = a_model(4)
    source = sources(9, 4 if padded else 9, 9)
    each = source.repeat_interleave(3, 0)
    ids = torch.randint(4, 7, (9, 5))
    with evaluating(model):
        expected = model.decode(ids, model.encode(each), each)
        cache = DecoderCache(model, model.encode(source), 5)
        known = source if padded else None
        for step in range(5):
            new = ids[:, step : step + 1]
            got = model.decode(new, None, known, cache)
            torch.testing.assert_close(got[:, 0], expected[:, step])
            rows = torch.tensor([2, 0, 0, 3, 5, 4, 8, 8, 7])
            cache.select(rows)
            ids, expected = ids[rows], expected[rows]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_log_probabilities_are_those_of_the_model(beam_size):
    model = a_model(5, end=-2.0)
    batch = sources(1, 50, 12, 3)
    found = beam_search(model, batch, beam_size, 0.6, max_extra=6)
    for row, ranked in enumerate(found.ids):
        for rank, ids in enumerate(ranked):
            total = found.log_probabilities[row][rank]
            expected = log_probability(model, batch[row], ids)
            assert total == pytest.approx(expected, abs=1e-3)
            score = total / length_penalty(len(ids), 0.6)
            assert found.scores[row][rank] == pytest.approx(score)
        assert (
            len(set(map(tuple, ranked))) == len(ranked) <= beam_size
        )


def test_length_limit_is_each_sentences_own():
    model = a_model(0, end=-99.0)  # eos is never likely
    batch = sources(1, 8, 3)
    for found in (
        greedy_decode(model, batch, max_extra=4),
        beam_search(model, batch, 3, max_extra=4),
    ):
        for ranked, length in zip(found.ids, [1, 8, 3], strict=True):
            assert max(map(len, ranked)) <= length + 4
    assert [len(ids[0]) for ids in found.ids] == [5, 12, 7]
    assert length_limits(model, batch).tolist() == [51, 58, 53]
    own = greedy_decode(model, batch, torch.tensor([5, 0, 2]))
    assert [len(ids[0]) for ids in own.ids] == [6, 8, 5]


def test_learned_positions_end_where_their_table_ends():
    config = replace(SMALL, positions="learned", max_length=12)
    model = a_model(0, config=config, end=-99.0)
    found = beam_search(model, sources(3, 10), 2)
    assert max(len(ids) for ids in found.ids[0] + found.ids[1]) == 12


def test_pad_and_bos_never_come_out():
    model = a_model(1)
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: y.index_fill(
            -1, torch.tensor([PAD, BOS]), 50.0
        )
    )
    batch = sources(4, 2)
    for found in (
        greedy_decode(model, batch),
        beam_search(model, batch),
    ):
        pieces = {
            i for ranked in found.ids for ids in ranked for i in ids
        }
        assert not pieces & {PAD, BOS}


def test_dropout_is_off_and_the_mode_restored():
    model = a_model(1).train()
    batch = sources(5, 9)
    first = beam_search(model, batch)
    assert model.training and model.encoder.layers[0].training
    assert first == beam_search(model.eval(), batch)
    assert not model.training
    loss = model(batch, batch).sum()
    loss.backward()  # nothing made while decoding stands in the way


def test_half_precision():
    model = a_model(5, end=-2.0).bfloat16()
    batch = sources(5, 9, 2)
    found = beam_search(model, batch, max_extra=5)
    assert all(ids[0][-1] == EOS or len(ids[0]) for ids in found.ids)


def test_shapes_and_batch_size_are_checked():
    with pytest.raises(ValueError, match="source_len"):
        greedy_decode(a_model(), sources(3)[0])
    with pytest.raises(ValueError, match="batch_size=0"):
        decode_all(a_model(), [[4, EOS]], batch_size=0)
