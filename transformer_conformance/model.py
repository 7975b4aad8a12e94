"""Probes of a whole model: masks, order, layers, weights, dropout."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .core import (
    Adapter,
    NotShown,
    Verdict,
    Wrong,
    close,
    deviation,
    fault,
    mode,
    paper,
    probe,
)
from .layers import CROSS_FIRST, NORMED_FIRST, PRE_NORM
from .positions import judge
from .trace import (
    BATCH,
    KERNEL,
    SIZES,
    SOURCE,
    TARGET,
    Attention,
    Call,
    Trace,
    batch_first,
    factor_of,
)

ENOUGH = 1e-4  # of the logits' spread: less is rounding
RATE = 0.3  # of dropout, where it is looked at: not 1 - RATE


def build(tried: Adapter, offset: int = 0, **changes: Any) -> Any:
    """A small model, the same each time."""
    tried.random(offset)
    return tried.build(*(SIZES | changes).values())


def wild(tried: Adapter, **changes: Any) -> Any:
    """A small model with large random weights, so that every path
    counts; without parameters to change, as it was built."""
    model = build(tried, **changes)
    if isinstance(model, nn.Module):
        tried.random(1)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 1.5 / weight.size(-1) ** 0.5)
                else:
                    weight.add_(0.1 * torch.randn_like(weight))
    return model


def pairs(
    tried: Adapter,
    source: int = SOURCE,
    target: int = TARGET,
    rows: int = BATCH,
) -> tuple[Tensor, Tensor]:
    """Sources that end in eos, and the decoder's inputs behind bos."""
    tried.random(2)
    source_ids = tried.words(rows, source, size=SIZES["vocab_size"])
    target_ids = tried.words(rows, target, size=SIZES["vocab_size"])
    source_ids[:, -1] = tried.EOS
    target_ids[:, 0] = tried.BOS
    return source_ids, target_ids


@torch.no_grad()
def logits(
    tried: Adapter, model: Any, source: Tensor, target: Tensor
) -> Tensor:
    """The logits in evaluation mode, of the shape that they must have."""
    with mode(model, False):
        out = tried.logits(model, source, target)
    wanted = *target.shape, SIZES["vocab_size"]
    shape = tuple(getattr(out, "shape", ())) or type(out).__name__
    if shape != wanted:
        raise Wrong(
            f"logits are {shape}, not (batch, target_len, vocab_size) = "
            f"{wanted}"
        )
    return out.double()


NOT_FINITE = (
    "some of the scores are not finite: does a mask hide all there is, "
    "because it is turned round?"
)


def moved(before: Tensor, after: Tensor) -> Tensor:
    """How far the logits of each position move, in spreads: (len,)."""
    if not (before.isfinite().all() and after.isfinite().all()):
        raise Wrong(NOT_FINITE, follows="shape")
    return (before - after).abs().amax((0, 2)) / before.std()


def other(ids: Tensor, tried: Adapter) -> Tensor:
    """For each word another one; special ids stay."""
    words = sorted(
        set(range(SIZES["vocab_size"])) - {0, tried.PAD, tried.BOS, tried.EOS}
    )
    after = {a: b for a, b in zip(words, [*words[1:], words[0]], strict=True)}
    flat = [after.get(i, i) for i in ids.flatten().tolist()]
    return torch.tensor(flat).view_as(ids)


@probe(
    "model-encoder-decoder",
    "model-transformer",
    "build",
    "logits",
    after="padding_mask causal_mask",
)
def shape(tried: Adapter) -> Verdict:
    """From source and target the model makes a score for every token of
    the vocabulary at every position of the target."""
    model = build(tried)
    out = logits(tried, model, *pairs(tried))
    if not out.isfinite().all():
        if _inverted(tried):
            return fault(INVERTED, follows="padding_mask")
        return fault(NOT_FINITE)
    kind = "logits"
    if close(out.exp().sum(-1), torch.ones(BATCH, TARGET)):
        kind = "log-probabilities"
    elif close(out.sum(-1), torch.ones(BATCH, TARGET)) and out.min() >= 0:
        return fault(
            "these are probabilities: a loss that takes logits would apply "
            "a second softmax"
        )
    return paper(f"{kind}, (batch, target_len, vocab_size)")


def influence(tried: Adapter, model: Any, side: int) -> Tensor:
    """Which positions of the target (rows) see which words of a side."""
    ids = pairs(tried)
    before = logits(tried, model, *ids)
    sees = torch.zeros(TARGET, ids[side].size(1), dtype=torch.bool)
    for place in range(ids[side].size(1)):
        changed = [x.clone() for x in ids]
        changed[side][:, place] = other(changed[side][:, place], tried)
        distance = moved(before, logits(tried, model, *changed))
        sees[:, place] = distance > ENOUGH
    # what every sentence has is not changed
    sees[:, 0 if side == 1 else -1] = True
    return sees


INVERTED = (
    "the words of the source are hidden, and its padding is seen: the mask "
    "of padding is turned round"
)
MASKED = "padding_mask shape source_seen padding"  # who may say so first


def _inverted(tried: Adapter) -> bool:
    """Whether padding of the source is seen in place of its words."""
    model = wild(tried)
    source, target = pairs(tried)
    others = other(source, tried)
    padded, changed = (
        F.pad(ids, (0, 3), value=tried.PAD) for ids in (source, others)
    )
    before, after, plain = (
        logits(tried, model, ids, target) for ids in (padded, changed, source)
    )
    if not (before.isfinite().all() and after.isfinite().all()):
        return False
    blind = bool(moved(before, after).max() < ENOUGH)
    return blind and not close(plain, before)


MIXED = (
    "the weights of {} are 0 in every attention, so it is no mask that is "
    "wrong: heads are cut or joined without `transpose`, or a norm or a "
    "softmax runs over the positions"
)


def _hides(tried: Adapter, *kinds: str) -> bool:
    """Whether attentions of these kinds give no weight to what they have
    to hide, so that something else lets it through."""
    source, target = pairs(tried)
    source = tried.ended(source, 5)
    try:
        attentions = Trace(tried, wild(tried), source, target).attentions()
    except NotShown:
        return False
    leaks = [_leak(a) for a in attentions if a.kind in kinds]
    return bool(leaks) and max(leaks) == 0


def _leak(attention: Attention) -> float:
    """The largest weight of what is hidden: of a later position, or of
    the padding behind five words in the first sentence."""
    if attention.kind == "s":
        return attention.weights.triu(1).max().item()
    padding = attention.weights[0, ..., 5:]
    if attention.kind == "S":  # what padding sees is of no account
        padding = padding[:, :5]
    return padding.max().item()


@probe(
    "masks-decoder",
    "masks-causal",
    "build",
    "logits",
    after="mask_inside causal_mask multi_head",
)
def future(tried: Adapter) -> Verdict:
    """In the decoder no position sees a later one."""
    sees = influence(tried, wild(tried), side=1)
    leaks = sees.triu(1)
    in_training = _leaks_in_training(tried)
    if not leaks.any() and in_training:
        return fault(
            "in training mode a position sees a later one, though not in "
            "evaluation mode: it learns to copy its labels"
        )
    if not leaks.any():
        return paper("a changed word moves nothing before it")
    where, seen = (int(x) for x in leaks.nonzero()[0])
    words = f"position {where} of the target sees position {seen}: "
    if _hides(tried, "s"):
        return fault(words + MIXED.format("later positions"))
    if sees.all() and not in_training:
        return fault(
            words + "in evaluation mode there is no causal mask, so a "
            "validation loss sees its labels"
        )
    if sees.all():
        return fault(words + "there is no causal mask in the decoder")
    if not sees[:, 1:].tril(-2).any():
        return fault(words + "the causal mask is turned round")
    if leaks.sum() == TARGET - 1 and leaks.diagonal(1).all():
        return fault(
            words + "the causal mask is shifted by one, or the labels are"
        )
    return fault(words + "the causal mask is not a triangle")


def _leaks_in_training(tried: Adapter) -> bool:
    """Whether a later word moves what is before it in training mode."""
    model = wild(tried)
    if not isinstance(model, nn.Module):
        return False
    source, target = pairs(tried)
    leaks = []
    for place in range(1, TARGET):
        changed = target.clone()
        changed[:, place] = other(changed[:, place], tried)
        with mode(model, True), torch.no_grad():
            torch.manual_seed(0)  # some drop attention weights, always
            before = torch.as_tensor(tried.logits(model, source, target))
            torch.manual_seed(0)
            after = torch.as_tensor(tried.logits(model, source, changed))
        distance = moved(before.double(), after.double())
        leaks.append((distance[:place] > ENOUGH).any())
    return bool(torch.stack(leaks).any())


@probe(
    "attention-use-decoder",
    "attention-uses",
    "build",
    "logits",
    after="future",
)
def past(tried: Adapter) -> Verdict:
    """In the decoder each position sees itself and all before it."""
    sees = influence(tried, wild(tried), side=1)
    blind = ~sees & torch.ones_like(sees).tril().bool()
    if not blind.any():
        return paper("each word moves the scores of its own and all later "
                     "positions")  # fmt: skip
    where, seen = (int(x) for x in blind.nonzero()[0])
    if not sees[:, 1:].tril(-2).any():
        return fault(
            "the decoder reads only its newest token: its self-attention "
            "sees nothing before it"
        )
    return fault(f"position {where} of the target does not see {seen}")


@probe("attention-use-cross", "attention-uses", "build", "logits")
def source_seen(tried: Adapter) -> Verdict:
    """Every position of the target attends to every position of the
    source."""
    sees = influence(tried, wild(tried), side=0)
    if sees.all():
        return paper("each word of the source moves each position's scores")
    if not sees[:, :-1].any():
        if _inverted(tried):
            return fault(INVERTED, follows=MASKED)
        return fault(
            "the scores are the same for every source: the decoder never "
            "reads the encoder's output"
        )
    where, seen = (int(x) for x in (~sees).nonzero()[0])
    return fault(f"position {where} of the target does not see source {seen}")


@probe(
    "background-any-distance",
    "background-distance",
    "build",
    "logits",
    after="source_seen past",
)
def distance(tried: Adapter) -> Verdict:
    """Attention relates positions no matter how far apart they are."""
    try:
        return _distance(tried, 60)
    except Exception as error:
        if _distance(tried, 12).kind == "fault":
            raise
        return deviation(
            "a longest sentence",
            f"12 words work, and 60 raise {type(error).__name__}: {error}",
            "models with a table of positions",
        )


def _distance(tried: Adapter, length: int) -> Verdict:
    """Whether the first words reach the last position in one layer."""
    # What weights as they begin, small, or large ones show is there.
    reached: dict[str, float] = {}
    for model in (build(tried, N=1), wild(tried, N=1)):
        for what, distance in _reached(tried, model, length).items():
            reached[what] = max(distance, reached.get(what, 0.0))
    for what, distance in reached.items():
        if distance < ENOUGH / 10:
            return fault(f"of {length} words, in one layer, {what}")
    return paper(f"the first of {length} words reaches the last position")


def _reached(tried: Adapter, model: Any, length: int) -> dict[str, float]:
    """How far the first words move what is at the last position."""
    source, target = pairs(tried, length, length - 4)
    new_source, new_target = source.clone(), target.clone()
    new_source[:, 0] = other(source[:, 0], tried)
    new_target[:, 1] = other(target[:, 1], tried)
    before = logits(tried, model, source, target)
    by_source = logits(tried, model, new_source, target)
    by_target = logits(tried, model, source, new_target)
    reached = {
        "the first word of the source does not reach the last position": (
            moved(before, by_source)[-1].item()
        ),
        "the first word of the target does not reach the last": (
            moved(before, by_target)[-1].item()
        ),
    }
    if tried.has("encode"):
        vectors = (encoded(tried, model, x) for x in (source, new_source))
        words = "the last word's vector in the encoder does not know the first"
        reached[words] = moved(*vectors)[-1].item()
    return reached


@probe(
    "masks-encoder",
    "masks-padding",
    "build",
    "logits",
    after="padding_mask multi_head",
)
def padding(tried: Adapter) -> Verdict:
    """Padding of the source is hidden: appended, it changes nothing."""
    model = wild(tried)
    source, _ = pairs(tried)
    padded = F.pad(source, (0, 3), value=tried.PAD)
    if _inverted(tried):
        return fault(INVERTED, follows=MASKED)
    distance = _moved_by_padding(tried, model)
    if distance < ENOUGH:
        return paper("three paddings more, the same scores")
    words = f"three paddings move the scores by {distance:.2g} of their spread"
    if _hides(tried, "S", "c"):
        mixed = f"{words}: {MIXED.format('padding')}"
        return fault(mixed, follows="future" * _hides(tried, "s"))
    if tried.has("encode"):
        short, long = (
            encoded(tried, model, source),
            encoded(tried, model, padded),
        )
        if close(short, long[:, :SOURCE], 1e-3):
            return fault(
                f"{words}: the encoder hides padding, but the decoder's "
                "attention to the source does not"
            )
    return fault(
        f"{words}: is there a mask in the encoder and in the decoder's "
        "attention to the source, is it turned the right way, and is it "
        "made from ids, and not from vectors that sum to zero?"
    )


def _moved_by_padding(tried: Adapter, model: Any) -> float:
    """How far three paddings of the source move the scores."""
    source, target = pairs(tried)
    padded = F.pad(source, (0, 3), value=tried.PAD)
    before = logits(tried, model, source, target)
    after = logits(tried, model, padded, target)
    return moved(before, after).max().item()


@torch.no_grad()
def encoded(tried: Adapter, model: Any, source: Tensor) -> Tensor:
    """The encoder's output (batch, source_len, d_model)."""
    with mode(model, False):
        return torch.as_tensor(tried.encode(model, source)).double()


@probe(
    "sentence-mask-and-shift",
    "sentence-teacher",
    "build",
    "logits",
    after="padding_mask padding future",
)
def batch(tried: Adapter) -> Verdict:
    """A sentence's scores do not depend on the others in its batch."""
    model = wild(tried)
    source, target = pairs(tried)
    if _by_rows(tried, model):
        return fault(BY_ROWS)
    lengths = [(4, 3), (SOURCE, TARGET), (5, 4)]  # of source and target
    source = tried.ended(source, *(length for length, _ in lengths))
    for row, (_, length) in enumerate(lengths):
        target[row, length:] = tried.PAD
    together = logits(tried, model, source, target)
    distances = []
    for row, (long, wide) in enumerate(lengths):
        one = slice(row, row + 1)
        alone = logits(tried, model, source[one, :long], target[one, :wide])
        distances.append(moved(alone, together[one, :wide]).max().item())
    if max(distances) < ENOUGH:
        return paper("alone and in a batch the same scores")
    return fault(
        f"in a batch the scores move by {max(distances):.2g} of their "
        "spread: padding, or other sentences, are attended to"
    )


BY_ROWS = (
    "equal sentences of a batch get different scores: something is added "
    "by a sentence's place in the batch, as positions are if their axis is "
    "taken for that of the batch"
)


def _by_rows(tried: Adapter, model: Any) -> bool:
    """Whether equal sentences of a batch get different scores."""
    ids = [x.repeat(BATCH, 1) for x in pairs(tried, rows=1)]
    out = logits(tried, model, *ids)
    return bool(moved(out[:1], out).max() > ENOUGH)


@probe(
    "masks-infinity",
    "masks-infinity",
    "build",
    "logits",
    after="padding_mask padding batch",
)
def all_padding(tried: Adapter) -> Verdict:
    """A row of nothing but padding spoils nothing else."""
    model = wild(tried)
    source, target = pairs(tried)
    before = logits(tried, model, source, target)[1:]
    source[0] = tried.PAD
    after = logits(tried, model, source, target)
    if (
        not after[1:].isfinite().all()
        or moved(before, after[1:]).max() > ENOUGH
    ):
        return fault("a row of padding changes the scores of other rows")
    if not after[0].isfinite().all():
        return deviation(
            "nan in an empty row",
            "a source of padding gets nan, which spoils the batch's loss",
            "nn.MultiheadAttention, where it returns its weights",
        )
    if _moved_by_padding(tried, model) > ENOUGH:
        raise NotShown("padding is not hidden, so no row is empty")
    return paper("finite, and the other rows are as they were")


@probe("positions-needed", "positions-sum", "build", "logits")
def source_order(tried: Adapter) -> Verdict:
    """The order of the source's words counts: the model is told their
    positions."""
    model = wild(tried)
    source, target = pairs(tried)
    source[:, 3] = other(source[:, 2], tried)
    swapped = source.clone()
    swapped[:, [2, 3]] = source[:, [3, 2]]
    before = logits(tried, model, source, target)
    if moved(before, logits(tried, model, swapped, target)).max() < ENOUGH:
        if _by_rows(tried, model):
            return fault(BY_ROWS)
        return fault(
            "two words of the source may change places, and no score "
            "changes: the encoder gets no positions",
            follows="source_seen",
        )
    return paper("two swapped words of the source move the scores")


@probe("positions-added", "positions-module", "build", "logits", after="past")
def target_order(tried: Adapter) -> Verdict:
    """Positions are added at the bottom of both stacks: the order of the
    words before counts too."""
    model = wild(tried, N=1)
    source, target = pairs(tried)
    target[:, 3] = other(target[:, 2], tried)
    swapped = target.clone()
    swapped[:, [2, 3]] = target[:, [3, 2]]
    before = logits(tried, model, source, target)
    last = moved(before, logits(tried, model, source, swapped))[-1]
    if last < ENOUGH:
        if _by_rows(tried, model):
            return fault(BY_ROWS)
        return fault(
            "two earlier words of the target may change places, and the "
            "next word's scores stay: the decoder gets no positions"
        )
    return paper("two swapped words of the target move the next one's scores")


@probe("attention-use-encoder", "attention-uses", "build", "logits")
def both_ways(tried: Adapter) -> Verdict:
    """In the encoder each position sees all positions, later ones too."""
    model = wild(tried)
    source, target = pairs(tried)
    if tried.has("encode"):
        before = encoded(tried, model, source)
        if before.shape[:2] != source.shape:
            return fault(
                f"for {SOURCE} words the encoder gives {tuple(before.shape)}: "
                "one vector for each word"
            )
        sees = []
        for place in range(SOURCE - 1):  # eos stays
            changed = source.clone()
            changed[:, place] = other(changed[:, place], tried)
            sees.append(moved(before, encoded(tried, model, changed)) > ENOUGH)
        seen = torch.stack(sees, 1)
    else:
        trace = Trace(tried, model, source, target)
        own = [a.weights for a in trace.attentions() if a.kind == "S"]
        if not own:
            raise trace.unseen("attention of the encoder")
        seen = torch.stack(own).amax((0, 1, 2)) > 0
    if seen.all():
        return paper("each word moves the vectors of all words")
    if not seen.triu(1).any() and not seen.tril(-1).any():
        follows = MASKED if _inverted(tried) else "distance"
        return fault(
            "each of the encoder's positions sees only itself: does its "
            "attention give nothing, or is what its layers give not used?",
            follows=follows,
        )
    if not seen.triu(1).any():
        return fault(
            "the encoder's positions see only those before them: the "
            "decoder's causal mask is used in the encoder"
        )
    where, place = (int(x) for x in (~seen).nonzero()[0])
    return fault(f"position {where} of the source does not see {place}")


# Layers


def kills(tried: Adapter, model: Any, weight: Tensor, side: int) -> bool:
    """Whether the scores forget a side if a weight becomes zero."""
    kept = weight.detach().clone()
    ids = list(pairs(tried))
    changed = [x.clone() for x in ids]
    changed[side] = other(changed[side], tried)
    with torch.no_grad():
        weight.zero_()
    before = logits(tried, model, *ids)
    after = logits(tried, model, *changed)
    with torch.no_grad():
        weight.copy_(kept)
    size = before.abs().max().clamp_min(1e-6)
    return bool((before - after)[:, 1:].abs().max() < 1e-5 * size)


def modules_weights(model: Any) -> list[tuple[str, Tensor]]:
    """The names and weights of a model of PyTorch."""
    if not isinstance(model, nn.Module):
        raise NotShown("the model is no nn.Module of PyTorch")
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def norms(model: Any) -> list[tuple[str, Tensor]]:
    """Weights of the norms: vectors, or numbers, that begin as ones."""
    return [
        (name, p)
        for name, p in modules_weights(model)
        if p.numel() in (1, SIZES["d_model"])
        and p.dim() <= 1
        and bool((p == 1).all())
    ]


@probe(
    "layers-post-norm",
    "layers-residual",
    "build",
    "logits",
    after="encoder_layer decoder_layer",
)
def norm_place(tried: Adapter) -> Verdict:
    """A sub-layer's output is LayerNorm(x + Sublayer(x)): all that goes
    on passes through every norm."""
    N = 2
    model = build(tried)
    names = norms(model)
    if not names:
        raise NotShown("no weights of norms, which begin as ones, were seen")
    before = logits(tried, model, *pairs(tried))
    for name, weight in names:
        with torch.no_grad():
            weight.copy_(0.5 + torch.rand_like(weight))
            after = logits(tried, model, *pairs(tried))
            weight.fill_(1.0)
        if moved(before, after).max() < 1e-6:
            return fault(
                f"{name} changes nothing: {_unused(tried, model, name)}",
                follows="source_seen",
            )
    # in post-norm a norm of the decoder that gives zeros ends all that
    # the decoder has read; in pre-norm the residual goes past it
    ends = [name for name, p in names if kills(tried, model, p, side=1)]
    count = f"{len(ends)} of {len(names)} norms let all of the target through"
    if len(ends) == 3 * N and len(names) == 5 * N:
        return paper(f"{count}: the decoder's {3 * N}")
    if len(ends) == 3 * N + 1 and len(names) in (5 * N + 1, 5 * N + 2):
        # a last norm ends what comes from the source, too
        tops = [p for n, p in names if n in ends and kills(tried, model, p, 0)]
        if len(tops) == 3:
            name, who = "a last norm after post-norm", "nn.Transformer"
        else:
            name, who = "a norm of the embeddings", "jadore801120, BERT"
        return deviation(name, count, who)
    if len(ends) <= 2 and len(names) >= 5 * N:
        if len(ends) == 0 and len(names) == 5 * N:
            if not _scale_is_lost(tried, model):
                return deviation("pre-norm without a last norm", count)
            return fault(
                f"{count}: the norm is taken of the sub-layer's output; the "
                "paper adds first: norm(x + sublayer(x))"
            )
        extra = len(ends) + len(names) - 5 * N - 3
        more = " and norms of the embeddings" if extra > 0 else ""
        return deviation(
            f"pre-norm{more}", f"{count}: residuals go past them", PRE_NORM
        )
    if len(names) < 5 * N:
        if shared := _shared(tried):
            return fault(shared)
        return fault(
            f"{len(names)} norms, where {N} layers in each stack have {5 * N}:"
            " each sub-layer has a norm of its own"
        )
    return fault(
        f"{count}, where post-norm has {3 * N}: norms or residual connections "
        "are not around every sub-layer of the decoder"
    )


def _unused(tried: Adapter, model: Any, norm: str) -> str:
    """Why a norm counts for nothing: it alone, or its whole layer."""
    numbered = re.match(r".*?\.\d+\.", norm)  # "encoder.layers.0."
    layer = numbered[0] if numbered else norm
    weights = [p for n, p in modules_weights(model) if n.startswith(layer)]
    _trained_logits(tried, model).square().sum().backward()
    reached = any(
        p.grad is not None and p.grad.abs().max() > 0 for p in weights
    )
    model.zero_grad()
    if reached or all(p.dim() == 1 for p in weights):
        return "its norm is not used"
    return (
        f"no weight of {layer[:-1]} counts, so what this layer gives goes "
        "nowhere. Does the loop pass x on, and is the stack's result used?"
    )


def _scale_is_lost(tried: Adapter, model: Any) -> bool:
    """Whether larger outputs of the networks change nothing, because a
    norm follows before they are added."""
    before = logits(tried, model, *pairs(tried))
    matrices = {SIZES["d_model"], SIZES["d_ff"]}
    for _, weight in modules_weights(model):
        if set(weight.shape) == matrices:
            with torch.no_grad():
                weight.mul_(3)
                after = logits(tried, model, *pairs(tried))
                weight.div_(3)
            if moved(before, after).max() > 1e-3:
                return False
    return True


def _hidden(tried: Adapter, model: Any) -> Tensor:
    """What goes into the pre-softmax matrix, (batch, len, d_model)."""
    trace = Trace(tried, model, *pairs(tried))
    inputs = [
        x
        for _, x, weight, out in trace.linears()
        if out.size(-1) == SIZES["vocab_size"]
    ]
    inputs += [
        call.input
        for call in trace.calls
        if call.name in ("matmul", "rmatmul")
        and call.out.shape[-1:] == (SIZES["vocab_size"],)
    ]
    if not inputs:
        raise NotShown("the pre-softmax matrix was not seen")
    return inputs[-1]


@probe(
    "layers-post-norm",
    "layers-residual",
    "build",
    "logits",
    after="norm_place",
)
def norm_formula(tried: Adapter) -> Verdict:
    """LayerNorm brings each position to mean 0 and variance 1."""
    model = build(tried)
    hidden = _hidden(tried, model).double()
    deviation_of = hidden.std(-1, correction=0).mean().item()
    measured = f"at the top the mean is {hidden.mean(-1).abs().max():.1g}, "
    measured += f"the deviation {deviation_of:.3f}"
    if hidden.mean(-1).abs().max() > 0.05:
        sizes = hidden.square().mean(-1).sqrt()
        if (sizes - 1).abs().max() < 0.02:
            return deviation("RMSNorm", measured, "T5, Llama")
        sentences = hidden.flatten(1)
        spread = sentences.std(1, correction=0)
        if sentences.mean(1).abs().max() < 0.01 > (spread - 1).abs().max():
            return fault(
                f"{measured}, and 0 and 1 over a sentence: the norm runs over "
                "its positions too, and each has one of its own",
                follows="future",
            )
        if _normed_first(tried, model):
            return fault(NORMED_FIRST)
        return deviation("no norm at the top", measured)
    if abs(deviation_of - 1) < 0.01:
        return paper(measured)
    width = SIZES["d_model"]
    if abs(deviation_of - math.sqrt(1 - 1 / width)) < 0.01:
        return deviation(
            "unbiased deviation in the norm",
            f"{measured}: divided by d_model - 1",
            "the Annotated Transformer",
        )
    return fault(f"{measured}, where 1 is expected")


def _normed_first(tried: Adapter, model: Any) -> bool:
    """Whether the last sum is norm(x) + sublayer(norm(x))."""
    trace = Trace(tried, model, *pairs(tried))
    x = out = None  # what the last network was given, and what it gave
    for _, given, _, result in trace.linears():
        if result.size(-1) == SIZES["d_ff"]:
            x = given
        if given.size(-1) == SIZES["d_ff"]:
            out = result
    if x is None or out is None or x.shape != out.shape:
        return False
    mean, spread = x.mean(-1), x.std(-1, correction=0)
    if mean.abs().max() > 0.05 or (spread - 1).abs().max() > 0.05:
        return False
    return close(_hidden(tried, model), x + out)


@probe(
    "layers-residual-each",
    "layers-residual",
    "build",
    "logits",
    after="norm_place",
)
def residuals(tried: Adapter) -> Verdict:
    """Around each sub-layer there is a residual connection: without the
    sub-layer, what came in goes on."""
    model = build(tried)
    for name, weight in modules_weights(model):
        is_table = SIZES["vocab_size"] in weight.shape
        if weight.dim() != 2 or is_table:
            continue
        if weight.size(0) > 48 or weight.size(1) != SIZES["d_model"]:
            if weight.size(1) != SIZES["d_ff"]:
                continue
        for side, stack in ((1, "target"), (0, "source")):
            if kills(tried, model, weight, side):
                return fault(
                    f"if {name} gives zeros, nothing of the {stack} gets "
                    "through: its sub-layer has no residual connection"
                )
    share = _carried(tried)
    if not math.isclose(share, 1, rel_tol=1e-2):
        return fault(
            f"the residual connection adds {share:.3g} times x: is x added "
            "twice, inside the sub-layer and around it?"
        )
    return paper("every sub-layer may give zeros, and its input goes on")


def _carried(tried: Adapter) -> float:
    """How many times x goes into the sum after a network, in post-norm;
    1 where it cannot be seen."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    x = out = None  # what the network was given, and what it gave
    for call in trace.calls:
        if call.name == "linear" and call.out.size(-1) == SIZES["d_ff"]:
            x = call.input
        elif call.name == "linear":
            out = call.out if call.input.size(-1) == SIZES["d_ff"] else None
        elif call.name == "layer_norm" and x is not None and out is not None:
            rest = call.input - out
            if rest.shape == x.shape:
                share = ((rest * x).sum() / (x * x).sum()).item()
                if close(rest, share * x, 1e-3):
                    return share
            out = None
    return 1.0


@probe(
    "layers-stack",
    "layers-stacks",
    "build",
    "logits",
    after="multi_head source_seen norm_place",
)
def weights_used(tried: Adapter) -> Verdict:
    """Each stack has N layers, and every one of their weights takes part
    and learns."""
    # with wild weights and without norms a softmax may saturate
    idle = [
        name
        for name in _idle(tried, wild(tried))
        if name in _idle(tried, build(tried))
    ]
    if not idle:
        return paper("a gradient reaches every matrix")
    more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
    return fault(
        f"no gradient reaches {idle[0]}{more}: its layer is skipped, its "
        "result is not used, or something is detached",
        follows=MASKED if _inverted(tried) else "",
    )


def _idle(tried: Adapter, model: Any) -> list[str]:
    """The matrices that no gradient reaches."""
    weights = modules_weights(model)
    out = _trained_logits(tried, model)
    (out * torch.randn_like(out)).sum().backward()
    return [
        name
        for name, p in weights
        if p.dim() > 1 and (p.grad is None or p.grad.abs().max() == 0)
    ]


def _trained_logits(tried: Adapter, model: Any) -> Tensor:
    """The logits in training mode, with their gradient."""
    with mode(model, True):
        out = tried.logits(model, *pairs(tried))
    if not out.requires_grad:
        raise Wrong("the logits have no gradient: is the model detached?")
    return out.double()


@probe("embeddings-learnt", "embeddings-lookup", "build", "logits")
def embeddings_learnt(tried: Adapter) -> Verdict:
    """The vectors of the words are learnt."""
    model = wild(tried)
    tables = [
        p
        for _, p in modules_weights(model)
        if p.dim() == 2 and p.size(0) == SIZES["vocab_size"]
    ]
    if not tables:
        raise NotShown("no table of words was seen among the weights")
    source, target = pairs(tried)
    read = set(source.flatten().tolist()) - {tried.EOS}
    unread = next(i for i in range(SIZES["vocab_size"]) if i not in read)
    # the score of a word that is not read, so not by the output's table
    _trained_logits(tried, model)[..., unread].sum().backward()
    for table in tables:
        if table.grad is not None and table.grad[[*read]].abs().max() > 0:
            return paper("a gradient reaches the vectors of the source")
    return fault("no gradient reaches the vectors of the words that are read")


def parameters(tried: Adapter, **changes: Any) -> int:
    """How many numbers a small model learns, tied ones once."""
    model = build(tried, **changes)
    return sum(p.numel() for _, p in modules_weights(model))


def _shared(tried: Adapter) -> str:
    """What is wrong if layers share their weights, or ''."""
    if not tried.has("logits"):
        return ""
    trace = Trace(tried, wild(tried), *pairs(tried))
    seen: list[tuple[Tensor, Tensor]] = []
    for _, x, weight, _ in trace.linears():
        before = [given for given, other in seen if weight.equal(other)]
        if any(not x.equal(given) for given in before):
            return (
                "a matrix is used twice in one pass: two layers, or two "
                "attentions of a layer, are one, and each has its own weights"
            )
        seen.append((x, weight))
    return ""


@probe("layers-own-parameters", "layers-stacks", "build", after="norm_place")
def own_weights(tried: Adapter) -> Verdict:
    """Layers are built alike, with weights of their own."""
    by_layers = [parameters(tried, N=n) for n in (1, 2, 3)]
    steps = by_layers[1] - by_layers[0], by_layers[2] - by_layers[1]
    if steps[0] == 0:
        return fault("more layers, no more weights: all layers are one")
    if steps[0] != steps[1]:
        return fault(f"a second layer adds {steps[0]} weights, a third "
                     f"{steps[1]}")  # fmt: skip
    if shared := _shared(tried):
        return fault(shared)
    weights = [
        p
        for _, p in modules_weights(build(tried))
        if p.dim() > 1 and SIZES["vocab_size"] not in p.shape
    ]
    same = sum(
        a.shape == b.shape and torch.equal(a, b)
        for i, a in enumerate(weights)
        for b in weights[:i]
    )
    if same:
        return deviation(
            "layers that begin alike",
            f"{same} pair{'s' * (same > 1)} of matrices with the same numbers",
            "nn.Transformer before its reset, whoever copies one layer",
        )
    return paper(f"each pair of layers adds {steps[0]:,} weights")


# What a layer of each stack may have, by what is said of it; a number of
# norms or matrices that is too small is a fault.
MATRICES = {
    12: "",
    **{
        12 - count: f"{count} of 12 matrices of attention in a layer are "
        "missing (is W^O there, or are matrices shared?)"
        for count in (1, 2, 3)
    },
}
ATTENTION_BIASES = {  # how many vectors
    0: "",
    12: "biases in attention",
    9: "biases in attention but for W^O",
    3: "a bias in W^O",
}
NETWORK_BIASES = {True: "", False: "no biases in the network"}
NORMS = {  # how many vectors, and how many numbers
    (10, 0): "",
    (0, 10): "norms of one number",
    (0, 0): "norms without weights",
    (5, 0): "norms without biases",
    (12, 0): "one more norm",
    **{
        (10 - 2 * count, 0): f"{count} of 5 norms of a layer are missing"
        for count in (1, 2, 3)
    },
}
OTHERS = {
    "biases in attention": "nn.Transformer, Marian, fairseq",
    "no biases in the network": "T5, Llama",
    "norms without biases": "Llama",
}


@probe(
    "attention-projection-shapes",
    "attention-multi-head",
    "build",
    after="own_weights",
)
def layer_weights(tried: Adapter) -> Verdict:
    """A layer's weights: four matrices in each attention, two maps with
    biases in the network, a norm for each sub-layer."""
    d, f = SIZES["d_model"], SIZES["d_ff"]
    got = _of_a_layer(tried, d)
    network = 2 * d * f + d + f
    right = 12 * d * d + 2 * network + 5 * 2 * d
    if got == right:
        return paper(f"{got:,} in a layer of each stack")
    if got == 0:
        return fault("a third layer adds no weights")
    if got == right - network:
        return fault("one of the two networks of a layer is missing")
    measured = f"{got:,} weights, in the paper {right:,}"
    parts = _parts_of_a_layer(tried, got)
    if parts is None:
        if shared := _shared(tried):
            return fault(shared)
        words = f"{measured}: {_shapes_of_a_layer(tried)}"
        return deviation("a layer of another size", words)
    wrong, names, width = parts
    if width != f:
        measured += f"; the network is {width:,} wide, whatever is asked for"
    if wrong:
        return fault("; ".join([*wrong, *names, measured]))
    if not names:
        return deviation("a fixed d_ff", measured)
    who = OTHERS.get(names[0], "") if len(names) == 1 else ""
    return deviation(", ".join(names), measured, who)


def _of_a_layer(tried: Adapter, d_model: int) -> int:
    """How many numbers a layer of each stack learns."""
    by_layers = [parameters(tried, N=n, d_model=d_model) for n in (2, 3)]
    return by_layers[1] - by_layers[0]


def _shapes_of_a_layer(tried: Adapter) -> str:
    """The weights of a layer of each stack, by their shapes."""
    two, three = (
        Counter(tuple(p.shape) for _, p in modules_weights(model))
        for model in (build(tried, N=2), build(tried, N=3))
    )
    return ", ".join(f"{n} of {shape}" for shape, n in (three - two).items())


def _parts_of_a_layer(
    tried: Adapter, got: int
) -> tuple[list[str], list[str], int] | None:
    """What is wrong with a layer of so many weights, what else differs
    from the paper, and the width of the network; None if nothing known
    gives these weights at two values of d_model."""
    asked = SIZES["d_ff"]
    narrow, wide = SIZES["d_model"], 2 * SIZES["d_model"]
    counts = {narrow: got, wide: _of_a_layer(tried, wide)}
    fixed = parameters(tried, d_ff=asked + 1) == parameters(tried)
    no_norms = not norms(build(tried))
    found = []
    for choice in itertools.product(
        MATRICES, ATTENTION_BIASES, NETWORK_BIASES, NORMS
    ):
        matrices, vectors, biased, (of_norms, numbers) = choice
        widths = {}
        for d, count in counts.items():
            rest = count - matrices * d * d - (vectors + of_norms) * d
            # two networks, each with biases of width and d numbers
            rest -= numbers + (2 * d if biased else 0)
            widths[d] = rest / (2 * (2 * d + biased))
        width = widths[narrow]
        if fixed:  # to one number, or to a multiple of d_model
            fits = widths[wide] in (width, 2 * width)
            fits = fits and width.is_integer() and width >= 1
        else:
            fits = set(widths.values()) == {asked}
        if not fits or no_norms != (of_norms + numbers == 0):
            continue
        words = [
            MATRICES[matrices],
            ATTENTION_BIASES[vectors],
            NETWORK_BIASES[biased],
            NORMS[of_norms, numbers],
        ]
        wrong = [x for x in words if "missing" in x]
        names = [x for x in words if x and x not in wrong]
        found.append((wrong, names, int(width)))
    # the fewest differences explain it best
    return min(found, key=lambda x: len(x[0]) + len(x[1]), default=None)


@probe(
    "layers-equation-2",
    "layers-feed-forward",
    "build",
    after="own_weights layer_weights",
)
def network_weights(tried: Adapter) -> Verdict:
    """Both maps of the network have the inner width d_ff, and biases."""
    step = parameters(tried, d_ff=25) - parameters(tried, d_ff=24)
    right = 2 * SIZES["N"] * (2 * SIZES["d_model"] + 1)
    if step == right:
        return paper(f"a wider network by 1 has {step} more weights")
    if step == 0:
        return deviation("a fixed d_ff", "the adapter's d_ff changes nothing")
    if step == right - 2 * SIZES["N"]:
        return deviation("no biases in the network", f"{step} more", "Llama")
    if step == 3 * right / 2 or step == 2 * SIZES["N"] * 3 * SIZES["d_model"]:
        return deviation("a gated network", f"{step} more weights", "Llama")
    return fault(f"a wider network by 1 has {step} more weights, not {right}")


@probe(
    "attention-head-cost",
    "attention-averaging",
    "build",
    "logits",
    after="multi_head heads_differ",
)
def heads(tried: Adapter) -> Verdict:
    """Several heads cost what one of full width costs, and are not the
    same: each has d_model / h."""
    one, four = parameters(tried, h=1), parameters(tried, h=4)
    if one != four:
        return deviation(
            "heads of a width of their own",
            f"{one:,} weights with one head, {four:,} with four",
        )
    models = [wild(tried, h=h) for h in (1, 4)]
    results = [logits(tried, model, *pairs(tried)) for model in models]
    if moved(*results).max() < ENOUGH:
        return fault("one head and four give the same scores: h is not used")
    return paper("one head and four: as many weights, other scores")


@probe("embeddings-tied", "embeddings-tying", "build", after="one_matrix")
def tying(tried: Adapter) -> Verdict:
    """Both embeddings and the pre-softmax map share one matrix."""
    d = SIZES["d_model"]
    step = parameters(tried, vocab_size=24) - parameters(tried)
    tables, bias = divmod(step, d)
    measured = f"one token more is {step} weights more"
    words = f"{measured}: {tables} {'table' if tables == 1 else 'tables'}"
    if bias == 1:
        words += " and a bias"
    if (tables, bias) == (1, 0):
        return paper(words)
    names = {
        1: "one table",
        2: "untied: two tables",
        3: "untied: three tables",
    }
    if tables == 2 and _one_storage(tried):
        return deviation(
            "one table, two parameters",
            "they share their numbers, but each has a gradient of its own: "
            "an optimizer moves them twice, and a deep copy unties them",
        )
    if tables in names and bias in (0, 1):
        name = names[tables] + (", a bias on the scores" if bias else "")
        who = "the Annotated Transformer, most code with two vocabularies"
        if (tables, bias) == (1, 1):
            who = "Marian models in Hugging Face Transformers"
        return deviation(name, words, who)
    return fault(f"{measured}, where a table has {d} for each token")


def _one_storage(tried: Adapter) -> bool:
    """Whether two parameters are one table in memory."""
    weights = modules_weights(build(tried))
    places = [
        p.data_ptr() for _, p in weights if SIZES["vocab_size"] in p.shape
    ]
    return len(places) != len({*places})


# Inside one pass


@probe(
    "layers-decoder-third-sublayer",
    "layers-decoder-layer",
    "build",
    "logits",
    after="decoder_layer source_seen past norm_place weights_used",
)
def order_of_sublayers(tried: Adapter) -> Verdict:
    """The encoder's layers are attention and network; the decoder's have
    attention to the source between these two."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    events = [(a.place, a.kind) for a in trace.attentions()]
    for place, x, _, out in trace.linears():
        if out.size(-1) == SIZES["d_ff"] and x.size(-1) == SIZES["d_model"]:
            kind = "F" if SOURCE in x.shape[:2] else "f"
            events.append((place, kind))
    got = "".join(kind for _, kind in sorted(events))
    N = SIZES["N"]
    if got == "SF" * N + "scf" * N:
        return paper(f"{N} times attention, network; {N} times attention, "
                     "attention to the source, network")  # fmt: skip
    if "F" not in got and got == "S" * N + "sc" * N:
        raise NotShown("the network's linear maps were not seen")
    parts = {
        CROSS_FIRST: "SF" * N + "csf" * N,
        "the encoder's network comes before its attention": (
            "FS" * N + "scf" * N
        ),
        "the decoder's network comes before its attention": (
            "SF" * N + "fsc" * N
        ),
        "the network comes between the decoder's attentions": (
            "SF" * N + "sfc" * N
        ),
        "the decoder never attends to the source": "SF" * N + "sf" * N,
        "the decoder never attends to itself": "SF" * N + "cf" * N,
        "the decoder attends to itself twice": "SF" * N + "ssf" * N,
        "the encoder has no network": "S" * N + "scf" * N,
        "the decoder has no network": "SF" * N + "sc" * N,
        "a layer of the encoder is skipped": "SF" * (N - 1) + "scf" * N,
        "a layer of the decoder is skipped": "SF" * N + "scf" * (N - 1),
    }
    for words, sequence in parts.items():
        if got == sequence:
            return fault(words)
    if sorted(got) == sorted("SF" * N + "scf" * N):
        return fault(f"the sub-layers come in another order: {got}")
    counted = {kind: got.count(kind) for kind in "SFscf"}
    return fault(f"not {N} sub-layers of each kind: {counted}")


@probe(
    "attention-equation-1",
    "attention-scaled",
    "build",
    "logits",
    after="equation multi_head",
)
def scores_factor(tried: Adapter) -> Verdict:
    """In the model too, every score is divided by the root of d_k, the
    width of one head."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    d_k = SIZES["d_model"] // SIZES["h"]
    found, way = {}, "right"
    for attention in trace.attentions():
        found[attention.kind], way = factor_of(trace, attention, SIZES["h"])
        if way == "along":
            return fault(
                "the heads are cut along the words (`view` without "
                "`transpose`): cut the last axis, then move the axis of heads"
            )
    names = {
        d_k**-0.5: "",
        1.0: "the scores are not divided by the root of d_k",
        1 / d_k: "the scores are divided by d_k: take its root",
        d_k**0.5: "the scores are multiplied by the root of d_k",
        SIZES["d_model"] ** -0.5: (
            "the root is of d_model: d_k is the width of one head"
        ),
        SOURCE**-0.5: "the root is of the number of keys, not of d_k",
        TARGET**-0.5: "the root is of the number of keys, not of d_k",
    }
    for factor in found.values():
        for right, words in names.items():
            if words and math.isclose(factor, right, rel_tol=1e-2):
                return fault(words)
        if not math.isclose(factor, d_k**-0.5, rel_tol=1e-2):
            return deviation(
                "another scale of the scores",
                f"times {factor:.3g}, in the paper {d_k**-0.5:.3g}",
            )
    return paper(
        f"times {d_k**-0.5:.3f} for a d_k of {d_k}, in all attentions"
    )


@probe(
    "attention-mask-inside",
    "attention-scaled",
    "build",
    "logits",
    after="future padding mask_inside infinity",
)
def hidden_weights(tried: Adapter) -> Verdict:
    """What a mask forbids gets a weight of exactly zero, and each row of
    weights sums to 1, in every attention of the model."""
    source, target = pairs(tried)
    source = tried.ended(source, 5)
    trace = Trace(tried, wild(tried), source, target)
    names = {"S": "the encoder's", "s": "the decoder's", "c": "the cross"}
    for attention in trace.attentions():
        weights, where = attention.weights, names[attention.kind]
        if not close(weights.sum(-1), torch.ones(weights.shape[:-1])):
            return fault(
                f"weights of {where} attention do not sum to 1 for a query: "
                "the softmax runs along another axis"
            )
        leak = _leak(attention)
        hidden = "a later position" if attention.kind == "s" else "padding"
        if leak > 0:
            return fault(f"in {where} attention {hidden} has a weight of "
                         f"{leak:.2g}")  # fmt: skip
    return paper("padding and later positions have weights of exactly 0")


def _sums(tried: Adapter, model: Any) -> list[tuple[float, Tensor, Tensor]]:
    """The sums of words and positions at the bottom of a model."""
    trace = Trace(tried, model, *pairs(tried))
    sums = trace.sums()
    if not sums and trace.sums(("mul", "imul", "rmul")):
        raise Wrong("positions are multiplied with the words: add them")
    if not sums:
        raise trace.unseen("sum of a look-up in a table and positions")
    return sums


@probe(
    "embeddings-factor", "embeddings-factor", "build", "logits", after="factor"
)
def embedding_factor(tried: Adapter) -> Verdict:
    """Embeddings are multiplied by the root of d_model before positions
    are added."""
    sums = _sums(tried, build(tried))
    root = SIZES["d_model"] ** 0.5
    factors = sorted({round(factor, 3) for factor, _, _ in sums})
    if factors == [root]:
        return paper(f"times {root:g}, the root of {SIZES['d_model']}")
    if len(factors) > 1:
        said = " and ".join(
            f"{factor:.3g} in the {_side(words)}" for factor, _, words in sums
        )
        return fault(f"the factor is {said}: both need it")
    if factors == [1.0]:
        if _multiplied(tried, sums):
            return fault(
                "the factor multiplies the positions too: multiply the words "
                "before positions are added"
            )
        _, places, words = sums[0]
        sizes = [x.square().mean().sqrt().item() for x in (words, places)]
        said = f"words have a size of {sizes[0]:.2f}, positions {sizes[1]:.2f}"
        if sizes[0] < sizes[1] / 2:
            return fault(
                f"the factor is missing, and {said}: these drown them"
            )
        return deviation(
            "embeddings without the factor",
            f"words are added as they are in the table; at first {said}",
            "hyunwoongko, BERT, GPT",
        )
    mistakes = {
        root**2: "the factor is sqrt(d_model), not d_model",
        1 / root: "embeddings are divided by the root of d_model",
    }
    for factor, words in mistakes.items():
        if math.isclose(factors[0], factor, rel_tol=1e-2):
            return fault(words)
    return fault(f"the factor is {factors[0]:g}, in the paper {root:g}")


def _side(words: Tensor) -> str:
    return "encoder" if words.size(1) == SOURCE else "decoder"


def _multiplied(
    tried: Adapter, sums: list[tuple[float, Tensor, Tensor]]
) -> bool:
    """Whether a sum of words and positions is multiplied by a number."""
    trace = Trace(tried, build(tried), *pairs(tried))
    totals = [factor * words + rows for factor, rows, words in sums]
    for call in trace.calls:
        if call.name in ("mul", "imul", "rmul"):
            parts = [torch.as_tensor(x) for x in call.given().values()]
            by_size = sorted(parts, key=lambda x: x.numel())
            number, x = by_size[0], batch_first(by_size[-1])
            if number.numel() == 1 and x is not None:
                if any(close(x, total) for total in totals):
                    return True
    return False


@probe(
    "positions-formula",
    "positions-sinusoids",
    "build",
    "logits",
    after="formula source_order target_order",
)
def added_positions(tried: Adapter) -> Verdict:
    """What is added to the words is section 3.5's table, from position 0
    on, in the encoder and in the decoder."""
    model = build(tried)
    verdicts = {
        _side(words): judge(rows) for _, rows, words in _sums(tried, model)
    }
    kinds = {verdict.kind for verdict in verdicts.values()}
    if "fault" in kinds and (learned := _learned(model)):
        return learned
    if kinds == {"paper"} and (name := _trained_table(tried, model)):
        return deviation(
            "a positional table that is trained",
            f"{name} begins as printed and is learned, where the paper's "
            "sinusoids stay: make it a buffer",
        )
    said = {verdict.words for verdict in verdicts.values()}
    if len(kinds) == 1 and "paper" not in kinds and len(said) == 1:
        return next(iter(verdicts.values()))
    if kinds == {"paper"}:
        return paper(f"as printed, in the {' and in the '.join(verdicts)}")
    words = "; ".join(f"{side}: {v.words}" for side, v in verdicts.items())
    return fault(f"the stacks have different positions. In the {words}")


def _trained_table(tried: Adapter, model: nn.Module) -> str:
    """The name of a weight that is the table of positions, and that a
    gradient reaches; or ''."""
    added = [rows for _, rows, _ in _sums(tried, model)]
    _trained_logits(tried, model).square().sum().backward()
    for name, weight in modules_weights(model):
        wide = weight.dim() >= 2 and weight.size(-1) == SIZES["d_model"]
        if not wide or weight.grad is None or not weight.grad.any():
            continue
        table = weight.detach().flatten(0, -2)
        if any(close(table[: len(rows)], rows) for rows in added):
            return name
    return ""


def _learned(model: nn.Module) -> Verdict | None:
    """A deviation, if a table of positions is among the weights."""
    for name, weight in modules_weights(model):
        wide = weight.dim() >= 2 and weight.size(-1) == SIZES["d_model"]
        if wide and weight[..., 0].numel() >= 30 and "layer" not in name:
            return deviation(
                "learned positions", f"{name} is learned", "BERT, GPT"
            )
    return None


@probe(
    "layers-equation-2",
    "layers-feed-forward",
    "build",
    "logits",
    after="equation_2",
)
def activation(tried: Adapter) -> Verdict:
    """Between the network's two maps there is a ReLU."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    inner, used = None, set()
    for _, x, _, out in trace.linears():
        if x.size(-1) == SIZES["d_ff"] and inner is not None:
            kinds: dict[str, Callable] = {
                "ReLU": F.relu,
                "GELU": F.gelu,
                "SiLU": F.silu,
                "nothing": lambda y: y,
                "tanh": torch.tanh,
                "sigmoid": torch.sigmoid,
                "leaky ReLU": F.leaky_relu,
                "ELU": F.elu,
                "GELU by tanh": lambda y: F.gelu(y, approximate="tanh"),
                "squared ReLU": lambda y: y.relu().square(),
            }
            same = [n for n, f in kinds.items() if close(f(inner), x, 1e-5)]
            used.add(same[0] if same else "something else")
        inner = out if out.size(-1) == SIZES["d_ff"] else None
    if not used:
        raise NotShown("the network's linear maps were not seen")
    said = " and ".join(sorted(used))
    if used == {"ReLU"}:
        return paper("max(0, x)")
    if "nothing" in used:
        return fault("no ReLU between the two maps, which are then one")
    return deviation(
        "another activation than ReLU", said, "Marian (SiLU), BERT (GELU)"
    )


@probe(
    "attention-use-cross",
    "attention-uses",
    "build",
    "logits",
    "encode",
    after="source_seen order_of_sublayers",
)
def memory_everywhere(tried: Adapter) -> Verdict:
    """Keys and values of every decoder layer come from the output of the
    encoder's whole stack."""
    model = wild(tried)
    source, target = pairs(tried)
    memory = encoded(tried, model, source)
    trace = Trace(tried, model, source, target)
    places = {a.kind: a.place for a in trace.attentions()}
    across = [a.place for a in trace.attentions() if a.kind == "c"]
    if "S" not in places or not across:
        raise trace.unseen("attention to the source")
    last, first = places["S"], min(across)
    read = 0
    for place, x, weight, _ in trace.linears():
        given = batch_first(x)
        if given is None or given.size(1) != SOURCE or place < last:
            continue
        if weight.size(0) >= SIZES["d_model"] and place > last:
            if close(given, memory, 1e-3):
                read += 1
            elif place > first:
                return fault(
                    "a decoder layer takes keys or values from something "
                    "else than the encoder's output"
                )
    if not read:
        raise NotShown("the maps of keys and values were not seen")
    return paper(f"{read} maps read it in {len(across)} layers")


# Dropout


@probe("layers-residual-dropout", "layers-dropout", "build", "logits")
def dropout_off(tried: Adapter) -> Verdict:
    """Dropout is for training: in evaluation nothing is random."""
    model, ids = build(tried, dropout=0.5), pairs(tried)
    first, second = (logits(tried, model, *ids) for _ in range(2))
    if moved(first, second).max() >= 1e-5:
        return fault(
            "in evaluation mode two passes differ: dropout is still on"
        )
    without, again, dropping = (
        _evaluated(tried, rate) for rate in (0.0, 0.0, 0.5)
    )
    # where a seed decides on the weights, the rate has to change nothing
    decided = torch.equal(without[0], again[0]) and all(
        torch.equal(a, b) for a, b in zip(without[1], dropping[1], strict=True)
    )
    if decided and moved(without[0], dropping[0]).max() > ENOUGH:
        words = "in evaluation mode the scores depend on the rate of dropout"
        if isinstance(model, nn.Module) and _rates(tried):
            return fault(
                f"{words}, though PyTorch's dropout has divided by 1 - rate "
                "in training already"
            )
        return deviation(
            "dropout scales in evaluation",
            f"{words}: right if training only drops, and wrong if it divides "
            "by 1 - rate, too",
            "dropout as it was first published",
        )
    return paper("two passes in evaluation mode are equal")


def _evaluated(tried: Adapter, rate: float) -> tuple[Tensor, list[Tensor]]:
    """The scores in evaluation mode of a model that may drop, and the
    weights that gave them, if it is one of PyTorch."""
    ids = pairs(tried)
    model = build(tried, dropout=rate)
    scores = logits(tried, model, *ids)  # some make their weights only now
    is_module = isinstance(model, nn.Module)
    return scores, [*model.parameters()] if is_module else []


@probe("dropout-base", "layers-dropout", "build", "logits")
def dropout_on(tried: Adapter) -> Verdict:
    """In training some numbers are dropped, at the rate asked for."""
    model, ids = build(tried, dropout=RATE), pairs(tried)
    modules_weights(model)
    with mode(model, True), torch.no_grad():
        first, second = (tried.logits(model, *ids) for _ in range(2))
    if torch.equal(first, second):
        return fault("in training two passes are equal: nothing is dropped")
    rates = _rates(tried)
    if any(math.isclose(rate, 1 - RATE, rel_tol=1e-5) for rate in rates):
        return fault(
            f"{RATE} was asked for, and a share of {1 - RATE:g} is dropped: "
            "the rate is what is dropped, not what is kept"
        )
    if any(not math.isclose(rate, RATE, rel_tol=1e-5) for rate in rates):
        said = " and ".join(f"{rate:g}" for rate in sorted(rates))
        return deviation(
            "dropout at a fixed rate",
            f"{RATE} was asked for, and the rates are {said}",
            "the Annotated Transformer, on attention weights",
        )
    return paper("two passes in training mode differ")


@probe(
    "layers-residual-dropout",
    "layers-dropout",
    "build",
    "logits",
    after="dropout_on future norm_formula",
)
def training_equals_evaluation(tried: Adapter) -> Verdict:
    """Without dropout training mode computes what evaluation computes:
    layer normalization knows no batch."""
    model = wild(tried, dropout=0.0)
    modules_weights(model)
    source, target = pairs(tried)
    source = tried.ended(source, 4)
    if not _modes_differ(tried, model, source, target):
        long = pairs(tried, 40, 36)
        try:
            differ = _modes_differ(tried, model, *long)
        except Exception:  # a table of positions may end: see `distance`
            differ = False
        if differ:
            return fault(
                "for sentences of 40 words the two modes differ, though not "
                "for short ones: what is hidden in one mode is seen in the "
                "other"
            )
        return paper("the same scores in both modes")
    again = build(tried, dropout=0.0)
    with mode(again, True), torch.no_grad():
        passes = [tried.logits(again, source, target) for _ in range(2)]
    if not torch.equal(*passes):
        return deviation(
            "dropout at a fixed rate",
            "with a dropout of 0 something is still dropped in training",
            "the Annotated Transformer, on attention weights",
        )
    return fault(
        "without dropout the two modes differ: batch normalization, or two "
        "ways to compute attention that disagree",
        follows=MASKED if _inverted(tried) else "",
    )


def _modes_differ(
    tried: Adapter, model: nn.Module, source: Tensor, target: Tensor
) -> bool:
    """Whether a model without dropout has other scores in training."""
    evaluated = logits(tried, model, source, target)
    with mode(model, True), torch.no_grad():
        trained = tried.logits(model, source, target).double()
    return bool(moved(evaluated, trained).max() >= ENOUGH)


@probe(
    "layers-residual-dropout",
    "layers-dropout",
    "build",
    "logits",
)
def dropout_places(tried: Adapter) -> Verdict:
    """Dropout falls on each sub-layer's output before it is added, and
    nowhere else in a layer."""
    seen = dropped(tried)
    expected = 5 * SIZES["N"]
    measured = f"{seen['outputs']} places in {expected} sub-layers"
    extra = [x for x in ("attention weights", "inner layer") if seen[x]]
    if seen["norms"]:
        return fault(
            "dropout falls on what a norm gives: drop from the sub-layer's "
            "output, before x is added"
        )
    if seen["outputs"] == 0:
        places = " and ".join(f"{seen[x]} on {x}" for x in extra)
        but = f", but in each pass {places}" if extra else ""
        return fault(f"no dropout on the sub-layers' outputs{but}")
    if seen["whole sums"]:
        return fault(
            "dropout falls on the sum of x and the sub-layer's output; the "
            "residual connection has none"
        )
    if seen["outputs"] < expected:
        return fault(f"{measured}: some outputs are added without dropout")
    if extra:
        return deviation(
            f"dropout on {' and '.join(extra)}",
            f"{measured}, and {', '.join(f'{seen[x]} on {x}' for x in extra)}",
            "tensor2tensor, nn.Transformer, the Annotated Transformer",
        )
    if seen["outputs"] > expected:
        return deviation("more dropout than the paper's", measured)
    return paper(measured)


@probe("model-dropout-on-sums", "model-transformer", "build", "logits")
def dropout_of_sums(tried: Adapter) -> Verdict:
    """Dropout falls on the sums of embeddings and positions, in both
    stacks."""
    seen = dropped(tried)
    if seen["sums"] == 2:
        return paper("one place in each stack")
    if seen["sums"] == 0 and seen["words alone"]:
        return deviation(
            "dropout before the sum",
            "something is dropped from the words or the positions alone, and "
            "not from their sum",
        )
    if seen["sums"] == 0:
        return fault("no dropout on the sums of embeddings and positions")
    if seen["sums"] == 1:
        return fault("dropout on the sum of one stack only")
    return deviation(
        "more dropout before the layers", f"{seen['sums']} places"
    )


def dropped(tried: Adapter) -> dict[str, int]:
    """Where dropout falls in one pass of training, and how often."""
    model = build(tried, dropout=0.5)
    trace = Trace(tried, model, *pairs(tried), training=True)
    names = "sums", "outputs", "inner layer", "attention weights", "whole sums"
    seen = dict.fromkeys((*names, "words alone", "norms"), 0)
    below = False  # between an embedding and the first map after it
    output = None  # of the last dropout in a layer
    words = None  # or of the last one below all layers
    normed = None  # what the last norm gave
    for call in trace.calls:
        if call.name == "layer_norm" and output is not None:
            seen["whole sums"] += torch.equal(call.input, output)
        if call.looks_up or call.name in ("linear", "matmul", KERNEL):
            below = call.looks_up
            words = words if below else None
        if call.name == "layer_norm":
            normed = call.out
        if call.name in ("add", "iadd", "radd") and words is not None:
            parts = [x for x in call.given().values() if torch.is_tensor(x)]
            if any(torch.equal(x, words) for x in parts):
                seen["sums"] -= 1
                seen["words alone"] += 1
        if call.name == KERNEL:
            seen["attention weights"] += _drops(call) > 0
        if call.name != "dropout" or not _drops(call):
            continue
        x = call.input
        if not below and normed is not None and x.equal(normed):
            seen["norms"] += 1
        elif x.dim() == 3 and x.size(-1) == SIZES["d_model"]:
            seen["sums" if below else "outputs"] += 1
            output = None if below else call.out
            words = call.out if below else None
        elif x.dim() == 3 and x.size(-1) == SIZES["d_ff"]:
            seen["inner layer"] += 1
        elif {SOURCE, TARGET} & set(x.shape):
            seen["attention weights"] += 1
    if not any(seen.values()):
        raise NotShown("no call of dropout was seen")
    return seen


def _drops(call: Call) -> float:
    """The rate at which a call drops numbers; 0 when it does not."""
    given = call.given()
    if call.name == KERNEL:
        return float(given.get("dropout_p", 0.0))
    given = {"p": 0.5, "training": True} | given
    return float(given["p"]) if given["training"] else 0.0


def _rates(tried: Adapter) -> set[float]:
    """The rates of dropout in one pass of training, if RATE is asked."""
    model = build(tried, dropout=RATE)
    trace = Trace(tried, model, *pairs(tried), training=True)
    dropping = [c for c in trace.calls if c.name in ("dropout", KERNEL)]
    return {_drops(call) for call in dropping} - {0.0}


# The beginning, and learning


@probe(
    "model-initialisation",
    "model-initialisation",
    "build",
    "logits",
    after="shape future entries",
)
def first_loss(tried: Adapter) -> Verdict:
    """The paper does not give the initial weights; a loss near ln V is
    that of a model that does not know anything yet."""
    tried.random()
    size, width = 100, 64
    model = tried.build(size, 2, width, 2 * width, 4, 0.0)
    source = tried.ended(tried.words(16, 9, size=size), *[9] * 16)
    labels = tried.ended(tried.words(16, 8, size=size), *[8] * 16)
    target = labels.roll(1, 1)
    target[:, 0] = tried.BOS
    with mode(model, False), torch.no_grad():
        out = torch.as_tensor(tried.logits(model, source, target)).double()
    loss = F.cross_entropy(out.flatten(0, 1), labels.flatten()).item()
    flat, most = math.log(size), math.log(size) + 1.3 * width**0.5
    measured = f"{loss:.2f} nats per token, ln V = {flat:.2f}"
    if loss < flat - 0.1:
        return fault(f"{measured}: an untrained model that is better than "
                     "chance sees its labels")  # fmt: skip
    if loss > most:
        return fault(
            f"{measured}: the scores are far too large. A tied table needs "
            "entries of size d_model^-0.5, not 1"
        )
    return paper(measured)


@probe(
    "training-loop",
    "training-loop",
    "build",
    "logits",
    after="shape source_seen norm_place norm_formula residuals weights_used "
    "embeddings_learnt first_loss",
)
def by_heart(tried: Adapter) -> Verdict:
    """The regime trains the model: it learns one batch by heart."""
    model = build(tried, N=1, d_model=32, d_ff=64, h=4)
    modules_weights(model)
    source, _ = pairs(tried, 8, 6, 8)
    labels = tried.words(8, 6, size=SIZES["vocab_size"])
    labels = tried.ended(labels, *[6] * 8)
    target = labels.roll(1, 1)
    target[:, 0] = tried.BOS
    with mode(model, True):
        losses = list(learn(tried, model, source, target, labels, 200))
    measured = f"from {losses[0]:.2f} to {losses[-1]:.3f} nats per token"
    if not math.isfinite(losses[-1]):
        return fault("the loss becomes nan")
    if losses[-1] < 0.2:
        return paper(f"{measured} in 200 steps")
    return fault(f"{measured} in 200 steps: one batch is not learned by heart")


def learn(tried, model, source, target, labels, steps, rate=3e-3):
    """Train on one batch with Adam; yields the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        out = tried.logits(model, source, target)
        loss = F.cross_entropy(out.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
