"""tunz/transformer-pytorch."""

import torch
from sources import use

use("tunz")
from model.transformer import (  # noqa: E402
    MultiHeadAttention,
    Transformer,
)
from utils import utils  # noqa: E402

PAD, BOS, EOS = 1, 0, 3
# PyTorch no longer takes masks of bytes.
_padding, _future = utils.create_pad_mask, utils.create_trg_self_mask
utils.create_pad_mask = lambda ids, pad: _padding(ids, pad).bool()
utils.create_trg_self_mask = lambda n, device: _future(n, device).bool()


def build(vocab_size, N, d_model, d_ff, h, dropout):
    MultiHeadAttention.__init__.__defaults__ = (h,)  # theirs is always 8
    return Transformer(
        vocab_size,
        vocab_size,
        n_layers=N,
        hidden_size=d_model,
        filter_size=d_ff,
        dropout_rate=dropout,
        src_pad_idx=PAD,
        trg_pad_idx=PAD,
    )


def logits(model, source_ids, target_ids):
    # their decoder shifts the labels itself, with a zero vector for bos
    end = torch.full_like(target_ids[:, :1], EOS)
    labels = torch.cat([target_ids[:, 1:], end], 1)
    return model(source_ids, labels)
