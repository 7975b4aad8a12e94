"""Masks: shapes, who sees whom, what padding can reach."""

from itertools import product

import pytest
import torch

from transformer_lib.attention import record_attention
from transformer_lib.decoding import DecoderCache
from transformer_lib.masks import causal_mask
from transformer_lib.model import Transformer, TransformerConfig

IDS = torch.tensor([[2, 5, 6, 7], [2, 5, 0, 0]])
LONG = torch.arange(300)[None] % 9 + 1  # no window reaches across
MANY = LONG * (torch.arange(300) < torch.tensor([[40], [300], [170]]))
SIZES = dict(N=3, d_model=16, d_ff=32, h=2, dropout=0.0)


def test_an_encoder_sees_every_word_and_no_padding():
    """Each real word, and no padding, moves every other word."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(10, **SIZES)).eval()
    plain = model.encode(IDS)
    assert torch.allclose(
        model.encode(IDS[1:, :2]), plain[1:, :2], atol=1e-5
    ), "padding changes nothing"
    for at in range(4):
        other = IDS.where(torch.arange(4) != at, 9)
        moved = (model.encode(other) - plain)[0].abs().sum(-1)
        assert (moved > 1e-4).all(), "every position saw the change"
    # The path around a sub-layer would hide who does not see itself.
    for ids, training in product((IDS, LONG, MANY), (True, False)):
        plain = model.train(training).encode(ids)
        with record_attention(model) as maps:
            recorded = model.encode(ids)
        may_attend = (ids != 0)[:, None, None].expand(-1, 2, ids.size(1), -1)
        assert len(maps) == SIZES["N"]
        for weights in maps.values():
            assert torch.equal(weights > 0, may_attend)
        assert torch.allclose(plain, recorded, atol=1e-4), "unrecorded too"


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_sees_nothing_to_the_right(norm):
    torch.manual_seed(0)
    so_far = torch.ones(300, 300, dtype=torch.bool).tril()
    assert causal_mask(4, "meta").is_meta
    model = Transformer(TransformerConfig(10, norm=norm, **SIZES))
    for training, at in product((True, False), range(4)):
        plain = model.train(training)(IDS, IDS)
        other = IDS.clone()
        other[0, at] = 9
        moved = (model(IDS, other) - plain)[0].abs().sum(-1)
        assert (moved[:at] == 0).all() and (moved[at:] > 1e-4).all()
    # The path around a sub-layer would hide who does not see itself.
    for ids, training in product((IDS, LONG, MANY), (True, False)):
        plain = model.train(training)(ids, ids)
        with record_attention(model) as maps:
            recorded = model(ids, ids)
        size = ids.size(1)
        for weights in own_weights(maps):
            wanted = so_far[:size, :size].expand_as(weights)
            assert torch.equal(weights > 0, wanted)
        assert torch.allclose(plain, recorded, atol=1e-4), "unrecorded too"
    # A search adds pieces to those that are kept, one or several.
    ids = LONG.repeat(2, 1)
    memory = model.encode(ids)
    plain = model.decode(ids, memory, ids)
    caches = [DecoderCache(model, memory) for _ in range(2)]
    end = 0
    for new in ids.split([1, 1, 5, 193, 1, 99], 1):
        begin, end = end, end + new.size(1)
        found = model.decode(new, None, ids, caches[0])
        assert torch.allclose(found, plain[:, begin:end], atol=1e-4)
        with record_attention(model) as maps:
            model.decode(new, None, ids, caches[1])
        for weights in own_weights(maps):
            wanted = so_far[begin:end, :end].expand_as(weights)
            assert torch.equal(weights > 0, wanted)


def own_weights(maps):
    """Of the decoder's attention to its own words, in every layer."""
    own = [
        weights
        for name, weights in maps.items()
        if name.startswith("decoder") and "self" in name
    ]
    assert len(own) == SIZES["N"]
    return own
