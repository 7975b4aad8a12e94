"""Attention against PyTorch's, with masks, and at the edges."""

import math

import pytest
import torch
from torch import nn

from transformer_lib.attention import (
    MultiHeadAttention,
    attention,
    fast_attention,
    record_attention,
)
from transformer_lib.masks import causal_mask, padding_mask

BATCH, H, QUERY_LEN, KEY_LEN, D_K, D_V = 2, 3, 5, 7, 8, 4
TOLERANCE = {
    torch.float32: 1e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def inputs(dtype=torch.float32, query_len=QUERY_LEN, key_len=KEY_LEN):
    shapes = [(query_len, D_K), (key_len, D_K), (key_len, D_V)]
    return [
        torch.randn(BATCH, H, *s).to(dtype).requires_grad_()
        for s in shapes
    ]


def masks(query_len=QUERY_LEN, key_len=KEY_LEN):
    """Masks by name, one of them with rows that see nothing."""
    ids = torch.arange(1, key_len + 1).repeat(BATCH, 1)
    ids[1, 3:] = 0
    some = torch.rand(BATCH, 1, query_len, key_len) > 0.5
    some[..., 0] = True
    empty = some.clone()
    empty[0, 0, 2] = False
    empty[1] = False
    return {
        "none": None,
        "padding": padding_mask(ids),
        "any": some,
        "empty": empty,
        "one": torch.ones((), dtype=torch.bool).reshape(1, 1, 1, 1),
        "query_len": empty.any(-1, keepdim=True),
    }


def test_equation_1_on_numbers_worked_by_hand():
    query = torch.tensor([[math.log(3.0), 0.0, 0.0, 0.0]])
    key = torch.tensor([[2.0, 0, 0, 0], [0, 5, 0, 0]])
    value = torch.tensor([[4.0], [8.0]])
    output, weights = attention(query, key, value)
    # The products are 2 log 3 and 0, halved by the root of d_k = 4.
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[5.0]]))


def test_weights_are_shares():
    query, key, value = inputs()
    output, weights = attention(query, key, value, masks()["any"])
    assert weights.shape == (BATCH, H, QUERY_LEN, KEY_LEN)
    assert output.shape == (BATCH, H, QUERY_LEN, D_V)
    assert (weights >= 0).all()
    torch.testing.assert_close(
        weights.sum(-1), torch.ones(BATCH, H, QUERY_LEN)
    )


def test_what_the_mask_forbids_gets_exactly_nothing():
    query, key, value = inputs()
    mask = masks()["any"]
    _, weights = attention(query, key, value, mask)
    assert (weights[~mask.expand_as(weights)] == 0).all()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", masks())
def test_explicit_equals_fast(name, dtype):
    mask = masks()[name]
    results = []
    for function in (lambda *a: attention(*a)[0], fast_attention):
        torch.manual_seed(1)
        tensors = inputs(dtype)
        output = function(*tensors, mask)
        assert output.dtype == dtype
        output.float().square().sum().backward()
        results.append([output, *(t.grad for t in tensors)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.isfinite().all() and theirs.isfinite().all()
        torch.testing.assert_close(
            ours, theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("explicit", [True, False])
def test_all_masked_rows_give_zeros(explicit, dtype):
    tensors = inputs(dtype)
    mask = masks()["empty"]
    empty = ~mask.any(-1).expand(BATCH, H, QUERY_LEN)
    if explicit:
        output, weights = attention(*tensors, mask)
        assert (weights[empty] == 0).all()
    else:
        output = fast_attention(*tensors, mask)
    assert (output[empty] == 0).all()
    assert (output[~empty] != 0).any(-1).all()
    output.float().square().sum().backward()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()
    query, key, value = tensors
    assert (query.grad[empty] == 0).all()
    assert (key.grad[1] == 0).all() and (value.grad[1] == 0).all()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_large_scores_stay_finite_in_half_precision(dtype):
    query = torch.full((1, 1, 2, 64), 40.0, dtype=dtype)
    mask = causal_mask(2)
    output, weights = attention(query, query, query, mask)
    assert output.isfinite().all()
    torch.testing.assert_close(
        weights[0, 0].float(), torch.tensor([[1.0, 0], [0.5, 0.5]])
    )


def test_large_scores_do_not_swamp_the_mask():
    """With -1e9 in place of -inf, these masked weights would be 1."""
    query = torch.tensor([[1e6]])
    key = torch.tensor([[-1e6], [1e6]])
    mask = torch.tensor([[True, False]])
    _, weights = attention(query, key, key, mask)
    assert weights.tolist() == [[1.0, 0.0]]


def test_gradients_by_finite_differences():
    tensors = [t.detach().double().requires_grad_() for t in inputs()]
    mask = masks()["empty"]
    assert torch.autograd.gradcheck(
        lambda *t: attention(*t, mask), tensors
    )


@pytest.mark.parametrize("function", [attention, fast_attention])
def test_a_mask_is_boolean(function):
    query, key, value = inputs()
    mask = torch.zeros(QUERY_LEN, KEY_LEN)
    with pytest.raises(ValueError, match="boolean.*float32"):
        function(query, key, value, mask)


def test_dropout_removes_weights_and_keeps_the_mean():
    query = torch.zeros(1, 1, 200, 4)
    _, weights = attention(query, query, query, dropout=0.25)
    kept = weights != 0
    assert abs(kept.float().mean() - 0.75) < 0.02
    torch.testing.assert_close(
        weights[kept], torch.full_like(weights[kept], 1 / 200 / 0.75)
    )
    out = fast_attention(query, query, query + 1, dropout=0.25)
    assert out.std() > 0 and abs(out.mean() - 1) < 0.02


def parity(bias: bool) -> tuple[MultiHeadAttention, nn.Module]:
    """Ours, and PyTorch's with the same weights."""
    ours = MultiHeadAttention(24, 4, bias=bias)
    theirs = nn.MultiheadAttention(24, 4, bias=bias, batch_first=True)
    joined = [ours.w_q, ours.w_k, ours.w_v]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([w.weight for w in joined])
        )
        theirs.out_proj.weight.copy_(ours.w_o.weight)
        if bias:
            theirs.in_proj_bias.copy_(
                torch.cat([w.bias for w in joined])
            )
            theirs.out_proj.bias.copy_(ours.w_o.bias)
    return ours, theirs


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_pytorchs_multihead_attention(bias, explicit):
    ours, theirs = parity(bias)
    ours.explicit = explicit
    ids = torch.tensor([[4, 5, 6, 7, 8, 9], [4, 5, 6, 0, 0, 0]])
    mask = padding_mask(ids)
    x = torch.randn(2, 5, 24, requires_grad=True)
    memory = torch.randn(2, 6, 24, requires_grad=True)
    x_2, memory_2 = (t.detach().clone() for t in (x, memory))
    x_2.requires_grad_(), memory_2.requires_grad_()

    with record_attention(ours) as maps:
        mine = ours(x, memory, mask)
    yours, weights = theirs(
        x_2,
        memory_2,
        memory_2,
        key_padding_mask=~mask[:, 0, 0],
        average_attn_weights=False,
    )
    close = dict(atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mine, yours, **close)
    torch.testing.assert_close(maps[""], weights, **close)

    mine = ours(x, memory, mask)  # without recording: explicit or not
    mine.square().sum().backward()
    yours.square().sum().backward()
    torch.testing.assert_close(x.grad, x_2.grad, **close)
    torch.testing.assert_close(memory.grad, memory_2.grad, **close)
    joined = [ours.w_q, ours.w_k, ours.w_v]
    torch.testing.assert_close(
        torch.cat([w.weight.grad for w in joined]),
        theirs.in_proj_weight.grad,
        **close,
    )
    torch.testing.assert_close(
        ours.w_o.weight.grad, theirs.out_proj.weight.grad, **close
    )
    if bias:
        torch.testing.assert_close(
            torch.cat([w.bias.grad for w in joined]),
            theirs.in_proj_bias.grad,
            **close,
        )
        torch.testing.assert_close(
            ours.w_o.bias.grad, theirs.out_proj.bias.grad, **close
        )


def test_causal_mask_equals_pytorchs():
    ours, theirs = parity(bias=False)
    x = torch.randn(2, 5, 24)
    mask = causal_mask(5)
    yours, _ = theirs(x, x, x, attn_mask=~mask[0, 0])
    torch.testing.assert_close(ours(x, x, mask), yours)


def test_multi_head_is_the_papers_sum_over_heads():
    """head_i by its own three matrices, then Concat and W^O."""
    ours = MultiHeadAttention(12, 3, d_k=5, d_v=2)
    x, memory = torch.randn(1, 4, 12), torch.randn(1, 6, 12)
    heads = []
    for i in range(3):
        w_q, w_k, w_v = (
            w.weight.unflatten(0, (3, -1))[i].T  # (d_model, d)
            for w in (ours.w_q, ours.w_k, ours.w_v)
        )
        heads.append(
            attention(x @ w_q, memory @ w_k, memory @ w_v)[0]
        )
    expected = torch.cat(heads, -1) @ ours.w_o.weight.T
    torch.testing.assert_close(ours(x, memory), expected)


def test_sizes_of_the_projections():
    module = MultiHeadAttention(512, 8)
    for w in (module.w_q, module.w_k, module.w_v, module.w_o):
        assert w.weight.shape == (512, 512) and w.bias is None
    key, value = module.keys_values(torch.randn(2, 3, 512))
    assert key.shape == value.shape == (2, 8, 3, 64)
    odd = MultiHeadAttention(10, 4, d_k=3, d_v=5)
    key, value = odd.keys_values(torch.randn(2, 3, 10))
    assert key.shape == (2, 4, 3, 3) and value.shape == (2, 4, 3, 5)
    assert odd(
        torch.randn(2, 1, 10), torch.randn(2, 3, 10)
    ).shape == ((2, 1, 10))


@pytest.mark.parametrize("given", [{}, {"d_k": 3}, {"d_v": 3}])
def test_h_must_divide_d_model(given):
    with pytest.raises(ValueError, match="h=3 .* d_model=10"):
        MultiHeadAttention(10, 3, **given)


def test_many_heads_cost_as_many_parameters_as_one():
    def count(module):
        return sum(p.numel() for p in module.parameters())

    counts = {
        count(MultiHeadAttention(64, h)) for h in (1, 2, 4, 8, 64)
    }
    assert counts == {4 * 64 * 64}


class Kept:
    """The least a cache can be: what it was given first."""

    def __init__(self):
        self.kept = None

    def keys_values(self, module, memory):
        if self.kept is None:
            self.kept = module.keys_values(memory)
        return self.kept


def test_a_cache_is_asked_for_keys_and_values():
    module = MultiHeadAttention(12, 3)
    x, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    expected = module(x, memory)
    cache = Kept()
    torch.testing.assert_close(
        module(x, memory, cache=cache), expected
    )
    unused = torch.full_like(memory, torch.nan)
    torch.testing.assert_close(
        module(x, unused, cache=cache), expected
    )


def test_a_device_chooses_the_path(monkeypatch):
    import transformer_lib.attention as chapter

    called = []
    for name in ("attention", "fast_attention"):
        original = getattr(chapter, name)

        def spy(*args, name=name, original=original):
            called.append(name)
            return original(*args)

        monkeypatch.setattr(chapter, name, spy)
    module = MultiHeadAttention(8, 2)
    x = torch.randn(1, 3, 8)
    module(x, x)
    module.explicit = False
    module(x, x)
    with record_attention(module):
        module(x, x)
    module.explicit = None
    module.to("meta")(x.to("meta"), x.to("meta"))
    assert called == [
        "attention",
        "fast_attention",
        "attention",
        "fast_attention",
    ]


def test_dropout_acts_in_training_alone():
    module = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(module(x, x), module(x, x))
    module.eval()
    assert torch.equal(module(x, x), module(x, x))


def test_recording_names_every_module_and_ends():
    model = nn.ModuleDict(
        {"a": MultiHeadAttention(8, 2), "b": MultiHeadAttention(8, 4)}
    )
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with record_attention(model) as maps:
        model["a"](x, x)
        model["a"](x[:, :1], x)
        with record_attention(model["b"]) as inner:
            model["b"](x, memory)
        model["b"](x, memory)
    assert maps.keys() == {"a", "b"} and inner.keys() == {""}
    assert maps["a"].shape == (2, 2, 1, 3)  # of the last call
    assert maps["b"].shape == (2, 4, 3, 5)
    assert not maps["b"].requires_grad
    before = maps["a"]
    model["a"](x, x)
    assert maps["a"] is before and model["a"].record is None


def test_recording_ends_after_an_error():
    module = MultiHeadAttention(8, 2)
    with pytest.raises(RuntimeError), record_attention(module):
        module(torch.randn(1, 3, 7), torch.randn(1, 3, 7))
    assert module.record is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype):
    module = MultiHeadAttention(8, 2)
    x = torch.randn(2, 4, 8)
    expected = module(x, x, causal_mask(4))
    with torch.autocast("cpu", dtype):
        got = module(x, x, causal_mask(4))
    got.float().sum().backward()
    torch.testing.assert_close(
        got.float(), expected, atol=2e-2, rtol=2e-2
    )


def test_the_scale_keeps_the_variance_at_one():
    for d_k in (4, 64, 512):
        query, key = torch.randn(2, 400, d_k)
        assert abs((query @ key.mT).var() / d_k - 1) < 0.2
        _, weights = attention(query, key, key)
        # The log of a softmax is the scores, up to a constant a row.
        scores = weights.double().log()
        scores = scores - scores.mean(dim=-1, keepdim=True)
        assert abs(scores.var() - 1) < 0.2


def test_two_heads_fetch_what_one_must_average():
    """Two values at once, from two places, in order."""
    n, losses = 6, {}
    for h in (1, 2):
        torch.manual_seed(0)
        module = MultiHeadAttention(24, h)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        for _ in range(150):
            content = torch.randn(32, n, 6)
            place = 3 * torch.eye(n).expand(32, n, n)
            rest = torch.zeros(32, n, 12)
            x = torch.cat([content, place, rest], -1)
            wanted = [content.roll(1, 1), content.roll(-1, 1)]
            got = module(x, x)[..., :12]
            loss = (got - torch.cat(wanted, -1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[h] = loss.item()
    assert losses[2] < 0.05 < 0.3 < losses[1]
