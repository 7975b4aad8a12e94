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

_CHOICES = {
    "norm": ("post", "pre"),
    "positions": ("sinusoid", "learned", "none"),
    "tie": ("three-way", "decoder", "none"),
    "bias": (False, True),
    "scale_embeddings": (False, True),
}


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
        bias: whether attention's projections add one
        norm: post, after a sum, or pre, before a sub-layer
        positions: sinusoid, learned or none
        tie: one matrix: three-way, decoder (the target's two) or none
        scale_embeddings: by the root of d_model
        max_length: of a sentence, where positions are learned

    Raises:
        ValueError: naming the field, its value and what would do.

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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in _CHOICES:
                good = value in _CHOICES[name]
                wanted = f"one of {_CHOICES[name]}"
            elif name.endswith("dropout"):
                good, wanted = 0 <= value < 1, "0 <= p < 1"
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
    def weights(self) -> int:
        """How many such a model has at least, in its matrices."""
        own = self.d_model // self.h
        width = 6 * self.h * ((self.d_k or own) + (self.d_v or own))
        rows = self.max_length * (self.positions == "learned")
        rows += self.vocab_size + self.N * (width + 4 * self.d_ff)
        return self.d_model * rows


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
        d = c.d_model
        table = c.vocab_size, d, c.scale_embeddings
        self.source_embedding = Embeddings(*table)
        self.target_embedding = self.source_embedding
        if c.tie != "three-way":
            self.target_embedding = Embeddings(*table)
        self.positions = None
        if c.positions == "sinusoid":
            self.positions = SinusoidalPositions(d)
        elif c.positions == "learned":
            self.positions = LearnedPositions(d, c.max_length)
        self.dropout = nn.Dropout(c.dropout)

        heads = c.h, c.d_k, c.d_v, c.attention_dropout, c.bias

        def attention():
            return MultiHeadAttention(d, *heads)

        def network():
            return FeedForward(d, c.d_ff, c.relu_dropout)

        around = d, c.dropout, c.norm
        layers = [
            EncoderLayer(attention(), network(), *around)
            for _ in range(c.N)
        ]
        self.encoder = Encoder(layers, d, c.norm)
        layers = [
            DecoderLayer(attention(), attention(), network(), *around)
            for _ in range(c.N)
        ]
        self.decoder = Decoder(layers, d, c.norm)
        self.pre_softmax = nn.Linear(d, c.vocab_size, bias=False)
        self.apply(_xavier)
        if c.tie != "none":
            self.pre_softmax.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax matrix, (vocab_size, d_model)."""
        return self.pre_softmax.weight

    def embed(self, ids, embedding, offset: int = 0) -> Tensor:
        """(batch, len) to (batch, len, d_model), with positions.

        `offset` is the position of the first of `ids`.

        Raises:
            ValueError: if `ids` is no batch.
        """
        if ids.dim() != 2:
            raise ValueError(f"{ids.shape=}: a batch is ids[None]")
        x = embedding(ids)
        if self.positions is not None:
            x = self.positions(x, offset)
        return self.dropout(x)

    def encode(self, source_ids: Tensor) -> Tensor:
        """The memory: (batch, source_len, d_model)."""
        x = self.embed(source_ids, self.source_embedding)
        return self.encoder(x, padding_mask(source_ids))

    def decode(self, target_ids, memory, source_ids, cache=None):
        """Hidden states: (batch, target_len, d_model).

        `source_ids` None says that no source is padded. With a
        `DecoderCache`, `target_ids` (batch, 1) is the one new
        position, which sees all that the cache holds.
        """
        offset = 0 if cache is None else cache.length
        x = self.embed(target_ids, self.target_embedding, offset)
        target_mask = source_mask = None
        if cache is None:
            target_mask = decoder_mask(target_ids)
        if source_ids is not None:
            source_mask = padding_mask(source_ids)
        return self.decoder(
            x, memory, target_mask, source_mask, cache
        )

    def project(self, hidden: Tensor) -> Tensor:
        """Logits: (..., d_model) to (..., vocab_size)."""
        return self.pre_softmax(hidden)

    def forward(self, source_ids, target_ids) -> Tensor:
        """Logits (batch, target_len, vocab_size), teacher forcing."""
        memory = self.encode(source_ids)
        hidden = self.decode(target_ids, memory, source_ids)
        return self.project(hidden)
