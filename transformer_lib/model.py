# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The whole Transformer of section 3, and its configuration.

Chapter: book/architecture/model
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from numbers import Integral, Real
from threading import get_ident
from typing import Any, Literal, Self, get_args, get_origin

import torch
from torch import Tensor, nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.embeddings import EOS, Embeddings
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerCache,
)
from transformer_lib.masks import padding_mask
from transformer_lib.positions import LearnedPositions, SinusoidalPositions


def check_fields(config: Any, **limits: tuple[float, float]) -> None:
    """Refuse a choice that does not exist, or a number out of its limits.

    If not given, these are 1 and more for whole numbers, else 0 to 1.
    Numbers of NumPy become Python's, as a file will hold them.

    Chapter: model-config
    """
    for field in fields(config):
        value, kind = getattr(config, field.name), field.type
        whole = kind in (int, int | None)
        if kind is bool or get_origin(kind) is Literal:
            choices = get_args(kind) or (False, True)
            wanted, fine = f"one of {choices}", value in choices
            python = type(choices[0])
        elif whole or kind in (float, float | None):
            usual = (1, math.inf) if whole else (0, 1)
            least, most = limits.get(field.name, usual)
            name = "a whole number" if whole else "a number"
            wanted = f"{name}, {least:g} to {most:g}"
            if least == math.ulp(0):
                wanted = f"{name} greater than 0"
            fine = isinstance(value, Integral if whole else Real)
            fine = fine and least <= value <= most
            python = int if whole else float
        else:
            continue
        if fine:
            object.__setattr__(config, field.name, python(value))
        elif value is not None or field.default is not None:
            raise ValueError(f"{field.name}={value!r}: give {wanted}")


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and choices of one model, section 3 and table 3.

    The defaults are the paper's, except `init` and `max_length`, which
    it leaves open.

    Args:
        vocab_size: size of the shared vocabulary
        N: layers in each stack
        d_model: width of the vector at a position
        d_ff: width inside the feed-forward network
        h: attention heads
        d_k: width of a head's keys; d_model / h if not given
        d_v: width of a head's values; d_model / h if not given
        dropout: on sub-layers and embedding sums
        attention_dropout: on attention weights; the paper has none
        relu_dropout: in feed-forward networks; the paper has none
        bias: whether attention's projections have one
        norm: LayerNorm after each sum (post) or before each sub-layer (pre)
        positions: sinusoid, learned or none
        tie: which matrices are shared: both embeddings and the output
            (three-way), the target's and the output (decoder), none
        scale_embeddings: by the root of d_model
        max_length: of a source, in tokens, and where positions are
            learned of an output
        init: how the weights are initialized: xavier, packed or small

    Raises:
        ValueError: for a choice that does not exist, or a number that
            no model can have.

    Chapter: model-config
    """

    vocab_size: int
    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0
    bias: bool = False
    norm: Literal["post", "pre"] = "post"
    positions: Literal["sinusoid", "learned", "none"] = "sinusoid"
    tie: Literal["three-way", "decoder", "none"] = "three-way"
    scale_embeddings: bool = True
    max_length: int = 512
    init: Literal["xavier", "packed", "small"] = "small"

    def __post_init__(self) -> None:
        check_fields(self, vocab_size=(EOS + 1, math.inf))

    @property
    def longest(self) -> int:
        """How many positions a sequence may have, bos or eos included.

        `max_length` if they are learned; else there are more, because
        an output may be longer than its source.
        """
        learned = self.positions == "learned"
        return self.max_length if learned else max(2 * self.max_length, 1024)

    @classmethod
    def base(cls, vocab_size: int, **changes: Any) -> Self:
        """The base model of table 3."""
        return cls(vocab_size, **changes)

    @classmethod
    def big(cls, vocab_size: int, **changes: Any) -> Self:
        """The big model, table 3's last row."""
        big = dict(d_model=1024, d_ff=4096, h=16, dropout=0.3)
        return cls(vocab_size, **(big | changes))

    @classmethod
    def tiny(cls, vocab_size: int, **changes: Any) -> Self:
        """Small enough for a laptop; ours, not the paper's.

        N=4, d_model=128, d_ff=256 and h=4, if not changed.
        """
        tiny = dict(N=4, d_model=128, d_ff=256, h=4)
        return cls(vocab_size, **(tiny | changes))


def _factor(path: str, init: str) -> float:
    """What `init` multiplies the matrix of the module at `path` by.

    Chapter: model-initialisation
    """
    owner, _, matrix = path.rpartition(".")
    if init == "xavier":
        return 1.0
    if owner.endswith("self_attention") and matrix in ("w_q", "w_k", "w_v"):
        # three matrices as one: from sqrt(6 / (d + d)) to sqrt(6 / (d + 3d))
        return math.sqrt(2 / 4)
    if owner.endswith("cross_attention") and matrix in ("w_k", "w_v"):
        # two matrices as one: to sqrt(6 / (d + 2d))
        return math.sqrt(2 / 3)
    if init == "small" and matrix in ("w_o", "w_2"):
        return 1 / 4
    return 1.0


@torch.no_grad()
def initialize_weights(model: nn.Module, init: str = "small") -> None:
    """Initialize every `nn.Linear` of a model; the paper does not say how.

    Matrices get Xavier Glorot's uniform numbers, in the order of the
    model, times the factor of `init`; biases become zero. A matrix
    that is tied to an embedding stays as it is.

    Args:
        init: "xavier": every matrix separately. "packed": queries,
            keys and values of a self-attention as if they were one
            matrix, and so keys and values of the attention to the
            source. "small": packed, and the last matrix of a sub-layer,
            `w_o` or `w_2`, times 1/4. The factors are meant for
            d_k = d_v = d_model / h.

    Raises:
        ValueError: for another `init`.

    Chapter: model-initialisation
    """
    if init not in ("xavier", "packed", "small"):
        raise ValueError(f"{init=}: give 'xavier', 'packed' or 'small'")
    every = model.named_parameters(remove_duplicate=False)
    uses = Counter(weight for _, weight in every)
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and uses[module.weight] == 1:
            nn.init.xavier_uniform_(module.weight)
            module.weight.mul_(_factor(path, init))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def check_ids(ids: Tensor) -> None:
    """Refuse what is no batch of ids, (batch, len).

    Chapter: model-transformer
    """
    if not isinstance(ids, Tensor) or ids.dim() != 2:
        shape = getattr(ids, "shape", type(ids))
        raise ValueError(f"{shape=}: give (batch, len); one is ids[None]")


class Transformer(nn.Module):
    """Encoder and decoder between embeddings and softmax, figure 1.

    `model(source_ids, target_ids)` maps (batch, source_len) and
    (batch, target_len) to logits (batch, target_len, vocab_size).
    Section 3.

    Raises:
        ValueError: if `h` does not divide `d_model` and `d_k` or `d_v`
            is missing, or if positions are sinusoids and `d_model` is
            odd.

    Chapter: model-transformer
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        c = self.config = config
        self.source_embedding = self.embedding()
        self.target_embedding = self.source_embedding
        if c.tie != "three-way":
            self.target_embedding = self.embedding()
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if c.positions == "sinusoid":
            self.positions = SinusoidalPositions(c.d_model, c.longest)
        elif c.positions == "learned":
            self.positions = LearnedPositions(c.d_model, c.longest)
        self.dropout = nn.Dropout(c.dropout)

        def last_norm() -> nn.Module | None:
            return self.layer_norm(c.d_model) if c.norm == "pre" else None

        layers = [self.encoder_layer() for _ in range(c.N)]
        self.encoder = Encoder(layers, last_norm())
        layers = [self.decoder_layer() for _ in range(c.N)]
        self.decoder = Decoder(layers, last_norm())
        self.pre_softmax = nn.Linear(c.d_model, c.vocab_size, bias=False)
        initialize_weights(self, c.init)
        if c.tie != "none":
            self.pre_softmax.weight = self.target_embedding.weight

    # The parts. A model of your own makes its own ones.

    def embedding(self) -> nn.Module:
        """A table of vectors; its `weight` is (vocab_size, d_model)."""
        c = self.config
        return Embeddings(c.vocab_size, c.d_model, c.scale_embeddings)

    def attention(self) -> nn.Module:
        """Any of the three attentions of section 3.2.3."""
        c = self.config
        return MultiHeadAttention(
            c.d_model, c.h, c.d_k, c.d_v, c.attention_dropout, c.bias
        )

    def self_attention(self) -> nn.Module:
        """One within the encoder or within the decoder."""
        return self.attention()

    def feed_forward(self) -> nn.Module:
        """The network of a layer, section 3.3."""
        c = self.config
        return FeedForward(c.d_model, c.d_ff, c.relu_dropout)

    def layer_norm(self, d_model: int) -> nn.Module:
        """Any of the norms, section 3.1."""
        return nn.LayerNorm(d_model)

    def encoder_layer(self) -> nn.Module:
        """A layer of the encoder, section 3.1."""
        c = self.config
        return EncoderLayer(
            self.self_attention(),
            self.feed_forward(),
            d_model=c.d_model,
            dropout=c.dropout,
            norm=c.norm,
            layer_norm=self.layer_norm,
        )

    def decoder_layer(self) -> nn.Module:
        """A layer of the decoder, section 3.1."""
        c = self.config
        return DecoderLayer(
            self.self_attention(),
            self.attention(),
            self.feed_forward(),
            d_model=c.d_model,
            dropout=c.dropout,
            norm=c.norm,
            layer_norm=self.layer_norm,
        )

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax matrix, (vocab_size, d_model)."""
        return self.pre_softmax.weight

    def embed(
        self, ids: Tensor, embedding: nn.Module, offset: int = 0
    ) -> Tensor:
        """(batch, len) to (batch, len, d_model), with positions.

        `offset` is the position of the first of `ids`.

        Raises:
            ValueError: if `ids` is not (batch, len).
            IndexError: on a CPU, for an id that no token has.
        """
        check_ids(ids)
        x = embedding(ids)
        if self.positions is not None:
            x = self.positions(x, offset)
        return self.dropout(x)

    def encode(self, source_ids: Tensor) -> Tensor:
        """The memory: (batch, source_len, d_model).

        Raises:
            ValueError: as `embed`.
        """
        x = self.embed(source_ids, self.source_embedding)
        return self.encoder(x, padding_mask(source_ids))

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor | None,
        source_ids: Tensor | None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Tensor:
        """Hidden states: (batch, target_len, d_model).

        `source_ids` tells where the source is padded; None means no
        padding. Self-attention is causal, and that hides the target's
        padding too, which is on the right. With a `DecoderCache`,
        `target_ids` holds only the new positions, without padding, and
        `memory` may be None. Each new position attends to the cached
        positions and to the new ones up to itself.

        Raises:
            ValueError: as `embed`.
        """
        offset = 0 if cache is None else cache[0].length
        x = self.embed(target_ids, self.target_embedding, offset)
        mask = None if source_ids is None else padding_mask(source_ids)
        return self.decoder(x, memory, mask, cache)

    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Hidden states (batch, target_len, d_model): encoder, then decoder.

        `target_ids` is what the decoder reads, bos first; position i
        of the result predicts what follows it. Padding is on the right.
        One source may have several targets, and the other way round.

        Raises:
            ValueError: as `encode` and `decode`.
        """
        memory = self.encode(source_ids)
        return self.decode(target_ids, memory, source_ids)

    def project(self, hidden: Tensor) -> Tensor:
        """Logits: (..., d_model) to (..., vocab_size)."""
        return self.pre_softmax(hidden)

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Logits (batch, target_len, vocab_size), teacher forcing."""
        return self.project(self.hidden(source_ids, target_ids))


_switched: dict[nn.Module, int] = {}  # by which thread, just now


@contextmanager
def in_training(model: nn.Module, on: bool = True) -> Iterator[None]:
    """Training mode inside, or evaluation mode; afterwards as before.

    Meanwhile, no other thread may be `evaluating` the model; one that
    already is isn't noticed, and its dropout changes.

    Chapter: model-evaluating
    """
    modes = {module: module.training for module in model.modules()}
    me = get_ident()
    mine = {module for module in modes if _switched.get(module) != me}
    _switched.update(dict.fromkeys(mine, me))
    model.train(on)
    try:
        yield
    finally:
        for module, mode in modes.items():
            if _switched.get(module) == me:  # no other has taken it over
                module.training = mode
                if module in mine:
                    del _switched[module]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside; afterwards as before.

    Raises:
        RuntimeError: if another thread has changed the model's mode: it
            trains it, or is `evaluating` it though it is in training mode.

    Chapter: model-evaluating
    """
    modules, me = [*model.modules()], get_ident()
    if any(_switched.get(module, me) != me for module in modules):
        raise RuntimeError(
            "another thread trains this model, or uses it in training mode: "
            "call model.eval() first, or take copy.deepcopy(model)"
        )
    off = not any(module.training for module in modules)
    mode = nullcontext() if off else in_training(model, False)
    with mode, torch.inference_mode():
        yield


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given.

    Chapter: model-own
    """
    return getattr(module, "_orig_mod", module)
