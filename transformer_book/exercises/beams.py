"""Checks of the exercises in the chapter on beam search."""

import torch

from transformer_lib.beams import length_divisor
from transformer_lib.embeddings import BOS, EOS, PAD

from . import exercise

_MISTAKES = {
    "greedy": "it keeps one hypothesis a step, not `beam_size`",
    "no penalty": "divide the log-probability by the length penalty",
    "without eos": "|Y| in the length penalty counts eos as well",
    "any eos": (
        "an eos ends a hypothesis only among the best `beam_size` "
        "candidates, not among all 2 * beam_size"
    ),
    "first end": ("decoding goes on until `beam_size` hypotheses have ended"),
}


def _language(limit):
    """A random bigram model, as a function of the ids so far."""
    scores = 2 * torch.randn(limit, 7, 7)
    scores[..., EOS] += 1
    logs = scores.log_softmax(-1)
    logs[..., [PAD, BOS]] = -torch.inf
    return lambda ids: logs[len(ids), ids[-1] if ids else BOS]


def _search(next_logs, size, alpha, limit, mistake=""):
    """As `beam_search` does it, or as one of the mistakes would."""
    size = 1 if mistake == "greedy" else size
    enough = 1 if mistake == "first end" else size
    less = 1 if mistake == "without eos" else 0
    alpha = 0 if mistake == "no penalty" else alpha
    last = 2 * size if mistake == "any eos" else size
    beam, ended = [([], 0.0)], []
    while len(ended) < enough and len(beam[0][0]) < limit:
        totals = [next_logs(ids) + total for ids, total in beam]
        sums, places = torch.cat(totals).topk(2 * size)
        beams, beam = beam, []
        for rank, place in enumerate(places.tolist()):
            one = (
                [*beams[place // 7][0], place % 7],
                sums[rank].item(),
            )
            if place % 7 != EOS:
                beam.append(one)
            elif rank < last:
                ended.append(one)
        beam = beam[:size]

    def score(one):
        return one[1] / length_divisor(len(one[0]) - less, alpha)

    return max(ended or beam, key=score)[0]


@exercise("beams.search")
def _beams(answer):
    """Beam search for one sentence."""
    cases = [(_language(6), 3, alpha, 6) for alpha in [0.6, 1.5] * 60]
    got = [[int(i) for i in answer(*case)] for case in cases]
    assert BOS not in got[0], "bos is not a part of the output"
    right = [_search(*case) for case in cases]
    for mistake, message in _MISTAKES.items():
        wrong = [_search(*case, mistake) for case in cases]
        assert wrong == right or got != wrong, message
    assert max(map(len, got)) <= 6, "an output is above the limit"
    same = sum(a == b for a, b in zip(got, right, strict=True))
    assert same == len(cases), (
        f"{same} of {len(cases)} answers are the library's. Look at "
        "what may end, when decoding stops, and the limit"
    )
