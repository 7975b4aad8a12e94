"""Dive into Deep Learning: d2l/torch.py, and the decoder's chapter."""

import inspect
import math
import re
import types

import torch
from sources import use
from torch import nn

PAD, BOS, EOS = 1, 2, 3

# The package also draws and downloads; we take what the model is made of.
_folder = use("d2l")
_text = (_folder / "d2l" / "torch.py").read_text("utf-8")
_chapter = (
    _folder / "chapter_attention-mechanisms-and-transformers/transformer.md"
).read_text("utf-8")
_d2l = types.ModuleType("d2l")
_reductions = {
    "nn_Module": nn.Module,
    "zeros": torch.zeros,
    "arange": torch.arange,
    "ProgressBoard": lambda: None,
}
vars(_d2l).update(
    _reductions, nn=nn, torch=torch, math=math, d2l=_d2l, inspect=inspect
)
_NAMES = (
    "HyperParameters Module Encoder Decoder AttentionDecoder masked_softmax "
    "DotProductAttention MultiHeadAttention PositionalEncoding "
    "PositionWiseFFN AddNorm TransformerEncoderBlock TransformerEncoder"
)
for _name in _NAMES.split():
    _found = re.search(
        rf"^(class|def) {_name}\b.*?(?=^\S)", _text, re.M | re.S
    )
    exec(_found[0], vars(_d2l))
for _name in ("TransformerDecoderBlock", "TransformerDecoder"):
    _cells = re.findall(
        rf"^%%tab pytorch\n(class {_name}\b.*?)^```", _chapter, re.M | re.S
    )
    exec(_cells[0], vars(_d2l))


class _Model(nn.Module):
    """What their `EncoderDecoder` computes, without its trainer."""

    def __init__(self, *sizes):
        super().__init__()
        self.encoder = _d2l.TransformerEncoder(*sizes)
        self.decoder = _d2l.TransformerDecoder(*sizes)

    def forward(self, source_ids, target_ids, lengths):
        memory = self.encoder(source_ids, lengths)
        state = self.decoder.init_state(memory, lengths)
        return self.decoder(target_ids, state)[0]


def _lengths(source_ids):
    return (source_ids != PAD).sum(1)


def build(vocab_size, N, d_model, d_ff, h, dropout):
    model = _Model(vocab_size, d_model, d_ff, h, N, dropout)
    ids = torch.full((1, 2), BOS)
    model(ids, ids, _lengths(ids))  # their layers take their sizes here
    return model


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids, _lengths(source_ids))


def encode(model, source_ids):
    return model.encoder(source_ids, _lengths(source_ids))


def positions(length, d_model):
    return _d2l.PositionalEncoding(d_model, 0.0, length).P[0]
