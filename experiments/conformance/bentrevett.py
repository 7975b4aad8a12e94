"""bentrevett/pytorch-seq2seq, notebook 6."""

import json
import types

import torch
from sources import use
from torch import nn

PAD, BOS, EOS = 1, 2, 3

_book = json.loads(
    (
        use("bentrevett", "legacy") / "6 - Attention is All You Need.ipynb"
    ).read_text("utf-8")
)
_theirs = types.ModuleType("seq2seq")
vars(_theirs).update(torch=torch, nn=nn)
for _cell in _book["cells"]:
    _code = "".join(_cell["source"])
    if _cell["cell_type"] == "code" and _code.startswith("class "):
        exec(_code, vars(_theirs))


def build(vocab_size, N, d_model, d_ff, h, dropout):
    sizes = vocab_size, d_model, N, h, d_ff, dropout, "cpu"
    model = _theirs.Seq2Seq(
        _theirs.Encoder(*sizes), _theirs.Decoder(*sizes), PAD, PAD, "cpu"
    )
    for module in model.modules():  # their initialize_weights
        if hasattr(module, "weight") and module.weight.dim() > 1:
            nn.init.xavier_uniform_(module.weight.data)
    return model


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)[0]


def encode(model, source_ids):
    return model.encoder(source_ids, model.make_src_mask(source_ids))
