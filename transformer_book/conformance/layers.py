"""Probes of sections 3.1, 3.2.3 and 3.3: masks, the network, layers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import heads_of
from .core import (
    Adapter,
    Verdict,
    close,
    deviation,
    fault,
    named,
    paper,
    probe,
)


def _ids(tried: Adapter) -> tuple[Tensor, Tensor]:
    """A source whose second row is padded, a target whose first is."""
    source = tried.words(2, 5, size=9)
    target = tried.words(2, 4, size=9)
    source[1, 3:], target[0, 2:] = tried.PAD, tried.PAD
    return source, target


def _mask(got: Any, name: str, shape: tuple[int, ...]) -> Tensor | str:
    """A mask of that shape, or what is wrong with it."""
    if not isinstance(got, Tensor) or got.dtype != torch.bool:
        kind = getattr(got, "dtype", type(got).__name__)
        return f"the {name} mask is {kind}: a mask is boolean"
    if got.dim() != 4 or torch.broadcast_shapes(got.shape, shape) != shape:
        return (
            f"the {name} mask is {tuple(got.shape)}, not {shape}: "
            "batch, head, query, key"
        )
    return got.expand(shape)


@probe("masks-encoder", "masks-padding", "masks")
def padding(tried: Adapter) -> Verdict:
    """In the encoder every position attends to every position; only
    padding is hidden."""
    source, target = _ids(tried)
    got = _mask(tried.masks(source, target)[0], "padding", (2, 1, 1, 5))
    if isinstance(got, str):
        return fault(got)
    right = (source != tried.PAD)[:, None, None, :]
    if torch.equal(got, right):
        return paper("True at the words, False at the padding")
    if torch.equal(got, ~right):
        return fault(
            "the padding mask says the opposite: True means may attend"
        )
    return fault(
        "a row of the first padding mask is wrong; right would be\n"
        f"{right[0, 0].int().tolist()}"
    )


@probe("masks-decoder", "masks-causal", "masks")
def causal(tried: Adapter) -> Verdict:
    """In the decoder a position attends to itself and to those before
    it, and not to padding."""
    source, target = _ids(tried)
    got = _mask(tried.masks(source, target)[1], "decoder", (2, 1, 4, 4))
    if isinstance(got, str):
        return fault(got)
    words = (target != tried.PAD)[:, None, None, :]
    triangle = torch.ones(4, 4).tril().bool()
    right = triangle & words
    if torch.equal(got, right):
        return paper("a triangle with its diagonal, without the padding")
    if torch.equal(got, triangle.expand_as(right)):
        return fault("the decoder's mask leaves padding open")
    turned = (
        "queries and keys have changed places: each row must be open up to "
        "its own column"
    )
    mistakes = {
        "the decoder's mask says the opposite: True means may attend": ~right,
        "the decoder's mask leaves the future open": (words.expand_as(right)),
        "a position may look at itself, the diagonal is open": (
            triangle.tril(-1) & words
        ),
        turned: right.mT,
        turned + " (padding is hidden)": triangle.T & words,
        "a position sees the next one": triangle.tril(1)
        | torch.eye(4).roll(1, 1).triu().bool() & words,
    }
    found = named(got, mistakes)
    return fault(
        found
        or "a row of the first decoder mask is wrong; right would be\n"
        f"{right[0, 0].int().tolist()}"
    )


@probe("layers-equation-2", "layers-feed-forward", "feed_forward")
def equation_2(tried: Adapter) -> Verdict:
    """Two linear maps with biases and a ReLU between them."""
    x, w_1, b_1 = torch.randn(2, 3, 8), torch.randn(8, 16), torch.randn(16)
    w_2, b_2 = torch.randn(16, 8), torch.randn(8)
    got = tried.feed_forward(x, w_1, b_1, w_2, b_2)
    inner = x @ w_1 + b_1

    def outer(hidden: Tensor) -> Tensor:
        return hidden @ w_2 + b_2

    if close(got, outer(inner.relu())):
        return paper("max(0, x W_1 + b_1) W_2 + b_2")
    others = {"GELU": F.gelu(inner), "SiLU": F.silu(inner)}
    others["GELU by tanh"] = F.gelu(inner, approximate="tanh")
    for name, hidden in others.items():
        if close(got, outer(hidden)):
            return deviation(
                "another activation than ReLU", name, "Marian, BERT, GPT"
            )
    mistakes = {
        "there is no ReLU: two linear maps are one": outer(inner),
        "a ReLU follows the second map too": outer(inner.relu()).relu(),
        "the first bias is missing": outer((x @ w_1).relu()),
        "the second bias is missing": inner.relu() @ w_2,
        "there is a tanh for the ReLU": outer(inner.tanh()),
        "there is a sigmoid for the ReLU": outer(inner.sigmoid()),
        "x is added inside: the residual connection is the layer's": (
            outer(inner.relu()) + x
        ),
    }
    return fault(named(got, mistakes) or "not max(0, x W_1 + b_1) W_2 + b_2")


@probe("layers-position-wise", "layers-feed-forward", "feed_forward")
def position_wise(tried: Adapter) -> Verdict:
    """The network works on every position by itself, and on all alike."""
    x, w_1, b_1 = torch.randn(2, 5, 8), torch.randn(8, 16), torch.randn(16)
    w_2, b_2 = torch.randn(16, 8), torch.randn(8)
    together = tried.feed_forward(x, w_1, b_1, w_2, b_2)
    alone = tried.feed_forward(x[:, 2:3], w_1, b_1, w_2, b_2)
    if close(together[:, 2:3], alone):
        return paper("a position alone gives the same")
    return fault("a position's result depends on the other positions")


D = 8
PRE = "this is pre-norm; the paper norms the sum"
INNER = (
    "the norm is taken of the sub-layer's output; the paper adds "
    "first: norm(x + sublayer(x))"
)
NO_SUM = "the residual connection is missing: add x to the output"
OLD = (
    "each residual connection begins at the output of the sub-layer "
    "before it, not at the layer's input"
)
PRE_NORM = "tensor2tensor since 2018, the Annotated Transformer, GPT-2"


def _parts(attentions: int) -> tuple[list[Callable], Callable, list]:
    """Attentions, a network, and norms that differ from each other."""

    def attention() -> Callable:
        matrices = list(torch.randn(4, D, D) / D**0.5)

        def attend(x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
            return heads_of(x, memory, *matrices, 2, mask)

        return attend

    norms = [nn.LayerNorm(D) for _ in range(attentions + 1)]
    for norm in norms:
        nn.init.normal_(norm.weight, 1.0)
        norm.requires_grad_(False)
    w_1, w_2 = torch.randn(D, 16), torch.randn(16, D) / 4

    def network(x: Tensor) -> Tensor:
        return (x @ w_1).relu() @ w_2

    return [attention() for _ in range(attentions)], network, norms


def _post(x: Tensor, sublayers: list, norms: list) -> Tensor:
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = norm(x + sublayer(x))
    return x


def _wrong_sums(x: Tensor, sublayers: list, norms: list) -> dict[str, Tensor]:
    """What comes out if norm and sum are not where they belong."""
    before = inner = bare = old = first = x
    for sublayer, norm in zip(sublayers, norms, strict=True):
        before = before + sublayer(norm(before))
        inner = inner + norm(sublayer(inner))
        bare = norm(sublayer(bare))
        old = norm(x + sublayer(old))
        first = norm(first + sublayer(norm(first)))
    wrong = {PRE: before, INNER: inner, NO_SUM: bare, OLD: old}
    wrong["the norm is taken before the sub-layer, and again after"] = first
    last = len(norms) - 1
    for i, sublayer in enumerate(sublayers):
        others = [*sublayers[:i], *sublayers[i + 1 :]]
        left = [*norms[:i], *norms[i + 1 :]]
        wrong[f"sub-layer {i + 1} is missing"] = _post(x, others, left)
        lone = [*sublayers]
        lone[i] = lambda y, sublayer=sublayer: sublayer(y) - y
        words = f"{NO_SUM} of sub-layer {i + 1}"
        wrong[words] = _post(x, lone, norms)
        if i < last:
            same = [norms[i] if j == i + 1 else n for j, n in enumerate(norms)]
            wrong[
                f"norm_{i + 1} is used twice: each sub-layer has a norm "
                "of its own"
            ] = _post(x, sublayers, same)
    turned = list(reversed(sublayers))
    wrong["the sub-layers come in the wrong order"] = _post(x, turned, norms)
    return wrong


@probe("layers-post-norm", "layers-residual", "encoder_layer")
@torch.no_grad()
def encoder_layer(tried: Adapter) -> Verdict:
    """An encoder layer is self-attention, then the network, each as
    LayerNorm(x + Sublayer(x))."""
    (attend,), network, norms = _parts(1)
    x = torch.randn(2, 5, D)
    mask = (torch.arange(5) < 3).expand(2, 1, 1, 5)
    got = tried.encoder_layer(x, mask, attend, network, *norms)
    steps = [lambda x: attend(x, x, mask), network]
    if close(got, _post(x, steps, norms)):
        return paper("both sub-layers, each added and then normalized")
    mistakes = _wrong_sums(x, steps, norms)
    if close(got, mistakes[PRE]):
        return deviation("pre-norm", PRE, PRE_NORM)
    blind = [lambda x: attend(x, x, None), network]
    mistakes["the mask is not used"] = _post(x, blind, norms)
    return fault(
        named(got, mistakes)
        or "wrong: attention first, then the network, "
        "each as norm(x + sublayer(x))"
    )


@probe(
    "layers-decoder-third-sublayer", "layers-decoder-layer", "decoder_layer"
)
@torch.no_grad()
def decoder_layer(tried: Adapter) -> Verdict:
    """A decoder layer has a third sub-layer between these two, attention
    from its own positions over the encoder's output."""
    attentions, network, norms = _parts(2)
    own, across = attentions
    y, memory = torch.randn(2, 2, 5, D)  # as long as each other
    source, target = (
        (torch.arange(5) < 4).expand(2, 1, 1, 5),
        torch.ones(5, 5).tril().bool().expand(2, 1, 5, 5),
    )
    masks = source, target
    got = tried.decoder_layer(y, memory, masks, attentions, network, norms)

    def steps(
        first=own, second=across, own_mask=target, source_mask=source
    ) -> list[Callable]:
        return [
            lambda y: first(y, y, own_mask),
            lambda y: second(y, memory, source_mask),
            network,
        ]

    if close(got, _post(y, steps(), norms)):
        return paper("three sub-layers, each added and then normalized")
    mistakes = _wrong_sums(y, steps(), norms)
    if close(got, mistakes[PRE]):
        return deviation("pre-norm", PRE, PRE_NORM)
    never = (
        "the memory is never attended to: it gives the second attention "
        "its keys and values"
    )
    unused = (
        "a mask is not used: the target's belongs to self-attention, the "
        "source's to the memory's keys"
    )
    itself = [steps()[0], lambda y: across(y, y, source), network]
    turned = [steps()[0], lambda y: across(memory, y, source), network]
    changed = {
        "the masks are swapped: the first is the source's": steps(
            own_mask=source, source_mask=target
        ),
        unused: steps(own_mask=None),
        unused + " (the source's)": steps(source_mask=None),
        unused + " (neither)": steps(own_mask=None, source_mask=None),
        "the attentions are swapped: the first looks at y itself": steps(
            across, own
        ),
        never: itself,
        "queries come from y, keys and values from memory": turned,
    }
    mistakes |= {
        words: _post(y, wrong, norms) for words, wrong in changed.items()
    }
    skipped = [steps()[0], network]
    mistakes[never + " (skipped)"] = _post(y, skipped, norms[::2])
    mistakes[never + " (as if it were zero)"] = _post(
        y, [steps()[0], torch.zeros_like, network], norms
    )
    return fault(
        named(got, mistakes)
        or "wrong: self-attention, attention over the "
        "memory, then the network, each as norm(y + sublayer(y))"
    )
