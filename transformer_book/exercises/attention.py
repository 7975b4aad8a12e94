"""Checks of the exercises in the chapter on attention."""

import torch

from transformer_lib.attention import MultiHeadAttention, attention

from . import close, exercise


@exercise("attention.attention")
def _attention(answer):
    """Equation 1 with a mask."""
    query = torch.randn(2, 3, 5, 16)
    key, value = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 4)
    got = answer(query, key, value)
    assert isinstance(got, tuple) and len(got) == 2, (
        "return two things, the output and the weights"
    )
    output, weights = attention(query, key, value)
    for factor, message in {
        4: "the scores are not divided by the root of d_k",
        1 / 4: "the scores are divided by d_k: take its root",
        4 / 7**0.5: (
            "the root is of the number of keys; d_k is the width of "
            "one, the last axis"
        ),
    }.items():
        scaled = attention(factor * query, key, value)[1]
        assert not close(got[1], scaled), message
    columns = (query @ key.mT / 4).softmax(dim=-2)
    assert not close(got[1], columns), (
        "the softmax runs over the queries; a row of weights, over "
        "the keys, must sum to 1"
    )
    assert close(got[1], weights), "the weights are wrong"
    assert close(got[0], output), "the output is weights @ value"
    mask = torch.rand(5, 7) > 0.5
    mask[:, 0], mask[:, 1] = True, False
    got = answer(query, key, value, mask)[1]
    allowed = mask.expand_as(got)
    assert not close(got, weights), "the mask is not used"
    zeros = (query @ key.mT / 4 * mask).softmax(-1)
    assert not close(got, zeros), (
        "a forbidden score is 0, and e^0 is 1: give it minus infinity"
    )
    assert (got[~allowed] == 0).all(), (
        "a forbidden key has weight: True in the mask means that a "
        "query may attend"
    )
    assert close(got.sum(-1), torch.ones(2, 3, 5)), (
        "with a mask the weights no longer sum to 1: mask the scores, "
        "before the softmax"
    )
    right = attention(query, key, value, mask)
    got = answer(query, key, value, mask)
    assert all(map(close, got, right)), "wrong with a mask"


@exercise("attention.multi_head")
def _multi_head(answer):
    """Multi-head attention from four matrices."""
    h, d_model = 2, 8
    module = MultiHeadAttention(d_model, h).requires_grad_(False)
    x, memory = torch.randn(3, 4, d_model), torch.randn(3, 6, d_model)
    linears = module.w_q, module.w_k, module.w_v, module.w_o
    matrices = [2 * linear.weight.T for linear in linears]
    for linear in linears:
        linear.weight *= 2
    got, right = answer(x, memory, *matrices, h), module(x, memory)
    assert got.shape == right.shape, (
        f"the output is {tuple(got.shape)}, not (batch, query_len, "
        f"d_model) = {tuple(right.shape)}"
    )
    q, k, v = x @ matrices[0], memory @ matrices[1], memory @ matrices[2]

    def wrong(cut, factor=1.0, joined=lambda t: t.transpose(1, 2)):
        heads = attention(factor * cut(q), cut(k), cut(v))[0]
        return joined(heads).reshape(3, 4, 8) @ matrices[3]

    assert not close(got, wrong(lambda t: t.view(3, h, -1, 4))), (
        "the heads are cut along the words: cut the last axis, then "
        "move the axis of heads"
    )
    unmoved = wrong(module.split, joined=lambda heads: heads)
    assert not close(got, unmoved), (
        "before joining the heads, move their axis back behind the positions"
    )
    assert not close(got, wrong(module.split, 0.5**0.5)), (
        "d_k is the width of one head, d_model / h: divide by its root"
    )
    assert not close(got, attention(q, k, v)[0] @ matrices[3]), (
        "this is a single head of full width"
    )
    assert not close(got, module(x, x)), "keys and values come from memory"
    assert not close(got @ matrices[3], right), (
        "the last product, with w_o, is missing"
    )
    assert close(got, right), "the numbers are not MultiHead's"
    mask = (torch.arange(6) < 4).expand(3, 1, 1, 6)
    got = answer(x, memory, *matrices, h, mask)
    assert not close(got, right), (
        "with a mask nothing changes: give it to `attention`"
    )
    assert close(got, module(x, memory, mask)), (
        "wrong with a mask, though right without"
    )
