"""Probes of sections 3.1, 3.2.3 and 3.3: masks, the network, layers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import heads_of
from .core import Adapter, Verdict, close, deviation, fault, paper, probe


def _ids(tried: Adapter) -> tuple[Tensor, Tensor]:
    """A source of two padded rows, a target whose first row is."""
    source = tried.ended(tried.words(2, 5, size=9), 4, 3)
    target = tried.words(2, 4, size=9)
    target[:, 0] = tried.BOS
    target[0, 2:] = tried.PAD
    return source, target


def _mask(got: Any, name: str, length: int) -> Tensor | str:
    """A mask (2, length, length), or what is wrong with it."""
    if not isinstance(got, Tensor) or got.dtype != torch.bool:
        kind = getattr(got, "dtype", type(got).__name__)
        return f"the {name} mask is {kind}: a mask is boolean"
    shape = 2, 1, length, length
    fits = all(a in (1, b) for a, b in zip(got.shape, shape, strict=False))
    if got.dim() != 4 or not fits:
        return (
            f"the {name} mask is {tuple(got.shape)}, not {shape}: "
            "batch, head, query, key"
        )
    return got.expand(shape)[:, 0]


def _wrong_mask(
    name: str, ids: Tensor, got: Tensor, right: Tensor, mistakes: dict
) -> Verdict:
    """A mask that is wrong where a word looks: how, or where."""
    row, query, key = (int(x) for x in (got != right).nonzero()[0])
    # a mask of padding is the same for each query
    where = f"{query}, for key {key}" if name == "decoder" else f"{key}"
    otherwise = (
        f"the {name} mask of {ids[row].tolist()} is wrong at position "
        f"{where}\nyours {got[row, query].int().tolist()}\n"
        f"right {right[row, query].int().tolist()}"
    )
    return fault(otherwise, got, mistakes)


@probe("masks-encoder", "masks-padding", "masks")
def padding_mask(tried: Adapter) -> Verdict:
    """In the encoder every position attends to every position; only
    padding is hidden."""
    source, target = _ids(tried)
    got = _mask(tried.masks(source, target)[0], "padding", 5)
    if isinstance(got, str):
        return fault(got)
    words = source != tried.PAD
    right = words[:, None, :].expand_as(got)
    if torch.equal(got, right.mT):
        return fault(
            "queries and keys have changed places: hide the columns of "
            "padding, not its rows"
        )

    def of_words(mask: Tensor) -> Tensor:
        """What padding itself attends to is nobody's business."""
        return torch.where(words[:, :, None], mask, right)

    got = of_words(got)
    if torch.equal(got, right):
        return paper("True at the words, False at the padding")
    opposite = "the padding mask says the opposite: True means may attend"
    mistakes = {opposite: of_words(~right)}
    return _wrong_mask("padding", source, got, right, mistakes)


@probe("masks-decoder", "masks-causal", "masks", after="padding_mask")
def causal_mask(tried: Adapter) -> Verdict:
    """In the decoder a position attends to itself and to those before
    it, and not to padding."""
    source, target = _ids(tried)
    got = _mask(tried.masks(source, target)[1], "decoder", 4)
    if isinstance(got, str):
        return fault(got)
    words = target != tried.PAD
    triangle = torch.ones(4, 4).tril().bool()
    right = triangle & words[:, None, :]

    if torch.equal(got, triangle.expand_as(got)):
        return deviation(
            "a causal mask alone",
            "the decoder's mask leaves padding open; as it comes last, only "
            "rows of padding see it",
        )

    def of_words(mask: Tensor) -> Tensor:
        """The rows of words; those of padding count for nothing."""
        return torch.where(words[:, :, None], mask, right)

    got = of_words(got)
    if torch.equal(got, right):
        return paper("a triangle with its diagonal, without the padding")
    turned = (
        "queries and keys have changed places: each row must be open up to "
        "its own column"
    )
    wrong = {
        "the decoder's mask says the opposite: True means may attend": ~right,
        "the decoder's mask leaves the future open": (
            words[:, None, :].expand_as(right)
        ),
        "a position attends to itself, too: the diagonal must be True": (
            right & triangle.tril(-1)
        ),
        turned: right.mT,
        turned + " (padding is hidden)": triangle.mT & words[:, None, :],
    }
    mistakes = {said: of_words(mask) for said, mask in wrong.items()}
    return _wrong_mask("decoder", target, got, right, mistakes)


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
        "the first bias is missing": outer((x @ w_1).relu()),
        "the second bias is missing": inner.relu() @ w_2,
    }
    return fault("not max(0, x W_1 + b_1) W_2 + b_2", got, mistakes)


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
    before = inner = bare = old = x
    for sublayer, norm in zip(sublayers, norms, strict=True):
        before = before + sublayer(norm(before))
        inner = inner + norm(sublayer(inner))
        bare = norm(sublayer(bare))
        old = norm(x + sublayer(old))
    wrong = {PRE: before, INNER: inner, NO_SUM: bare, OLD: old}
    for i in range(len(norms) - 1):
        same = [norms[i] if j == i + 1 else n for j, n in enumerate(norms)]
        words = f"norm_{i + 1} is used twice: each sub-layer has its own"
        wrong[words] = _post(x, sublayers, same)
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
    otherwise = (
        "wrong: attention first, then the network, each as "
        "norm(x + sublayer(x))"
    )
    return fault(otherwise, got, mistakes)


@probe(
    "layers-decoder-third-sublayer",
    "layers-decoder-layer",
    "decoder_layer",
    after="encoder_layer",
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
        "the attentions are swapped: the first looks at y itself": steps(
            across, own
        ),
        never: itself,
        "queries come from y, keys and values from memory": turned,
    }
    mistakes |= {
        words: _post(y, wrong, norms) for words, wrong in changed.items()
    }
    otherwise = (
        "wrong: self-attention, attention over the memory, then the "
        "network, each as norm(y + sublayer(y))"
    )
    return fault(otherwise, got, mistakes)
