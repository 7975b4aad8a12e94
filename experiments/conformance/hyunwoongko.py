"""hyunwoongko/transformer."""

import torch
from sources import use

use("hyunwoongko")
from models.embedding.positional_encoding import (  # noqa: E402
    PositionalEncoding,
)
from models.layers.scale_dot_product_attention import (  # noqa: E402
    ScaleDotProductAttention,
)
from models.model.transformer import Transformer  # noqa: E402

PAD, BOS, EOS = 1, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return Transformer(
        src_pad_idx=PAD,
        trg_pad_idx=PAD,
        trg_sos_idx=BOS,
        enc_voc_size=vocab_size,
        dec_voc_size=vocab_size,
        d_model=d_model,
        n_head=h,
        max_len=256,
        ffn_hidden=d_ff,
        n_layers=N,
        drop_prob=dropout,
        device=torch.device("cpu"),
    )


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    return model.encoder(source_ids, model.make_src_mask(source_ids))


def attention(query, key, value, mask=None):
    return ScaleDotProductAttention()(query, key, value, mask)


def positions(length, d_model):
    return PositionalEncoding(d_model, length, "cpu").encoding
