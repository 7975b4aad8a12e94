"""torch.nn.Transformer, with the frame that it leaves to its users.

    python -m transformer_conformance --example nn > my_adapter.py

Put your own frame in place of `_Model`, and keep the functions below it.
"""

import math

import torch
from torch import nn

PAD, BOS, EOS = 0, 2, 3


class _Model(nn.Module):
    def __init__(self, vocab_size, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.table.weight, 0, d_model**-0.5)
        self.stacks = nn.Transformer(
            d_model, h, N, N, d_ff, dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        pos = torch.arange(256)[:, None]
        angle = pos / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
        pairs = torch.stack([angle.sin(), angle.cos()], -1)
        self.register_buffer("positions", pairs.flatten(1))

    def embed(self, ids):
        scaled = self.table(ids) * math.sqrt(self.table.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.size(1)])

    def forward(self, source_ids, target_ids):
        length = target_ids.size(1)
        future = torch.ones(length, length).triu(1).bool()
        hidden = self.stacks(
            self.embed(source_ids),
            self.embed(target_ids),
            tgt_mask=future,
            src_key_padding_mask=source_ids == PAD,
            memory_key_padding_mask=source_ids == PAD,
        )
        return hidden @ self.table.weight.T


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return _Model(vocab_size, N, d_model, d_ff, h, dropout)


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    return model.stacks.encoder(
        model.embed(source_ids), src_key_padding_mask=source_ids == PAD
    )


@torch.no_grad()
def greedy_batch(model, source_ids, max_extra):
    model.eval()
    ids = torch.full((len(source_ids), 1), BOS)
    limits = (source_ids != PAD).sum(1) - 1 + max_extra
    while ids.size(1) <= limits.max():
        best = model(source_ids, ids)[:, -1].argmax(-1)
        ids = torch.cat([ids, best[:, None]], dim=1)
    outputs = []
    for row, limit in zip(ids[:, 1:].tolist(), limits, strict=True):
        row = row[:limit]
        outputs.append(row[: row.index(EOS) + 1] if EOS in row else row)
    return outputs


def greedy(model, source_ids, max_extra):
    return greedy_batch(model, source_ids, max_extra)[0]


def attention(query, key, value, mask=None):
    return nn.functional.scaled_dot_product_attention(query, key, value, mask)


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    module = nn.MultiheadAttention(x.size(-1), h, batch_first=True)
    hidden = None if mask is None else ~mask[:, 0, 0]
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([w_q.T, w_k.T, w_v.T]))
        module.in_proj_bias.zero_()
        module.out_proj.weight.copy_(w_o.T)
        module.out_proj.bias.zero_()
        return module(x, memory, memory, key_padding_mask=hidden)
