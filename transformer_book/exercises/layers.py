"""Checks of the exercises in the chapter on layers."""

import torch
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
)

from . import exercise

D = 8


def _parts(attentions):
    """Attentions, a network, and norms that differ from each other."""
    attend = [MultiHeadAttention(D, 2) for _ in range(attentions)]
    norms = [nn.LayerNorm(D) for _ in range(attentions + 1)]
    for norm in norms:
        nn.init.normal_(norm.weight, 1.0)
    return attend, FeedForward(D, 16), norms


def _close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


def _layer(kind, attend, network, norms, norm="post"):
    layer = kind(*attend, network, D, 0.0, norm)
    for residual, own in zip(layer.residuals, norms, strict=True):
        residual.norm = own
    return layer


@exercise("layers.encoder_layer")
@torch.no_grad()
def _encoder_layer(answer):
    """The paper's encoder layer from its parts."""
    (attend,), network, norms = _parts(1)
    x = torch.randn(2, 5, D)
    mask = (torch.arange(5) < 3).expand(2, 1, 1, 5)
    got = answer(x, mask, attend, network, *norms)

    def layer(norm="post", norms=norms):
        return _layer(EncoderLayer, [attend], network, norms, norm)

    assert not _close(got, layer("pre")(x, mask)), (
        "this is pre-norm; the paper norms the sum"
    )
    assert not _close(got, layer()(x, None)), "the mask is not used"
    assert not _close(got, layer(norms=norms[:1] * 2)(x, mask)), (
        "norm_1 is used twice: each sub-layer has a norm of its own"
    )
    bare = norms[0](attend(x, x, mask))
    assert not _close(got, norms[1](network(bare))), (
        "the path is missing: add x to what the sub-layer gives"
    )
    assert _close(got, layer()(x, mask)), (
        "wrong: attention first, then the network, each as "
        "norm(x + sublayer(x))"
    )


@exercise("layers.decoder_layer")
@torch.no_grad()
def _decoder_layer(answer):
    """The paper's decoder layer from its parts."""
    attend, network, norms = _parts(2)
    y, memory = torch.randn(2, 5, D), torch.randn(2, 6, D)
    masks = (
        torch.ones(5, 5).tril().bool(),
        (torch.arange(6) < 4).expand(2, 1, 1, 6),
    )
    got = answer(y, memory, *masks, *attend, network, norms)

    def layer(norm="post", order=(0, 1), masks=masks):
        chosen = [attend[i] for i in order]
        parts = _layer(DecoderLayer, chosen, network, norms, norm)
        return parts(y, memory, *masks)

    assert not _close(got, layer("pre")), (
        "this is pre-norm; the paper norms the sum"
    )
    for missing in ((None, masks[1]), (masks[0], None), (None, None)):
        assert not _close(got, layer(masks=missing)), (
            "a mask is not used: target_mask belongs to "
            "self-attention, source_mask to the memory's keys"
        )
    assert not _close(got, layer(order=(1, 0))), (
        "attend_self and attend_memory are swapped"
    )
    x = norms[0](y + attend[0](y, y, masks[0]))
    skipped = norms[2](x + network(x))
    assert not _close(got, skipped), "the memory is never attended to"
    assert _close(got, layer()), (
        "wrong: self-attention, attention over the memory, then the "
        "network, each as norm(y + sublayer(y))"
    )
