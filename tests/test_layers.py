"""The layers against PyTorch's, and each statement of 3.1 and 3.3."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from translators import decode_in_parts, silence_attention

from transformer_lib.attention import MultiHeadAttention, record_attention
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
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig

D_MODEL, D_FF, H = 16, 32, 4
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


def layer_of(kind, norm="post", dropout=0.0):
    attentions = [
        MultiHeadAttention(D_MODEL, H, bias=True)
        for _ in range(1 if kind is EncoderLayer else 2)
    ]
    network = FeedForward(D_MODEL, D_FF)
    told = {} if norm == "post" else {"norm": norm}  # post unless told
    return kind(*attentions, network, D_MODEL, dropout, **told)


def stack_of(kind, N, norm="post"):
    layer = EncoderLayer if kind is Encoder else DecoderLayer
    return kind([layer_of(layer, norm) for _ in range(N)], D_MODEL, norm)


def in_both_modes(module):
    """The module in training, then not."""
    yield module.train()
    yield module.eval()


def mask_of(*lengths):
    """The padding mask of sentences of these lengths."""
    there = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return padding_mask(there.long())


def in_steps(decoder, x, memory, source_mask, ends):
    """What a layer or a stack gives for `x` with a cache.

    The positions come in groups, each up to one of `ends`.
    """
    stacked = isinstance(decoder, Decoder)
    layers = decoder.layers if stacked else [decoder]
    cache = [layer.new_cache(memory) for layer in layers]
    start, found = 0, []
    for end in ends:
        mask = causal_mask(end)[..., start:, :] if end > start + 1 else None
        kept = cache if stacked else cache[0]
        new = x[:, start:end]
        found.append(decoder(new, None, mask, source_mask, kept))
        start = end
    return torch.cat(found, 1)


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


def same_as_pytorchs(ours, theirs, run_theirs, *ways):
    """Same output in all ways to run ours, same gradients in the first."""
    with torch.no_grad():  # other than the ones and zeros of a norm
        for p in ours.parameters():
            p.add_(0.1 * torch.randn_like(p))
    theirs.load_state_dict(as_pytorchs(ours))
    mine, yours = ways[0](ours), run_theirs(theirs)
    close = dict(atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(mine, yours, **close)
    with torch.no_grad():
        for _ in in_both_modes(ours):
            for way in ways:
                torch.testing.assert_close(way(ours), yours, **close)
    mine.square().mean().backward()
    yours.square().mean().backward()
    for p in ours.parameters():
        p.data = p.grad  # so that gradients get PyTorch's names
    gradients = as_pytorchs(ours)
    for name, p in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, **close)


def always_runs(layer, parts, run):
    """In training no part is left out, however much is dropped."""
    calls = []
    for part in parts:
        part.register_forward_hook(lambda part, *_: calls.append(part))
    layer.train()
    for _ in range(30):
        run(layer)
    assert calls == parts * 30


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
@pytest.mark.parametrize("lengths", [(130, 20, 3), (1, 1, 1), None])
def test_encoder_layer_equals_pytorchs(norm, lengths):
    x = torch.randn(3, max(lengths or [12]), D_MODEL)
    mask = mask_of(*lengths) if lengths else None
    padded = ~mask[:, 0, 0] if lengths else None
    ours = layer_of(EncoderLayer, norm)
    twice = Encoder([ours, ours], D_MODEL)
    out = ours(ours(x, mask), mask)
    exact = twice.double()(x.double(), mask)
    ours.float()
    torch.testing.assert_close(exact.float(), out, atol=1e-4, rtol=1e-4)
    same_as_pytorchs(
        ours,
        pytorchs(nn.TransformerEncoderLayer, norm),
        lambda layer: layer(x, src_key_padding_mask=padded),
        lambda layer: layer(x, mask),
    )
    dropping = layer_of(EncoderLayer, norm, dropout=0.5)
    parts = [dropping.self_attention, dropping.feed_forward]
    always_runs(dropping, parts, lambda layer: layer(x, mask))


@both_norms
@pytest.mark.parametrize(
    ("target_len", "lengths"),
    [(5, (130, 20, 3)), (30, (6, 1, 4)), (6, (6, 6, 2)), (5, None)],
)
def test_decoder_layer_equals_pytorchs(norm, target_len, lengths):
    """The whole target at once, and one position after another."""
    source_mask = mask_of(*lengths) if lengths else None
    target_mask = causal_mask(target_len)
    x = torch.randn(3, target_len, D_MODEL)
    memory = torch.randn(3, max(lengths or [12]), D_MODEL)
    ends = range(1, target_len + 1)
    same_as_pytorchs(
        layer_of(DecoderLayer, norm),
        pytorchs(nn.TransformerDecoderLayer, norm),
        lambda layer: layer(
            x,
            memory,
            tgt_mask=~target_mask[0, 0],
            memory_key_padding_mask=~source_mask[:, 0, 0] if lengths else None,
        ),
        lambda layer: layer(x, memory, target_mask, source_mask),
        lambda layer: in_steps(layer, x, memory, source_mask, ends),
    )
    dropping = layer_of(DecoderLayer, norm, dropout=0.5)
    always_runs(
        dropping,
        [
            dropping.self_attention,
            dropping.cross_attention,
            dropping.feed_forward,
        ],
        lambda layer: layer(x, memory, target_mask, source_mask),
    )


@both_norms
@pytest.mark.parametrize("masked", [False, True])
def test_a_residual_and_a_norm_around_each_sublayer(norm, masked):
    """Two in an encoder's layer, three in a decoder's."""
    x, memory = torch.randn(3, 40, D_MODEL), torch.randn(3, 50, D_MODEL)
    own, source = mask_of(40, 5, 1), mask_of(50, 1, 4)
    if not masked:
        own = source = None
    causal = causal_mask(40)

    def expect(layer, sublayers):
        out = x
        for sublayer, residual in zip(sublayers, layer.residuals, strict=True):
            scale, shift = residual.norm.weight, residual.norm.bias
            nn.init.normal_(scale)  # no two norms alike
            nn.init.normal_(shift)
            if norm == "pre":
                normed = F.layer_norm(out, (D_MODEL,), scale, shift)
                out = out + sublayer(normed)
            else:
                both = out + sublayer(out)
                out = F.layer_norm(both, (D_MODEL,), scale, shift)
        return out

    encoder, decoder = (
        layer_of(EncoderLayer, norm),
        layer_of(DecoderLayer, norm),
    )
    wanted = expect(
        encoder,
        [lambda x: encoder.self_attention(x, x, own), encoder.feed_forward],
    )
    for layer in in_both_modes(encoder):
        found = layer(x, own)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    wanted = expect(
        decoder,
        [
            lambda x: decoder.self_attention(x, x, causal),
            lambda x: decoder.cross_attention(x, memory, source),
            decoder.feed_forward,
        ],
    )
    for layer in in_both_modes(decoder):
        found = layer(x, memory, causal, source)
        steps = in_steps(layer, x, memory, source, range(1, 41))
        for way in (found, steps):
            torch.testing.assert_close(way, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d_ff", [D_FF, D_MODEL])
def test_feed_forward_is_equation_2(dtype, d_ff):
    network = FeedForward(D_MODEL, d_ff).to(dtype)
    w_1, b_1 = network.w_1.weight.T, network.w_1.bias
    w_2, b_2 = network.w_2.weight.T, network.w_2.bias
    for shape in ((3, 130), (3, 1), (5,)):
        # ten times the numbers, so ten times the usual gap
        x = 10 * torch.randn(*shape, D_MODEL, dtype=dtype)
        expected = (x @ w_1 + b_1).clamp(min=0) @ w_2 + b_2
        for _ in in_both_modes(network):
            with torch.set_grad_enabled(network.training):
                found = network(x)
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1.3e-6)


def test_feed_forward_is_two_convolutions_of_width_1():
    network = FeedForward(D_MODEL, D_FF)
    one, two = network.w_1, network.w_2

    def convolved(x):
        inner = F.conv1d(x.mT, one.weight[..., None], one.bias).relu()
        return F.conv1d(inner, two.weight[..., None], two.bias).mT

    for length in (1, 7, 130):
        # ten times the numbers, so ten times the usual gap
        x = 10 * torch.randn(3, length, D_MODEL)
        out = convolved(x)
        for _ in in_both_modes(network):
            with torch.set_grad_enabled(network.training):
                found = network(x)
            torch.testing.assert_close(found, out, atol=1e-4, rtol=1.3e-6)

    # one position far larger than the rest changes no other
    x = torch.randn(3, 7, D_MODEL).double()
    x[1, 2] *= 1e4
    network.double()
    for _ in in_both_modes(network):
        torch.testing.assert_close(network(x), convolved(x))


def test_feed_forward_treats_positions_apart_and_alike():
    network, x = FeedForward(D_MODEL, D_FF), torch.randn(3, 130, D_MODEL)
    changed = x.clone()
    changed[1, 2] += 1
    for _ in in_both_modes(network):
        with torch.set_grad_enabled(network.training):
            found = network(x)
        alone = [network(place[None, None]) for place in x.flatten(0, 1)]
        alone = torch.cat(alone).view_as(found)
        torch.testing.assert_close(alone, found)
        order = torch.randperm(130)
        torch.testing.assert_close(network(x[:, order]), found[:, order])
        moved = (network(changed) != found).any(-1)
        assert moved.nonzero().tolist() == [[1, 2]]


def test_feed_forward_drops_if_asked():
    x = torch.randn(2, 3, D_MODEL)
    network = FeedForward(D_MODEL, D_FF, dropout=0.5)
    assert not torch.equal(network(x), network(x))


@both_norms
def test_residual_places_the_norm(norm):
    told = {} if norm == "post" else {"norm": norm}
    for rate, length in ((0.0, 1), (0.0, 70), (0.5, 70)):
        residual = Residual(D_MODEL, dropout=rate, **told)
        scale, shift = residual.norm.weight, residual.norm.bias
        nn.init.normal_(scale)
        nn.init.normal_(shift)
        x = torch.randn(3, length, D_MODEL, requires_grad=True)
        for _ in in_both_modes(residual):
            torch.manual_seed(length)  # for the same dropout twice
            found = residual(x, torch.sin)
            torch.manual_seed(length)
            if norm == "pre":
                normed = F.layer_norm(x, (D_MODEL,), scale, shift)
                expected = x + residual.dropout(normed.sin())
            else:
                both = x + residual.dropout(x.sin())
                expected = F.layer_norm(both, (D_MODEL,), scale, shift)
            torch.testing.assert_close(found, expected)
            slopes = [
                torch.autograd.grad(out.sin().sum(), x)[0]
                for out in (found, expected)
            ]
            torch.testing.assert_close(*slopes, atol=1e-4, rtol=1e-4)
    for kind in (EncoderLayer, DecoderLayer):
        for residual in layer_of(kind, norm).residuals:
            assert residual.pre_norm == (norm == "pre")


@both_norms
def test_dropout_falls_on_the_sublayers_output_before_the_sum(norm):
    residual = Residual(200, dropout=0.5, norm=norm)
    if norm == "post":
        residual.norm = nn.Identity()  # to see the sum before it
    x = torch.full((4, 70, 200), 7.0)
    out = residual(x, torch.ones_like)
    assert set(out.unique().tolist()) == {7.0, 9.0}
    dropped = (out == 7).float()
    assert abs(dropped.mean() - 0.5) < 0.05
    for axis in range(3):  # everywhere, and nowhere twice the same
        others = [i for i in range(3) if i != axis]
        assert (dropped.mean(others) - 0.5).abs().max() < 0.25
        again = dropped == dropped.roll(1, axis)
        assert abs(again.float().mean() - 0.5) < 0.05
    assert (residual(x[:, :1], torch.ones_like) == 7).any()
    assert torch.equal(residual(x, torch.zeros_like), x)
    assert (residual.eval()(x, torch.ones_like) == 8).all()
    x, causal = torch.randn(3, 5, D_MODEL), causal_mask(5)
    masks = [mask_of(5, 3, 1)], [x, causal, mask_of(5, 3, 1)]
    for kind, given in zip((EncoderLayer, DecoderLayer), masks, strict=True):
        for rate in (0.1, 0.3):
            residuals = layer_of(kind, norm, rate).residuals
            assert {r.dropout.p for r in residuals} == {rate}
        layer, nothing_but_norms = layer_of(kind, norm, 1.0), x
        if norm == "post":
            for residual in layer.residuals:
                nn.init.normal_(residual.norm.weight)
                nothing_but_norms = residual.norm(nothing_but_norms)
        torch.testing.assert_close(layer(x, *given), nothing_but_norms)


def test_unknown_norm():
    with pytest.raises(ValueError, match="norm='middle'"):
        Residual(D_MODEL, norm="middle")


@both_norms
def test_stacks_run_their_layers_in_order_and_with_pre_a_last_norm(norm):
    x, y = torch.randn(2, 3, D_MODEL), torch.randn(2, 4, D_MODEL)
    encoder, decoder = (stack_of(kind, 3, norm) for kind in (Encoder, Decoder))
    mask, causal = mask_of(3, 1), causal_mask(4)
    for stack, out, rest in (
        (encoder, x, [mask]),
        (decoder, y, [x, causal, mask]),
    ):
        found = stack(out, *rest)
        for layer in stack.layers:
            out = layer(out, *rest)
        kind = nn.LayerNorm if norm == "pre" else nn.Identity
        assert type(stack.norm) is kind
        out = stack.norm(out)
        torch.testing.assert_close(found, out)


@both_norms
def test_later_targets_never_reach_earlier_ones(norm):
    """Each row of a batch differs from the plain one in one place."""
    n, places = 130, [0, 3, 11, 60, 129]
    decoder = stack_of(Decoder, 6, norm).double()
    plain = torch.randn(5, n, D_MODEL).double()
    changed = plain.clone()
    changed[range(5), places] = torch.randn(5, D_MODEL).double()
    memory, source_mask = torch.randn(5, 6, D_MODEL), mask_of(6, 1, 4, 2, 3)
    memory = memory.double()
    target_mask = decoder_mask(torch.full((5, n), 4))
    rest = memory, None, source_mask
    with torch.no_grad(), record_attention(decoder) as maps:
        decoder(plain, *rest)
    maps = [maps[path] for path in maps if path.endswith("self_attention")]
    assert len(maps) == 6
    for weights in maps:
        assert torch.equal(weights > 0, target_mask.expand_as(weights))
    with torch.no_grad():
        for _ in in_both_modes(decoder):
            after = decoder(changed, *rest)
            moved = (after - decoder(plain, *rest)).abs().amax(-1) > 1e-9
            for row, place in zip(moved.tolist(), places, strict=True):
                assert row == [i >= place for i in range(n)]
            for end in (1, 2, 9):  # what is not there yet changes nothing
                short = decoder(changed[:, :end], *rest)
                torch.testing.assert_close(short, after[:, :end])
            ends = [1, 2, 3, 9, 10, 70, n]
            steps = in_steps(decoder, changed, memory, source_mask, ends)
            torch.testing.assert_close(steps, after)


def test_layers_share_nothing():
    for kind in (Encoder, Decoder):
        first, second = stack_of(kind, 2).layers
        ours = {id(p) for p in first.parameters()}
        assert not ours & {id(p) for p in second.parameters()}


def test_a_cache_keeps_positions_and_reorders_rows():
    """Rows are reordered, repeated and dropped."""
    source = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6)
    first = torch.randn(2, 3, 1, 5), torch.randn(2, 3, 1, 6)
    cache = LayerCache(source)
    assert cache.length == 0
    cache.select(torch.tensor([1, 0]), source=False)
    for part, given in zip(cache.source, source, strict=True):
        assert part is given  # nothing is copied
    key, value = cache.append(*first)
    assert torch.equal(key, first[0]) and torch.equal(value, first[1])
    cache.select(torch.tensor([1, 0, 0]))
    for part, given in zip(cache.source, source, strict=True):
        assert torch.equal(part, given[[1, 0, 0]])
    second = torch.randn(3, 3, 1, 5), torch.randn(3, 3, 1, 6)
    key, value = cache.append(*second)
    for part, old, new in zip((key, value), first, second, strict=True):
        assert torch.equal(part, torch.cat([old[[1, 0, 0]], new], dim=2))
    assert cache.length == 2
    cache.select(torch.tensor([2]))
    key, value = cache.append(second[0][:1], second[1][:1])
    assert key.shape == (1, 3, 3, 5)


def test_no_recurrence_no_convolution():
    config = TransformerConfig(
        20, N=3, d_model=D_MODEL, d_ff=D_FF, h=H, dropout=0, positions="none"
    )
    model = Transformer(config)
    parts = {type(m) for m in model.modules()}
    torchs = {p for p in parts if p.__module__.startswith("torch.nn")}
    assert torchs == {
        nn.Identity,
        nn.ModuleList,
        nn.Linear,
        nn.LayerNorm,
        nn.Dropout,
    }
    # Without positions the order of a sentence changes nothing.
    order = torch.randperm(12)
    x, memory = torch.randn(2, 3, 12, D_MODEL)
    mask, ids = mask_of(12, 7, 4), torch.randint(4, 20, (3, 12))
    decode = model.decoder
    close = dict(atol=1e-4, rtol=1e-4)
    for _ in in_both_modes(model):
        pairs = [(model.encode(ids)[:, order], model.encode(ids[:, order]))]
        for given, moved in ((None, None), (mask, mask[..., order])):
            plain = model.encoder(x, given)[:, order]
            pairs.append((plain, model.encoder(x[:, order], moved)))
            plain = decode(x, memory, None, given)
            other = memory[:, order]
            pairs.append((plain, decode(x, other, None, moved)))
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, **close)
    # With attention silenced no position hears of another.
    silence_attention(model)
    other = x.clone()
    other[1, 2] = torch.randn(D_MODEL)
    for _ in in_both_modes(model):
        for run in (
            lambda x: model.encoder(x, None),
            lambda x: model.encoder(x, mask),
            lambda x: decode(x, memory, causal_mask(12), mask),
            lambda x: in_steps(decode, x, memory, mask, range(1, 13)),
        ):
            moved = (run(other) - run(x)).abs().amax(-1) > 1e-4
            assert moved.nonzero().tolist() == [[1, 2]]


@pytest.mark.parametrize("changes", [{}, dict(norm="pre", tie="none", h=1)])
def test_everything_is_d_model_wide(changes):
    """Section 3.1: sub-layers and embeddings give d_model numbers."""
    sizes = dict(N=2, d_model=D_MODEL, d_ff=D_FF, h=2, d_k=3, d_v=5)
    model = Transformer(TransformerConfig(11, **(sizes | changes)))
    widths = {}

    def note(module, inputs, output):
        widths.setdefault(module, set()).add(output.size(-1))

    kinds = MultiHeadAttention, FeedForward, Residual, Embeddings
    parts = [m for m in model.modules() if isinstance(m, kinds)]
    for part in parts:
        part.register_forward_hook(note)
    ids = torch.tensor([[4, 5, 3], [6, 3, 0], [3, 0, 0]])
    for _ in in_both_modes(model):
        model(ids, ids)
        decode_in_parts(model, ids, model.encode(ids), ids)
    assert len(widths) == len(parts) > 20
    assert all(found == {D_MODEL} for found in widths.values())


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
    for stack in Encoder(layers[:1], 8), Decoder(layers[1:], 8):
        assert type(stack.norm) is nn.Identity
    assert network.dropout.p == 0
