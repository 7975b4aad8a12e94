"""Typical wrong answers to the exercises on runs and results."""

import torch

from transformer_book.exercises import check


def test_looking_for_the_last_step(capsys):
    def answer(history, name, bound):
        pairs = zip(*history.series(name), strict=True)
        return max((s for s, x in pairs if x <= bound), default=None)

    assert not check("runs.first_step", answer)
    assert "first step" in capsys.readouterr().out


def test_stopping_short_of_the_bound(capsys):
    def answer(history, name, bound):
        pairs = zip(*history.series(name), strict=True)
        return next((s for s, x in pairs if x < bound), None)

    assert not check("runs.first_step", answer)
    assert (
        "the bound itself counts" in capsys.readouterr().out.lower()
    )


def test_averaging_the_way_downhill(capsys):
    assert not check("recording.late", lambda steps, n: steps[-n:])
    assert "last tenth" in capsys.readouterr().out


def test_averaging_too_many(capsys):
    def answer(steps, average):
        return [step for step in steps if step > 0.9 * steps[-1]]

    assert not check("recording.late", answer)
    assert "five at most" in capsys.readouterr().out.lower()


def test_queueing_in_rounds(capsys):
    def answer(minutes, budget, jobs):
        spent, ended = 0, 0
        for i in range(0, len(minutes), jobs):
            spent += max(minutes[i : i + jobs])
            ended += len(minutes[i : i + jobs]) * (spent <= budget)
        return ended

    assert not check("queues.fits", answer)
    assert "take turns" in capsys.readouterr().out


def test_the_last_query_has_no_next_key(capsys):
    def answer(weights, offset):
        return weights.diagonal(offset).sum() / len(weights)

    assert not check("attention_maps.share", answer)
    assert "no next key" in capsys.readouterr().out


def test_counting_four_projections_as_two(capsys):
    assert not check("cost.crossing", lambda config: config.d_model)
    assert "twice as much" in capsys.readouterr().out


def test_comparing_with_the_first_way(capsys):
    def answer(speeds):
        return [speed / speeds[0] for speed in speeds[1:]]

    assert not check("speed.bought", answer)
    assert "the line before" in capsys.readouterr().out


def test_looking_at_the_position(capsys):
    def answer(position, max_length):
        mask = torch.zeros(1, 1, 1, max_length, dtype=torch.bool)
        mask[..., : int(position) + 1] = True
        return mask

    assert not check("replay.seen", answer)
    assert "look at a value" in capsys.readouterr().out


def test_leaving_the_position_itself_out(capsys):
    def answer(position, max_length):
        places = torch.arange(max_length)
        return (places < position)[None, None, None]

    assert not check("replay.seen", answer)
    assert "the places 0 to 2 are seen" in capsys.readouterr().out


def test_a_mask_without_its_axes(capsys):
    def answer(position, max_length):
        return torch.arange(max_length) <= position

    assert not check("replay.seen", answer)
    assert "(1, 1, 1, 5)" in capsys.readouterr().out


def test_a_processor_that_waits(capsys):
    def answer(jobs, hand_out, work):
        return jobs * (hand_out + work), hand_out + jobs * work

    assert not check("replay.step_seconds", answer)
    assert "does not wait" in capsys.readouterr().out


def test_a_processor_always_ahead(capsys):
    def answer(jobs, hand_out, work):
        return jobs * hand_out + work, hand_out + jobs * work

    assert not check("replay.step_seconds", answer)
    assert "never waits" in capsys.readouterr().out


def test_names_are_not_memory(capsys):
    assert not check("replay.which", "abde")
    assert "new memory" in capsys.readouterr().out
    assert not check("replay.which", "adf")
    assert "ask for a value" in capsys.readouterr().out
    assert not check("replay.which", "ad")
    assert "not all" in capsys.readouterr().out
