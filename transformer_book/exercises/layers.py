"""Checks of the exercises in the chapter on layers."""

import torch
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward

from . import close, exercise

D = 8
_PRE = "this is pre-norm; the paper norms the sum"
_INNER = (
    "the norm is taken of the sub-layer's output; the paper adds "
    "first: norm(x + sublayer(x))"
)
_NO_SUM = "the residual connection is missing: add x to the output"
_OLD = (
    "each residual connection begins at the output of the sub-layer "
    "before it, not at the layer's input"
)


def _parts(attentions):
    """Attentions, a network, and norms that differ from each other."""
    attend = [MultiHeadAttention(D, 2) for _ in range(attentions)]
    norms = [nn.LayerNorm(D) for _ in range(attentions + 1)]
    for norm in norms:
        nn.init.normal_(norm.weight, 1.0)
    return attend, FeedForward(D, 16), norms


def _layer(kind, attend, network, norms, norm="post"):
    layer = kind(*attend, network, D, 0.0, norm)
    for residual, own in zip(layer.residuals, norms, strict=True):
        residual.norm = own
    return layer


def _wrong_sums(x, sublayers, norms):
    """What comes out if norm and sum are not where they belong."""
    inner = bare = old = x
    for sublayer, norm in zip(sublayers, norms, strict=True):
        inner = inner + norm(sublayer(inner))
        bare = norm(sublayer(bare))
        old = norm(x + sublayer(old))
    return {_INNER: inner, _NO_SUM: bare, _OLD: old}


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

    assert not close(got, layer("pre")(x, mask)), _PRE
    assert not close(got, layer()(x, None)), "the mask is not used"
    assert not close(got, layer(norms=norms[:1] * 2)(x, mask)), (
        "norm_1 is used twice: each sub-layer has a norm of its own"
    )
    steps = [lambda x: attend(x, x, mask), network]
    for message, wrong in _wrong_sums(x, steps, norms).items():
        assert not close(got, wrong), message
    assert close(got, layer()(x, mask)), (
        "wrong: attention first, then the network, each as "
        "norm(x + sublayer(x))"
    )


@exercise("layers.decoder_layer")
@torch.no_grad()
def _decoder_layer(answer):
    """The paper's decoder layer from its parts."""
    attend, network, norms = _parts(2)
    y, memory = torch.randn(2, 2, 5, D)  # as long as each other
    masks = (
        torch.ones(5, 5).tril().bool(),
        (torch.arange(5) < 4).expand(2, 1, 1, 5),
    )
    got = answer(y, memory, masks[::-1], attend, network, norms)

    def layer(norm="post", order=(0, 1)):
        chosen = [attend[i] for i in order]
        parts = _layer(DecoderLayer, chosen, network, norms, norm)
        return parts(y, memory, masks[1], masks[0])

    def unlike(own, source):
        x = norms[0](y + attend[0](y, y, own))
        x = norms[1](x + attend[1](x, memory, source))
        return norms[2](x + network(x))

    assert not close(got, layer("pre")), _PRE
    assert not close(got, unlike(*masks[::-1])), (
        "the masks are swapped: the first is the source's"
    )
    for missing in ((None, masks[1]), (masks[0], None), (None, None)):
        assert not close(got, unlike(*missing)), (
            "a mask is not used: the target's belongs to "
            "self-attention, the source's to the memory's keys"
        )
    assert not close(got, layer(order=(1, 0))), (
        "the attentions are swapped: the first looks at y itself"
    )
    steps = [
        lambda y: attend[0](y, y, masks[0]),
        lambda y: attend[1](y, memory, masks[1]),
        network,
    ]
    for message, wrong in _wrong_sums(y, steps, norms).items():
        assert not close(got, wrong), message
    x = norms[0](y + steps[0](y))
    itself = norms[1](x + attend[1](x, x, masks[1]))
    for never in x, itself:
        skipped = norms[2](never + network(never))
        assert not close(got, skipped), (
            "the memory is never attended to: it gives the second "
            "attention its keys and values"
        )
    turned = norms[1](x + attend[1](memory, x, masks[1]))
    assert not close(got, norms[2](turned + network(turned))), (
        "queries come from y, keys and values from memory"
    )
    assert close(got, layer()), (
        "wrong: self-attention, attention over the memory, then the "
        "network, each as norm(y + sublayer(y))"
    )
