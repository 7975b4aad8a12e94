"""Typical wrong answers to the exercises of `checkpoints`."""

from transformer_book.exercises import check


def test_size(capsys):
    def size(parameters, half=False):
        return parameters * (2 if half else 4)

    for factor, word in (
        (1, "running means are"),
        (2, "two running"),
    ):
        answer = (size, lambda n, factor=factor: factor * size(n))
        assert not check("checkpoints.size", answer)
        assert word in capsys.readouterr().out


def test_fading(capsys):
    def in_place(states, keep):
        mean = states[0]
        for state in states[1:]:
            for name in mean:
                mean[name].mul_(keep).add_((1 - keep) * state[name])
        return mean

    def the_other_way(states, keep):
        mean = dict(states[0])
        for state in states[1:]:
            for name in mean:
                mean[name] = (1 - keep) * mean[name] + keep * state[
                    name
                ]
        return mean

    assert not check("checkpoints.fading", in_place)
    assert "has been changed" in capsys.readouterr().out
    assert not check("checkpoints.fading", the_other_way)
    assert "belongs to the mean" in capsys.readouterr().out
