"""Checks of the exercises in the chapter on attention."""

import torch

from transformer_lib.attention import MultiHeadAttention, attention

from . import exercise


def _close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


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
    unscaled = attention(4 * query, key, value)[1]
    assert not _close(got[1], unscaled), (
        "the scores are not divided by the root of d_k"
    )
    columns = (query @ key.mT / 4).softmax(dim=-2)
    assert not _close(got[1], columns), (
        "the softmax runs over the queries; a row of weights, over "
        "the keys, must sum to 1"
    )
    assert _close(got[1], weights), "the weights are wrong"
    assert _close(got[0], output), "the output is weights @ value"
    mask = torch.rand(5, 7) > 0.5
    mask[:, 0], mask[:, 1] = True, False
    got = answer(query, key, value, mask)[1]
    allowed = mask.expand_as(got)
    assert (got[~allowed] == 0).all(), (
        "a forbidden key has weight: True in the mask means that a "
        "query may attend"
    )
    assert torch.allclose(got.sum(-1), torch.ones(2, 3, 5)), (
        "with a mask the weights no longer sum to 1: mask the scores, "
        "before the softmax"
    )
    right = attention(query, key, value, mask)
    got = answer(query, key, value, mask)
    assert all(map(_close, got, right)), "wrong with a mask"


@exercise("attention.multi_head")
def _multi_head(answer):
    """Multi-head attention from four matrices."""
    h, d_model = 2, 8
    module = MultiHeadAttention(d_model, h).requires_grad_(False)
    x, memory = torch.randn(3, 4, d_model), torch.randn(3, 6, d_model)
    linears = module.w_q, module.w_k, module.w_v, module.w_o
    matrices = [linear.weight.T for linear in linears]
    got, right = answer(x, memory, *matrices, h), module(x, memory)
    assert got.shape == right.shape, (
        f"the output is {tuple(got.shape)}, not (batch, query_len, "
        f"d_model) = {tuple(right.shape)}"
    )
    q, k, v = (
        x @ matrices[0],
        memory @ matrices[1],
        memory @ matrices[2],
    )

    def wrong(cut, joined=lambda heads: heads.transpose(1, 2)):
        heads = attention(cut(q), cut(k), cut(v))[0]
        return joined(heads).reshape(3, 4, 8) @ matrices[3]

    assert not _close(got, wrong(lambda t: t.view(3, h, -1, 4))), (
        "the heads are cut along the words: cut the last axis, then "
        "move the axis of heads"
    )
    unmoved = wrong(module.split, joined=lambda heads: heads)
    assert not _close(got, unmoved), (
        "before joining the heads, move their axis back behind the "
        "positions"
    )
    assert not _close(got, attention(q, k, v)[0] @ matrices[3]), (
        "this is a single head of full width"
    )
    own = module(x, x)
    assert not _close(got, own), "keys and values come from memory"
    assert not _close(got @ matrices[3], right), (
        "the last product, with w_o, is missing"
    )
    assert _close(got, right), "the numbers are not MultiHead's"
