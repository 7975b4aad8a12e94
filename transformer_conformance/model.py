"""Probes of a whole model: what it sees, in which order, and its weights.

Nothing here looks inside but at weights: a word is changed, or a weight
is, and the scores move or they don't.
"""

import math
from collections import Counter
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
    said_by,
)
from .layers import PRE_NORM
from .trace import BATCH, SIZES, SOURCE, TARGET, WORDS, Trace

# Of the scores' spread. Rounding in single precision moves them by some
# 1e-6, and the least that a word with a weight of 1e-3 does is more.
ENOUGH = 1e-4


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
    "because it is turned round, or does a softmax run along another axis "
    "than that of the keys?"
)


def moved(before: Tensor, after: Tensor) -> Tensor:
    """How far the logits of each position move, in spreads: (len,)."""
    if not (before.isfinite().all() and after.isfinite().all()):
        raise Wrong(NOT_FINITE)
    return (before - after).abs().amax((0, 2)) / before.std()


def other(ids: Tensor, tried: Adapter) -> Tensor:
    """For each word another one; special ids stay."""
    words = tried.ordinary(SIZES["vocab_size"])
    after = dict(zip(words, [*words[1:], words[0]], strict=True))
    flat = [after.get(i, i) for i in ids.flatten().tolist()]
    return torch.tensor(flat).view_as(ids)


@probe(
    "model-encoder-decoder",
    "model-transformer",
    "build logits",
    after="padding_mask causal_mask",
)
def shape(tried: Adapter) -> Verdict:
    """From source and target the model makes a score for every token of
    the vocabulary at every position of the target."""
    ids = pairs(tried)
    model = build(tried, dropout=0.5)
    out = logits(tried, model, *ids)
    finite = out.isfinite().all()
    if not finite or not logits(tried, wild(tried), *ids).isfinite().all():
        return fault(NOT_FINITE)
    if not close(out, logits(tried, model, *ids)):
        return fault(
            "in evaluation mode two passes differ, so nothing can be "
            "compared: dropout is still on"
        )
    kind = "logits"
    if _sums_to_1(out.exp(), -1):
        kind = "log-probabilities"
    elif _sums_to_1(out, -1) and out.min() >= 0:
        return fault(
            "these are probabilities: a loss that takes logits would apply "
            "a second softmax. If yours takes their logarithm, return the "
            "logarithm here"
        )
    for axis, what in ((0, "sentences"), (1, "positions")):
        for scores in (out, out.exp()):
            if _sums_to_1(scores, axis):
                return fault(
                    f"the softmax at the end runs over the {what}, dim="
                    f"{axis}: scores are compared over the vocabulary, dim=-1"
                )
    return paper(f"{kind}, (batch, target_len, vocab_size)")


def _sums_to_1(x: Tensor, axis: int) -> bool:
    """But for rounding, in half precision too."""
    return bool(((x.sum(axis) - 1).abs() < 1e-2).all())


# What is seen, and what is hidden


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


def wrong_weights(tried: Adapter, model: Any) -> dict[str, str]:
    """What is wrong with the weights of attentions, or '', by the kinds
    that are seen.

    Raises:
        NotShown: if no attention is seen.
    """
    source, target = pairs(tried)
    source = tried.ended(source, WORDS)
    found: dict[str, str] = {}
    for one in Trace(tried, model, source, target).attentions():
        found[one.kind] = found.get(one.kind) or one.wrong()
    return found


def because(tried: Adapter, model: Any, kinds: str, otherwise: str) -> str:
    """Why something is seen that should be hidden in these attentions."""
    try:
        wrong = wrong_weights(tried, model)
    except NotShown:
        return otherwise
    return next(
        (wrong[kind] for kind in kinds if wrong.get(kind)),
        "attention gives it no weight, so something else mixes positions. "
        "Are heads cut and joined with `transpose`? Does a norm, or the "
        "network, work on each position by itself?",
    )


@probe(
    "masks-encoder",
    "masks-padding",
    "build logits",
    after="padding_mask multi_head shape",
    source=True,
)
def padding(tried: Adapter) -> Verdict:
    """Padding of the source is hidden: appended, it changes nothing."""
    model = wild(tried)
    source, target = pairs(tried)
    words = other(source, tried)
    padded, changed = (
        F.pad(ids, (0, 3), value=tried.PAD) for ids in (source, words)
    )
    before, after, blind = (
        logits(tried, model, ids, target) for ids in (source, padded, changed)
    )
    distance = moved(before, after).max().item()
    if distance < ENOUGH:
        return paper("three paddings more, the same scores")
    seen = f"three paddings move the scores by {distance:.2g} of their spread"
    if moved(after, blind).max() < ENOUGH:
        return fault(
            f"{seen}, and then no word of the source does: the mask of "
            "padding is turned round"
        )
    otherwise = (
        "is there a mask in the encoder and in the decoder's attention to "
        "the source, before the softmax, and is it made from ids? Are heads "
        "cut and joined with `transpose`?"
    )
    return fault(f"{seen}: {because(tried, model, 'Sc', otherwise)}")


@torch.no_grad()
def encoded(tried: Adapter, model: Any, source: Tensor) -> Tensor:
    """The encoder's output (batch, source_len, d_model)."""
    with mode(model, False):
        out = tried.encode(model, source)
    if not isinstance(out, Tensor):
        raise Wrong(f"encode returns a {type(out).__name__}, not a tensor")
    return out.double()


@probe(
    "masks-decoder",
    "masks-causal",
    "build logits",
    after="mask_inside causal_mask multi_head",
)
def future(tried: Adapter) -> Verdict:
    """In the decoder no position sees a later one."""
    model = wild(tried)
    sees = influence(tried, model, side=1)
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
    otherwise = (
        "is there a causal mask in the decoder, a triangle with its "
        "diagonal, before the softmax, and are heads cut and joined with "
        "`transpose`?"
    )
    reason = because(tried, model, "s", otherwise)
    words = f"position {where} of the target sees position {seen}"
    if isinstance(model, nn.Module) and not in_training:
        return fault(
            f"in evaluation mode alone {words}, so a validation loss sees its "
            f"labels: {reason}"
        )
    return fault(f"{words}: {reason}")


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
    "attention-use-decoder", "attention-uses", "build logits", after="future"
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


@probe(
    "attention-use-cross",
    "attention-uses",
    "build logits",
    after="padding",
    source=True,
)
def source_seen(tried: Adapter) -> Verdict:
    """Every position of the target attends to every position of the
    source."""
    sees = influence(tried, wild(tried), side=0)
    if sees.all():
        return paper("each word of the source moves each position's scores")
    if not sees[:, :-1].any():
        return fault(
            "the scores are the same for every source: the decoder never "
            "reads the encoder's output. Is it a decoder alone, as GPT is? "
            "Then give `logits(model, ids)`"
        )
    where, seen = (int(x) for x in (~sees).nonzero()[0])
    return fault(f"position {where} of the target does not see source {seen}")


@probe(
    "attention-use-encoder",
    "attention-uses",
    "build logits",
    after="padding",
    source=True,
)
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
        return fault(
            "each of the encoder's positions sees only itself: does its "
            "attention give nothing, or is what its layers give not used?"
        )
    if not seen.triu(1).any():
        return fault(
            "the encoder's positions see only those before them: the "
            "decoder's causal mask is used in the encoder"
        )
    where, place = (int(x) for x in (~seen).nonzero()[0])
    return fault(f"position {where} of the source does not see {place}")


@probe(
    "background-any-distance",
    "background-distance",
    "build logits",
    after="padding source_seen past both_ways",
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
            f"12 words work, and 60 raise {said_by(error)}",
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
        # a tenth: one of 60 words has a small share of the weight
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
    by_target = logits(tried, model, source, new_target)
    words = "the first word of the target does not reach the last"
    reached = {words: moved(before, by_target)[-1].item()}
    if not tried.alone:
        by_source = logits(tried, model, new_source, target)
        words = "the first word of the source does not reach the last position"
        reached[words] = moved(before, by_source)[-1].item()
        if tried.has("encode"):
            vectors = (encoded(tried, model, x) for x in (source, new_source))
            words = "the encoder's last vector does not know the first word"
            reached[words] = moved(*vectors)[-1].item()
    return reached


@probe(
    "sentence-mask-and-shift",
    "sentence-teacher",
    "build logits",
    after="padding_mask padding future",
)
def batch(tried: Adapter) -> Verdict:
    """A sentence's scores do not depend on the others in its batch."""
    model = wild(tried)
    alike = [x.repeat(BATCH, 1) for x in pairs(tried, rows=1)]
    out = logits(tried, model, *alike)
    if moved(out[:1], out).max() > ENOUGH:
        return fault(
            "equal sentences of a batch get different scores: something is "
            "added by a sentence's place in the batch, as positions are if "
            "their axis is taken for that of the batch",
            root=True,
        )
    source, target = pairs(tried)
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


@probe(
    "masks-infinity",
    "masks-infinity",
    "build logits",
    after="padding_mask padding batch",
    source=True,
)
def all_padding(tried: Adapter) -> Verdict:
    """A row of nothing but padding spoils nothing else."""
    model = wild(tried)
    source, target = pairs(tried)
    padded = F.pad(source, (0, 3), value=tried.PAD)
    before, long = (logits(tried, model, x, target) for x in (source, padded))
    if moved(before, long).max() > ENOUGH:
        raise NotShown("padding is not hidden, so no row is empty")
    source[0] = tried.PAD
    after = logits(tried, model, source, target)
    rest = before[1:], after[1:]
    if not after[1:].isfinite().all() or moved(*rest).max() > ENOUGH:
        return fault("a row of padding changes the scores of other rows")
    if not after[0].isfinite().all():
        return deviation(
            "nan in an empty row",
            "a source of padding gets nan, which spoils the batch's loss",
            "nn.MultiheadAttention, where it returns its weights",
        )
    return paper("finite, and the other rows are as they were")


@probe(
    "positions-needed",
    "positions-sum",
    "build logits",
    after="source_seen batch",
    source=True,
)
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
        return fault(
            "two words of the source may change places, and no score "
            "changes: the encoder gets no positions"
        )
    return paper("two swapped words of the source move the scores")


@probe(
    "positions-added", "positions-module", "build logits", after="past batch"
)
def target_order(tried: Adapter) -> Verdict:
    """Positions are added at the bottom of both stacks: the order of the
    words before counts too."""
    if not order_counts(tried):
        return fault(
            "two earlier words of the target may change places, and the "
            "next word's scores stay: the decoder gets no positions"
        )
    return paper("two swapped words of the target move the next one's scores")


def order_counts(tried: Adapter) -> bool:
    """Whether one layer of the decoder knows its words' positions."""
    model = wild(tried, N=1)
    source, target = pairs(tried)
    target[:, 3] = other(target[:, 2], tried)
    swapped = target.clone()
    swapped[:, [2, 3]] = target[:, [3, 2]]
    before = logits(tried, model, source, target)
    after = logits(tried, model, source, swapped)
    return bool(moved(before, after)[-1] >= ENOUGH)


# Layers and their weights


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
    # rounding alone, so less than ENOUGH
    return bool((before - after)[:, 1:].abs().max() < 1e-5 * size)


def sublayers(tried: Adapter) -> int:
    """How many a layer of each stack has, both together."""
    return 2 if tried.alone else 5


def weights_of(model: Any) -> list[tuple[str, Tensor]]:
    """The names and weights of a model of PyTorch."""
    if not isinstance(model, nn.Module):
        raise NotShown("the model is no nn.Module of PyTorch")
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


@probe(
    "layers-post-norm",
    "layers-residual",
    "build logits",
    after="encoder_layer decoder_layer padding source_seen",
)
def norm_place(tried: Adapter) -> Verdict:
    """A sub-layer's output is LayerNorm(x + Sublayer(x)): all that goes
    on passes through every norm."""
    model = build(tried)
    names = [  # weights of norms begin as ones: a vector, or a number
        (name, p)
        for name, p in weights_of(model)
        if p.numel() in (1, SIZES["d_model"])
        and p.dim() <= 1
        and bool((p == 1).all())
    ]
    for name, norm in model.named_modules():
        if isinstance(norm, nn.LayerNorm) and norm.elementwise_affine:
            gain = norm.weight.abs().mean().item()
            if gain < 0.5:  # chosen: half; of N(0, 1/d_model) it is 0.2
                return fault(
                    f"the gain of {name} begins at {gain:.2g}, and a norm's "
                    "begins at 1: was an initialization of matrices given to "
                    "every parameter? Leave out those with p.dim() < 2"
                )
    if not names:
        raise NotShown("no weights of norms, which begin as ones, were seen")
    before = logits(tried, model, *pairs(tried))
    for name, weight in names:
        with torch.no_grad():
            weight.copy_(0.5 + torch.rand_like(weight))
            after = logits(tried, model, *pairs(tried))
            weight.fill_(1.0)
        if moved(before, after).max() < 1e-6:  # not even by rounding
            return fault(
                f"{name} changes nothing: its norm is not used, or no "
                "residual connection carries on what its layer gives"
            )
    # in post-norm a norm of the decoder that gives zeros ends all that
    # the decoder has read; in pre-norm the residual goes past it
    ends = [p for _, p in names if kills(tried, model, p, side=1)]
    own = SIZES["N"] * (2 if tried.alone else 3)  # the decoder's
    every = SIZES["N"] * sublayers(tried)
    count = f"{len(ends)} of {len(names)} norms let all of the target through"
    if len(names) < every:
        return fault(
            f"{len(names)} norms, where {SIZES['N']} layers have {every}: is "
            "a norm missing, or do sub-layers or layers share one?",
            root=True,  # what is counted follows from no mask
        )
    if len(ends) == own and len(names) == every:
        return paper(f"{count}: the decoder's {own}")
    if len(ends) == own + 1 and len(names) in (every + 1, every + 2):
        # a last norm ends what comes from the source, too
        if sum(kills(tried, model, p, side=0) for p in ends) == 3:
            name, who = "a last norm after post-norm", "nn.Transformer"
        else:
            name, who = "a norm of the embeddings", "jadore801120, BERT"
        return deviation(name, count, who)
    if len(ends) == 0:
        return fault(
            f"{count}: nothing norms the sum of x and the sub-layers' "
            "outputs, before it or at the end. The paper adds first: "
            "norm(x + sublayer(x))"
        )
    if len(ends) <= 2:
        measured = f"{count}: residuals go past them"
        # what ends all that comes from the source, and not the target
        if not tried.alone and not any(
            kills(tried, model, p, 0) and not kills(tried, model, p, 1)
            for _, p in names
        ):
            measured += ", and what the encoder gives passes through no norm"
            name = "pre-norm without the encoder's last norm"
            return deviation(name, measured)
        return deviation("pre-norm", measured, PRE_NORM)
    return fault(
        f"{count}, where post-norm has {own}: norms or residual connections "
        "are not around every sub-layer of the decoder. Does one begin at "
        "what a norm gives, where x is meant?"
    )


@probe(
    "layers-residual-each",
    "layers-residual",
    "build logits",
    after="norm_place",
)
def residuals(tried: Adapter) -> Verdict:
    """Around each sub-layer there is a residual connection: without the
    sub-layer, what came in goes on."""
    model = build(tried)
    widths = {SIZES["d_model"], SIZES["d_ff"]}
    sides = {"target": 1} if tried.alone else {"target": 1, "source": 0}
    for name, weight in weights_of(model):
        if weight.dim() != 2 or not {*weight.shape} & widths:
            continue
        if SIZES["vocab_size"] in weight.shape or "pos" in name:  # a table
            continue
        for stack, side in sides.items():
            if kills(tried, model, weight, side):
                return fault(
                    f"if {name} gives zeros, nothing of the {stack} gets "
                    "through: its sub-layer has no residual connection"
                )
    share = _carried(tried)
    if not math.isclose(share, 1, rel_tol=1e-2):  # chosen: twice is 2
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
            if call.input.shape == out.shape == x.shape:
                rest = call.input - out
                share = ((rest * x).sum() / (x * x).sum()).item()
                if close(rest, share * x, 1e-3):
                    return share
            out = None
    return 1.0


@probe(
    "layers-stack",
    "layers-stacks",
    "build logits",
    after="multi_head padding source_seen norm_place",
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
        "result is not used, or something is detached"
    )


def _idle(tried: Adapter, model: Any) -> list[str]:
    """The matrices that no gradient reaches, or rows of those that two
    or three are packed in."""
    weights = weights_of(model)
    out = trained_logits(tried, model)
    (out * torch.randn_like(out)).sum().backward()
    d, idle = SIZES["d_model"], []
    for name, p in weights:
        if p.dim() < 2:
            continue
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        parts = grad.split(d) if p.shape in ((2 * d, d), (3 * d, d)) else ()
        # in a table of positions no part is whole
        if not any(part.any(1).all() for part in parts):
            parts = (grad,)
        for i, part in enumerate(parts):
            if not part.any():
                rows = f"[{i * d}:{(i + 1) * d}]" if len(parts) > 1 else ""
                idle.append(name + rows)
    return idle


def trained_logits(tried: Adapter, model: Any) -> Tensor:
    """The logits in training mode, with their gradient."""
    with mode(model, True):
        out = tried.logits(model, *pairs(tried))
    if not out.requires_grad:
        raise Wrong("the logits have no gradient: is the model detached?")
    if any(isinstance(x, nn.Dropout) and x.p == 1 for x in model.modules()):
        raise Wrong(
            "a dropout of 0 was asked for, and all is dropped: the rate is "
            "what is dropped, not what is kept"
        )
    return out.double()


@probe("embeddings-learnt", "embeddings-lookup", "build logits")
def embeddings_learnt(tried: Adapter) -> Verdict:
    """The vectors of the words are learnt."""
    model = wild(tried)
    tables = [
        p
        for _, p in weights_of(model)
        if p.dim() == 2 and p.size(0) == SIZES["vocab_size"]
    ]
    if not tables:
        raise NotShown("no table of words was seen among the weights")
    source, target = pairs(tried)
    ids = target[:, 1:] if tried.alone else source
    read = set(ids.flatten().tolist()) - {tried.EOS}
    unread = next(i for i in range(SIZES["vocab_size"]) if i not in read)
    # the score of a word that is not read, so not by the output's table
    trained_logits(tried, model)[..., unread].sum().backward()
    for table in tables:
        if table.grad is not None and table.grad[[*read]].abs().max() > 0:
            return paper("a gradient reaches the vectors of the words")
    return fault("no gradient reaches the vectors of the words that are read")


def parameters(tried: Adapter, **changes: Any) -> int:
    """How many numbers a small model learns, tied ones once."""
    model = build(tried, **changes)
    return sum(p.numel() for _, p in weights_of(model))


@probe(
    "attention-projection-shapes",
    "attention-multi-head",
    "build",
    after="norm_place",
)
def layer_weights(tried: Adapter) -> Verdict:
    """A layer's weights: four matrices in each attention, two maps with
    biases in the network, a norm for each sub-layer."""
    d = SIZES["d_model"]
    two, three = (
        Counter(tuple(p.squeeze().shape) for _, p in weights_of(model))
        for model in (build(tried, N=2), build(tried, N=3))
    )
    # what is wider than three matrices side by side is the network's
    narrow = {
        shape: count
        for shape, count in (three - two).items()
        if max(shape, default=1) <= 3 * d
    }
    matrices = sum(
        math.prod(shape) * count
        for shape, count in narrow.items()
        if len(shape) > 1
    ) / (d * d)
    vectors = sum(
        shape[0] * count for shape, count in narrow.items() if len(shape) == 1
    ) / d  # fmt: skip
    wanted = (4, 5) if tried.alone else (12, 12)
    got = f"{matrices:g} matrices and {vectors:g} vectors of d_model"
    measured = f"{got}, in the paper {wanted[0]} and {wanted[1]}"
    if (matrices, vectors) == wanted:
        return paper(got)
    if not matrices:
        return fault(
            "a further layer adds no weights: is it in a Python list, which "
            "PyTorch doesn't see, in place of nn.ModuleList? Or do all "
            "layers share theirs?"
        )
    if matrices < wanted[0]:
        return fault(
            f"{measured}, in a layer: is W^O there, or do attentions or "
            "layers share a matrix?"
        )
    # a bias for each matrix, or for all but W^O, or for it alone
    extra = (vectors - wanted[1]) / wanted[0]
    if matrices == wanted[0] and extra in (1, 0.75, 0.25):
        return deviation(
            "biases in attention", measured, "nn.Transformer, Marian, fairseq"
        )
    return deviation("a layer of another size", measured)


@probe(
    "layers-equation-2", "layers-feed-forward", "build", after="layer_weights"
)
def network_weights(tried: Adapter) -> Verdict:
    """Both maps of the network have the inner width d_ff, and biases."""
    d, count = SIZES["d_model"], SIZES["N"] * (1 if tried.alone else 2)
    step = parameters(tried, d_ff=65) - parameters(tried, d_ff=64)
    if step == count * (2 * d + 1):
        return paper(f"a wider network by 1 has {step} more weights")
    if step == 0:
        return deviation("a fixed d_ff", "the adapter's d_ff changes nothing")
    if step == count * 2 * d:
        return deviation("no biases in the network", f"{step} more", "Llama")
    if step in (count * 3 * d, count * (3 * d + 2)):
        return deviation("a gated network", f"{step} more weights", "Llama")
    return fault(
        f"a wider network by 1 has {step} more weights, not "
        f"{count * (2 * d + 1)}"
    )


@probe(
    "attention-head-cost",
    "attention-averaging",
    "build logits",
    after="multi_head",
)
def heads(tried: Adapter) -> Verdict:
    """Several heads cost what one of full width costs, and are not the
    same: each has d_model / h."""
    one, four = parameters(tried, h=1), parameters(tried, h=4)
    if one > four:
        return fault(
            f"{one:,} weights with one head, {four:,} with four: is one "
            "module used for all heads? Each has matrices of its own"
        )
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
    words = f"one token more is {step} weights more: {tables} "
    words += f"table{'s' * (tables != 1)}{' and a bias' * (bias == 1)}"
    if (tables, bias) == (1, 0):
        return paper(words)
    if tables in (1, 2, 3) and bias in (0, 1):
        names = ["one table", "untied: two tables", "untied: three tables"]
        name = names[tables - 1] + (", a bias on the scores" if bias else "")
        who = "the Annotated Transformer, most code with two vocabularies"
        if tables == 1:
            who = "Marian models in Hugging Face Transformers"
        if tried.alone:
            who = "minGPT, Llama"
        return deviation(name, words, who)
    return fault(f"{words}, where a table has {d} for each token")


# The beginning, and learning

# What this book's own model begins with; a test measures it.
OURS_FIRST = 7.0


@probe(
    "model-initialisation",
    "model-initialisation",
    "build logits",
    after="shape future entries",
)
def first_loss(tried: Adapter) -> Verdict:
    """The paper does not give the initial weights; a loss near ln V is
    that of a model that does not know anything yet."""
    tried.random()
    size, width = 100, 64
    model = tried.build(size, 2, width, 4 * width, 4, 0.0)
    source = tried.ended(tried.words(16, 9, size=size), *[9] * 16)
    labels = tried.ended(tried.words(16, 8, size=size), *[8] * 16)
    target = labels.roll(1, 1)
    target[:, 0] = tried.BOS
    with mode(model, False), torch.no_grad():
        out = torch.as_tensor(tried.logits(model, source, target)).double()
    loss = F.cross_entropy(out.flatten(0, 1), labels.flatten()).item()
    # A tied table of size d_model^-0.5 gives a word that was just read up
    # to the root of d_model more than others; a third more is room.
    flat, most = math.log(size), math.log(size) + 1.3 * width**0.5
    measured = (
        f"{loss:.2f} nats per token at first, where ln V = {flat:.2f} is that "
        f"of no opinion, this book's own model has {OURS_FIRST}, and "
        f"{most:.1f} = ln V + 1.3 sqrt(d_model) is the limit"
    )
    # by chance 128 labels are 0.1 below only at five standard errors
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
    "build logits",
    after="shape source_seen norm_place residuals weights_used "
    "embeddings_learnt first_loss",
)
def by_heart(tried: Adapter) -> Verdict:
    """The regime trains the model: it learns one batch by heart."""
    model = build(tried, N=1, d_model=32, d_ff=128, h=4)
    weights_of(model)
    source, _ = pairs(tried, 8, 6, 8)
    labels = tried.words(8, 6, size=SIZES["vocab_size"])
    labels = tried.ended(labels, *[6] * 8)
    target = labels.roll(1, 1)
    target[:, 0] = tried.BOS
    with mode(model, True):
        losses = list(_learn(tried, model, source, target, labels, 200))
    measured = f"from {losses[0]:.2f} to {losses[-1]:.3f} nats per token"
    if not math.isfinite(losses[-1]):
        return fault("the loss becomes nan")
    # nothing tells a decoder alone which of the sentences it is to begin
    least = _choice(labels) if tried.alone else 0.0
    if losses[-1] < least + 0.2:  # chosen: this book's model has 0.006
        return paper(f"{measured} in 200 steps")
    return fault(f"{measured} in 200 steps: one batch is not learned by heart")


def _choice(labels: Tensor) -> float:
    """The nats per token that no decoder alone can be without: sentences
    that begin alike go on differently."""
    total = 0.0
    for place in range(labels.size(1)):
        begun = Counter(tuple(x[:place].tolist()) for x in labels)
        gone_on = Counter(tuple(x[: place + 1].tolist()) for x in labels)
        for words, count in gone_on.items():
            total -= count * math.log(count / begun[words[:-1]])
    return total / labels.numel()


def _learn(tried, model, source, target, labels, steps):
    """Train on one batch with Adam; yields the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        out = tried.logits(model, source, target)
        loss = F.cross_entropy(out.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
