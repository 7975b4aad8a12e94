# Collected from book/architecture/model.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""The whole Transformer of section 3, and the sizes that fix it."""

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
from transformer_lib.masks import (
    causal_mask,
    decoder_mask,
    padding_mask,
)
from transformer_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
)

__all__ = [
    "CHOICES",
    "Transformer",
    "TransformerConfig",
    "build_layer",
    "build_positions",
    "check_config",
    "initialise",
    "parameter_count",
]


CHOICES = {
    "norm": ("post", "pre"),
    "positions": ("sinusoid", "learned", "none"),
    "tie": ("three-way", "decoder", "none"),
}


def check_config(config: "TransformerConfig") -> None:
    """Refuse sizes and choices that no Transformer here can have.

    Raises:
        ValueError: naming the field, its value and what would do.

    Chapter: model-config
    """
    c = config
    for name, value in vars(c).items():
        if value not in CHOICES.get(name, (value,)):
            raise ValueError(
                f"unknown {name}={value!r}; choose from "
                f"{CHOICES[name]}"
            )
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} is not in 0 <= p < 1")
    counts = "vocab_size N d_model d_ff h d_k d_v max_length"
    for name in counts.split():
        value = getattr(c, name)
        if value is None and name in ("d_k", "d_v"):
            continue
        if type(value) is not int or value < 1:
            raise ValueError(
                f"{name}={value!r} is no count from 1 up"
            )
    if None in (c.d_k, c.d_v) and c.d_model % c.h:
        raise ValueError(
            f"h={c.h} does not divide d_model={c.d_model}: change "
            "one of them, or give both d_k and d_v"
        )
    if c.positions == "sinusoid" and c.d_model % 2:
        raise ValueError(
            f"sinusoids come in pairs, so d_model={c.d_model} must "
            "be even; or use positions='learned'"
        )


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and choices of one model; by default, the paper's.

    `d_k` and `d_v` are d_model / h where they are None. `tie` says
    which of the two embeddings and the pre-softmax matrix are one.
    Impossible values raise a ValueError. Section 3; table 3.

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
    bias: bool = False
    norm: str = "post"
    positions: str = "sinusoid"
    tie: str = "three-way"
    pad_id: int = 0
    relu_dropout: float = 0.0
    scale_embeddings: bool = True
    max_length: int = 512

    def __post_init__(self):
        check_config(self)

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


def initialise(module: nn.Module) -> nn.Module:
    """Xavier-uniform weights, zero biases in every nn.Linear within.

    Our choice: the paper leaves it open. Returns the module.

    Chapter: model-initialisation
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module


def build_layer(
    config: TransformerConfig, kind: type[EncoderLayer | DecoderLayer]
) -> EncoderLayer | DecoderLayer:
    """One new layer of either kind, with weights of its own.

    Chapter: model-layers
    """
    c = config
    attentions = [
        MultiHeadAttention(
            c.d_model, c.h, c.d_k, c.d_v, c.attention_dropout, c.bias
        )
        for _ in range(2 if kind is DecoderLayer else 1)
    ]
    feed_forward = FeedForward(c.d_model, c.d_ff, c.relu_dropout)
    layer = kind(
        *attentions, feed_forward, c.d_model, c.dropout, c.norm
    )
    return initialise(layer)


def build_positions(config: TransformerConfig) -> nn.Module | None:
    """The positional encoding that the config names, section 3.5.

    Chapter: model-layers
    """
    if config.positions == "sinusoid":
        return SinusoidalPositions(config.d_model)
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_length)
    return None


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
        table = c.vocab_size, c.d_model, c.pad_id, c.scale_embeddings
        self.source_embedding = Embeddings(*table)
        self.target_embedding = self.source_embedding
        if c.tie != "three-way":
            self.target_embedding = Embeddings(*table)
        self.positions = build_positions(c)
        self.dropout = nn.Dropout(c.dropout)
        layers = [build_layer(c, EncoderLayer) for _ in range(c.N)]
        self.encoder = Encoder(layers, c.d_model, c.norm)
        layers = [build_layer(c, DecoderLayer) for _ in range(c.N)]
        self.decoder = Decoder(layers, c.d_model, c.norm)
        last = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.pre_softmax = initialise(last)
        if c.tie != "none":
            last.weight = self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax matrix, (vocab_size, d_model)."""
        return self.pre_softmax.weight

    def embed(
        self, ids: Tensor, embedding: Embeddings, offset: int = 0
    ) -> Tensor:
        """Vectors plus positions from `offset` on, then dropout."""
        if ids.dim() != 2:
            raise ValueError(
                f"ids must be (batch, len), got {tuple(ids.shape)}; "
                "one sentence is a batch of one: ids[None]"
            )
        x = embedding(ids)  # (batch, len, d_model)
        if self.positions is not None:
            x = self.positions(x, offset)
        return self.dropout(x)

    def encode(self, source_ids: Tensor) -> Tensor:
        """The memory: (batch, source_len, d_model)."""
        x = self.embed(source_ids, self.source_embedding)
        mask = padding_mask(source_ids, self.config.pad_id)
        return self.encoder(x, mask)

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor,
        source_ids: Tensor | None,
        cache: Any = None,
    ) -> Tensor:
        """Hidden states; with a cache, of the new ids alone."""
        offset, new = cache.length if cache else 0, target_ids.size(1)
        x = self.embed(target_ids, self.target_embedding, offset)
        pad, mask, source_mask = self.config.pad_id, None, None
        if source_ids is not None:
            source_mask = padding_mask(source_ids, pad)
        if new > 1 and offset:  # what came before may be seen
            mask = causal_mask(offset + new, x.device)[:, :, offset:]
        elif new > 1:
            mask = decoder_mask(target_ids, pad)
        return self.decoder(x, memory, mask, source_mask, cache)

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


def parameter_count(config: TransformerConfig) -> dict[str, int]:
    """Numbers to learn, by component, from the sizes alone.

    A tied matrix counts once, in "embeddings". Table 3.

    Chapter: model-parameters
    """
    c, d = config, config.d_model
    keys = c.h * (c.d_k or d // c.h)
    values = c.h * (c.d_v or d // c.h)
    attention = 2 * d * (keys + values)
    if c.bias:
        attention += 2 * keys + values + d
    feed_forward = 2 * d * c.d_ff + c.d_ff + d
    norm, table = 2 * d, c.vocab_size * d
    last = norm if c.norm == "pre" else 0
    learned = c.positions == "learned"
    count = {
        "embeddings": table if c.tie == "three-way" else 2 * table,
        "positions": c.max_length * d if learned else 0,
        "encoder self-attention": c.N * attention,
        "encoder feed-forward": c.N * feed_forward,
        "encoder norms": c.N * 2 * norm + last,
        "decoder self-attention": c.N * attention,
        "decoder cross-attention": c.N * attention,
        "decoder feed-forward": c.N * feed_forward,
        "decoder norms": c.N * 3 * norm + last,
        "pre-softmax": table if c.tie == "none" else 0,
    }
    return count | {"total": sum(count.values())}
