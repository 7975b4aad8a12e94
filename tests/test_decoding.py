"""Greedy decoding and its limits; for the cache see `test_every_model`."""

from dataclasses import replace

import pytest
import torch
from translators import (
    SMALL,
    a_model,
    log_probabilities,
    naive,
    sources,
)

from transformer_lib.beams import beam_search, decode_all
from transformer_lib.decoding import greedy_decode, length_limits
from transformer_lib.embeddings import EOS, PAD, UNK

SEARCHES = [greedy_decode, beam_search]


def test_greedy_goes_on_from_what_it_said():
    batch = sources(1, 50, 12, 3, *[9] * 8)
    for change in {"norm": "pre", "N": 3}, {}:
        model = a_model(0, config=replace(SMALL, **change), end=-2.0)
        found = greedy_decode(model.train(), batch, max_extra=6)
        model.eval()  # as the search had it
        for row, limit in enumerate([7, 56, 18, 9, *[15] * 8]):
            [(ids, log_probability, score)] = found[row]
            assert ids == naive(model, batch[row], limit)
            totals = log_probabilities(model, batch[row], [ids])
            assert log_probability == pytest.approx(totals[0], abs=1e-2)
            assert score == log_probability
    lengths = {len(best.ids) for [best] in found}
    assert len(lengths) > 2, "they should end at different steps"
    after_first = {best.ids[6] for [best] in found}
    assert len(after_first) > 1, "they should differ when the first ends"


def lengths_of(found):
    """Of each sentence, how long its hypotheses are."""
    return [{len(one.ids) for one in ranked} for ranked in found]


def test_length_limit_is_each_sentences_own():
    model = a_model(0, end=-99.0)  # eos is never likely
    batch = sources(1, 30, 3)
    batch[1, 4:9] = UNK  # as long as a known token
    found = lengths_of(greedy_decode(model, batch))
    assert found == [{1 + 50}, {30 + 50}, {3 + 50}]
    most = [model.config.longest] * 3
    assert length_limits(model, batch, 9999) == most
    model.positions(torch.zeros(1, most[0], 16))
    few = greedy_decode(model, sources(1, 3), max_extra=-2)
    assert lengths_of(few) == [{1}, {1}]
    table = a_model(
        0, replace(SMALL, positions="learned", max_length=60), end=-99.0
    )
    for search in SEARCHES:
        found = search(model, batch, max_extra=4)
        assert lengths_of(found) == [{5}, {34}, {7}]
        assert lengths_of(search(model, batch[:1, :2])) == [{51}]
        assert lengths_of(search(table, sources(1, 30))) == [{51}, {60}]
    sentences = [[4, EOS], [5, UNK, 5, EOS]]
    for beam_size in (1, 4):
        for options, limits in (({}, [51, 53]), ({"max_extra": 4}, [5, 7])):
            found = decode_all(model, sentences, beam_size, **options)
            assert [len(ranked[0].ids) for ranked in found] == limits


@pytest.mark.parametrize("search", SEARCHES)
def test_dropout_is_off_and_the_mode_restored(search):
    model = a_model(1).train()
    batch = sources(5, 9)
    first = search(model, batch)
    assert model.training and model.encoder.layers[0].training
    assert first == search(model.eval(), batch)
    assert not model.training
    model(batch, batch).sum().backward()  # nothing stands in the way


@pytest.mark.parametrize("search", SEARCHES)
def test_no_sentences_are_no_work(search):
    assert search(a_model(), sources(3)[:0]) == []


def test_a_model_in_float64_is_asked_in_float64():
    model, source = a_model(5, end=-2.0).double(), sources(5)
    [[best]] = greedy_decode(model, source, max_extra=5)
    totals = log_probabilities(model, source[0], [best.ids])
    assert best.log_probability == pytest.approx(totals[0], abs=1e-12)


@pytest.mark.parametrize("search", SEARCHES)
def test_half_precision(search):
    model, batch = a_model(5, end=-2.0).bfloat16(), sources(5, 9, 2)
    torch.set_default_dtype(torch.bfloat16)  # a caller's affair
    try:
        found = search(model, batch, max_extra=5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(ranked[0].ids for ranked in found)


# What is no batch of sentences, and what its error says.
REFUSED = [
    (torch.tensor([4, 5, EOS]), r"ids\[None\]"),
    (torch.tensor([[4, 7, EOS]]), "the id 7, .* 0 to 6"),
    (torch.tensor([[4, EOS], [-1, EOS]]), "the id -1"),
    (torch.tensor([[4, 5, EOS], [PAD, 4, EOS]]), r"is \[0, 4, 3\].* pad it"),
    (torch.tensor([[4, PAD, 5, EOS], [4, 5, 6, EOS]]), r"is \[4, 0, 5, 3\]"),
    (torch.tensor([[4, PAD, EOS, EOS], [4, 5, 6, EOS]]), r"is \[4, 0, 3, 3"),
    (torch.tensor([[4, 5], [6, EOS]]), r"is \[4, 5\]: .* and eos, 3"),
    (torch.tensor([[4, EOS], [PAD, PAD]]), r"is \[0, 0\]: .* eos, 3"),
    (torch.tensor([[4, 5, EOS], [EOS, 6, PAD]]), r"is \[3, 6, 0\]: .* eos"),
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("source_ids, named", REFUSED)
def test_what_is_no_batch_is_refused(search, source_ids, named):
    with pytest.raises((ValueError, TypeError), match=named):
        search(a_model(), source_ids)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_model_that_holds_nan_is_named(search):
    model = a_model()
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.w_1.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        search(model, sources(3, 5))
