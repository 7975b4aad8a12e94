# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""The whole Transformer of section 3, and the sizes that fix it.

Chapter: book/architecture/model
"""

from dataclasses import dataclass
from typing import Any, Self

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
from transformer_lib.masks import decoder_mask, padding_mask
from transformer_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
)

CHOICES = {
    "norm": ("post", "pre"),
    "positions": ("sinusoid", "learned", "none"),
    "tie": ("three-way", "decoder", "none"),
}


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and choices of one model; by default, the paper's.

    `d_k` and `d_v` are d_model / h where they are None. `tie` says
    which of the two embeddings and the pre-softmax matrix are one.
    Section 3; table 3.

    Raises:
        ValueError: for a size below 1, a dropout outside 0 <= p < 1
            and a word that `CHOICES` does not hold.

    Chapter: model-config
    """

    vocab_size: int
    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1  # on sub-layers and embedding sums, 5.4
    attention_dropout: float = 0.0  # on attention weights
    relu_dropout: float = 0.0  # inside the feed-forward network
    bias: bool = False  # in attention's projections
    norm: str = "post"
    positions: str = "sinusoid"
    tie: str = "three-way"
    scale_embeddings: bool = True  # by sqrt(d_model), 3.4
    max_length: int = 512  # of a table of learned positions

    def __post_init__(self):
        for name, value in vars(self).items():
            if name in CHOICES:
                good = value in CHOICES[name]
                wanted = f"one of {CHOICES[name]}"
            elif name.endswith("dropout"):
                good, wanted = 0 <= value < 1, "0 <= p < 1"
            elif name in ("bias", "scale_embeddings"):
                good, wanted = value in (True, False), "True or False"
            elif value is None:
                good, wanted = name in ("d_k", "d_v"), "a size"
            else:
                good = type(value) is int and value >= 1
                wanted = "a whole number from 1 up"
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


def _attention(c: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        c.d_model, c.h, c.d_k, c.d_v, c.attention_dropout, c.bias
    )


def _feed_forward(c: TransformerConfig) -> FeedForward:
    return FeedForward(c.d_model, c.d_ff, c.relu_dropout)


def _encoder_layer(c: TransformerConfig) -> EncoderLayer:
    return EncoderLayer(
        _attention(c), _feed_forward(c), c.d_model, c.dropout, c.norm
    )


def _decoder_layer(c: TransformerConfig) -> DecoderLayer:
    return DecoderLayer(
        _attention(c),  # over the target
        _attention(c),  # over the memory
        _feed_forward(c),
        c.d_model,
        c.dropout,
        c.norm,
    )


def _positions(c: TransformerConfig) -> nn.Module | None:
    if c.positions == "sinusoid":
        return SinusoidalPositions(c.d_model)
    if c.positions == "learned":
        return LearnedPositions(c.d_model, c.max_length)
    return None


def _xavier(part: nn.Module) -> None:
    if isinstance(part, nn.Linear):
        nn.init.xavier_uniform_(part.weight)
        if part.bias is not None:
            nn.init.zeros_(part.bias)


class Transformer(nn.Module):
    """Encoder and decoder between embeddings and softmax, figure 1.

    `model(source_ids, target_ids)` maps (batch, source_len) and
    (batch, target_len) to logits (batch, target_len, vocab_size).
    Section 3.

    Chapter: model-transformer
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = c = config
        table = c.vocab_size, c.d_model
        self.source_embedding = Embeddings(
            *table, scale=c.scale_embeddings
        )
        self.target_embedding = self.source_embedding
        if c.tie != "three-way":
            self.target_embedding = Embeddings(
                *table, scale=c.scale_embeddings
            )
        self.positions = _positions(c)
        self.dropout = nn.Dropout(c.dropout)
        layers = [_encoder_layer(c) for _ in range(c.N)]
        self.encoder = Encoder(layers, c.d_model, c.norm)
        layers = [_decoder_layer(c) for _ in range(c.N)]
        self.decoder = Decoder(layers, c.d_model, c.norm)
        self.pre_softmax = nn.Linear(
            c.d_model, c.vocab_size, bias=False
        )
        self.apply(_xavier)
        if c.tie != "none":
            self.pre_softmax.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax matrix, (vocab_size, d_model)."""
        return self.pre_softmax.weight

    def embed(
        self, ids: Tensor, embedding: Embeddings, offset: int = 0
    ) -> Tensor:
        """(batch, len) to (batch, len, d_model), with positions.

        `offset` is the position of the first of `ids`.

        Raises:
            ValueError: if `ids` is no batch.
        """
        if ids.dim() != 2:
            raise ValueError(
                f"ids must be (batch, len), got {tuple(ids.shape)}; "
                "one sentence is a batch of one: ids[None]"
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
        memory: Tensor,
        source_ids: Tensor | None,
        cache: Any = None,
    ) -> Tensor:
        """Hidden states: (batch, target_len, d_model).

        `source_ids` None says that no source is padded. With a
        `DecoderCache`, `target_ids` (batch, 1) is the one new
        position, which sees all that the cache holds.
        """
        offset = 0 if cache is None else cache.length
        x = self.embed(target_ids, self.target_embedding, offset)
        target_mask, source_mask = decoder_mask(target_ids), None
        if source_ids is not None:
            source_mask = padding_mask(source_ids)
        return self.decoder(
            x, memory, target_mask, source_mask, cache
        )

    def project(self, hidden: Tensor) -> Tensor:
        """Logits: (..., d_model) to (..., vocab_size)."""
        return self.pre_softmax(hidden)

    def forward(
        self, source_ids: Tensor, target_ids: Tensor
    ) -> Tensor:
        """Logits (batch, target_len, vocab_size), teacher forcing."""
        memory = self.encode(source_ids)
        hidden = self.decode(target_ids, memory, source_ids)
        return self.project(hidden)
