"""Probes of section 3.2.1 and 3.2.2: attention, and its heads."""

import math

import torch
from torch import Tensor

from .core import Adapter, Verdict, close, fault, paper, probe


def equation_1(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The output and the weights; scores may get another factor."""
    scores = factor * query @ key.mT / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e30)
    weights = scores.softmax(-1)
    return weights @ value, weights


def output(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The first of the two things that many attentions return."""
    return result[0] if isinstance(result, tuple) else result


def weights_of(tried: Adapter, query: Tensor, key: Tensor, *mask: Tensor):
    """What a query gives to each key: the output for values that are
    the rows of the identity."""
    count = key.size(-2)
    value = torch.eye(count).expand(*key.shape[:-2], count, count)
    return output(tried.attention(query, key, value.contiguous(), *mask))


def _example() -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of d_k = 16, values of d_v = 4."""
    query = torch.randn(2, 3, 5, 16)
    return query, torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 4)


@probe("attention-equation-1", "attention-scaled", "attention")
def equation(tried: Adapter) -> Verdict:
    """Scores are products of queries and keys, divided by the root of
    d_k; a softmax over the keys makes weights of them."""
    query, key, _ = _example()
    got = weights_of(tried, query, key)
    right = equation_1(query, key, key)[1]
    wrong = {
        "the scores are not divided by the root of d_k": 4.0,
        "the scores are divided by d_k: take its root": 1 / 4,
        "the scores are multiplied by the root of d_k": 16.0,
        "the root is of the number of keys; d_k is the width of one, "
        "the last axis": 4 / 7**0.5,
        "the root is of the number of queries; d_k is the width of one, "
        "the last axis": 4 / 5**0.5,
    }
    mistakes = {
        words: equation_1(query, key, key, factor=factor)[1]
        for words, factor in wrong.items()
    }
    columns = (query @ key.mT / 4).softmax(dim=-2)
    mistakes["the softmax runs over the queries; a row of weights, over "
             "the keys, must sum to 1"] = columns  # fmt: skip
    mistakes["keys and queries have changed places"] = (
        (key @ query.mT / 4).softmax(-1).mT
    )
    if close(got, right):
        return paper("the scores' factor is 1/4 for a d_k of 16")
    otherwise = "the weights are not softmax(QK^T / root of d_k)"
    return fault(otherwise, got, mistakes)


@probe(
    "attention-weighted-sum", "attention-hand", "attention", after="equation"
)
def weighted_sum(tried: Adapter) -> Verdict:
    """The output is a sum of the values, each times the weight of its
    key; a query's weights sum to 1."""
    query, key, value = _example()
    result = tried.attention(query, key, value)
    got, weights = output(result), weights_of(tried, query, key)
    if got.shape != (2, 3, 5, 4):
        return fault(
            f"the output is {tuple(got.shape)}, not (batch, h, query_len, "
            "d_v) = (2, 3, 5, 4)"
        )
    if not close(weights.sum(-1), torch.ones(2, 3, 5)):
        total = weights.sum(-1)[0, 0, 0]
        return fault(f"the weights of a query sum to {total:.3f}, not to 1")
    if not close(got, weights @ value):
        return fault("the output is not weights @ value")
    if isinstance(result, tuple) and not close(result[1], weights):
        return fault("the second result is not the weights that were used")
    return paper("weights sum to 1, and the output is weights @ value")


@probe("attention-mask-inside", "attention-scaled", "attention")
def mask_inside(tried: Adapter) -> Verdict:
    """A mask works inside: a forbidden key gets no weight, and the
    others share all of it."""
    query, key, _ = _example()
    mask = torch.rand(5, 7) > 0.5
    mask[:, 0], mask[:, 1] = True, False
    mask = mask.expand(2, 3, 5, 7).contiguous()
    got = weights_of(tried, query, key, mask)
    plain = weights_of(tried, query, key)

    def shared(weights: Tensor) -> Tensor:
        return weights / weights.sum(-1, keepdim=True)

    scores = query @ key.mT / math.sqrt(16)
    mistakes = {
        "the mask is not used": plain,
        "a forbidden score is 0, and e^0 is 1: give it minus infinity": (
            (scores * mask).softmax(-1)
        ),
        "with a mask the weights no longer sum to 1: mask the scores, "
        "before the softmax": plain * mask,
        "a forbidden key has weight: True in the mask means that a "
        "query may attend": shared(plain * ~mask),
    }
    # whatever the scores are, those of the allowed keys stay
    if close(got, shared(plain * mask)):
        return paper("forbidden keys have weight 0, the rest sums to 1")
    leak = got[~mask].max().item()
    otherwise = "wrong with a mask, though forbidden keys have no weight"
    if leak > 1e-6:  # chosen: e^-14, where -1e4 for infinity gives 0
        otherwise = f"a forbidden key has a weight of {leak:.3g}"
    return fault(otherwise, got, mistakes)


@probe("masks-infinity", "masks-infinity", "attention", after="mask_inside")
def infinity(tried: Adapter) -> Verdict:
    """Minus infinity before the softmax: a forbidden weight is exactly
    zero, however large the scores are."""
    query, key, _ = _example()
    query, key = 40 * query, 10 * key
    mask = (torch.arange(7) < 4).expand(2, 3, 5, 7).contiguous()
    got = weights_of(tried, query, key, mask)
    largest = (query @ key.mT / 4).abs().max().item()
    if not got.isfinite().all():
        return fault(
            f"scores of {largest:.0f} overflow: subtract the largest of a "
            "row before the exponential"
        )
    leak = got[~mask].abs().max().item()
    if leak > 0:
        return fault(
            f"beside scores of {largest:.0f} a forbidden key has a weight of "
            f"{leak:.3g}: the number that stands for minus infinity is "
            "too near"
        )
    return paper(f"exactly 0, beside scores up to {largest:.0f}")


@probe("attention-multi-head-formula", "attention-multi-head", "multi_head")
def multi_head(tried: Adapter) -> Verdict:
    """Each head works with its own d_k = d_model / h columns of the
    projections; the joined heads go through W^O."""
    h, d_model = 2, 8
    x, memory = torch.randn(3, 4, d_model), torch.randn(3, 6, d_model)
    matrices = list(torch.randn(4, d_model, d_model))
    got = output(tried.multi_head(x, memory, *matrices, h))
    if got.shape != x.shape:
        return fault(
            f"the output is {tuple(got.shape)}, not (batch, query_len, "
            f"d_model) = {tuple(x.shape)}"
        )
    if close(got, heads_of(x, memory, *matrices, h)):
        return paper("two heads of d_k = 4, joined and projected")
    mistakes = _wrong_heads(x, memory, matrices, h)
    return fault("the numbers are not MultiHead's", got, mistakes)


def cut(x: Tensor, h: int) -> Tensor:
    """(batch, len, d_model) to (batch, h, len, d_model / h)."""
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def heads_of(x, memory, w_q, w_k, w_v, w_o, h, mask=None) -> Tensor:
    """Multi-head attention, section 3.2.2."""
    query, key, value = (
        cut(y, h) for y in (x @ w_q, memory @ w_k, memory @ w_v)
    )
    heads = equation_1(query, key, value, mask)[0]
    return heads.transpose(1, 2).flatten(2) @ w_o


def _wrong_heads(x, memory, matrices, h) -> dict[str, Tensor]:
    """What the common mistakes make of it."""
    w_q, w_k, w_v, w_o = matrices
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    batch, length, d_model = x.shape

    def viewed(y: Tensor) -> Tensor:
        return y.reshape(batch, h, -1, d_model // h)

    def joined(heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).reshape(x.shape) @ w_o

    split = [cut(y, h) for y in (q, k, v)]
    heads = equation_1(*split)[0]
    along = equation_1(viewed(q), viewed(k), viewed(v))[0]
    sides = "the heads are cut along the words: cut the last axis, then "
    return {
        f"{sides}move the axis of heads": joined(along),
        f"{sides}move the axis of heads; they are joined likewise": (
            along.reshape(x.shape) @ w_o
        ),
        "before joining the heads, move their axis back behind the "
        "positions": heads.reshape(x.shape) @ w_o,
        "d_k is the width of one head, d_model / h: divide by its root": (
            joined(equation_1(*split, factor=h**-0.5)[0])
        ),
        "this is a single head of full width": equation_1(q, k, v)[0] @ w_o,
        "keys and values come from memory": heads_of(x, x, *matrices, h),
        "the last product, with w_o, is missing": (
            heads.transpose(1, 2).flatten(2)
        ),
    }


@probe(
    "attention-use-cross",
    "attention-uses",
    "multi_head",
    after="mask_inside multi_head",
)
def multi_head_mask(tried: Adapter) -> Verdict:
    """Every head uses the mask, over the positions of the memory."""
    h, d_model = 2, 8
    x, memory = torch.randn(3, 4, d_model), torch.randn(3, 6, d_model)
    matrices = list(torch.randn(4, d_model, d_model))
    mask = (torch.arange(6) < 4).expand(3, 1, 1, 6).contiguous()
    got = output(tried.multi_head(x, memory, *matrices, h, mask))
    if close(got, heads_of(x, memory, *matrices, h, mask)):
        return paper("masked positions of the memory count for nothing")
    unmasked = output(tried.multi_head(x, memory, *matrices, h))
    if close(got, unmasked):
        return fault("with a mask nothing changes: give it to `attention`")
    if not close(unmasked, heads_of(x, memory, *matrices, h)):
        return fault("wrong with a mask, as without")
    return fault("wrong with a mask, though right without")
