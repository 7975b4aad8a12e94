"""A decoder alone, as GPT is: norms first, learned positions, GELU.

    python -m transformer_conformance --example gpt > my_adapter.py

Put your own model in place of `_GPT`, and keep the functions below it.
"""

import torch
from torch import nn

PAD, BOS, EOS = 0, 2, 3
LONGEST = 256


class _Layer(nn.Module):
    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.h = h
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.w_qkv = nn.Linear(d_model, 3 * d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.network = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model)
        )
        self.dropout = nn.Dropout(dropout)

    def attention(self, x):
        heads = self.w_qkv(x).unflatten(-1, (3 * self.h, -1)).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=1)
        joined = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        return self.w_o(joined.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.network(self.norm_2(x)))


class _GPT(nn.Module):
    def __init__(self, vocab_size, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.words = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(LONGEST, d_model)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        layers = [_Layer(d_model, d_ff, h, dropout) for _ in range(N)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, ids):
        places = torch.arange(ids.size(1))
        x = self.dropout(self.words(ids) + self.positions(places))
        return self.norm(self.layers(x)) @ self.words.weight.T


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return _GPT(vocab_size, N, d_model, d_ff, h, dropout)


def logits(model, ids):
    return model(ids)


@torch.no_grad()
def greedy(model, ids, max_extra):
    """What follows a prompt (1, len), with EOS, at most max_extra ids."""
    model.eval()
    written = []
    while len(written) < max_extra and EOS not in written:
        scores = model(ids)[0, -1]
        scores[[PAD, BOS]] = -torch.inf
        written.append(int(scores.argmax()))
        ids = torch.cat([ids, torch.tensor([written[-1:]])], dim=1)
    return written
