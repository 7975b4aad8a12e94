"""A step recorded once: the tape, the fixed cache, the timing."""

from dataclasses import replace

import pytest
import torch
from test_decoding import SMALL, a_model, sources

from transformer_lib.batching import collate
from transformer_lib.beams import beam_search
from transformer_lib.decoding import evaluating, greedy_decode
from transformer_lib.model import TransformerConfig
from transformer_lib.replay import (
    ReplayedStepper,
    Search,
    Tape,
    recorded,
    time_search,
)
from transformer_lib.speed import WAYS, record_speed
from transformer_lib.tasks import Task
from transformer_lib.tokenization import BOS, EOS, PAD

CPU = torch.device("cpu")


def test_a_tape_reads_and_writes_where_it_did():
    x, kept, runs = torch.ones(2, 3), {}, []

    def work():
        runs.append(1)
        kept["sum"] = (2 * x.mT).softmax(-1).sum(0)
        kept["best"] = x.topk(1).indices

    tape = Tape(work)
    total, best = kept["sum"], kept["best"]
    assert total.tolist() == pytest.approx([1.5, 1.5])
    x.copy_(torch.tensor([[0.0, 0.0, 50.0], [0.0, 9.0, 0.0]]))
    tape.replay()
    assert total.tolist() == pytest.approx([1.5 + 0.5 - 0.5, 1.5])
    assert best.flatten().tolist() == [2, 1]
    assert len(runs) == 1 and kept["sum"] is total


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x[0].item(),
        lambda x: bool(x.any()),
        lambda x: x[: int(x[0])],
    ],
)
def test_a_tape_answers_no_questions(look):
    with pytest.raises(ValueError, match="cannot be recorded"):
        Tape(lambda: look(torch.ones(2)))


def test_nothing_of_the_first_time_is_replayed():
    """Room taken when the work is first done is not on the record."""
    rooms, x = [], torch.ones(1)

    def work():
        if not rooms:
            rooms.append(torch.zeros(1))
        rooms[0].add_(x)

    replay = recorded(work, CPU)
    before = rooms[0].item()
    replay()
    assert rooms[0].item() == before + 1


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"norm": "pre"},
        {"positions": "learned", "max_length": 62},
        {"positions": "none"},
        {"d_k": 5, "d_v": 3},
        {"scale_embeddings": False},
    ],
)
@pytest.mark.parametrize("lengths", [(1, 60, 7, 25, 2), (6, 6), (3,)])
def test_the_same_is_found(change, lengths):
    model = a_model(4, replace(SMALL, **change), end=-1.5)
    batch = sources(*lengths)
    for search, how in (
        (greedy_decode, {}),
        (beam_search, {"beam_size": 1}),
        (beam_search, {"beam_size": 3}),
    ):
        plain = search(model, batch, max_extra=4, **how)
        how["stepper"] = ReplayedStepper
        found = search(model, batch, max_extra=4, **how)
        assert found.ids == plain.ids
        for a, b in zip(found.scores, plain.scores, strict=True):
            assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no card")
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_card_finds_the_same(beam_size):
    model = a_model(4, SMALL, end=-1.5).cuda()
    model.pre_softmax._forward_hooks.clear()  # its tensor is here
    batch = sources(1, 60, 7, 25, 2).cuda()
    how = {"beam_size": beam_size, "max_extra": 4}
    for _ in range(3):  # records after the first one is gone
        plain = beam_search(model, batch, **how)
        found = beam_search(
            model, batch, stepper=ReplayedStepper, **how
        )
        assert found.ids == plain.ids


def test_python_runs_once_a_search():
    """After the record is made, no module is called again."""
    model, calls = a_model(end=-9.0), []
    batch = sources(5, 3)
    layer = model.decoder.layers[0]
    layer.register_forward_hook(lambda *_: calls.append(1))
    found = greedy_decode(model, batch, 8, ReplayedStepper)
    assert max(len(ids[0]) for ids in found.ids) > 5
    assert len(calls) == 2, "once to take memory, once to record"


def test_unused_places_do_not_count():
    model, batch = a_model(2), sources(4, 2)
    with evaluating(model):
        stepper = ReplayedStepper(model, batch, 6)
        last = torch.full((2,), BOS)
        stepper.next(last, 3)
        values = [x.clone() for x in stepper.next(last, 3)]
        for cache in stepper.cache.self_attention:
            for room in cache.room:
                assert not room[:, :, 2:].any(), (
                    "zeros, not leftovers"
                )
                room[:, :, 2:] = 100.0
        stepper.position.fill_(0)  # the second step once more
        again = stepper.next(last, 3)
    torch.testing.assert_close(again[0], values[0])
    assert torch.equal(again[1], values[1])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_as_many_pieces_as_the_reference(beam_size):
    config = TransformerConfig(50, N=1, d_model=16, d_ff=32, h=2)
    pairs = [
        ([7, 8, 9, EOS], [5] * n + [EOS]) for n in (1, 4, 9, 3, 6)
    ]
    batch = collate(pairs)
    search = Search("", beam_size, replayed=True)
    model = a_model(config=config, end=-99.0)
    found = search(model, batch)
    lengths = (batch.labels != PAD).sum(1).tolist()
    assert [len(ids[0]) for ids in found.ids] == lengths
    row = time_search(search, config, [batch] * 4, CPU)
    assert row["same"] == 1
    steps, tokens = batch.labels.size(1), batch.tokens
    speed = row["target_tokens_per_second"]
    assert speed * row["step_seconds"] * steps == pytest.approx(
        tokens
    )


def test_recorded_beside_the_other_ways(tmp_path, monkeypatch):
    few = WAYS["decoding"][:2]
    assert [x.name for x in few] == [
        "tiny, greedy",
        "tiny, greedy, replayed",
    ]
    names = {x.name for x in WAYS["decoding"]}
    assert len(names) == 8 and "base, beam 4, replayed" in names
    monkeypatch.setitem(WAYS, "decoding", few)
    changes = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2}
    changes |= {"max_steps": 1, "tokens_per_batch": 64}
    task = Task(vocab_size=300, limit=60, out=str(tmp_path / "x"))
    task.changes.update(changes, device="cpu")
    report = record_speed(task, "decoding")
    assert report["finished"]
    assert [row["same"] for row in report["speed"]] == [1, 1]
