"""Beam search against brute force, greedy and itself."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from test_decoding import SMALL, a_model, log_probability, sources
from torch import cat
from torch.testing import assert_close

from transformer_lib.beams import (
    beam_search,
    decode_all,
    length_penalty,
)
from transformer_lib.decoding import Stepper, greedy_decode
from transformer_lib.replay import ReplayedStepper
from transformer_lib.tokenization import BOS, EOS, PAD


def every_output(limit, vocab_size=7):
    """All that may come out: ended, or as long as the limit."""
    pieces = [
        i for i in range(vocab_size) if i not in (PAD, BOS, EOS)
    ]
    for length in range(limit):
        for ids in product(pieces, repeat=length):
            yield [*ids, EOS]
    for ids in product(pieces, repeat=limit):
        yield list(ids)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_wide_beam_equals_brute_force(seed, alpha):
    model, limit = a_model(seed), 4
    source = sources(3, seed=seed)
    wide = 4**limit + 1  # room for every beginning
    found = beam_search(model, source, wide, alpha, max_extra=1)

    def score(ids):
        total = log_probability(model, source[0], ids)
        return total / length_penalty(len(ids), alpha)

    ended = [ids for ids in every_output(limit) if ids[-1] == EOS]
    best = max(ended, key=score)
    assert found.ids[0][0] == best
    assert found.scores[0][0] == pytest.approx(score(best), abs=1e-4)


def test_wide_beam_without_eos_is_cut_at_the_limit():
    model = a_model(3, end=-99.0)
    source = sources(2)
    found = beam_search(model, source, 4**3 + 1, max_extra=1)
    every = [ids for ids in every_output(3) if ids[-1] != EOS]
    best = max(
        every, key=lambda ids: log_probability(model, source[0], ids)
    )
    ended = [ids[-1] == EOS for ids in found.ids[0]]
    assert ended == sorted(ended, reverse=True), (
        "ended ones come first"
    )
    assert found.ids[0][ended.index(False)] == best


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_beam_of_one_is_greedy(alpha):
    for seed in range(5):
        model = a_model(seed)
        batch = sources(1, 9, 4, 2, 7)
        greedy = greedy_decode(model, batch, max_extra=3)
        beam = beam_search(model, batch, 1, alpha, max_extra=3)
        assert greedy.ids == beam.ids
        for one, other in zip(
            greedy.log_probabilities,
            beam.log_probabilities,
            strict=True,
        ):
            assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_batched_equals_one_by_one(beam_size, norm):
    model = a_model(5, config=replace(SMALL, norm=norm), end=-4.0)
    lengths = [1, 30, 2, 14, 5, 5, 22, 3, 1, 9, 40, 6]
    batch = sources(*lengths)
    together = beam_search(model, batch, beam_size, max_extra=5)
    for row, length in enumerate(lengths):
        alone = beam_search(
            model,
            batch[row : row + 1, : length + 1],
            beam_size,
            max_extra=5,
        )
        assert together.ids[row] == alone.ids[0]
        assert together.scores[row] == pytest.approx(
            alone.scores[0], abs=1e-4
        )
    ends = {len(ids[0]) for ids in together.ids}
    assert len(ends) > 3, (
        "the sentences should end at different steps"
    )


def test_length_penalty_is_the_papers():
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(25, 0) == 1
    lengths = torch.tensor([1, 7])
    torch.testing.assert_close(
        length_penalty(lengths, 0.6), torch.tensor([1.0, 2**0.6])
    )


def test_stops_when_no_open_hypothesis_can_win():
    model, calls = a_model(1, end=50.0), []
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: calls.append(1)
    )
    found = beam_search(model, sources(5), beam_size=3)
    assert found.ids[0][0] == [EOS]
    assert len(calls) == 1, "certain to have ended: no second step"


def test_decode_all_keeps_the_order():
    model = a_model(5, end=-2.0)
    lengths = [1, 30, 2, 14, 5, 5, 22]
    batch = sources(*lengths)
    lists = [
        row[: n + 1].tolist()
        for row, n in zip(batch, lengths, strict=True)
    ]
    for beam_size in (1, 3):
        expected = beam_search(model, batch, beam_size)
        found = decode_all(model, lists, beam_size, batch_size=3)
        assert found.ids == expected.ids
    assert decode_all(model, []).ids == []
    assert beam_search(model, batch[:0]).ids == []


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"beam_size": 0}, "beam_size=0"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0"),
        ({"max_extra": -9}, "max_extra=-9"),
    ],
)
def test_impossible_searches_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        beam_search(a_model(), sources(3), **arguments)


def test_an_eos_below_the_beam_does_not_end():
    """With one beam, eos in second place is no hypothesis."""
    for seed in range(20):
        model = a_model(seed, end=-1.0)
        found = beam_search(model, sources(6), 1, max_extra=2)
        assert found.ids == greedy_decode(model, sources(6), 2).ids


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("stepper", [Stepper, ReplayedStepper])
def test_every_cached_step_equals_an_uncached_one(beam_size, stepper):
    """Greedy and beam, in a batch of very unequal sentences."""
    steps = []

    class Watched(stepper):
        """Asks the model again, without its cache, and compares."""

        def __init__(self, model, source_ids, max_length):
            super().__init__(model, source_ids, max_length)
            self.all, self.read = source_ids, None
            self.which = torch.arange(len(source_ids))

        def next(self, last, k):
            beams = len(last) // len(self.which)
            self.which = self.which.repeat_interleave(beams)
            new = last[:, None]
            self.read = (
                new if self.read is None else cat([self.read, new], 1)
            )
            values, ids = super().next(last, k)
            logits = self.model(self.all[self.which], self.read)
            logs = logits[:, -1].log_softmax(-1)
            logs[:, [PAD, BOS]] = -torch.inf  # never to be said
            logs = logs.gather(1, ids)
            # A sentence that is over may go on with anything.
            open_ = (self.read != PAD).all(1)
            assert open_.any()
            assert_close(
                values[open_], logs[open_], atol=1e-5, rtol=1e-5
            )
            steps.append(len(last))
            return values, ids

        def select(self, rows, *more, **named):
            super().select(rows, *more, **named)
            self.which = self.which[rows]
            if self.read is not None:
                self.read = self.read[rows]

    model, batch = a_model(5, end=-2.0), sources(1, 60, 7, 25, 2)
    search = greedy_decode if beam_size == 1 else beam_search
    how = {} if beam_size == 1 else {"beam_size": beam_size}
    search(model, batch, max_extra=5, stepper=Watched, **how)
    assert len(steps) > 5
    assert (steps[-1] < steps[0]) != stepper.fixed, (
        "some should end before others, and leave if they may"
    )
