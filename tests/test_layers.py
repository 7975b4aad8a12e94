"""The layers against PyTorch's, and each statement of 3.1 and 3.3."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from translators import silence_attention

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.embeddings import Embeddings
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerCache,
    Residual,
)
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig

D_MODEL, D_FF, H = 16, 32, 4
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


def layer_of(kind, norm="post", dropout=0.0):
    attentions = [
        MultiHeadAttention(D_MODEL, H, bias=True)
        for _ in range(1 if kind is EncoderLayer else 2)
    ]
    network = FeedForward(D_MODEL, D_FF)
    return kind(*attentions, network, D_MODEL, dropout, norm)


def stack_of(kind, N, norm="post"):
    layer = EncoderLayer if kind is Encoder else DecoderLayer
    return kind([layer_of(layer, norm) for _ in range(N)], D_MODEL, norm)


def as_pytorchs(layer) -> dict:
    """Our layer's parameters under the names of PyTorch's."""
    named = {
        "linear1": layer.feed_forward.w_1,
        "linear2": layer.feed_forward.w_2,
    }
    attentions = {"self_attn": layer.self_attention}
    if isinstance(layer, DecoderLayer):
        attentions["multihead_attn"] = layer.cross_attention
    for name, module in attentions.items():
        named[f"{name}.out_proj"] = module.w_o
    for i, residual in enumerate(layer.residuals, 1):
        named[f"norm{i}"] = residual.norm
    found = {}
    for part in ("weight", "bias"):
        for name, module in named.items():
            found[f"{name}.{part}"] = getattr(module, part)
        for name, module in attentions.items():
            three = module.w_q, module.w_k, module.w_v
            found[f"{name}.in_proj_{part}"] = torch.cat(
                [getattr(linear, part) for linear in three]
            )
    return found


def same_as_pytorchs(ours, theirs, run_ours, run_theirs):
    """Same output, same gradient of every weight."""
    with torch.no_grad():  # other than the ones and zeros of a norm
        for p in ours.parameters():
            p.add_(0.1 * torch.randn_like(p))
    theirs.load_state_dict(as_pytorchs(ours))
    mine, yours = run_ours(ours), run_theirs(theirs)
    close = dict(atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(mine, yours, **close)
    mine.square().mean().backward()
    yours.square().mean().backward()
    for p in ours.parameters():
        p.data = p.grad  # so that gradients get PyTorch's names
    gradients = as_pytorchs(ours)
    for name, p in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, **close)


def pytorchs(kind, norm):
    return kind(
        D_MODEL,
        H,
        D_FF,
        0.0,
        batch_first=True,
        norm_first=norm == "pre",
    )


@both_norms
def test_encoder_layer_equals_pytorchs(norm):
    mask = padding_mask(torch.tensor([[4, 5, 6, 7], [4, 5, 0, 0]]))
    x = torch.randn(2, 4, D_MODEL)
    same_as_pytorchs(
        layer_of(EncoderLayer, norm),
        pytorchs(nn.TransformerEncoderLayer, norm),
        lambda layer: layer(x, mask),
        lambda layer: layer(x, src_key_padding_mask=~mask[:, 0, 0]),
    )


@both_norms
def test_decoder_layer_equals_pytorchs(norm):
    source_mask = padding_mask(torch.tensor([[4, 5, 6], [4, 0, 0]]))
    target_mask = causal_mask(5)
    x, memory = torch.randn(2, 5, D_MODEL), torch.randn(2, 3, D_MODEL)
    same_as_pytorchs(
        layer_of(DecoderLayer, norm),
        pytorchs(nn.TransformerDecoderLayer, norm),
        lambda layer: layer(x, memory, target_mask, source_mask),
        lambda layer: layer(
            x,
            memory,
            tgt_mask=~target_mask[0, 0],
            memory_key_padding_mask=~source_mask[:, 0, 0],
        ),
    )


def test_a_residual_and_a_norm_around_each_sublayer():
    """Two in an encoder's layer, three in a decoder's."""
    x, memory = torch.randn(2, 1, 4, D_MODEL)
    for kind, others in ((EncoderLayer, []), (DecoderLayer, [memory])):
        layer = layer_of(kind)
        sublayers = [layer.self_attention, layer.feed_forward]
        if others:
            sublayers.insert(1, layer.cross_attention)
        expected = x
        for sublayer, residual in zip(sublayers, layer.residuals, strict=True):
            norm = residual.norm
            nn.init.normal_(norm.weight)  # no two norms alike
            nn.init.normal_(norm.bias)
            inputs = [expected]
            if sublayer is layer.self_attention:
                inputs = [expected, expected]
            elif sublayer is not layer.feed_forward:
                inputs = [expected, memory]
            both = expected + sublayer(*inputs)
            expected = F.layer_norm(both, (D_MODEL,), norm.weight, norm.bias)
        masks = [None] * (1 + len(others))
        found = layer(x, *others, *masks)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_feed_forward_is_equation_2():
    network, x = (
        FeedForward(D_MODEL, D_FF),
        torch.randn(2, 3, D_MODEL),
    )
    w_1, b_1 = network.w_1.weight.T, network.w_1.bias
    w_2, b_2 = network.w_2.weight.T, network.w_2.bias
    expected = (x @ w_1 + b_1).clamp(min=0) @ w_2 + b_2
    torch.testing.assert_close(network(x), expected)


def test_feed_forward_is_two_convolutions_of_width_1():
    network, x = (
        FeedForward(D_MODEL, D_FF),
        torch.randn(2, 5, D_MODEL),
    )
    one, two = network.w_1, network.w_2
    inner = F.conv1d(x.mT, one.weight[..., None], one.bias).relu()
    out = F.conv1d(inner, two.weight[..., None], two.bias)
    torch.testing.assert_close(network(x), out.mT)


def test_feed_forward_treats_positions_apart_and_alike():
    network, x = (
        FeedForward(D_MODEL, D_FF),
        torch.randn(2, 5, D_MODEL),
    )
    order = torch.randperm(5)
    torch.testing.assert_close(network(x[:, order]), network(x)[:, order])
    changed = x.clone()
    changed[:, 2] += 1
    moved = (network(changed) != network(x)).any(-1)
    assert moved.tolist() == [[False, False, True, False, False]] * 2


def test_feed_forward_dropout_is_off_by_default():
    x = torch.randn(2, 3, D_MODEL)
    network = FeedForward(D_MODEL, D_FF)
    assert torch.equal(network(x), network(x))
    network = FeedForward(D_MODEL, D_FF, dropout=0.5)
    assert not torch.equal(network(x), network(x))


@both_norms
def test_residual_places_the_norm(norm):
    residual = Residual(D_MODEL, dropout=0.0, norm=norm)
    nn.init.normal_(residual.norm.weight)
    x = torch.randn(2, 3, D_MODEL)
    expected = {
        "post": residual.norm(x + x.sin()),
        "pre": x + residual.norm(x).sin(),
    }[norm]
    torch.testing.assert_close(residual(x, torch.sin), expected)


@both_norms
def test_dropout_falls_on_the_sublayers_output_before_the_sum(norm):
    residual = Residual(200, dropout=0.5, norm=norm)
    if norm == "post":
        residual.norm = nn.Identity()  # to see the sum before it
    x = torch.full((4, 10, 200), 7.0)
    out = residual(x, torch.ones_like)
    assert set(out.unique().tolist()) == {7.0, 9.0}
    assert abs((out == 7).float().mean() - 0.5) < 0.05
    assert torch.equal(residual(x, torch.zeros_like), x)
    for kind in (EncoderLayer, DecoderLayer):
        rates = [r.dropout.p for r in layer_of(kind, norm, 0.3).residuals]
        assert set(rates) == {0.3}


def test_unknown_norm():
    with pytest.raises(ValueError, match="norm='middle'"):
        Residual(D_MODEL, norm="middle")


@both_norms
def test_a_last_norm_only_with_pre(norm):
    encoder, decoder = (stack_of(kind, 1, norm) for kind in (Encoder, Decoder))
    for stack in (encoder, decoder):
        assert hasattr(stack, "norm") == (norm == "pre")
    x = torch.randn(2, 3, D_MODEL)
    for stack, rest in (
        (encoder, [None]),
        (decoder, [x, None, None]),
    ):
        out = stack.layers[0](x, *rest)
        if norm == "pre":
            out = stack.norm(out)
        torch.testing.assert_close(stack(x, *rest), out)


def test_stacks_run_their_layers_in_order():
    source_mask = padding_mask(torch.tensor([[4, 5, 6], [4, 0, 0]]))
    encoder, decoder = stack_of(Encoder, 3), stack_of(Decoder, 3)
    x = memory = torch.randn(2, 3, D_MODEL)
    for layer in encoder.layers:
        memory = layer(memory, source_mask)
    torch.testing.assert_close(encoder(x, source_mask), memory)
    y = target = torch.randn(2, 4, D_MODEL)
    for layer in decoder.layers:
        y = layer(y, memory, causal_mask(4), source_mask)
    out = decoder(target, memory, causal_mask(4), source_mask)
    torch.testing.assert_close(out, y)


def test_later_targets_never_reach_earlier_ones():
    decoder = stack_of(Decoder, 2)
    memory, x = torch.randn(1, 3, D_MODEL), torch.randn(1, 6, D_MODEL)
    changed = x.clone()
    changed[:, 4:] = 99.0
    before = decoder(x, memory, causal_mask(6), None)
    after = decoder(changed, memory, causal_mask(6), None)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])
    cache = [layer.new_cache(memory, longest=6) for layer in decoder.layers]
    steps = [decoder(x[:, [i]], None, None, None, cache) for i in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), before)


def test_layers_share_nothing():
    for kind in (Encoder, Decoder):
        first, second = stack_of(kind, 2).layers
        ours = {id(p) for p in first.parameters()}
        assert not ours & {id(p) for p in second.parameters()}


@both_norms
def test_one_position_at_a_time_with_a_cache(norm):
    decoder = stack_of(Decoder, 2, norm)
    memory, x = torch.randn(2, 3, D_MODEL), torch.randn(2, 5, D_MODEL)
    cache = [layer.new_cache(memory, longest=5) for layer in decoder.layers]
    expected = decoder(x, memory, causal_mask(5), None)
    steps = [
        decoder(x[:, i : i + 1], None, None, None, cache) for i in range(5)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), expected)


def test_a_cache_is_tensors_in_room_for_the_longest():
    """And rows in it are reordered, repeated and dropped."""
    source = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6)
    first = torch.randn(2, 3, 1, 5), torch.randn(2, 3, 1, 6)
    cache = LayerCache(source, [part[:, :, :0] for part in first], longest=3)
    key, value = cache.append(*first)
    assert torch.equal(key, first[0]) and torch.equal(value, first[1])
    cache.select(torch.tensor([1, 0]), source=False)
    for part, given in zip(cache.source, source, strict=True):
        assert part is given  # nothing is copied
    cache.select(torch.tensor([1, 0, 0]))
    assert torch.equal(cache.source[1], source[1][[1, 0, 0]])
    second = torch.randn(3, 3, 1, 5), torch.randn(3, 3, 1, 6)
    key, value = cache.append(*second)
    wanted = torch.cat([first[1][[0, 1, 1]], second[1]], dim=2)
    assert torch.equal(value, wanted)
    cache.select(torch.tensor([2]))
    key, value = cache.append(second[0][:1], second[1][:1])
    assert key.shape == (1, 3, 3, 5)
    with pytest.raises(ValueError, match="position 4 .*longest=3"):
        cache.append(second[0][:1], second[1][:1])


def test_a_search_that_forgets_no_grad_can_reorder_a_cache():
    new = [torch.randn(2, 3, 1, d, requires_grad=True) for d in (5, 6)]
    cache = LayerCache(new, [part[:, :, :0] for part in new], longest=2)
    cache.append(*new)
    cache.select(torch.tensor([1, 0]))
    keys, values = cache.append(*new)
    assert torch.equal(keys[:, :, :1], new[0][[1, 0]])
    assert torch.equal(values[:, :, 1:], new[1])


def test_appending_to_a_cache_copies_no_earlier_position():
    new = torch.randn(2, 3, 1, 5), torch.randn(2, 3, 1, 6)
    nothing = [part[:, :, :0] for part in new]
    cache = LayerCache(new, nothing, longest=3)
    kept = [cache.append(*new) for _ in range(3)]
    for keys, values in kept:
        assert keys.data_ptr() == kept[0][0].data_ptr()
        assert values.data_ptr() == kept[0][1].data_ptr()


def test_no_recurrence_no_convolution():
    stacks = stack_of(Encoder, 1), stack_of(Decoder, 1)
    parts = {type(m) for stack in stacks for m in stack.modules()}
    torchs = {p for p in parts if p.__module__.startswith("torch.nn")}
    assert torchs == {
        nn.ModuleList,
        nn.Linear,
        nn.LayerNorm,
        nn.Dropout,
    }
    # With attention silenced no position hears of another.
    x = torch.randn(1, 5, D_MODEL)
    other = x.clone()
    other[:, 2] = torch.randn(D_MODEL)
    for stack, given in zip(stacks, ([None], [x, None, None]), strict=True):
        silence_attention(stack.eval())
        moved = (stack(other, *given) - stack(x, *given)).abs().amax(-1)[0]
        assert (moved > 1e-4).tolist() == [False, False, True, False, False]


def test_everything_is_d_model_wide():
    """Section 3.1: sub-layers and embeddings give d_model numbers."""
    config = TransformerConfig(
        11, N=2, d_model=D_MODEL, d_ff=D_FF, h=2, d_k=3, d_v=5
    )
    model, widths = Transformer(config), {}

    def note(module, inputs, output):
        widths[module] = output.size(-1)

    kinds = MultiHeadAttention, FeedForward, Residual, Embeddings
    parts = [m for m in model.modules() if isinstance(m, kinds)]
    for part in parts:
        part.register_forward_hook(note)
    ids = torch.tensor([[4, 5, 3]])
    model(ids, ids)
    assert len(widths) == len(parts) > 20
    assert set(widths.values()) == {D_MODEL}


def test_unless_told_layers_are_the_papers():
    """Dropout 0.1 on every sub-layer, post-norm, no last norm."""
    attention, network = MultiHeadAttention(8, 2), FeedForward(8, 16)
    layers = [
        EncoderLayer(attention, network, 8),
        DecoderLayer(attention, attention, network, 8),
    ]
    residuals = [Residual(8), *layers[0].residuals, *layers[1].residuals]
    assert len(residuals) == 6
    for residual in residuals:
        assert residual.dropout.p == 0.1 and not residual.pre_norm
    assert not hasattr(Encoder(layers[:1], 8), "norm")
    assert not hasattr(Decoder(layers[1:], 8), "norm")
    assert network.dropout.p == 0
