"""brandokoch/attention-is-all-you-need-paper."""

from sources import use

use("brandokoch", "src")
from architectures.machine_translation_transformer import (  # noqa: E402
    MachineTranslationTransformer,
)
from architectures.multi_head_attention import (  # noqa: E402
    ScaledDotProductAttention,
)
from architectures.positional_encoding import PositionalEncoding  # noqa: E402

PAD, BOS, EOS = 0, 1, 2


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return MachineTranslationTransformer(
        d_model, N, vocab_size, vocab_size, h, d_ff, dropout
    )


def logits(model, source_ids, target_ids):
    source = model._get_pad_mask(source_ids)
    target = model._get_pad_mask(target_ids)
    target = target & model._get_lookahead_mask(target_ids)
    return model.transformer_encoder_decoder(
        source_ids, target_ids, source, target
    )


def encode(model, source_ids):
    return model.transformer_encoder_decoder.encode(
        source_ids, model._get_pad_mask(source_ids)
    )


def attention(query, key, value, mask=None):
    module = ScaledDotProductAttention(query.size(-1)).eval()
    return module(query, key, value, mask)


def positions(length, d_model):
    return PositionalEncoding(d_model, length).pe_table[0]
