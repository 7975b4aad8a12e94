"""SamLynnEvans/Transformer."""

import torch
from sources import use

use("samlynnevans")
from Embed import PositionalEncoder  # noqa: E402
from Models import Transformer  # noqa: E402
from Sublayers import attention as _attention  # noqa: E402

PAD, BOS, EOS = 1, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    model = Transformer(vocab_size, vocab_size, d_model, N, h, dropout)
    for weight in model.parameters():  # as their get_model
        if weight.dim() > 1:
            torch.nn.init.xavier_uniform_(weight)
    return model


def logits(model, source_ids, target_ids):
    length = target_ids.size(1)
    future = torch.ones(1, length, length).tril().bool()
    target = (target_ids != PAD).unsqueeze(-2) & future
    source = (source_ids != PAD).unsqueeze(-2)
    return model(source_ids, target_ids, source, target)


def encode(model, source_ids):
    return model.encoder(source_ids, (source_ids != PAD).unsqueeze(-2))


def attention(query, key, value, mask=None):
    mask = None if mask is None else mask[:, 0]
    return _attention(query, key, value, query.size(-1), mask)


def positions(length, d_model):
    return PositionalEncoder(d_model, length).pe[0]
