"""The layers against PyTorch's, and each statement of 3.1 and 3.3."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.embeddings import Embeddings
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    Residual,
)
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig

D_MODEL, D_FF, H = 16, 32, 4
NORMS = ["post", "pre"]


def encoder_layer(norm="post", dropout=0.0, bias=True):
    return EncoderLayer(
        MultiHeadAttention(D_MODEL, H, bias=bias),
        FeedForward(D_MODEL, D_FF),
        D_MODEL,
        dropout,
        norm,
    )


def decoder_layer(norm="post", dropout=0.0, bias=True):
    return DecoderLayer(
        MultiHeadAttention(D_MODEL, H, bias=bias),
        MultiHeadAttention(D_MODEL, H, bias=bias),
        FeedForward(D_MODEL, D_FF),
        D_MODEL,
        dropout,
        norm,
    )


def attention_weights(theirs: str, module):
    """Names of PyTorch's weights and their values, from ours."""
    joined = [module.w_q, module.w_k, module.w_v]
    for part in ("weight", "bias"):
        yield (
            f"{theirs}.in_proj_{part}",
            torch.cat([getattr(w, part) for w in joined]),
        )
        yield f"{theirs}.out_proj.{part}", getattr(module.w_o, part)


def as_pytorchs(layer) -> dict:
    """Our layer's weights under the names of PyTorch's."""
    named = dict(attention_weights("self_attn", layer.self_attention))
    if isinstance(layer, DecoderLayer):
        named |= attention_weights(
            "multihead_attn", layer.cross_attention
        )
    pairs = {
        "linear1": layer.feed_forward.w_1,
        "linear2": layer.feed_forward.w_2,
    }
    for i, residual in enumerate(layer.residuals, 1):
        pairs[f"norm{i}"] = residual.norm
    for name, module in pairs.items():
        named |= {f"{name}.weight": module.weight}
        named |= {f"{name}.bias": module.bias}
    return named


def shake(module):
    """Other weights than the ones and zeros that a norm starts with."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return module


def parity(ours, theirs, run_ours, run_theirs):
    """Same output, same gradient of every weight."""
    theirs.load_state_dict(as_pytorchs(shake(ours)))
    mine, yours = run_ours(ours), run_theirs(theirs)
    close = dict(atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mine, yours, **close)
    names = [name for name, _ in theirs.named_parameters()]
    mine.square().mean().backward()
    yours.square().mean().backward()
    for p in ours.parameters():
        p.data = p.grad  # so that gradients get PyTorch's names
    mine_named = as_pytorchs(ours)
    assert mine_named.keys() == set(names)
    for name, p in theirs.named_parameters():
        torch.testing.assert_close(mine_named[name], p.grad, **close)


@pytest.mark.parametrize("norm", NORMS)
def test_encoder_layer_equals_pytorchs(norm):
    mask = padding_mask(torch.tensor([[4, 5, 6, 7], [4, 5, 0, 0]]))
    x = torch.randn(2, 4, D_MODEL)
    theirs = nn.TransformerEncoderLayer(
        D_MODEL,
        H,
        D_FF,
        0.0,
        batch_first=True,
        norm_first=norm == "pre",
    )
    parity(
        encoder_layer(norm),
        theirs,
        lambda layer: layer(x, mask),
        lambda layer: layer(x, src_key_padding_mask=~mask[:, 0, 0]),
    )


@pytest.mark.parametrize("norm", NORMS)
def test_decoder_layer_equals_pytorchs(norm):
    source_mask = padding_mask(torch.tensor([[4, 5, 6], [4, 0, 0]]))
    target_mask = causal_mask(5)
    x = torch.randn(2, 5, D_MODEL)
    memory = torch.randn(2, 3, D_MODEL)
    theirs = nn.TransformerDecoderLayer(
        D_MODEL,
        H,
        D_FF,
        0.0,
        batch_first=True,
        norm_first=norm == "pre",
    )
    parity(
        decoder_layer(norm),
        theirs,
        lambda layer: layer(x, memory, target_mask, source_mask),
        lambda layer: layer(
            x,
            memory,
            tgt_mask=~target_mask[0, 0],
            memory_key_padding_mask=~source_mask[:, 0, 0],
        ),
    )


def test_feed_forward_is_equation_2():
    network = FeedForward(D_MODEL, D_FF)
    x = torch.randn(2, 3, D_MODEL)
    w_1, b_1 = network.w_1.weight.T, network.w_1.bias
    w_2, b_2 = network.w_2.weight.T, network.w_2.bias
    expected = (x @ w_1 + b_1).clamp(min=0) @ w_2 + b_2
    torch.testing.assert_close(network(x), expected)


def test_feed_forward_is_two_convolutions_of_width_1():
    network = FeedForward(D_MODEL, D_FF)
    x = torch.randn(2, 5, D_MODEL)
    hidden = F.conv1d(
        x.mT, network.w_1.weight[..., None], network.w_1.bias
    ).relu()
    out = F.conv1d(
        hidden, network.w_2.weight[..., None], network.w_2.bias
    )
    torch.testing.assert_close(network(x), out.mT)


def test_feed_forward_treats_positions_apart_and_alike():
    network = FeedForward(D_MODEL, D_FF)
    x = torch.randn(2, 5, D_MODEL)
    order = torch.randperm(5)
    torch.testing.assert_close(
        network(x[:, order]), network(x)[:, order]
    )
    changed = x.clone()
    changed[:, 2] += 1
    moved = (network(changed) != network(x)).any(-1)
    assert moved.tolist() == [[False, False, True, False, False]] * 2


def test_feed_forward_gradients_survive_the_relu_in_place():
    network = FeedForward(3, 4).double()
    x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(network, x)


def test_feed_forward_dropout_is_off_by_default():
    x = torch.randn(2, 3, D_MODEL)
    network = FeedForward(D_MODEL, D_FF)
    assert torch.equal(network(x), network(x))
    network = FeedForward(D_MODEL, D_FF, dropout=0.5)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


@pytest.mark.parametrize("norm", NORMS)
def test_residual_places_the_norm(norm):
    residual = shake(Residual(D_MODEL, dropout=0.0, norm=norm))
    x = torch.randn(2, 3, D_MODEL)
    expected = {
        "post": lambda: residual.norm(x + x.sin()),
        "pre": lambda: x + residual.norm(x).sin(),
    }[norm]()
    torch.testing.assert_close(residual(x, torch.sin), expected)


def test_dropout_falls_on_the_sublayers_output_before_the_sum():
    residual = Residual(200, dropout=0.5, norm="pre")
    x = torch.zeros(4, 10, 200)
    out = residual(x, torch.ones_like)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert abs((out == 0).float().mean() - 0.5) < 0.05
    # The path around the sub-layer is never cut.
    kept = residual(x + 7, torch.zeros_like)
    assert torch.equal(kept, x + 7)


def test_unknown_norm():
    with pytest.raises(ValueError, match="norm='middle'"):
        Residual(D_MODEL, norm="middle")


def test_two_and_three_sublayers():
    assert len(encoder_layer().residuals) == 2
    assert len(decoder_layer().residuals) == 3


def test_post_norm_leaves_rows_normalized():
    layer = encoder_layer()
    out = layer(10 * torch.randn(2, 3, D_MODEL), None)
    torch.testing.assert_close(
        out.mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        out.std(-1, correction=0), torch.ones(2, 3), atol=1e-3, rtol=0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_a_last_norm_only_with_pre(norm):
    encoder = Encoder([encoder_layer(norm)], D_MODEL, norm)
    decoder = Decoder([decoder_layer(norm)], D_MODEL, norm)
    for stack in (encoder, decoder):
        assert hasattr(stack, "norm") == (norm == "pre")
    x = torch.randn(2, 3, D_MODEL)
    out = encoder.layers[0](x, None)
    if norm == "pre":
        out = encoder.norm(out)
    torch.testing.assert_close(encoder(x, None), out)


@pytest.mark.parametrize("norm", NORMS)
def test_stacks_run_their_layers_in_order(norm):
    source_mask = padding_mask(torch.tensor([[4, 5, 6], [4, 0, 0]]))
    encoder = Encoder(
        [encoder_layer(norm) for _ in range(3)], D_MODEL, norm
    )
    decoder = Decoder(
        [decoder_layer(norm) for _ in range(3)], D_MODEL, norm
    )
    last = encoder.norm if norm == "pre" else nn.Identity()
    x = torch.randn(2, 3, D_MODEL)
    memory = x
    for layer in encoder.layers:
        memory = layer(memory, source_mask)
    memory = last(memory)
    torch.testing.assert_close(encoder(x, source_mask), memory)
    last = decoder.norm if norm == "pre" else nn.Identity()
    y = target = torch.randn(2, 4, D_MODEL)
    for layer in decoder.layers:
        y = layer(y, memory, causal_mask(4), source_mask)
    out = decoder(target, memory, causal_mask(4), source_mask)
    torch.testing.assert_close(out, last(y))
    assert out.shape == target.shape


@pytest.mark.parametrize("norm", NORMS)
def test_later_targets_never_reach_earlier_ones(norm):
    decoder = Decoder(
        [decoder_layer(norm) for _ in range(2)], D_MODEL, norm
    )
    memory = torch.randn(1, 3, D_MODEL)
    x = torch.randn(1, 6, D_MODEL)
    changed = x.clone()
    changed[:, 4:] = 99.0
    before = decoder(x, memory, causal_mask(6), None)
    after = decoder(changed, memory, causal_mask(6), None)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def test_layers_share_nothing():
    encoder = Encoder([encoder_layer() for _ in range(2)], D_MODEL)
    first, second = encoder.layers
    assert not torch.equal(
        first.feed_forward.w_1.weight, second.feed_forward.w_1.weight
    )
    assert not {id(p) for p in first.parameters()} & {
        id(p) for p in second.parameters()
    }


class Grow:
    """A plain cache: appends what is new to what it has."""

    def __init__(self):
        self.kept = None

    def keys_values(self, module, memory):
        new = module.keys_values(memory)
        if self.kept is not None:
            new = tuple(
                torch.cat(pair, dim=2)
                for pair in zip(self.kept, new, strict=True)
            )
        self.kept = new
        return new


class Once(Grow):
    """What was computed first stays."""

    def keys_values(self, module, memory):
        if self.kept is None:
            self.kept = module.keys_values(memory)
        return self.kept


class Cache:
    def __init__(self, n):
        self.self_attention = [Grow() for _ in range(n)]
        self.cross_attention = [Once() for _ in range(n)]


@pytest.mark.parametrize("norm", NORMS)
def test_one_position_at_a_time_with_a_cache(norm):
    decoder = Decoder(
        [decoder_layer(norm) for _ in range(2)], D_MODEL, norm
    )
    memory, x = torch.randn(2, 3, D_MODEL), torch.randn(2, 5, D_MODEL)
    expected = decoder(x, memory, causal_mask(5), None)
    cache = Cache(2)
    steps = [
        decoder(x[:, i : i + 1], memory, None, None, cache)
        for i in range(5)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), expected)


def test_no_recurrence_no_convolution():
    encoder = Encoder([encoder_layer()], D_MODEL)
    decoder = Decoder([decoder_layer()], D_MODEL)
    parts = {
        type(m) for m in (*encoder.modules(), *decoder.modules())
    }
    torchs = {p for p in parts if p.__module__.startswith("torch.nn")}
    assert torchs == {
        nn.ModuleList,
        nn.Linear,
        nn.LayerNorm,
        nn.Dropout,
    }


def test_everything_is_d_model_wide():
    """Section 3.1: sub-layers and embeddings give d_model numbers."""
    config = TransformerConfig(
        11, N=2, d_model=D_MODEL, d_ff=D_FF, h=2, d_k=3, d_v=5
    )
    model = Transformer(config)
    widths = {}

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
