"""What a model computes on its way: every call of PyTorch in one pass."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .core import Adapter, NotShown, mode

# All different, so that a shape says what a tensor is; and d_ff is
# 4 * d_model, because much code knows no other.
BATCH, SOURCE, TARGET = 3, 7, 5
SIZES = dict(vocab_size=23, N=2, d_model=16, d_ff=64, h=2, dropout=0.0)

WORDS = 5  # of the first sentence, where one has padding
SIDES = {"S": "the encoder's", "s": "the decoder's", "c": "the cross"}

ADDS = ("add", "iadd", "radd")
KERNEL = "scaled_dot_product_attention"  # PyTorch's own attention
MAPS = {"linear", "matmul", "bmm", "einsum", "conv1d", KERNEL}
PARAMETERS = {  # of the others we ask for the first two
    KERNEL: ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
    "dropout": ("input", "p", "training"),
    "linear": ("input", "weight", "bias"),
    "conv1d": ("input", "weight", "bias"),
    "softmax": ("input", "dim"),
}


@dataclass
class Call:
    """One call: the function's name, what it was given, what came out."""

    name: str
    args: tuple
    named: dict[str, Any]
    out: Any

    def given(self) -> dict[str, Any]:
        """The arguments by their names, however they were passed."""
        names = PARAMETERS.get(self.name, ("input", "other"))
        return dict(zip(names, self.args, strict=False)) | self.named

    def terms(self) -> list[Tensor]:
        """What an addition adds, as far as it is tensors."""
        given = self.given()
        both = given.get("input"), given.get("other")
        return [x for x in both if isinstance(x, Tensor)]

    @property
    def input(self) -> Any:
        """What the function works on."""
        return self.given()["input"]


class Recorder(TorchFunctionMode):
    """Keeps every call of a function of PyTorch, with copies of its
    tensors, because some are changed later in place."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = kwargs or {}
        if function is F.multi_head_attention_forward:
            # A function of many parts: these are what we want to see.
            blind = mock.patch.object(F, "has_torch_function", lambda _: False)
            with blind, self:
                return function(*args, **named)
        before = _copied(args), _copied(named)
        out = function(*args, **named)
        name = getattr(function, "__name__", "").strip("_")
        self.calls.append(Call(name, *before, _copied(out)))
        return out


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return type(value)(_copied(x) for x in value)
    if isinstance(value, dict):
        return {name: _copied(x) for name, x in value.items()}
    return value


@dataclass
class Attention:
    """One attention: the weights (batch, h, query_len, key_len) by which
    it multiplies the values, where in the list of calls it is, and the
    scores before the softmax; `across`, if that runs over the queries."""

    weights: Tensor
    place: int
    scores: Tensor
    across: bool = False

    @property
    def kind(self) -> str:
        """S, s or c: the encoder's own, the decoder's own, across."""
        kinds = {(SOURCE, SOURCE): "S", (TARGET, TARGET): "s"}
        return kinds.get(tuple(self.weights.shape[-2:]), "c")

    def wrong(self) -> str:
        """What is wrong with the weights, or ''."""
        where = in_kinds(self.kind)
        if self.across:
            return (
                f"{where} the softmax runs over the queries: a row of "
                "weights, over the keys, must sum to 1"
            )
        hidden = torch.zeros_like(self.weights, dtype=torch.bool)
        # of a sum of 1: single precision keeps 1e-6, 1e-3 is chosen, and
        # half precision rounds more
        within = max(1e-3, 8 * torch.finfo(self.weights.dtype).eps)
        what = "padding"
        if self.kind == "s":
            what = "a later position"
            hidden |= torch.ones(TARGET, TARGET).triu(1).bool()
        else:
            hidden[0, :, : None if self.kind == "c" else WORDS, WORDS:] = True
        sums = self.weights.double().sum(-1)
        leaks = self.weights[hidden]
        # exactly 0 is what a mask gives
        if (leaks > 0).any() and turned(self.weights)[hidden].any():
            said = f"{where} {what} has a weight of up to {leaks.max():.2g}: "
            if self.scores[hidden].abs().max() < 1e-3:  # chosen: it is 0
                return f"{said}its score is 0 in place of minus infinity"
            rows = self.weights[(hidden & (self.weights > 0)).any(-1)]
            # equal scores have equal weights, but for rounding
            if (rows.amax(-1) - rows.amin(-1)).max() < 1e-6:
                return (
                    f"{said}all keys of that query are hidden. Is the "
                    "diagonal of the mask True?"
                )
            return f"{said}its mask is missing, turned round, or not used"
        if sums.max() < 1 + within and sums.min() < 1 - within:
            return (
                f"{where} the weights of what is hidden are 0, but those of a "
                f"query sum to as little as {sums.min():.2g}: the mask is "
                "applied after the softmax, and what is hidden still counts "
                "in its sum. Mask the scores, before the softmax"
            )
        if (sums - 1).abs().max() > within:
            return (
                f"{where} the weights do not sum to 1 for a query: the "
                "softmax runs along another axis"
            )
        unread = ~self.weights.flatten(0, 2).any(0)
        if self.kind != "s" and unread.any():
            place, last = int(unread.nonzero()[0]), len(unread) - 1
            more = ": does the mask hide eos, too?" if place == last else ""
            return (
                f"{where} no query looks at position {place} of the source, "
                f"which is no padding{more}"
            )
        return ""


def in_kinds(kinds: Iterable[str]) -> str:
    """The attentions of these kinds, in words."""
    said = [SIDES[kind] for kind in SIDES if kind in kinds]
    return f"in {' and '.join(said)} attention"


class Trace:
    """One pass of a small model, and what can be read from its calls."""

    def __init__(
        self,
        tried: Adapter,
        model: Any,
        source: Tensor,
        target: Tensor,
        training: bool = False,
    ):
        if not isinstance(model, torch.nn.Module):
            raise NotShown("the model is no nn.Module of PyTorch")
        recorder = Recorder()
        # With gradients, or PyTorch's own layers take a hidden short cut.
        with mode(model, training), torch.enable_grad(), recorder:
            tried.logits(model, source, target)
        self.calls = recorder.calls

    def attentions(self) -> list[Attention]:
        """Every attention of the pass, in order."""
        found = []
        for place, call in enumerate(self.calls):
            if call.name == "softmax":
                found += self._from_softmax(call, place)
            elif call.name == KERNEL:
                found.append(_from_kernel(call, place))
        expected = {SOURCE, TARGET}
        found = [a for a in found if {*a.weights.shape[-2:]} <= expected]
        if not found:
            raise self.unseen("attention")
        return found

    def together(self) -> list[Attention]:
        """The same, where heads that are modules of their own, each with
        narrow maps, are one attention."""
        wide = [
            place
            for place, _, _, out in self.linears()
            if out.size(-1) >= SIZES["d_model"]
        ]
        found: list[Attention] = []
        for one in self.attentions():
            narrow = one.weights.size(1) == 1 and found
            if narrow and found[-1].kind == one.kind:
                if not any(found[-1].place < x < one.place for x in wide):
                    found.pop()
            found.append(one)
        return found

    def _from_softmax(self, call: Call, place: int) -> list[Attention]:
        """An attention, if that is what the softmax is about."""
        given, out = call.given(), call.out
        keys = -1 if given.get("dim") is None else given["dim"]
        keys %= out.dim()
        across = keys < out.dim() - 1 and any(
            later.name in ("matmul", "bmm") and out.equal(later.args[0])
            for later in self.calls[place + 1 : place + 9]
        )
        lengths = {SOURCE if across else TARGET, out.size(keys)}
        rows = [i for i in range(out.dim()) if out.size(i) in lengths]
        queries = [i for i in rows if i != keys]
        known = out.size(keys) in (SOURCE, TARGET) and out.dim() >= 3
        if not known or not queries or out.numel() % BATCH:
            return []
        axes = (keys, queries[-1]) if across else (queries[-1], keys)
        weights, scores = (
            _by_heads(x, *axes) for x in (self._used(out, place), call.input)
        )
        return [Attention(weights, place, scores, across)]

    def _used(self, weights: Tensor, place: int) -> Tensor:
        """The weights as they multiply the values soon after a softmax:
        a mask or dropout may have changed them."""
        for call in self.calls[place + 1 : place + 9]:
            if call.name in ("matmul", "bmm", "einsum"):
                for x in call.args:
                    if isinstance(x, Tensor) and x.shape == weights.shape:
                        return x
        return weights

    def unseen(self, what: str) -> NotShown:
        """Why something is not among the calls of PyTorch."""
        for call in self.calls:
            if call.name != "embedding" or call.out.dim() != 3:
                continue
            # batch first, or behind
            for length in {*call.out.shape[:2]} - {1, BATCH, SOURCE, TARGET}:
                return NotShown(
                    f"the model works on {length} positions where the "
                    f"sentences have {SOURCE} and {TARGET} tokens, so one "
                    "can't see which number belongs to which word. Does "
                    "your adapter pad to a fixed length, or put a symbol in "
                    "front?"
                )
        return NotShown(f"no {what} was seen among PyTorch's calls")

    def linears(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """Each linear map: its place, input, matrix and output."""
        for place, call in enumerate(self.calls):
            if call.name == "linear":
                yield place, call.input, call.given()["weight"], call.out
            elif call.name == "conv1d":  # over (batch, width, len)
                weight = call.given()["weight"]
                if weight.size(2) == 1:
                    yield place, call.input.mT, weight[:, :, 0], call.out.mT

    def factor_of(self, attention: Attention) -> float:
        """The number that the scores are times q k.

        q and k are the outputs of linear maps shortly before: each of its
        own, or two or three side by side.

        Raises:
            NotShown: if no two of them give the scores.
        """
        h = attention.scores.size(1)  # 1, if a head is a module of its own
        width = h * SIZES["d_model"] // SIZES["h"]
        # a mask's large negative number is below
        if not (attention.scores > -1e4).any():
            raise NotShown("a mask hides every score of an attention")
        candidates: list[Tensor] = []
        for place, _, _, out in self.linears():
            # heads may be cut before their maps
            x = batch_first(out.flatten(2) if out.dim() == 4 else out)
            if x is None or place > attention.place or x.size(-1) % width:
                continue
            parts = x.size(-1) // width
            if parts <= 3:
                candidates += x.chunk(parts, -1)
        recent = candidates[-12:]  # six to a layer of the decoder, at most
        orders = attention.scores, turned(attention.scores)
        for (query, key), scores in itertools.product(
            itertools.permutations(recent, 2), orders
        ):
            a, b = (y.unflatten(-1, (h, -1)) for y in (query, key))
            products = torch.einsum("bqhd,bkhd->bhqk", a, b)
            if products.shape != scores.shape:
                continue
            visible = scores > -1e4
            products, seen = products[visible], scores[visible]
            factor = ((products * seen).sum() / products.square().sum()).item()
            if torch.allclose(factor * products, seen, rtol=1e-3, atol=1e-4):
                return factor
        raise NotShown("the scores were not recognized as products of q and k")

    def embedded(self) -> Iterator[tuple[int, Tensor]]:
        """Each look-up of words in a table, batch first.

        What is the same in each sentence is a look-up of positions.
        """
        for place, call in enumerate(self.calls):
            if call.name == "embedding" and call.out.dim() == 3:
                out = batch_first(call.out)
                if out is not None and not torch.equal(out[0], out[1]):
                    yield place, out

    def sums(self) -> list[tuple[float, Tensor, Tensor, bool]]:
        """Each sum of words and positions that was seen: the words'
        factor, the positions (len, d_model), the words, and whether
        positions are added again, before the first map."""
        found = []
        for place, words in self.embedded():
            for call in self.calls[place + 1 : place + 40]:
                if call.name not in ADDS:
                    continue
                parts = call.terms()
                ratios = [_ratio(part, words) for part in parts]
                first = next((i for i, r in enumerate(ratios) if r), None)
                if first is None or len(parts) < 2:
                    continue
                rows = _rows(parts[1 - first], words.size(1))
                if rows is not None:
                    again = self._added_again(call, rows)
                    found.append((ratios[first], rows, words, again))
                    break
        return found

    def _added_again(self, first: Call, positions: Tensor) -> bool:
        """Whether something else that is the same in each sentence, but
        not at each position, is added between a sum and the first map."""
        after = itertools.dropwhile(lambda call: call is not first, self.calls)
        for call in itertools.islice(after, 1, None):
            if call.name in MAPS:
                break
            if call.name in ADDS:
                both = [_rows(x, len(positions)) for x in call.terms()]
                rows = [x for x in both if x is not None]
                if len(both) == 2 and len(rows) == 1:
                    if not torch.allclose(rows[0][0], rows[0][1]):
                        return True
        return False


def batch_first(x: Tensor) -> Tensor | None:
    """(batch, len, width), or None if it is nothing of the kind."""
    if x.dim() != 3:
        return None
    if x.size(0) == BATCH and x.size(1) in (SOURCE, TARGET):
        return x
    if x.size(1) == BATCH and x.size(0) in (SOURCE, TARGET):
        return x.transpose(0, 1)
    return None


def _ratio(x: Tensor, words: Tensor) -> float | None:
    """The number that x is times the words, if it is."""
    x = batch_first(x)
    if x is None or x.shape != words.shape or not x.is_floating_point():
        return None
    factor = ((x * words).sum() / (words * words).sum()).item()
    same = torch.allclose(x, factor * words, rtol=1e-3, atol=1e-5)
    return factor if same and factor else None


def _rows(x: Tensor, length: int) -> Tensor | None:
    """(len, d_model) of what is the same for every sentence."""
    if x.dim() == 3 and x.size(0) == 1:
        x = x[0]
    elif x.dim() == 3 and x.size(1) == 1:
        x = x[:, 0]
    elif x.dim() == 3:
        x = batch_first(x)
        x = None if x is None or not torch.allclose(x[0], x[1]) else x[0]
    if x is None or x.dim() != 2 or x.size(0) != length:
        return None
    return x


def _by_heads(x: Tensor, queries: int, keys: int) -> Tensor:
    """(batch, h, query_len, key_len), from axes in any order; heads may
    be counted as sentences."""
    x = x.movedim((queries, keys), (-2, -1))
    if x.dim() == 4 and x.size(0) != BATCH and x.size(1) == BATCH:
        x = x.transpose(0, 1)
    return x.reshape(BATCH, -1, *x.shape[-2:])


def turned(x: Tensor) -> Tensor:
    """The same, if heads stood in front of the batch."""
    return x.flatten(0, 1).unflatten(0, (-1, BATCH)).transpose(0, 1)


def _from_kernel(call: Call, place: int) -> Attention:
    """What PyTorch's own attention was asked for."""
    given = call.given()
    query, key = given["query"], given["key"]
    factor = given.get("scale") or 1 / math.sqrt(query.size(-1))
    scores = query @ key.mT * factor
    mask = given.get("attn_mask")
    if given.get("is_causal"):
        mask = torch.ones(scores.shape[-2:]).tril().bool()
    masked = scores
    if mask is not None:
        masked = (
            scores.masked_fill(~mask, -torch.inf)
            if mask.dtype == torch.bool
            else scores + mask
        )
    weights = masked.softmax(-1)
    shape = BATCH, -1, *weights.shape[-2:]
    return Attention(weights.reshape(shape), place, masked.reshape(shape))
