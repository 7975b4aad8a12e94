"""Attention against PyTorch's, with masks, and at the edges."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.attention import (
    MultiHeadAttention,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_lib.model import Transformer, TransformerConfig


def inputs(dtype=torch.float32, query_len=5, key_len=7, d_k=8):
    """Queries, keys and values of three sentences, four heads."""
    shapes = [(query_len, d_k), (key_len, d_k), (key_len, 4)]
    return [
        torch.randn(3, 4, *shape).to(dtype).requires_grad_()
        for shape in shapes
    ]


def masks(query_len, key_len):
    """Of every kind: for a query, for a sentence, for all, and none."""
    any_mask = torch.rand(3, 1, query_len, key_len) > 0.5
    any_mask[..., 0] = True
    return [any_mask, any_mask[:, :, :1], any_mask[0, 0], None]


def examples(dtype):
    """Many sizes; scores small and large; every mask; one head alone."""
    for d_k, lengths in ((96, (70, 130)), (12, (12, 12)), (2, (1, 7))):
        for size in (1,) if dtype == torch.bfloat16 else (1, 30):
            query, key, value = inputs(dtype, *lengths, d_k)
            for mask in masks(*lengths):
                yield size * query, key, value, mask
            yield size * query[0], key[0], value[0], None
            yield size * query[0, 1], key[0, 1], value[0, 1], None


def in_every_way(module, x, memory, mask=None):
    """In training and not, recorded and not, keys known and not."""
    known = module.keys_values(memory)
    found = []
    for training in (True, False):
        module.train(training)
        found += [module(x, memory, mask), module(x, known, mask)]
        with record_attention(module):
            found.append(module(x, memory, mask))
    return found


@pytest.mark.parametrize(
    ("dtype", "gap"),
    [(torch.float32, 1e-4), (torch.float64, 1e-6), (torch.bfloat16, 3e-2)],
)
def test_equation_1_on_numbers_worked_by_hand(dtype, gap):
    query = torch.tensor([[math.log(3.0), 0.0, 0.0, 0.0]])
    key = torch.tensor([[2.0, 0, 0, 0], [0, 5, 0, 0]])
    value = torch.tensor([[4.0], [8.0]])
    output, weights = scaled_dot_product_attention(query, key, value)
    # The products are 2 log 3 and 0, halved by the root of d_k = 4.
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[5.0]]))
    # And for all queries at once, with the exponentials written out.
    close = dict(atol=gap, rtol=gap, check_dtype=False)
    for query, key, value, mask in examples(dtype):
        scores = torch.einsum("...qd,...kd->...qk", query, key)
        scores = scores.double() / query.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        shares = powers / powers.sum(-1, keepdim=True)
        wanted = torch.einsum("...qk,...kv->...qv", shares, value.double())
        output, weights = scaled_dot_product_attention(query, key, value, mask)
        torch.testing.assert_close(weights, shares, **close)
        torch.testing.assert_close(output, wanted, **close)
        # With dropout some weights are zero, and the sum is of the rest.
        output, weights = scaled_dot_product_attention(
            query, key, value, mask, dropout=0.5
        )
        kept = 2 * shares * (weights != 0)
        torch.testing.assert_close(weights, kept, **close)
        summed = torch.einsum("...qk,...kv->...qv", weights, value)
        torch.testing.assert_close(output, summed, **close)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16]
)
def test_what_the_mask_forbids_gets_exactly_nothing(dtype):
    for lengths in ((5, 7), (12, 130), (1, 2)):
        query, key, value = inputs(dtype, *lengths)
        low = -1e32 * query.abs(), key.abs()  # scores far below zero
        for asks, answers in ((query, key), (1e4 * query, key), low):
            for mask in masks(*lengths)[:3]:
                output, weights = scaled_dot_product_attention(
                    asks, answers, value, mask
                )
                assert (weights[~mask.expand_as(weights)] == 0).all()
                gap = weights.float().sum(-1) - 1
                limit = 2e-2 if dtype == torch.bfloat16 else 1e-5
                assert gap.abs().max() < limit


def test_a_module_drops_weights():
    module = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(module(x, x), module(x, x))


@pytest.mark.parametrize(
    ("h", "d_k", "d_v"), [(3, 5, 2), (1, 4, 4), (8, 3, 3), (6, None, None)]
)
def test_multi_head_is_the_papers_sum_over_heads(h, d_k, d_v):
    """head_i by its own three matrices, then Concat and W^O."""
    ours = MultiHeadAttention(12, h, d_k, d_v)
    assert len(list(ours.parameters())) == 4  # none is another
    long, short = torch.randn(3, 40, 12), torch.randn(3, 6, 12)
    for x, memory in (short, long), (long, short), (short[:, :1], short):
        for mask in masks(x.size(1), memory.size(1)):
            heads = []
            with record_attention(ours) as maps:
                ours(x, memory, mask)
            for i in range(h):
                w_q, w_k, w_v = (
                    w.weight.unflatten(0, (h, -1))[i].T  # (d_model, d)
                    for w in (ours.w_q, ours.w_k, ours.w_v)
                )
                scores = (x @ w_q) @ (memory @ w_k).mT / w_q.size(1) ** 0.5
                if mask is not None:
                    allowed = mask if mask.dim() == 2 else mask[:, 0]
                    scores = scores.masked_fill(~allowed, -math.inf)
                weights = scores.softmax(-1)
                torch.testing.assert_close(maps[""][:, i], weights)
                heads.append(weights @ (memory @ w_v))
            expected = torch.cat(heads, -1) @ ours.w_o.weight.T
            for found in in_every_way(ours, x, memory, mask):
                torch.testing.assert_close(found, expected)


def test_sizes_of_the_projections():
    x = torch.randn(2, 3, 12)
    for d_k, d_v in ((3, 5), (100, None), (None, 5), (None, None)):
        sizes = dict(d_model=12, h=4, d_k=d_k, d_v=d_v, d_ff=8)
        model = Transformer(TransformerConfig(4, N=1, **sizes))
        d_k, d_v = d_k or 3, d_v or 3
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                assert module.w_q.weight.shape == (4 * d_k, 12)
                key, value = module.keys_values(x)
                assert key.shape == (2, 4, 3, d_k)
                assert value.shape == (2, 4, 3, d_v)
                assert module.w_o.weight.shape == (12, 4 * d_v)


def test_h_must_divide_d_model():
    for given in {}, {"d_k": 3}, {"d_v": 3}:
        with pytest.raises(ValueError, match="h=3 .* d_model=10"):
            MultiHeadAttention(10, 3, **given)


def test_many_heads_cost_as_much_as_one():
    x, memory = torch.randn(2, 2, 12, 64)
    for given, mask in ((x, None), (memory, torch.ones(12, 12).bool())):
        costs = set()
        for h in (1, 4, 8, 32):
            module = MultiHeadAttention(64, h)
            with FlopCounterMode(display=False) as flops:
                found = in_every_way(module, x, given, mask)
                torch.stack(found).sum().backward()
            state = module.state_dict().values()
            numbers = sum(part.numel() for part in state)
            costs.add((numbers, flops.get_total_flops()))
        assert len(costs) == 1 and costs.pop()[0] == 4 * 64 * 64


def test_recording_names_every_module_and_ends():
    model = nn.ModuleDict(
        {"a": MultiHeadAttention(8, 2), "b": MultiHeadAttention(8, 4)}
    )
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with record_attention(model) as maps:
        model["a"](x, x)
        model["a"](x[:, :1], x)
        model["b"](x, memory, None, 0, False)
    assert maps.keys() == {"a", "b"}
    assert maps["a"].shape == (2, 2, 1, 3)  # of the last call
    assert maps["b"].shape == (2, 4, 3, 5)
    assert not maps["b"].requires_grad
    with pytest.raises(RuntimeError), record_attention(model):
        model["a"](x[..., :7], x)
    model["b"](x, x)
    assert maps["b"].shape == (2, 4, 3, 5), "nothing is recorded any more"


def test_what_is_recorded_was_used():
    """With dropout, too; and who asks for the weights has them, too."""
    module = MultiHeadAttention(8, 2, dropout=0.5).train()
    x = torch.randn(2, 3, 8)
    _, value = module.keys_values(x)
    with record_attention(module) as maps:
        output = module(x, x)
        used = (maps[""] @ value).transpose(1, 2).flatten(2)
        assert torch.allclose(output, module.w_o(used))
        for asked in (
            module(x, x, None, 0, True),
            module(x, x, need_weights=True),
        ):
            assert asked[0].shape == x.shape
        assert torch.equal(asked[1], maps[""])


def test_each_recording_sees_its_own_thread():
    """Also while another one runs, of the same model."""
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    other = record_attention(module)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(other.__enter__).result()
        thread.submit(module, x[:, :1], x).result()
        with record_attention(module) as maps:
            module(x, x)
            with record_attention(module) as inner:
                module(x, x[:, :2])
            assert inner[""].shape == maps[""].shape == (1, 2, 3, 2)
            module(x, x)
        thread.submit(other.__exit__, None, None, None).result()
    assert maps[""].shape == (1, 2, 3, 3)
    assert found[""].shape == (1, 2, 1, 3)


def test_what_is_recorded_can_be_computed_with():
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    with torch.inference_mode(), record_attention(module) as maps:
        module(x, x)
    weights = maps[""].mul_(2).requires_grad_()
    weights.square().sum().backward()
    assert torch.allclose(weights.grad, 2 * weights)


@pytest.mark.parametrize("how", ["a layer", "in place"])
def test_a_compiled_model_is_not_recorded(how):
    """Its hooks would not be called: there would be no weights at all."""
    model = nn.ModuleDict({"a": MultiHeadAttention(8, 2)})
    if how == "a layer":
        model["a"] = torch.compile(model["a"], backend="eager")
    else:
        model["a"].compile(backend="eager")
    with pytest.raises(ValueError, match="compiled model keeps no"):
        with record_attention(model):
            pass


@pytest.mark.parametrize("training", [True, False])
def test_a_mask_of_three_axes_is_refused(training):
    """As many sentences as heads: it would be taken for the heads'."""
    module, x = MultiHeadAttention(8, 2).train(training), torch.randn(2, 3, 8)
    mask = torch.ones(2, 3, 3).tril().bool()
    with pytest.raises(ValueError, match="mask.shape=.*three axes"):
        module(x, x, mask)
    wanted = torch.cat(
        [module(y, y, m) for y, m in zip(x[:, None], mask, strict=True)]
    )
    torch.testing.assert_close(module(x, x, mask[:, None]), wanted)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [torch.float32, torch.long])
def test_a_mask_of_numbers_is_refused(kind, training):
    module, x = MultiHeadAttention(8, 2).train(training), torch.randn(1, 3, 8)
    with pytest.raises(ValueError, match="mask.dtype=.*give a boolean mask"):
        module(x, x, torch.ones(3, 3, dtype=kind))


def test_the_scale_keeps_the_variance_at_one():
    for d_k in (4, 32, 64, 512, 1024):
        query = torch.randn(3, 2, 200, d_k)
        key = torch.randn(3, 2, 99, d_k)
        products = query @ key.mT
        assert abs(products.mean()) < 0.03 * math.sqrt(d_k)
        assert abs(products.var() / d_k - 1) < 0.2
        _, weights = scaled_dot_product_attention(
            query, key, key[..., : d_k // 2]
        )
        # The log of a softmax is the scores, up to a constant a row.
        scores = weights.double().log()
        scores = scores - scores.mean(dim=-1, keepdim=True)
        assert abs(scores.var() - 1) < 0.2
        wanted = query.double() @ key.double().mT / d_k**0.5
        wanted = wanted - wanted.mean(-1, keepdim=True)
        torch.testing.assert_close(scores, wanted, atol=1e-3, rtol=0)


@pytest.mark.parametrize("key_len", [10, 50])
def test_large_products_leave_the_softmax_small_gradients(key_len):
    """And the scale counteracts it, whatever the width of the keys."""
    slopes = {}
    for d_k in (16, 256, 4096):
        key, asked = torch.randn(3, 1, key_len, d_k), torch.randn(key_len)
        query = torch.randn(3, 1, 40, d_k)
        for name, size in (("scaled", 1.0), ("unscaled", math.sqrt(d_k))):
            asks = (size * query).requires_grad_()
            _, weights = scaled_dot_product_attention(
                asks, key, key[..., : d_k // 2]
            )
            plain = (asks @ key.mT / math.sqrt(d_k)).softmax(-1)
            ours, wanted = (
                torch.autograd.grad((w * asked).sum(), asks)[0]
                for w in (weights, plain)
            )
            torch.testing.assert_close(ours, wanted, atol=1e-3, rtol=1e-3)
            slopes[name, d_k] = ours.norm(dim=-1).mean()
    for d_k in (256, 4096):
        assert slopes["scaled", d_k] > 0.8 * slopes["scaled", 16]
    assert slopes["unscaled", 4096] < 0.3 * slopes["scaled", 4096]
    assert slopes["unscaled", 4096] < 0.4 * slopes["unscaled", 16]
