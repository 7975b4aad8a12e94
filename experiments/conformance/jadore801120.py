"""jadore801120/attention-is-all-you-need-pytorch."""

import torch
from sources import use

use("jadore801120")
from transformer.Models import (  # noqa: E402
    PositionalEncoding,
    Transformer,
    get_pad_mask,
)
from transformer.Modules import ScaledDotProductAttention  # noqa: E402
from transformer.Optim import ScheduledOptim  # noqa: E402

PAD, BOS, EOS = 1, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return Transformer(
        vocab_size,
        vocab_size,
        PAD,
        PAD,
        d_word_vec=d_model,
        d_model=d_model,
        d_inner=d_ff,
        n_layers=N,
        n_head=h,
        d_k=d_model // h,
        d_v=d_model // h,
        dropout=dropout,
    )


def logits(model, source_ids, target_ids):
    out = model(source_ids, target_ids)
    return out.view(*target_ids.shape, -1)


def encode(model, source_ids):
    return model.encoder(source_ids, get_pad_mask(source_ids, PAD))[0]


def attention(query, key, value, mask=None):
    module = ScaledDotProductAttention(query.size(-1) ** 0.5).eval()
    return module(query, key, value, mask)


def positions(length, d_model):
    return PositionalEncoding(d_model, length).pos_table[0]


def learning_rate(step, d_model, warmup_steps):
    schedule = ScheduledOptim(
        torch.optim.SGD([torch.zeros(1)]), 1.0, d_model, warmup_steps
    )
    schedule.n_steps = step
    return schedule._get_lr_scale()
