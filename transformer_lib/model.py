# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The whole Transformer of section 3, and the sizes that fix it.

Chapter: book/architecture/model
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.embeddings import Embeddings
from transformer_lib.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
)
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.positions import LearnedPositions, SinusoidalPositions


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and choices of one model; by default, the paper's.

    Section 3; table 3.

    Args:
        vocab_size: pieces, of both languages together
        N: layers in each stack
        d_model: width of the vector at a position
        d_ff: width inside the feed-forward network
        h: heads of an attention
        d_k: width of a head's keys; d_model / h if not given
        d_v: width of a head's values; d_model / h if not given
        dropout: on sub-layers and embedding sums
        attention_dropout: on attention weights; the paper has none
        relu_dropout: in feed-forward networks; the paper has none
        bias: whether attention's projections have one
        norm: LayerNorm after each sum (post) or before each sub-layer (pre)
        positions: sinusoid, learned or none
        tie: what shares one matrix: both embeddings and the output
            (three-way), the target's and the output (decoder), none
        scale_embeddings: by the root of d_model
        max_length: of a sentence, where positions are learned
        init: how the weights are initialized: xavier, packed or small

    Raises:
        ValueError: with the field, its value and what is allowed.

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
    norm: str = "post"
    positions: str = "sinusoid"
    tie: str = "three-way"
    scale_embeddings: bool = True
    max_length: int = 512
    init: str = "small"

    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "norm": ("post", "pre"),
        "positions": ("sinusoid", "learned", "none"),
        "tie": ("three-way", "decoder", "none"),
        "bias": (False, True),
        "scale_embeddings": (False, True),
        "init": ("xavier", "packed", "small"),
    }

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in self.CHOICES:
                good = value in self.CHOICES[name]
                wanted = f"one of {self.CHOICES[name]}"
            elif name.endswith("dropout"):
                good = isinstance(value, float | int) and 0 <= value < 1
                wanted = "0 <= p < 1"
            else:
                missing = value is None and name in ("d_k", "d_v")
                most = 1000 if name == "N" else 2**31
                whole = type(value) is int and 1 <= value <= most
                good = missing or whole
                wanted = f"a whole number from 1 to {most}"
            if not good:
                raise ValueError(f"{name}={value!r}: give {wanted}")

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
        """Small enough for a laptop; ours, not the paper's."""
        tiny = dict(N=4, d_model=128, d_ff=256, h=4)
        return cls(vocab_size, **(tiny | changes))

    @property
    def least_parameters(self) -> int:
        """A lower bound for a `Transformer`: no biases, no norms.

        It tells early that a model does not fit into memory.
        """
        width = self.d_model // self.h  # of a head
        # A layer of each stack: three attentions of four matrices, two
        # networks of two.
        d_k, d_v = self.d_k or width, self.d_v or width
        attentions = 6 * self.h * (d_k + d_v)
        networks = 4 * self.d_ff
        layers = self.N * (attentions + networks)
        return self.d_model * (self.vocab_size + layers)


_PACKED = {
    # three matrices as one: from sqrt(6 / (d + d)) to sqrt(6 / (d + 3d))
    "self_attention.w_q": math.sqrt(2 / 4),
    "self_attention.w_k": math.sqrt(2 / 4),
    "self_attention.w_v": math.sqrt(2 / 4),
    # two matrices as one: to sqrt(6 / (d + 2d))
    "cross_attention.w_k": math.sqrt(2 / 3),
    "cross_attention.w_v": math.sqrt(2 / 3),
}
_LAST = 1 / 4  # for the matrix that ends a sub-layer
# Xavier's range, for twice as many outputs as inputs, lets 2/3 of the
# variance pass, and the gate 1/4: the convolutional rival makes up for it.
_GATED = {"gated.mix": math.sqrt(6)}

# A factor for each ending of a matrix's name; all others have 1.
STARTS: dict[str, dict[str, float]] = {
    "xavier": {},
    "packed": _PACKED,
    "small": _PACKED | {"w_o": _LAST, "w_2": _LAST},
}


def _draw(module: nn.Linear | nn.Conv1d | nn.GRU, factor: float) -> None:
    for name, weight in module.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(weight)
            continue
        # A GRU's three gates have their matrices one below the other.
        parts = 3 if isinstance(module, nn.GRU) else 1
        for matrix in weight.chunk(parts):
            nn.init.xavier_uniform_(matrix).mul_(factor)


@torch.no_grad()
def draw_weights(model: nn.Module, start: str = "small") -> None:
    """Draw the weights of every linear map, GRU and convolution.

    Matrices are drawn with Xavier Glorot's range, in the order of
    the model, and multiplied by the factors of `start`; biases begin
    at zero. A GRU's gates are drawn one by one; a convolution counts
    its inputs and outputs once for each place of the window. In every
    start a gated convolution has the factor sqrt(6): its range lets
    2/3 of the variance pass, and its gate about 1/4 of that. The paper
    does not say how its weights began. Embeddings are not drawn here,
    and weights are to be tied afterwards: a tied embedding would be
    drawn anew.

    Args:
        start: "xavier": every other factor is 1. "packed": the
            matrices of queries, keys and values in self-attention are
            drawn as if they were one matrix, and so are the two of
            keys and values in the attention to the source. "small":
            packed, and the matrices that end a sub-layer, `w_o` and
            `w_2`, have the factor 1/4. The factors are right for
            d_k = d_v = d_model / h; other sizes get the same ones.

    Raises:
        ValueError: for another start.

    Chapter: model-initialisation
    """
    if start not in STARTS:
        raise ValueError(f"{start=}: give one of {tuple(STARTS)}")
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv1d | nn.GRU):
            continue
        factor = 1.0
        for ending, number in (_GATED | STARTS[start]).items():
            # With the dots, only whole names match.
            if f".{path}".endswith(f".{ending}"):
                factor = number
        _draw(module, factor)


_DERIVED: list["type[Transformer]"] = []  # in the order of definition


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

    decoder_layer = DecoderLayer  # a subclass may have its own

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # An export to ONNX derives classes from ours, under their
        # names; these may not take the place of the true ones.
        origins = [base.__module__ for base in cls.__bases__]
        if not any(origin.startswith("torch.fx") for origin in origins):
            _DERIVED.append(cls)

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.source_embedding: Embeddings = self.build_embedding()
        self.target_embedding: Embeddings = self.source_embedding
        if config.tie != "three-way":
            self.target_embedding = self.build_embedding()
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if config.positions == "sinusoid":
            self.positions = SinusoidalPositions(config.d_model)
        elif config.positions == "learned":
            self.positions = LearnedPositions(
                config.d_model, config.max_length
            )
        self.dropout: nn.Dropout = nn.Dropout(config.dropout)
        layers = [self.build_encoder_layer() for _ in range(config.N)]
        self.encoder: Encoder = Encoder(layers, config.d_model, config.norm)
        layers = [self.build_decoder_layer() for _ in range(config.N)]
        self.decoder: Decoder = Decoder(layers, config.d_model, config.norm)
        self.pre_softmax: nn.Linear = nn.Linear(
            config.d_model, config.vocab_size, bias=False
        )
        # Before weights are tied, as an embedding is drawn differently.
        draw_weights(self, config.init)
        if config.tie != "none":
            self.pre_softmax.weight = self.target_embedding.weight

    def build_embedding(self) -> Embeddings:
        """A vector for each piece of the vocabulary."""
        return Embeddings(
            self.config.vocab_size,
            self.config.d_model,
            self.config.scale_embeddings,
        )

    def build_attention(self) -> MultiHeadAttention:
        """An attention, with fresh weights."""
        return MultiHeadAttention(
            self.config.d_model,
            self.config.h,
            d_k=self.config.d_k,
            d_v=self.config.d_v,
            dropout=self.config.attention_dropout,
            bias=self.config.bias,
        )

    def build_encoder_attention(self) -> nn.Module:
        """An encoder layer's first sub-layer; a subclass may change it."""
        return self.build_attention()

    def build_decoder_attention(self) -> nn.Module:
        """A decoder layer's first sub-layer; a subclass may change it."""
        return self.build_attention()

    def build_feed_forward(self) -> FeedForward:
        """A feed-forward network, with fresh weights."""
        return FeedForward(
            self.config.d_model,
            self.config.d_ff,
            dropout=self.config.relu_dropout,
        )

    def build_encoder_layer(self) -> nn.Module:
        """One of the left half's layers, figure 1."""
        return EncoderLayer(
            self_attention=self.build_encoder_attention(),
            feed_forward=self.build_feed_forward(),
            d_model=self.config.d_model,
            dropout=self.config.dropout,
            norm=self.config.norm,
        )

    def build_decoder_layer(self) -> nn.Module:
        """One of the right half's layers, figure 1."""
        return self.decoder_layer(
            self_attention=self.build_decoder_attention(),
            cross_attention=self.build_attention(),
            feed_forward=self.build_feed_forward(),
            d_model=self.config.d_model,
            dropout=self.config.dropout,
            norm=self.config.norm,
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
            ValueError: if `ids` is no batch.
        """
        if ids.dim() != 2:
            raise ValueError(
                f"{ids.shape=}: give (batch, len); one sentence is ids[None]"
            )
        x = embedding(ids)
        if self.positions is not None:
            x = self.positions(x, offset)
        return self.dropout(x)

    def encode(self, source_ids: Tensor) -> Tensor:
        """The memory: (batch, source_len, d_model)."""
        x = self.embed(source_ids, self.source_embedding)
        return self.encoder(x, padding_mask(source_ids))

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor | None,
        source_ids: Tensor | None,
        cache: Any = None,
    ) -> Tensor:
        """Hidden states: (batch, target_len, d_model).

        `source_ids` says where the source is padded; None says that
        it has no padding. With a `DecoderCache`, `target_ids` holds
        the new positions alone, without padding, and `memory` may be
        None. A new position sees what the cache holds and the new
        ones up to itself.
        """
        offset = 0 if cache is None else cache.length
        new = target_ids.size(-1)
        x = self.embed(target_ids, self.target_embedding, offset)
        target_mask = source_mask = layer_caches = None
        if cache is None:
            target_mask = decoder_mask(target_ids)
        else:
            layer_caches = cache.layers
            if new > 1:  # one alone may see every position
                causal = causal_mask(offset + new, target_ids.device)
                target_mask = causal[..., offset:, :]
        if source_ids is not None:
            source_mask = padding_mask(source_ids)
        return self.decoder(x, memory, target_mask, source_mask, layer_caches)

    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Hidden states (batch, target_len, d_model): both halves.

        `target_ids` is what the decoder reads, bos first; position i
        of the result predicts what follows it.
        """
        memory = self.encode(source_ids)
        return self.decode(target_ids, memory, source_ids)

    def project(self, hidden: Tensor) -> Tensor:
        """Logits: (..., d_model) to (..., vocab_size)."""
        return self.pre_softmax(hidden)

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Logits (batch, target_len, vocab_size), teacher forcing."""
        return self.project(self.hidden(source_ids, target_ids))


def model_class(name: str) -> type[Transformer]:
    """The class of that name: `Transformer`, or one made from it.

    A saved model names its class; loading it calls this function.

    Raises:
        ValueError: if no module that was imported defines it.

    Chapter: model-transformer
    """
    # Of two with one name, the one defined last counts: whoever runs a
    # notebook's cell again defines its class again.
    named = {known.__name__: known for known in _DERIVED}
    named["Transformer"] = Transformer  # no subclass takes its place
    if name not in named:
        raise ValueError(
            f"no class {name!r} is known: import the module that "
            f"defines it first; known are {sorted(named)}"
        )
    return named[name]
