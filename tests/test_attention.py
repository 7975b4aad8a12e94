"""Attention against PyTorch's, with masks, and at the edges."""

import math
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.attention import (
    MultiHeadAttention,
    attention,
    record_attention,
)
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig


def inputs(dtype=torch.float32, query_len=5, key_len=7):
    shapes = [(query_len, 8), (key_len, 8), (key_len, 4)]
    return [
        torch.randn(2, 3, *shape).to(dtype).requires_grad_()
        for shape in shapes
    ]


def some_mask():
    mask = torch.rand(2, 1, 5, 7) > 0.5
    mask[..., 0] = True
    return mask


def test_equation_1_on_numbers_worked_by_hand():
    query = torch.tensor([[math.log(3.0), 0.0, 0.0, 0.0]])
    key = torch.tensor([[2.0, 0, 0, 0], [0, 5, 0, 0]])
    value = torch.tensor([[4.0], [8.0]])
    output, weights = attention(query, key, value)
    # The products are 2 log 3 and 0, halved by the root of d_k = 4.
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[5.0]]))


def test_dot_product_attention_but_for_the_scale():
    query, key, value = inputs()
    output, _ = attention(query * math.sqrt(8), key, value)
    unscaled = (query @ key.mT).softmax(dim=-1) @ value
    torch.testing.assert_close(output, unscaled)


def test_what_the_mask_forbids_gets_exactly_nothing():
    query, key, value = inputs()
    mask = some_mask()
    low = -1e6 * query.abs(), key.abs()  # every score far below zero
    for asks, answers in ((query, key), (1e4 * query, key), low):
        _, weights = attention(asks, answers, value, mask)
        assert (weights[~mask.expand_as(weights)] == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))


@pytest.mark.parametrize(
    ("dtype", "gap"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_explicit_equals_fast(dtype, gap, masked):
    mask, results = some_mask() if masked else None, []
    tensors = inputs(dtype)
    fast = F.scaled_dot_product_attention
    for function in (lambda *a: attention(*a)[0], fast):
        output = function(*tensors, mask)
        assert output.dtype == dtype
        loss = output.float().square().sum()
        results.append([output, *torch.autograd.grad(loss, tensors)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=gap, rtol=gap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_with_nothing_to_attend_to_makes_no_nan(dtype):
    tensors = inputs(dtype)
    mask = some_mask()
    mask[0, 0, 2] = False
    output, weights = attention(*tensors, mask)
    average = torch.full((3, 7), 1 / 7, dtype=dtype)
    torch.testing.assert_close(weights[0, :, 2], average)
    output.float().square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (*tensors,))
    assert (tensors[0].grad[0, :, 2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_that_may_look_nowhere_averages_on_every_path(dtype):
    """In training, recorded, and by the kernel: the plain average."""
    module, x = MultiHeadAttention(8, 2).to(dtype), torch.randn(2, 3, 8)
    x, mask = x.to(dtype), torch.ones(2, 1, 3, 3).bool()
    mask[0, :, 1] = False
    wanted = module.w_o(module.w_v(x[0]).mean(0))
    found = [module.train()(x, x, mask), module.eval()(x, x, mask)]
    with record_attention(module):
        found.append(module(x, x, mask))
    for output in found:
        torch.testing.assert_close(output[0, 1], wanted, atol=1e-2, rtol=1e-2)
        torch.testing.assert_close(output, found[0], atol=1e-2, rtol=1e-2)


def test_dropout_removes_weights_and_keeps_the_mean():
    query = torch.zeros(1, 1, 200, 4)
    _, weights = attention(query, query, query, dropout=0.25)
    kept = weights != 0
    assert abs(kept.float().mean() - 0.75) < 0.02
    torch.testing.assert_close(
        weights[kept], torch.full_like(weights[kept], 1 / 200 / 0.75)
    )
    module = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(module(x, x), module(x, x))
    module.eval()
    assert torch.equal(module(x, x), module(x, x))


@pytest.mark.parametrize("bias", [False, True])
def test_equals_pytorchs_multihead_attention(bias):
    """Output, every head's weights, and the gradient of everything."""
    ours = MultiHeadAttention(24, 4, bias=bias)
    theirs = nn.MultiheadAttention(24, 4, bias=bias, batch_first=True)

    def joined(of):
        linears = ours.w_q, ours.w_k, ours.w_v
        return torch.cat([of(linear) for linear in linears])

    names = ["weight", "bias"] if bias else ["weight"]
    with torch.no_grad():
        for name in names:
            mine = joined(lambda linear, n=name: getattr(linear, n))
            getattr(theirs, f"in_proj_{name}").copy_(mine)
            mine = getattr(ours.w_o, name)
            getattr(theirs.out_proj, name).copy_(mine)

    ids = torch.tensor([[4, 5, 6, 7, 8, 9], [4, 5, 6, 0, 0, 0]])
    mask = padding_mask(ids)
    x, memory = torch.randn(2, 5, 24), torch.randn(2, 6, 24)
    x_2, memory_2 = x.clone(), memory.clone()
    tensors = [x, memory, x_2, memory_2]
    for tensor in tensors:
        tensor.requires_grad_()
    with record_attention(ours) as maps:
        mine = ours(x, memory, mask)
    yours, weights = theirs(
        x_2,
        memory_2,
        memory_2,
        key_padding_mask=~mask[:, 0, 0],
        average_attn_weights=False,
    )
    mine.square().sum().backward()
    yours.square().sum().backward()
    pairs = [(mine, yours), (maps[""], weights)]
    pairs += [(x.grad, x_2.grad), (memory.grad, memory_2.grad)]
    for name in names:
        grad = joined(lambda linear, n=name: getattr(linear, n).grad)
        pairs.append((grad, getattr(theirs, f"in_proj_{name}").grad))
        grad = getattr(ours.w_o, name).grad
        pairs.append((grad, getattr(theirs.out_proj, name).grad))
    for a, b in pairs:
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


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
        heads.append(attention(x @ w_q, memory @ w_k, memory @ w_v)[0])
    expected = torch.cat(heads, -1) @ ours.w_o.weight.T
    torch.testing.assert_close(ours(x, memory), expected)


def test_sizes_of_the_projections():
    module = Transformer(TransformerConfig.base(1, N=1)).build_attention()
    for w in (module.w_q, module.w_k, module.w_v, module.w_o):
        assert w.weight.shape == (512, 512) and w.bias is None
    key, value = module.keys_values(torch.randn(2, 3, 512))
    assert key.shape == value.shape == (2, 8, 3, 64)
    odd = MultiHeadAttention(10, 4, d_k=3, d_v=5)
    key, value = odd.keys_values(torch.randn(2, 3, 10))
    assert key.shape == (2, 4, 3, 3) and value.shape == (2, 4, 3, 5)
    assert odd.w_o.weight.shape == (10, 4 * 5)


@pytest.mark.parametrize("given", [{}, {"d_k": 3}, {"d_v": 3}])
def test_h_must_divide_d_model(given):
    with pytest.raises(ValueError, match="h=3 .* d_model=10"):
        MultiHeadAttention(10, 3, **given)


def test_many_heads_cost_as_much_as_one():
    costs = set()
    for h in (1, 4, 16):
        module = MultiHeadAttention(64, h)
        x = torch.randn(1, 10, 64)
        with torch.no_grad(), FlopCounterMode(display=False) as flops:
            module(x, x)
        weights = sum(p.numel() for p in module.parameters())
        costs.add((weights, flops.get_total_flops()))
    assert len(costs) == 1 and costs.pop()[0] == 4 * 64 * 64


def test_keys_and_values_that_are_known_need_no_memory():
    module = MultiHeadAttention(12, 3)
    x, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    known = module.keys_values(memory)
    found = module(x, None, keys_values=known)
    torch.testing.assert_close(found, module(x, memory))


def test_the_fused_kernel_not_in_training_on_a_cpu_nor_recorded(
    monkeypatch,
):
    called, fused = [], F.scaled_dot_product_attention
    module = sys.modules["transformer_lib.attention"]
    for home, function in ((module, attention), (F, fused)):

        def spy(*args, function=function, **named):
            called.append(function)
            return function(*args, **named)

        monkeypatch.setattr(home, function.__name__, spy)
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    module(x, x)
    module.eval()(x, x)
    with record_attention(module):
        module(x, x)
    assert called == [attention, fused, attention]
    module, x = module.to("meta").train(), x.to("meta")
    module(x, x)
    with record_attention(module):
        module(x, x)
    assert called[3:] == [fused, attention]


def test_recording_names_every_module_and_ends():
    model = nn.ModuleDict(
        {"a": MultiHeadAttention(8, 2), "b": MultiHeadAttention(8, 4)}
    )
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with record_attention(model) as maps:
        model["a"](x, x)
        model["a"](x[:, :1], x)
        model["b"](x, memory)
    assert maps.keys() == {"a", "b"}
    assert maps["a"].shape == (2, 2, 1, 3)  # of the last call
    assert maps["b"].shape == (2, 4, 3, 5)
    assert not maps["b"].requires_grad
    with pytest.raises(RuntimeError), record_attention(model):
        model["a"](x[..., :7], x)
    assert model["a"].record is None


def test_a_recording_inside_another_leaves_it_on():
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    with record_attention(module) as outer:
        with record_attention(module) as inner:
            module(x, x)
        assert inner.keys() == {""} and not outer
        module(x[:, :2], x)
    assert inner[""].shape[2] == 3 and outer[""].shape[2] == 2
    assert module.record is None


def test_recordings_in_threads_keep_to_themselves():
    """Each thread's weights are of its own call, recorded or not."""
    module, wrong = MultiHeadAttention(8, 2), []

    def run(n):
        x = torch.randn(1, n, 8, generator=torch.Generator().manual_seed(n))
        for _ in range(40):
            if n == 2:  # it does not record, and must not be recorded
                module(x, x)
                continue
            with record_attention(module) as maps:
                for _ in range(5):
                    module(x, x)
            if maps[""].shape[2] != n:
                wrong.append((n, maps[""].shape))

    threads = [threading.Thread(target=run, args=(n,)) for n in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and module.record is None


def test_under_autocast():
    module, x = MultiHeadAttention(8, 2), torch.randn(2, 4, 8)
    expected = module(x, x, causal_mask(4))
    with torch.autocast("cpu", torch.bfloat16):
        got = module(x, x, causal_mask(4))
    got.float().sum().backward()
    torch.testing.assert_close(got.float(), expected, atol=3e-2, rtol=3e-2)


def test_the_scale_keeps_the_variance_at_one():
    for d_k in (4, 64, 512):
        query, key = torch.randn(2, 400, d_k)
        products = query @ key.mT
        assert abs(products.mean()) < 0.03 * math.sqrt(d_k)
        assert abs(products.var() / d_k - 1) < 0.2
        _, weights = attention(query, key, key)
        # The log of a softmax is the scores, up to a constant a row.
        scores = weights.double().log()
        scores = scores - scores.mean(dim=-1, keepdim=True)
        assert abs(scores.var() - 1) < 0.2


def test_large_products_leave_the_softmax_small_gradients():
    """And the scale counteracts it, whatever the width of the keys."""
    slopes = {}
    for d_k in (16, 4096):
        key = torch.randn(20, d_k)
        query = torch.randn(400, d_k).requires_grad_()
        for name, size in (("scaled", 1.0), ("unscaled", math.sqrt(d_k))):
            _, weights = attention(size * query, key, key)
            # of a weight by its own score; 0 where all is one or none
            slopes[name, d_k] = (weights * (1 - weights)).sum(-1).mean()
    assert slopes["scaled", 4096] > 0.9 * slopes["scaled", 16]
    assert slopes["unscaled", 4096] < 0.1 * slopes["scaled", 4096]
    assert slopes["unscaled", 4096] < 0.3 * slopes["unscaled", 16]


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
    assert losses[2] < 0.1 < 0.3 < losses[1]
