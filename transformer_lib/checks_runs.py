# Collected from book/back/checks_runs.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: records, queues, maps, cost, replay, speed."""

import torch

from transformer_lib.cost import forward_operations
from transformer_lib.exercises import exercise
from transformer_lib.model import TransformerConfig
from transformer_lib.replay import Tape
from transformer_lib.training import History

__all__ = [
    "attention_maps_share",
    "cost_crossing",
    "queues_fits",
    "recording_late",
    "replay_seen",
    "replay_step_seconds",
    "replay_which",
    "runs_first_step",
    "speed_bought",
]


@exercise("runs.first_step")
def runs_first_step(answer):
    """The first step at which a figure is at or below a bound.

    Chapter: checks-runs
    """
    lines = [{"step": 1, "nll": 5.0}, {"step": 2}]
    lines += [{"step": 3, "nll": 2.0}, {"step": 4, "nll": 3.0}]
    history = History(lines)
    got = answer(history, "nll", 2.0)
    assert got == 3, f"the bound itself counts: step 3, not {got}"
    got = answer(history, "nll", 4.0)
    assert got == 3, f"the first step at or below 4 is 3, not {got}"
    got = answer(history, "nll", 1.0)
    assert got is None, f"it never came down to 1: None, not {got}"


@exercise("recording.late")
def recording_late(answer):
    """The checkpoints of the last tenth, a few at most.

    Chapter: checks-recording
    """
    got = answer([50, 100, 150, 200, 250], 5)
    assert got == [250], (
        "of 250 steps the last tenth begins after 225, you keep "
        f"{got}"
    )
    steps = list(range(100, 1001, 10))
    got = answer(steps, 5)
    assert got == steps[-5:], f"five at most, the last: not {got}"
    assert answer([7], 5) == [7], "one is always there"


@exercise("queues.fits")
def queues_fits(answer):
    """How many jobs end within a budget, several at once.

    Chapter: checks-queues
    """
    got = answer([3, 3, 3], 6, 1)
    assert got == 2, f"one after the other, two fit into 6, not {got}"
    got = answer([5, 1, 1, 1], 5, 2)
    assert got == 4, (
        "while the long one runs, the short ones take turns in the "
        f"other place: all 4 end, not {got}"
    )
    got = answer([4, 9, 4], 8, 2)
    assert got == 2, f"the 9 does not end in time, two do, not {got}"


@exercise("attention_maps.share")
def attention_maps_share(answer):
    """The mean weight on the key a fixed way from the query.

    Chapter: checks-attention-maps
    """
    weights = torch.eye(5).roll(-1, 0)  # each looks at the next one
    got = float(answer(weights, 1))
    assert abs(got - 0.8) > 1e-6, (
        "the last query has no next key: leave it out of the mean"
    )
    assert abs(got - 1) < 1e-6, f"all four see the next, not {got}"
    got = float(answer(weights, 0))
    assert abs(got) < 1e-6, (
        f"nobody looks at itself, you say {got:.2f}"
    )
    wide = torch.full((3, 6), 1 / 6)
    got = float(answer(wide, 2))
    assert abs(got - 1 / 6) < 1e-6, (
        "there may be more keys than queries: the mean over the "
        f"queries that have such a key is 1/6, not {got:.3f}"
    )
    got = float(answer(weights, -1))
    assert abs(got) < 1e-6, (
        f"backwards, nobody: {got:.2f}; count from the query"
    )


@exercise("cost.crossing")
def cost_crossing(answer):
    """The length at which comparing costs as much as projecting.

    Chapter: checks-cost
    """
    for width, heads in ((512, 8), (64, 4)):
        config = TransformerConfig(100, d_model=width, h=heads)
        got = answer(config)
        assert got != width, (
            "four projections of n d d stand against two products "
            "of n n d: at n = d the projections cost twice as much"
        )

        def part(n, config=config):
            name = "encoder self-attention"
            return forward_operations(config, n, 1)[name]

        twice = 2 * 2 * config.N * got * got * width
        assert part(got) == 2 * twice, (
            f"at {got} places the products of queries and keys, "
            f"weights and values are {twice / part(got):.0%} of "
            "self-attention, not half"
        )


@exercise("replay.seen")
def replay_seen(answer):
    """The mask of a fixed cache, without a look at a value.

    Chapter: checks-replay
    """
    position, masks = torch.tensor([2]), {}

    def work():
        masks["found"] = answer(position, 5)

    try:
        tape = Tape(work)
    except ValueError as error:
        raise AssertionError(
            "on a tape nobody may look at a value: compare tensors"
        ) from error
    got = masks["found"]
    assert got.shape == (1, 1, 1, 5), (
        f"one mask for all rows, heads and queries, (1, 1, 1, 5); "
        f"not {tuple(got.shape)}"
    )
    for last in 2, 0, 4:
        position.fill_(last)
        tape.replay()
        expected = [place <= last for place in range(5)]
        assert got.flatten().tolist() == expected, (
            f"at position {last} the places 0 to {last} are seen; "
            f"yours are {got.flatten().tolist()}"
        )


@exercise("replay.step_seconds")
def replay_step_seconds(answer):
    """A step's time with one launch a job, and with one for all.

    Chapter: checks-replay
    """
    plain, once = answer(10, 5.0, 2.0)
    assert once == 25, f"5 to hand out, 10 jobs of 2: 25, not {once}"
    assert plain != 70, "the processor does not wait for the card"
    assert plain == 52, (
        "ten times 5 to hand out, and the last job's 2: 52, not "
        f"{plain}"
    )
    plain, once = answer(10, 2.0, 5.0)
    assert plain == once == 52, (
        "with jobs of 5 and 2 to hand out the card never waits: "
        f"52 both ways, not {plain} and {once}"
    )


@exercise("replay.which")
def replay_which(answer):
    """The letters of the lines that can be replayed.

    Chapter: checks-replay
    """
    got = set(answer)
    assert not got & set("cf"), "two of them ask for a value"
    assert "b" not in got, (
        "b makes new memory; what was recorded reads the old"
    )
    assert got == set("ade"), (
        f"three letters are right; {answer!r} is not all of them"
    )


@exercise("speed.bought")
def speed_bought(answer):
    """What each step of a ladder bought, as a factor.

    Chapter: checks-speed
    """
    got = answer([100.0, 200.0, 150.0, 600.0])
    assert len(got) == 3, "four speeds make three steps"
    assert list(got) != [2.0, 1.5, 6.0], (
        "compare with the line before, not with the first"
    )
    assert list(got) == [2.0, 0.75, 4.0], (
        f"twice, three quarters, four times; you say {list(got)}"
    )
    product = answer([3.0, 5.0, 7.0])
    whole = product[0] * product[1]
    assert abs(whole - 7 / 3) < 1e-9, "together they bought 7/3"
