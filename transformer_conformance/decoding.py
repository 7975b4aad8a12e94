"""Probes of section 6.1 and of decoding: greedy, and with a beam."""

import contextlib
import math
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from .core import (
    Adapter,
    NotShown,
    Verdict,
    Wrong,
    deviation,
    fault,
    mode,
    paper,
    probe,
)

SIZE = 8  # of the vocabulary: all outputs of a few tokens can be tried


LOOSE = "padding and bos may come out"


def language(tried: Adapter, offset: int, spread: float = 1.0) -> Any:
    """A model of random sentences that end sooner or later."""
    tried.random(offset)
    model = tried.build(SIZE, 1, 16, 64, 2, 0.0)
    if not isinstance(model, nn.Module):
        return model
    tried.random(offset)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, spread * 1.5 / weight.size(-1) ** 0.5)
    return model


def source_of(tried: Adapter, offset: int = 0) -> Tensor:
    """A source of three words and eos; for a decoder alone the words
    behind bos, which it continues."""
    tried.random(offset)
    ids = tried.words(1, 4, size=SIZE)
    if tried.alone:
        ids[:, 0] = tried.BOS
    else:
        ids[:, -1] = tried.EOS
    return ids


def next_logits(
    tried: Adapter,
    model: Any,
    source: Tensor,
    ids: list[int],
    mistake: str = "",
) -> Tensor:
    """What follows `ids`, by one pass over all of them."""
    before = source[0].tolist() if tried.alone else [tried.BOS]
    read = ids[-1:] if ids and mistake == "newest" else [*before, *ids]
    place = len(before) - 1 if mistake == "first" else -1
    with mode(model, False), torch.no_grad():
        out = tried.logits(model, source, torch.tensor([read]))
        out = torch.as_tensor(out)
    return out[0, place].double()


def most(tried: Adapter, source: Tensor, extra: int) -> int:
    """How many tokens an output may have."""
    return extra if tried.alone else source.size(1) - 1 + extra


def step_by_step(
    tried: Adapter,
    model: Any,
    source: Tensor,
    extra: int,
    never: list[int],
    mistake: str = "",
) -> list[int]:
    """Greedy decoding as the paper has it, without a cache; or with a
    common mistake."""
    ids: list[int] = []
    while len(ids) < most(tried, source, extra) and tried.EOS not in ids:
        scores = next_logits(tried, model, source, ids, mistake)
        scores[never] = -math.inf
        ids.append(int(scores.argmax()))
    return ids


def ids_of(name: str, got: Any) -> list[int]:
    """What a function of the adapter's gives, as a list of ids."""
    try:
        return torch.as_tensor(got).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):
        said = f"{name} returns {got!r:.60}, not a list of ids"
        raise Wrong(said) from None


def greedy_ids(
    tried: Adapter, model: Any, source: Tensor, extra: int
) -> list[int]:
    """What the adapter's greedy decoding gives."""
    return ids_of("greedy", tried.greedy(model, source, extra))


def plain(tried: Adapter, ids: list[int]) -> list[int]:
    """Without padding and bos, which many programs write and others
    leave out of what they return."""
    return [i for i in ids if i not in tried.never]


@probe(
    "decoding-auto-regressive",
    "decoding-greedy",
    "build logits greedy",
    after="multi_head future past source_seen padding target_order",
)
def greedy(tried: Adapter) -> Verdict:
    """The decoder makes one symbol at a time, the likeliest, and takes
    the earlier ones as further input."""
    wrong: dict[str, list[str]] = {}  # words, by what they are but numbers
    for number in range(12):
        model = language(tried, number)
        source = source_of(tried, number)
        got = greedy_ids(tried, model, source, 6)
        right = step_by_step(tried, model, source, 6, tried.never)
        if got == right:
            continue
        each = [step_by_step(tried, model, source, 6, x) for x in tried.laxer]
        loose = got if got in each else each[0]
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
            LOOSE,
            "pad or bos came out, which can never follow: give them a logit "
            "of -inf",
            "most code",
        )
    if set(wrong) <= {"no eos", "loose"}:
        return deviation(
            "outputs without eos", "eos belongs to the output: keep it"
        )
    if tried.alone and set(wrong) <= {"goes on", "loose"}:
        return deviation(
            "decoding goes on behind eos",
            "the output has as many tokens as were asked for",
            "nanoGPT, minGPT",
        )
    if set(wrong) <= {"one off", "loose"}:
        return deviation(
            "a limit that counts eos or bos",
            "an output may be max_extra longer than its source is without "
            "eos; yours has one token more or less",
        )
    wrong.pop("loose", None)
    count = sum(map(len, wrong.values()))
    words = max(wrong.values(), key=len)[0]
    said = {
        "goes on": "eos was chosen, and the output went on",
        "one off": "the output has a token too many or too few",
    }
    words = said.get(words, words)
    return fault(f"{words} ({count} of 12 outputs are wrong)")


def _greedy_mistake(tried, model, source, got, right, loose) -> str:
    # what follows a padding that came out is nobody's business
    known = got.index(tried.PAD) + 1 if tried.PAD in got else None
    if got[:known] == loose[:known] or got == plain(tried, loose):
        return "loose"
    if tried.EOS in right and got in (right[:-1], loose[:-1]):
        return "no eos"
    if tried.EOS in got[:-1]:
        return "goes on"
    for wanted in (right, loose):
        both = min(len(got), len(wanted))
        if got[:both] == wanted[:both] and tried.EOS not in got[:both]:
            if abs(len(got) - len(wanted)) == 1:
                return "one off"
            return (
                f"the output may have {most(tried, source, 6)} tokens, yours "
                f"has {len(got)}"
            )
    pairs = zip(got, right, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), -1)
    mistakes = {
        "newest": "the model is given the newest token alone: without a "
        "cache it needs all that came before",
        "first": "what comes next is at the last position, not at the first",
    }
    for mistake, words in mistakes.items():
        for never in ([], tried.never):
            with contextlib.suppress(Exception):  # of a target without bos
                if got == step_by_step(
                    tried, model, source, 6, never, mistake
                ):
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
    "decoding-auto-regressive",
    "decoding-greedy",
    "build greedy",
    after="shape greedy",
)
def greedy_in_evaluation(tried: Adapter) -> Verdict:
    """Decoding drops nothing, whatever mode the model was left in."""
    tried.random()
    model = tried.build(SIZE, 1, 16, 64, 2, 0.5)
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
    "build greedy_batch",
    after="padding_mask padding batch greedy",
    source=True,
)
def greedy_of_a_batch(tried: Adapter) -> Verdict:
    """A sentence is decoded in a batch as it is decoded alone."""

    def decoded(model: Any, sources: Tensor) -> list[list[int]]:
        found = tried.greedy_batch(model, sources, 6)
        return [ids_of("greedy_batch", ids) for ids in found]

    wrong, count = 0, 0
    for number in range(12):
        model = language(tried, number)
        lengths = 3, 7, 5
        sources = tried.words(3, max(lengths), size=SIZE)
        sources = tried.ended(sources, *lengths)
        together = decoded(model, sources)
        if len(together) != len(sources):
            return fault(
                f"{len(together)} outputs for {len(sources)} sentences"
            )
        for row, length in enumerate(lengths):
            [alone] = decoded(model, sources[row : row + 1, :length])
            # a shorter output may have padding behind it, in either
            wrong += plain(tried, alone) != plain(tried, together[row])
            count += 1
    if not wrong:
        return paper(f"{count} sentences, in batches of three and alone")
    return fault(
        f"{wrong} of {count} sentences have another output in a batch: hide "
        "the source's padding while decoding, and stop each sentence at its "
        "own eos and limit"
    )


# Beams

WIDTH, LONGEST = 3, 6  # the beam, and the tokens of an output

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

    def penalty(ids: list[int]) -> float:
        length = len(ids)
        if mistake == "without eos":
            length -= 1
        if mistake == "power":
            return max(length, 1) ** alpha
        if mistake == "inverse":
            return ((5 + length) / 6) ** -alpha
        return ((5 + length) / 6) ** alpha

    while len(ended) < enough and len(beam[0][0]) < limit:
        candidates = []
        for ids, total in beam:
            logs = next_logs(ids)
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
    found = ended or beam
    if mistake == "cut off" and beam and len(beam[0][0]) == limit:
        found = [*ended, *beam]
    best = max(found, key=lambda one: one[1] / penalty(one[0]))
    return best[0]


BEAM_MISTAKES = {
    "greedy": "it keeps one hypothesis a step, not `beam_size`",
    "no penalty": "divide the log-probability by the length penalty",
    "without eos": "|Y| in the length penalty counts eos as well",
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
}
READINGS = {
    "power": ("another length penalty", "OpenNMT-py, fairseq: |Y|^alpha"),
    "no penalty": ("no length penalty", ""),
    "any eos": ("another early end", "Hugging Face Transformers"),
    "first end": ("another early end", "tensor2tensor stops earlier, too"),
}


class Search:
    """The adapter's beam search on a random language, and what should
    come out: with a ban on padding and bos, or with another."""

    def __init__(self, tried: Adapter, number: int):
        self.tried = tried
        self.alpha = [0.6, 1.5, 6.0][number % 3]
        if tried.has("beam"):
            tried.random(number)
            scores = 2 * torch.randn(8, SIZE, SIZE).double()
            scores[..., tried.EOS] += 1
            scores[..., tried.never] = -math.inf
            self.table = scores.log_softmax(-1)
        else:
            self.model = language(tried, number, spread=1.2)
            self.source = source_of(tried, number)
            self.seen: dict[tuple, Tensor] = {}

    def logs(self, ids: list[int]) -> Tensor:
        """The log-probabilities of what follows."""
        tried = self.tried
        if tried.has("beam"):
            return self.table[len(ids), ids[-1] if ids else tried.BOS]
        known = tuple(ids)
        if known not in self.seen:
            out = next_logits(tried, self.model, self.source, ids)
            self.seen[known] = out.log_softmax(-1)
        return self.seen[known]

    def theirs(self, size: int, limit: int = LONGEST) -> list[int]:
        if self.tried.has("beam"):
            got = self.tried.beam(
                lambda ids: self.logs(ids).float(), size, self.alpha, limit
            )
        else:
            got = self.tried.beam_search(
                self.model, self.source, size, self.alpha, limit - 3
            )
        return [int(i) for i in got]

    def right(
        self,
        size: int,
        limit: int = LONGEST,
        mistake: str = "",
        never: list[int] | None = None,
        anew: bool = False,
    ) -> list[int]:
        """What should come out with a ban, which is the paper's if none is
        given; if `anew`, it is put before the softmax."""
        tried = self.tried
        banned = tried.never if never is None else never

        def logs(ids: list[int]) -> Tensor:
            out = self.logs(ids).clone()
            out[banned] = -math.inf
            return out.log_softmax(-1) if anew else out

        return reference(logs, size, self.alpha, limit, tried.EOS, mistake)


def searches(tried: Adapter, count: int) -> list[Search]:
    """Searches on different languages."""
    if not tried.has("beam"):
        if not tried.has("build", "logits"):
            raise NotShown("the adapter has no build and no logits")
        if tried.alone:
            raise NotShown("a search from a prompt is not tried")
    return [Search(tried, number) for number in range(count)]


def agree(each: list[Search], got: list[list[int]], mistake: str = "") -> str:
    """ "paper" if all outputs are those of a search with the ban, or
    the name of the deviation if they are one's without it, or ''."""
    tried = each[0].tried
    for never, anew in product([tried.never, *tried.laxer], (False, True)):
        pairs = (
            (ids, one.right(WIDTH, mistake=mistake, never=never, anew=anew))
            for one, ids in zip(each, got, strict=True)
        )
        if never is tried.never:
            if all(ids == right for ids, right in pairs):
                return "paper"
        elif all(plain(tried, a) == plain(tried, b) for a, b in pairs):
            return LOOSE
    return ""


@probe("beams-search", "beams-search", "beam|beam_search", after="greedy")
def beams(tried: Adapter) -> Verdict:
    """Translations are found by a beam search; what ranks hypotheses is
    their log-probability divided by the length penalty."""
    each = searches(tried, 48)
    got = [one.theirs(WIDTH) for one in each]
    agreed = agree(each, got)
    if agreed == "paper":
        return paper(f"{len(got)} searches with a beam of 3, equal to ours")
    if all(ids[:1] == [tried.BOS] for ids in got):
        return fault("bos is an input, not a part of the output")
    if agreed:
        words = "the outputs are those of a search that may write them"
        return deviation(LOOSE, words, "most code")
    if max(map(len, got)) > LONGEST:
        return fault("an output is above the limit")
    for mistake, words in BEAM_MISTAKES.items():
        if agree(each, got, mistake):
            if mistake in READINGS:
                name, who = READINGS[mistake]
                return deviation(name, words, who)
            return fault(words)
    right = sum(
        one.right(WIDTH) == ids for one, ids in zip(each, got, strict=True)
    )
    words = f"{right} of {len(got)} outputs are what they should be"
    missed, width = _missed(tried)
    if not missed and width < ALL:  # what takes its best of each row
        return deviation(
            "another search",
            f"{words}, and yet a beam as wide as the vocabulary finds the "
            "best output. If it has a cache, see that its rows follow",
            "code that keeps a few tokens of each row",
        )
    return fault(
        f"{words}. Look at what may end, when decoding stops, at the limit, "
        "and whether a cache follows: its rows and its positions"
    )


ALL = 300  # more than there are outputs of up to two words and eos


def _missed(tried: Adapter) -> tuple[int, int]:
    """How often of six times a wide beam misses the best output of all,
    and how wide it is; some cannot be wider than the vocabulary."""
    each = searches(tried, 6)
    best = [
        [
            one.right(ALL, 3, never=never, anew=anew)
            for never in [one.tried.never, *one.tried.laxer]
            for anew in (False, True)
        ]
        for one in each
    ]
    for width in (ALL, SIZE):
        try:
            got = [one.theirs(width, 3) for one in each]
        except (RuntimeError, IndexError, ValueError):
            continue
        missed = [
            plain(tried, ids) not in [plain(tried, x) for x in right]
            for ids, right in zip(got, best, strict=True)
        ]
        return sum(missed), width
    return len(each), 0


@probe(
    "beams-finds-the-best", "beams-proof", "beam|beam_search", after="beams"
)
def brute_force(tried: Adapter) -> Verdict:
    """A beam wide enough for every hypothesis finds the output with the
    best score of all."""
    found = tried.found.get("beams")
    if found and found.kind == "deviation" and found.name != LOOSE:
        raise NotShown(f"the search is another one: {found.name}")
    missed, width = _missed(tried)
    if not missed:
        return paper(f"the best output of all in 6 searches, {width} wide")
    if width < ALL:
        raise NotShown(f"it cannot keep {ALL} hypotheses")
    return fault(
        f"in {missed} of 6 searches a better output exists, and every "
        "hypothesis fits into the beam"
    )
