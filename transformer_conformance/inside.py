"""Probes of what a model of PyTorch does inside: its calls in one pass."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
from .model import (
    ENOUGH,
    build,
    logits,
    moved,
    order_counts,
    pairs,
    sublayers,
    trained_logits,
    weights_of,
    wild,
    wrong_weights,
)
from .plain import judge
from .trace import (
    ADDS,
    BATCH,
    KERNEL,
    MAPS,
    SIZES,
    SOURCE,
    TARGET,
    Call,
    Trace,
    in_kinds,
)

RATE = 0.3  # of dropout, where it is looked at: not 1 - RATE


@probe(
    "layers-post-norm",
    "layers-residual",
    "build logits",
    after="norm_place future",
)
def norm_formula(tried: Adapter) -> Verdict:
    """LayerNorm brings each position to mean 0 and variance 1."""
    trace = Trace(tried, build(tried), *pairs(tried))
    tops = [
        call.input
        for call in trace.calls
        if call.name in ("linear", "matmul")
        and call.out.shape[-1:] == (SIZES["vocab_size"],)
    ]
    if not tops:
        raise NotShown("the pre-softmax matrix was not seen")
    verdict = _normed(tops[-1], "at the top")
    place = tried.found.get("norm_place")
    if verdict.kind != "paper" or place is None or place.kind != "paper":
        return verdict
    # a post-norm encoder ends in a norm
    for memory in _memories(trace)[-1:]:
        if memory.size(-1) == SIZES["d_model"]:  # and not a head's part
            below = _normed(memory, "in the encoder's output")
            if below.kind == "fault":
                return below
    return verdict


def _normed(hidden: Tensor, where: str) -> Verdict:
    """Whether vectors (batch, len, d_model) are what a norm gives."""
    hidden = hidden.double()
    spread = hidden.std(-1, correction=0).mean().item()
    mean, width = hidden.mean(-1).abs().max().item(), SIZES["d_model"]
    measured = f"{where} the mean is {mean:.1g}, the deviation {spread:.3f}"
    # A norm with fresh weights has a mean of 0 but for rounding. Its
    # epsilon of 1e-5 takes half a percent of vectors that begin at 0.03.
    if mean > 1e-3:
        sizes = hidden.square().mean(-1).sqrt()
        if (sizes - 1).abs().max() < 0.01:
            return deviation("RMSNorm", measured, "T5, Llama")
        return fault(
            f"{measured}: the last thing is no norm of each position. The "
            "paper has norm(x + sublayer(x)); pre-norm ends in one more norm"
        )
    if abs(spread - 1) < 0.01:
        return paper(measured)
    if abs(spread - math.sqrt(1 - 1 / width)) < 0.01:
        return deviation(
            "unbiased deviation in the norm",
            f"{measured}: divided by d_model - 1",
            "the Annotated Transformer",
        )
    return fault(f"{measured}, where 1 is expected")


@probe(
    "layers-decoder-third-sublayer",
    "layers-decoder-layer",
    "build logits",
    after="decoder_layer source_seen past norm_place weights_used",
)
def order_of_sublayers(tried: Adapter) -> Verdict:
    """The encoder's layers are attention and network; the decoder's have
    attention to the source between these two."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    events = [(a.place, a.kind) for a in trace.together()]
    for place, x, _, out in trace.linears():
        if out.size(-1) == SIZES["d_ff"] and x.size(-1) == SIZES["d_model"]:
            sides = {BATCH * SOURCE: "F", BATCH * TARGET: "f"}
            rows = x.numel() // x.size(-1)
            if rows not in sides:
                raise trace.unseen("network on the sentences' positions")
            events.append((place, sides[rows]))
    got = "".join(kind for _, kind in sorted(events))
    N = SIZES["N"]
    right = "sf" * N if tried.alone else "SF" * N + "scf" * N
    if got == right:
        memories = _memories(Trace(tried, build(tried), *pairs(tried)))
        if any(not close(x, memories[0]) for x in memories):
            return fault(
                "the decoder's layers read different vectors of the source: "
                "each attends to the output of the encoder's last layer"
            )
        return paper(_in_words(got))
    if not {"f", "F"} & {*got} and got == right.translate(_NO_NETWORK):
        raise NotShown("the network's linear maps were not seen")
    return fault(
        f"the sub-layers are {_in_words(got)}; in the paper "
        f"{_in_words(right)}. Is one skipped, used twice, or in another "
        "place?"
    )


def _memories(trace: Trace) -> list[Tensor]:
    """What the decoder's layers make values of, as far as it is seen."""
    found, memories = trace.attentions(), []
    for before, one in itertools.pairwise(found):
        read = [
            x
            for place, x, _, _ in trace.linears()
            if before.place < place < one.place and SOURCE in x.shape[:2]
        ]
        if one.kind == "c" and read:
            memories.append(read[-1])
    return memories


_NO_NETWORK = str.maketrans("", "", "fF")
_WORDS = {"s": "attention", "f": "network", "c": "attention to the source"}


def _in_words(events: str) -> str:
    """The sub-layers of each stack, in their order."""
    stacks = {
        "encoder": [_WORDS[x.lower()] for x in events if x.isupper()],
        "decoder": [_WORDS[x] for x in events if x.islower()],
    }
    said = [f"{name}: {', '.join(x)}" for name, x in stacks.items() if x]
    return "; ".join(said)


@probe(
    "attention-equation-1",
    "attention-scaled",
    "build logits",
    after="equation multi_head",
)
def scores_factor(tried: Adapter) -> Verdict:
    """In the model too, every score is divided by the root of d_k, the
    width of one head."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    d_k = SIZES["d_model"] // SIZES["h"]
    seen = trace.attentions()
    found = {trace.factor_of(attention) for attention in seen}
    names = {
        1.0: "the scores are not divided by the root of d_k",
        1 / d_k: "the scores are divided by d_k: take its root",
        SIZES["d_model"] ** -0.5: (
            "the root is of d_model: d_k is the width of one head"
        ),
    }
    for factor in found:  # chosen: the nearest mistake is 29% less
        if math.isclose(factor, d_k**-0.5, rel_tol=1e-2):
            continue
        for wrong, words in names.items():
            if math.isclose(factor, wrong, rel_tol=1e-2):
                return fault(words)
        return deviation(
            "another scale of the scores",
            f"times {factor:.3g}, in the paper {d_k**-0.5:.3g}",
        )
    return paper(
        f"times {d_k**-0.5:.3f} for a d_k of {d_k}, "
        f"{in_kinds({x.kind for x in seen})}"
    )


@probe(
    "attention-mask-inside",
    "attention-scaled",
    "build logits",
    after="future padding mask_inside infinity",
)
def hidden_weights(tried: Adapter) -> Verdict:
    """What a mask forbids gets a weight of exactly zero, and each row of
    weights sums to 1, in every attention of the model."""
    wrong = wrong_weights(tried, wild(tried))
    for words in filter(None, wrong.values()):
        return fault(words)
    return paper(f"{in_kinds(wrong)} what is hidden has weights of exactly 0")


# Embeddings, positions, and the network


def _sums(tried: Adapter, model: nn.Module) -> list[tuple]:
    """The sums of words and positions at the bottom of a model."""
    trace = Trace(tried, model, *pairs(tried))
    sums = trace.sums()
    if not sums:
        raise trace.unseen("sum of a look-up in a table and positions")
    return sums


@probe(
    "embeddings-factor", "embeddings-factor", "build logits", after="factor"
)
def embedding_factor(tried: Adapter) -> Verdict:
    """Embeddings are multiplied by the root of d_model before positions
    are added."""
    sums = _sums(tried, build(tried))
    root = SIZES["d_model"] ** 0.5
    factors = sorted({round(factor, 3) for factor, *_ in sums})
    if factors == [root]:
        return paper(f"times {root:g}, the root of {SIZES['d_model']}")
    if len(factors) > 1:
        said = " and ".join(
            f"{factor:.3g} in the {_side(words)}"
            for factor, _, words, _ in sums
        )
        return fault(f"the factor is {said}: both need it")
    if factors == [1.0]:
        _, places, words, _ = sums[0]
        sizes = [x.square().mean().sqrt().item() for x in (words, places)]
        said = f"words have a size of {sizes[0]:.2f}, positions {sizes[1]:.2f}"
        if sizes[0] < sizes[1] / 2:
            return fault(
                f"the factor is missing, and {said}: these drown them; or it "
                "multiplies their sum, where it is for the words alone"
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


@probe(
    "positions-formula",
    "positions-sinusoids",
    "build logits",
    after="formula source_order target_order",
)
def added_positions(tried: Adapter) -> Verdict:
    """What is added to the words is section 3.5's table, from position 0
    on, in the encoder and in the decoder."""
    model = build(tried)
    try:
        sums = _sums(tried, model)
    except NotShown:
        if tried.alone and order_counts(tried):
            return deviation(
                "positions that are not added",
                "no table is added to the words, and yet their order counts",
                "rotary or relative positions, as in Llama",
            )
        raise
    for _, _, words, again in sums:
        if again:
            return fault(
                f"in the {_side(words)} positions are added to the words, and "
                "once more to their sum"
            )
    if name := _learned(tried, model, [rows for _, rows, *_ in sums]):
        return deviation("learned positions", f"{name} learns", "BERT, GPT")
    verdicts = {
        _side(words): judge(rows.tolist()) for _, rows, words, _ in sums
    }
    said = {verdict.words for verdict in verdicts.values()}
    kinds = {verdict.kind for verdict in verdicts.values()}
    if kinds == {"paper"}:
        return paper(f"as printed, in the {' and in the '.join(verdicts)}")
    if len(said) == 1:
        return next(iter(verdicts.values()))
    words = "; ".join(f"{side}: {v.words}" for side, v in verdicts.items())
    return fault(f"the stacks have different positions. In the {words}")


def _learned(tried: Adapter, model: nn.Module, added: list[Tensor]) -> str:
    """The name of a weight whose rows are the positions that are added,
    and which a gradient reaches; or ''."""
    trained_logits(tried, model).square().sum().backward()
    for name, weight in weights_of(model):
        wide = weight.dim() >= 2 and weight.size(-1) == SIZES["d_model"]
        if not wide or weight.grad is None or not weight.grad.any():
            continue
        table = weight.detach().flatten(0, -2)
        for rows in added:
            # to rounding; a table may begin behind others
            far = (rows[:, None] - table).abs().amax(-1).amin(1)
            if far.max() < 1e-4:
                return name
    return ""


@probe(
    "layers-equation-2",
    "layers-feed-forward",
    "build logits",
    after="equation_2",
)
def activation(tried: Adapter) -> Verdict:
    """Between the network's two maps there is a ReLU."""
    trace = Trace(tried, wild(tried), *pairs(tried))
    inner, used = None, set()
    kinds: dict[str, Callable] = {
        "ReLU": F.relu,
        "nothing": lambda y: y,
        "GELU": F.gelu,
        "GELU by tanh": lambda y: F.gelu(y, approximate="tanh"),
        "SiLU": F.silu,
        "tanh": torch.tanh,
    }
    outer = []  # what the other maps give
    for _, x, _, out in trace.linears():
        if out.size(-1) != SIZES["d_ff"]:
            outer.append(out)
        if x.size(-1) == SIZES["d_ff"] and inner is not None:
            # 1e-5: the two forms of GELU differ by up to 5e-4
            same = [n for n, f in kinds.items() if close(f(inner), x, 1e-5)]
            used.add(same[0] if same else "something else")
        inner = out if out.size(-1) == SIZES["d_ff"] else None
    if not used:
        raise NotShown("the network's linear maps were not seen")
    relus = [call.input for call in trace.calls if call.name == "relu"]
    if any(x.equal(out) for x in relus for out in outer):
        return fault(
            "a ReLU falls on what another map gives, too: the paper's only "
            "one is between the network's two maps"
        )
    if used == {"ReLU"}:
        return paper("max(0, x)")
    if "nothing" in used:
        return fault("no ReLU between the two maps, which are then one")
    return deviation(
        "another activation than ReLU",
        " and ".join(sorted(used)),
        "Marian (SiLU), BERT and GPT (GELU)",
    )


# Dropout


@probe("layers-residual-dropout", "layers-dropout", "build logits")
def dropout_off(tried: Adapter) -> Verdict:
    """Dropout is for training: in evaluation nothing is random."""
    model, ids = build(tried, dropout=0.5), pairs(tried)
    first, second = (logits(tried, model, *ids) for _ in range(2))
    if moved(first, second).max() > ENOUGH:
        return fault(
            "in evaluation mode two passes differ: dropout is still on"
        )
    return paper("two passes in evaluation mode are equal")


@probe("dropout-base", "layers-dropout", "build logits")
def dropout_on(tried: Adapter) -> Verdict:
    """In training some numbers are dropped, at the rate asked for."""
    model, ids = build(tried, dropout=RATE), pairs(tried)
    weights_of(model)
    with mode(model, True), torch.no_grad():
        first, second = (tried.logits(model, *ids) for _ in range(2))
    if torch.equal(first, second):
        words = "in training two passes are equal: nothing is dropped"
        if tried.alone:
            return deviation("no dropout", words, "Llama")
        return fault(words)
    rates = _rates(tried)
    if any(math.isclose(rate, 1 - RATE, rel_tol=1e-5) for rate in rates):
        return fault(
            f"{RATE} was asked for, and a share of {1 - RATE:g} is dropped: "
            "the rate is what is dropped, not what is kept"
        )
    if any(not math.isclose(rate, RATE, rel_tol=1e-5) for rate in rates):
        said = " and ".join(f"{rate:g}" for rate in sorted(rates))
        return deviation(
            FIXED,
            f"{RATE} was asked for, and the rates are {said}",
            "the Annotated Transformer, on attention weights",
        )
    return paper("two passes in training mode differ")


FIXED = "dropout at a fixed rate"


@probe(
    "layers-residual-dropout",
    "layers-dropout",
    "build logits",
    after="dropout_on padding future source_seen both_ways batch norm_place",
)
def training_equals_evaluation(tried: Adapter) -> Verdict:
    """Without dropout training mode computes what evaluation computes:
    layer normalization knows no batch."""
    model = wild(tried, dropout=0.0)
    weights_of(model)
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
            FIXED,
            "with a dropout of 0 something is still dropped in training",
            "the Annotated Transformer, on attention weights",
        )
    return fault(
        "without dropout the two modes differ: something is computed in two "
        "ways that disagree, or a norm knows the batch"
    )


def _modes_differ(
    tried: Adapter, model: nn.Module, source: Tensor, target: Tensor
) -> bool:
    """Whether a model without dropout has other scores in training."""
    evaluated = logits(tried, model, source, target)
    with mode(model, True), torch.no_grad():
        trained = tried.logits(model, source, target).double()
    return bool(moved(evaluated, trained).max() >= ENOUGH)


@probe("layers-residual-dropout", "layers-dropout", "build logits")
def dropout_places(tried: Adapter) -> Verdict:
    """Dropout falls on each sub-layer's output before it is added, and
    nowhere else in a layer."""
    seen = _dropped(tried)
    expected = sublayers(tried) * SIZES["N"]
    measured = f"{seen['outputs']} places in {expected} sub-layers"
    extra = [x for x in ("attention weights", "inner layer") if seen[x]]
    more = ", ".join(f"{seen[x]} on {x}" for x in extra)
    if seen["scores"]:
        return fault(
            "dropout falls on the scores, before the softmax: a score that is "
            "dropped becomes 0, and its weight does not. Drop from the weights"
        )
    if seen["norms"]:
        return fault(
            "dropout falls on what a norm gives: drop from the sub-layer's "
            "output, before x is added"
        )
    if seen["outputs"] == 0:
        but = f", but in each pass {more}" if extra else ""
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
            f"{measured}, and {more}",
            "tensor2tensor, nn.Transformer, the Annotated Transformer",
        )
    if seen["outputs"] > expected:
        return deviation("more dropout than the paper's", measured)
    return paper(measured)


@probe("model-dropout-on-sums", "model-transformer", "build logits")
def dropout_of_sums(tried: Adapter) -> Verdict:
    """Dropout falls on the sums of embeddings and positions, in both
    stacks."""
    seen = _dropped(tried)
    stacks = 1 if tried.alone else 2
    if seen["sums"] == stacks:
        return paper("one place in each stack")
    if seen["sums"] == 0 and seen["words alone"]:
        return deviation(
            "dropout before the sum",
            "something is dropped from the words or the positions alone, and "
            "not from their sum",
        )
    if seen["sums"] == 0:
        words = "no dropout on the sums of embeddings and positions"
        return deviation(words, "none") if tried.alone else fault(words)
    if seen["sums"] < stacks:
        return fault("dropout on the sum of one stack only")
    return deviation(
        "more dropout before the layers", f"{seen['sums']} places"
    )


def _dropped(tried: Adapter) -> dict[str, int]:
    """Where dropout falls in one pass of training, and how often."""
    model = build(tried, dropout=0.5)
    trace = Trace(tried, model, *pairs(tried), training=True)
    names = "sums", "outputs", "inner layer", "attention weights", "whole sums"
    seen = dict.fromkeys((*names, "words alone", "norms", "scores"), 0)
    below = False  # between an embedding and the first map after it
    output = None  # of the last dropout in a layer
    words = None  # or of the last one below all layers
    normed = total = None  # what the last norm gave, and the last sum
    for call in trace.calls:
        if call.name == "layer_norm":
            seen["whole sums"] += output is not None and call.input.equal(
                output
            )
            normed = call.out
        if call.name in {"embedding", *MAPS}:
            below = call.name == "embedding"
            words = words if below else None
        if call.name in ADDS:
            parts = call.terms()
            if words is not None and any(x.equal(words) for x in parts):
                seen["sums"] -= 1
                seen["words alone"] += 1
            if len(parts) == 2 and parts[0].shape == parts[1].shape:
                total = call.out
        if call.name == KERNEL:
            seen["attention weights"] += _drops(call) > 0
        if call.name != "dropout" or not _drops(call):
            continue
        x = call.input
        if not below and normed is not None and x.equal(normed):
            seen["norms"] += 1
        elif x.dim() == 3 and x.size(-1) == SIZES["d_model"]:
            seen["sums" if below else "outputs"] += 1
            whole = total is not None and x.equal(total)
            output = call.out if whole and not below else None
            words = call.out if below else None
        elif x.dim() == 3 and x.size(-1) == SIZES["d_ff"]:
            seen["inner layer"] += 1
        elif {SOURCE, TARGET} & set(x.shape):
            seen["scores" if x.min() < 0 else "attention weights"] += 1
    if not any(seen.values()):
        raise NotShown("no call of dropout was seen")
    if not any(call.name == "embedding" for call in trace.calls):
        raise trace.unseen("look-up in a table")
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
