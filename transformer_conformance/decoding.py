"""Probes of section 6.1 and of decoding: greedy, and with a beam."""

import itertools
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .core import (
    Adapter,
    NotShown,
    Verdict,
    close,
    deviation,
    fault,
    mode,
    paper,
    probe,
)

SIZE = 8  # of the vocabulary: all outputs of a few tokens can be tried


def language(tried: Adapter, offset: int, spread: float = 1.0) -> Any:
    """A model of random sentences that end sooner or later."""
    tried.random(offset)
    model = tried.build(SIZE, 1, 16, 16, 2, 0.0)
    if not isinstance(model, nn.Module):
        return model
    tried.random(offset)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, spread * 1.5 / weight.size(-1) ** 0.5)
    return model


def source_of(tried: Adapter, offset: int = 0) -> Tensor:
    """A source of three words and eos."""
    tried.random(offset)
    ids = tried.words(1, 4, size=SIZE)
    ids[:, -1] = tried.EOS
    return ids


def next_logits(
    tried: Adapter,
    model: Any,
    source: Tensor,
    ids: list[int],
    place: int = -1,
) -> Tensor:
    """What follows `ids`, by one pass over all of them."""
    target = torch.tensor([[tried.BOS, *ids]])
    with mode(model, False), torch.no_grad():
        out = torch.as_tensor(tried.logits(model, source, target))
    return out[0, place].double()


def step_by_step(
    tried: Adapter,
    model: Any,
    source: Tensor,
    extra: int,
    never: tuple[int, ...],
    place: int = -1,
    sign: int = 1,
) -> list[int]:
    """Greedy decoding as the paper has it, without a cache; or with
    scores of another place, or of another sign."""
    ids: list[int] = []
    while len(ids) < source.size(1) - 1 + extra and tried.EOS not in ids:
        scores = sign * next_logits(tried, model, source, ids, place)
        scores[list(never)] = -math.inf
        ids.append(int(scores.argmax()))
    return ids


def greedy_ids(tried: Adapter, model: Any, source: Tensor, extra: int):
    """What the adapter's greedy decoding gives, as a list of ids."""
    got = tried.greedy(model, source, extra)
    return torch.as_tensor(got).flatten().tolist()


@probe(
    "decoding-auto-regressive",
    "decoding-greedy",
    "build",
    "logits",
    "greedy",
    after="multi_head future past source_seen padding target_order",
)
def greedy(tried: Adapter) -> Verdict:
    """The decoder makes one symbol at a time, the likeliest, and takes
    the earlier ones as further input."""
    wrong: dict[str, list[str]] = {}  # words, by what they are but numbers
    special = tried.PAD, tried.BOS
    differ = 0
    for number in range(12):
        model = language(tried, number)
        source = source_of(tried, number)
        got = greedy_ids(tried, model, source, 6)
        right = step_by_step(tried, model, source, 6, special)
        loose = step_by_step(tried, model, source, 6, ())
        if got == right:
            differ += right != loose
            continue
        # a model may choose bos itself, if nothing forbids it
        named_first = got[:1] == [tried.BOS] and got[1:] in (right, loose)
        if named_first and got != loose:
            return fault("bos is an input, not a part of the output")
        words = _greedy_mistake(tried, model, source, got, right, loose)
        wrong.setdefault(re.sub(r"\d+", "#", words), []).append(words)
    if not wrong:
        return paper("12 outputs, equal to those of one pass for each token")
    if set(wrong) == {"loose"}:
        return deviation(
            "padding and bos may come out",
            "pad or bos came out, which can never follow: give them a logit "
            "of -inf",
            "most code",
        )
    if set(wrong) <= {"no eos", "loose"}:
        return deviation(
            "outputs without eos", "eos belongs to the output: keep it"
        )
    wrong.pop("loose", None)
    count = sum(map(len, wrong.values()))
    words = max(wrong.values(), key=len)[0]
    return fault(f"{words} ({count} of 12 outputs are wrong)")


MISREAD = {  # what is read instead of the last position's scores
    "the unlikeliest token is taken": {"sign": -1},
    "what comes next is at the last position, not at the first": {"place": 0},
}


def _greedy_mistake(tried, model, source, got, right, loose) -> str:
    # what follows a padding that came out is nobody's business
    known = got.index(tried.PAD) + 1 if tried.PAD in got else None
    if got[:known] == loose[:known]:
        return "loose"
    if tried.EOS in right and got in (right[:-1], loose[:-1]):
        return "no eos"
    if tried.EOS in got[:-1]:
        return "eos was chosen, and the output went on"
    if len(got) in (len(right) - 1, len(right) + 1) and (
        got == right[: len(got)] or got[:-1] == right
    ):
        return f"the output may have {len(right)} tokens, yours has {len(got)}"
    first = next(
        (
            i
            for i, (a, b) in enumerate(zip(got, right, strict=False))
            if a != b
        ),
        min(len(got), len(right)),
    )
    scores = next_logits(tried, model, source, right[:first])
    room = source.size(1) - 1 + 6 - first
    longer = [*right[:first], *[tried.PAD] * room]
    inside = next_logits(tried, model, source, longer, place=first)
    if not close(scores, inside, 1e-3):
        return (
            "your scores at a position change with the target's length: "
            f"behind bos and {first} tokens they are others if padding "
            "follows in the target. Look at the decoder's masks"
        )
    for words, how in MISREAD.items():
        for never in ((), (tried.PAD, tried.BOS)):
            if got == step_by_step(tried, model, source, 6, never, **how):
                return words
    if first == 0:
        return (
            "the first token is not the likeliest one after bos: another "
            "begin symbol, or dropout is on"
        )
    return (
        f"token {first} is not the likeliest one: is it read from the last "
        "position, do the positions of a cache go on counting, and does the "
        "new token attend to itself?"
    )


@probe(
    "decoding-limit",
    "decoding-greedy",
    "build",
    "logits",
    "greedy",
    after="greedy",
)
def limit(tried: Adapter) -> Verdict:
    """An output has at most as many tokens as its input has, without
    eos, and 50 more."""
    longest = None
    for number in range(20, 100):
        model = language(tried, number)
        source = source_of(tried, number)
        # with a ban on padding and bos, and without one
        both = [
            step_by_step(tried, model, source, 7, never)
            for never in ((tried.PAD, tried.BOS), ())
        ]
        if all(len(x) == 10 and x[-1] != tried.EOS for x in both):
            longest = number
            break
    if longest is None:
        raise NotShown("no model was found that goes on for long")
    got = greedy_ids(tried, model, source, 7)
    if len(got) == 10:
        return paper("3 tokens and max_extra=7: ten tokens")
    if len(got) in (9, 11):
        return deviation(
            "a limit that counts eos or bos",
            "3 tokens without eos and max_extra=7: the output may have 10, "
            f"yours has {len(got)}",
        )
    return fault(
        "3 tokens without eos and max_extra=7: the output may have 10, "
        f"yours has {len(got)}"
    )


@probe("decoding-auto-regressive", "decoding-greedy", "build", "greedy")
def greedy_in_evaluation(tried: Adapter) -> Verdict:
    """Decoding drops nothing, whatever mode the model was left in."""
    tried.random()
    model = tried.build(SIZE, 1, 16, 16, 2, 0.5)
    if not isinstance(model, nn.Module):
        raise NotShown("the model is no nn.Module of PyTorch")
    model.train()
    sources = [source_of(tried, number) for number in range(12)]
    first, second = (
        [greedy_ids(tried, model, source, 6) for source in sources]
        for _ in range(2)
    )
    if first == second:
        return paper("a model left in training mode decodes alike twice")
    return fault(
        "the same source is decoded in two ways: dropout is on. Call "
        "model.eval() before decoding"
    )


@probe(
    "decoding-auto-regressive",
    "decoding-greedy",
    "build",
    "greedy_batch",
    after="padding_mask padding batch greedy",
)
def greedy_of_a_batch(tried: Adapter) -> Verdict:
    """A sentence is decoded in a batch as it is decoded alone."""
    wrong, count = 0, 0
    for number in range(12):
        model = language(tried, number)
        lengths = 3, 7, 5
        sources = tried.words(3, max(lengths), size=SIZE)
        sources = tried.ended(sources, *lengths)
        together = [
            [*map(int, ids)] for ids in tried.greedy_batch(model, sources, 6)
        ]
        if len(together) != len(sources):
            return fault(
                f"{len(together)} outputs for {len(sources)} sentences"
            )
        for row, length in enumerate(lengths):
            source = sources[row : row + 1, :length]
            [alone] = tried.greedy_batch(model, source, 6)
            got = together[row]
            while got and got[-1] == tried.PAD:  # behind a shorter output
                got.pop()
            wrong += got != [*map(int, alone)]
            count += 1
    if not wrong:
        return paper(f"{count} sentences, in batches of three and alone")
    return fault(
        f"{wrong} of {count} sentences have another output in a batch: hide "
        "the source's padding while decoding, and stop each sentence at its "
        "own eos and limit"
    )


# Beams

Found = tuple[list[int], float]


def reference(
    next_logs: Callable,
    size: int,
    alpha: float,
    limit: int,
    eos: int,
    mistake: str = "",
) -> list[int]:
    """Beam search as section 6.1 has it, or with a common mistake."""
    size = 1 if mistake == "greedy" else size
    enough = 1 if mistake == "first end" else size
    alpha = 0.0 if mistake == "no penalty" else alpha
    last = 2 * size if mistake == "any eos" else size
    beam: list[Found] = [([], 0.0)]
    ended: list[Found] = []
    fed: list[list[int]] = [[]]  # to each row, since the beginning

    def penalty(ids: list[int]) -> float:
        length = len(ids)
        if mistake == "without eos":
            length -= 1
        if mistake == "mean":
            return max(length, 1)
        if mistake == "power":
            return max(length, 1) ** alpha
        if mistake == "five":
            return (5 + length) ** alpha / 6**alpha if alpha else 1.0
        if mistake == "six and one":
            return (5 + length) ** alpha / (5 + 1) ** alpha * length
        if mistake == "inverse":
            return ((5 + length) / 6) ** -alpha
        return ((5 + length) / 6) ** alpha

    while len(ended) < enough and len(beam[0][0]) < limit:
        candidates = []
        for row, (ids, total) in enumerate(beam):
            logs = next_logs(fed[row] if mistake == "rows" else ids)
            for token in torch.arange(len(logs)).tolist():
                gain = float(logs[token])
                if gain > -math.inf:
                    candidates.append(([*ids, token], total + gain))
        candidates.sort(key=lambda found: -found[1])
        beam = []
        for rank, one in enumerate(candidates[: 2 * size]):
            if one[0][-1] != eos:
                beam.append(one)
            elif rank < last:
                ended.append(one)
        beam = beam[:size]
        if not beam:
            break
        fed += [[] for _ in beam[len(fed) :]]
        fed = [[*fed[i], ids[-1]] for i, (ids, _) in enumerate(beam)]
    found = ended or beam
    if mistake == "cut off" and beam and len(beam[0][0]) == limit:
        found = [*ended, *beam]
    best = max(found, key=lambda one: one[1] / penalty(one[0]))
    return best[0]


BEAM_MISTAKES = {
    "greedy": "it keeps one hypothesis a step, not `beam_size`",
    "no penalty": "divide the log-probability by the length penalty",
    "without eos": "|Y| in the length penalty counts eos as well",
    "mean": "the log-probability is divided by the length: lp is "
    "((5 + |Y|) / 6)^alpha",
    "power": "lp is ((5 + |Y|) / 6)^alpha, not |Y|^alpha",
    "inverse": "the log-probability is multiplied by the length penalty: "
    "divide by it",
    "any eos": (
        "an eos ends a hypothesis only among the best `beam_size` "
        "candidates, not among all 2 * beam_size"
    ),
    "first end": "decoding goes on until `beam_size` hypotheses have ended",
    "cut off": "a hypothesis that the limit cuts off wins only if none has "
    "ended",
    "rows": "the rows of a cache have to follow their hypotheses: reorder "
    "them as the beam is reordered",
}
READINGS = {
    "mean": ("another length penalty", "OpenNMT-py, fairseq: |Y|^alpha"),
    "power": ("another length penalty", "OpenNMT-py, fairseq: |Y|^alpha"),
    "no penalty": ("no length penalty", ""),
    "any eos": ("another early end", "Hugging Face Transformers"),
    "first end": ("another early end", "tensor2tensor stops earlier, too"),
}


class Searches:
    """The adapter's beam search on random languages, and what should
    come out."""

    def __init__(self, tried: Adapter, count: int):
        if not tried.has("beam") and not tried.has("build", "logits"):
            raise NotShown("the adapter has no build and no logits")
        self.tried = tried
        self.cases = [
            (self._language(number), alpha)
            for number, alpha in enumerate([0.6, 1.5] * (count // 2))
        ]

    def _language(self, number: int) -> tuple[Callable, Any]:
        """Log-probabilities after some ids, and what the search gets."""
        tried = self.tried
        never = [tried.PAD, tried.BOS]
        if tried.has("beam"):
            tried.random(number)
            scores = 2 * torch.randn(8, SIZE, SIZE).double()
            scores[..., tried.EOS] += 1
            table = scores.log_softmax(-1)
            table[..., never] = -math.inf

            def bigrams(ids: list[int]) -> Tensor:
                return table[len(ids), ids[-1] if ids else tried.BOS]

            return bigrams, None
        model = language(tried, number, spread=1.2)
        source = source_of(tried, number)
        kept: dict[tuple, Tensor] = {}

        def logs(ids: list[int]) -> Tensor:
            if tuple(ids) not in kept:
                out = next_logits(tried, model, source, ids).log_softmax(-1)
                out[never] = -math.inf
                kept[tuple(ids)] = out
            return kept[tuple(ids)]

        return logs, (model, source)

    def theirs(self, case: int, size: int, limit: int = 6) -> list[int]:
        (logs, model), alpha = self.cases[case]
        if model is None:
            got = self.tried.beam(
                lambda ids: logs(ids).float(), size, alpha, limit
            )
        else:
            got = self.tried.beam_search(*model, size, alpha, limit - 3)
        return [int(i) for i in got]

    def right(
        self, case: int, size: int, limit: int = 6, mistake: str = ""
    ) -> list[int]:
        (logs, _), alpha = self.cases[case]
        return reference(logs, size, alpha, limit, self.tried.EOS, mistake)


@probe("beams-search", "beams-search", "beam|beam_search")
def beams(tried: Adapter) -> Verdict:
    """Translations are found by a beam search; what ranks hypotheses is
    their log-probability divided by the length penalty."""
    searches = Searches(tried, 60)
    cases = range(len(searches.cases))
    got = [searches.theirs(i, 3) for i in cases]
    right = [searches.right(i, 3) for i in cases]
    same = sum(a == b for a, b in zip(got, right, strict=True))
    if same == len(right):
        return paper(f"{same} searches with a beam of 3, equal to ours")
    if any(ids[:1] == [tried.BOS] for ids in got):
        return fault("bos is not a part of the output")
    if max(map(len, got)) > 6:
        return fault("an output is above the limit", follows="greedy")
    for mistake, words in BEAM_MISTAKES.items():
        wrong = [searches.right(i, 3, mistake=mistake) for i in cases]
        if got == wrong:
            if mistake == "no penalty" and _multiplies(searches):
                return fault(BEAM_MISTAKES["inverse"])
            if mistake in READINGS:
                name, who = READINGS[mistake]
                return deviation(name, words, who)
            return fault(words)
    near = {
        mistake: sum(
            a == searches.right(i, 3, mistake=mistake)
            for i, a in enumerate(got)
        )
        for mistake in BEAM_MISTAKES
    }
    best = max(near, key=lambda x: near[x])
    words = f"{same} of {len(right)} answers are the library's. "
    if near[best] > same and near[best] > 0.9 * len(got):
        return fault(
            f"{words}{near[best]} are what this mistake gives: "
            f"{BEAM_MISTAKES[best]}"
        )
    return fault(
        words + "Look at what may end, when decoding stops, at the limit, "
        "and whether a cache follows: its rows and its positions",
        follows="greedy",
    )


def _multiplies(searches: Searches) -> bool:
    """Whether a large alpha makes outputs as short as if their
    log-probability were multiplied by the penalty."""
    searches.cases = [(one, 6.0) for one, _ in searches.cases[:20]]
    got, ignored, inverse = (
        [find(i, 3) for i in range(20)]
        for find in (
            searches.theirs,
            partial(searches.right, mistake="no penalty"),
            partial(searches.right, mistake="inverse"),
        )
    )
    return got == inverse != ignored


@probe(
    "beams-length-penalty",
    "beams-length-penalty",
    "beam|beam_search",
    after="beams",
)
def length_penalty(tried: Adapter) -> Verdict:
    """The penalty is ((5 + |Y|) / 6)^alpha, and |Y| counts eos: the
    larger alpha, the longer the output."""
    searches = Searches(tried, 40)
    lengths = []
    for alpha in (0.0, 0.6, 3.0):
        searches.cases = [(one, alpha) for one, _ in searches.cases]
        found = [len(searches.theirs(i, 3)) for i in range(40)]
        lengths.append(sum(found) / len(found))
    said = ", ".join(f"{x:.2f}" for x in lengths)
    measured = f"tokens for an alpha of 0, 0.6 and 3: {said}"
    if lengths[0] <= lengths[1] < lengths[2]:
        return paper(measured)
    return fault(
        f"{measured}: a larger alpha makes outputs longer", again="beams"
    )


@probe(
    "beams-finds-the-best", "beams-proof", "beam|beam_search", after="beams"
)
def brute_force(tried: Adapter) -> Verdict:
    """A beam wide enough for every hypothesis finds the output with the
    best score of all."""
    searches = Searches(tried, 8)
    words = [i for i in range(SIZE) if i not in (tried.PAD, tried.BOS)]
    going = [i for i in words if i != tried.EOS]
    limit = 4  # an output: up to three words and eos, or four words
    wrong = 0
    for case, ((logs, _), alpha) in enumerate(searches.cases):
        best, score = None, -math.inf
        for length in range(limit):
            for first in itertools.product(going, repeat=length):
                ids = [*first, tried.EOS]
                total = sum(float(logs(ids[:i])[x]) for i, x in enumerate(ids))
                divided = total / ((5 + len(ids)) / 6) ** alpha
                if divided > score:
                    best, score = ids, divided
        try:
            wrong += searches.theirs(case, 300, limit) != best
        except (RuntimeError, IndexError, ValueError) as error:
            raise NotShown(f"it cannot keep 300 hypotheses: {error}") from None
    if not wrong:
        return paper(f"the best of all outputs of up to {limit} tokens, "
                     f"in {len(searches.cases)} searches")  # fmt: skip
    return fault(
        f"in {wrong} of {len(searches.cases)} searches a better output "
        "exists, and every hypothesis fits into the beam",
        again="beams",
    )


@probe("beams-search", "beams-idea", "beam|beam_search", after="beams")
def one_beam(tried: Adapter) -> Verdict:
    """With a beam of one, beam search is greedy."""
    searches = Searches(tried, 20)
    same = sum(
        searches.theirs(i, 1) == searches.right(i, 1) for i in range(20)
    )
    if same == 20:
        return paper("20 searches with a beam of 1, equal to greedy ones")
    return fault(f"a beam of 1 differs from greedy in {20 - same} of 20")
