"""Masks: shapes, who sees whom, what padding can reach."""

import torch

from transformer_lib.attention import record_attention
from transformer_lib.masks import (
    causal_mask,
    decoder_mask,
    padding_mask,
)
from transformer_lib.model import Transformer, TransformerConfig

IDS = torch.tensor([[2, 5, 6, 7], [2, 5, 0, 0]])
LONG = torch.arange(150)[None] % 6 + 4  # no window reaches across
SIZES = dict(N=2, d_model=16, d_ff=32, h=2)


def test_padding_mask_closes_padding():
    mask = padding_mask(IDS)
    assert mask.shape == (2, 1, 1, 4) and mask.dtype == torch.bool
    assert mask[1, 0, 0].tolist() == [True, True, False, False]


def test_causal_mask_is_a_triangle():
    mask = causal_mask(3)
    assert mask.shape == (1, 1, 3, 3) and mask.dtype == torch.bool
    rows = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask[0, 0].int().tolist() == rows


def test_decoder_mask_is_both():
    mask = decoder_mask(IDS)
    assert torch.equal(mask[:1], causal_mask(4))
    rows = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert mask[1, 0].int().tolist() == rows
    assert decoder_mask(IDS.to("meta")).is_meta, "on the ids' device"


def test_an_encoder_sees_every_word_and_no_padding():
    """Each real word, and no padding, moves every other word."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(10, **SIZES)).eval()
    plain = model.encode(IDS)
    assert torch.allclose(
        model.encode(IDS[1:, :2]), plain[1:, :2], atol=1e-5
    ), "padding changes nothing"
    for at in range(4):
        other = IDS.clone()
        other[0, at] = 9
        moved = (model.encode(other) - plain)[0].abs().sum(-1)
        assert (moved > 1e-4).all(), "every position saw the change"
    # The path around a sub-layer would hide who does not see itself.
    for ids in IDS, LONG:
        with record_attention(model) as maps:
            model.encode(ids)
        may_attend = (ids != 0)[:, None, None].expand(-1, 2, ids.size(1), -1)
        for weights in maps.values():
            assert torch.equal(weights > 0, may_attend)


def test_a_decoder_sees_nothing_to_the_right():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(10, **SIZES)).eval()
    plain = model(IDS, IDS)
    for at in range(4):
        other = IDS.clone()
        other[0, at] = 9
        moved = (model(IDS, other) - plain)[0].abs().sum(-1)
        assert (moved[:at] == 0).all() and (moved[at:] > 1e-4).all()
    # The path around a sub-layer would hide who does not see itself.
    with record_attention(model) as maps:
        model(LONG, LONG)
    so_far = torch.ones(150, 150, dtype=torch.bool).tril()
    for name, weights in maps.items():
        if name.startswith("decoder") and "self" in name:
            assert torch.equal(weights > 0, so_far.expand(1, 2, -1, -1))
