"""hkproj/pytorch-transformer."""

import torch
from sources import use

use("hkproj")
from model import (  # noqa: E402
    MultiHeadAttentionBlock,
    PositionalEncoding,
    build_transformer,
)

PAD, BOS, EOS = 3, 1, 2


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return build_transformer(
        vocab_size, vocab_size, 256, 256, d_model, N, h, dropout, d_ff
    )


def _masks(source_ids, target_ids):
    length = target_ids.size(1)
    future = torch.triu(torch.ones(1, length, length), diagonal=1) == 0
    source = (source_ids != PAD)[:, None, None].int()
    return source, (target_ids != PAD)[:, None, None].int() & future.int()


def logits(model, source_ids, target_ids):
    source, target = _masks(source_ids, target_ids)
    memory = model.encode(source_ids, source)
    return model.project(model.decode(memory, source, target_ids, target))


def encode(model, source_ids):
    return model.encode(source_ids, (source_ids != PAD)[:, None, None].int())


def attention(query, key, value, mask=None):
    return MultiHeadAttentionBlock.attention(query, key, value, mask, None)


def positions(length, d_model):
    return PositionalEncoding(d_model, length, 0.0).pe[0]
