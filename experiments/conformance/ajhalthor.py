"""ajhalthor/Transformer-Neural-Network."""

import json
import types

import numpy as np
import torch
from sources import use

_folder = use("ajhalthor")
from transformer import PositionalEncoding, Transformer  # noqa: E402

PAD, BOS, EOS = 0, 2, 3
LONGEST = 64
_cells = json.loads(
    (_folder / "Transformer_Trainer_Notebook.ipynb").read_text("utf-8")
)["cells"]
_texts = ["".join(cell["source"]) for cell in _cells]
_notebook = types.ModuleType("notebook")
vars(_notebook).update(np=np, torch=torch, max_sequence_length=LONGEST)
exec(
    next(x for x in _texts if "def create_masks" in x).partition("\n\n\n")[0],
    vars(_notebook),
)


def build(vocab_size, N, d_model, d_ff, h, dropout):
    words = {i: i for i in range(vocab_size)}  # for their characters
    sizes = d_model, d_ff, h, dropout, N, LONGEST, vocab_size
    return Transformer(*sizes, words, words, BOS, EOS, PAD)


def _sentences(ids):
    return [[i for i in row if i != PAD] for row in ids.tolist()]


def logits(model, source_ids, target_ids):
    # it puts bos in front itself, and pads to one length
    source, target = _sentences(source_ids), _sentences(target_ids[:, 1:])
    masks = _notebook.create_masks(source, target)
    out = model(source, target, *masks, dec_start_token=True)
    return out[:, : target_ids.size(1)]


def encode(model, source_ids):
    source = _sentences(source_ids)
    mask, *_ = _notebook.create_masks(source, source)
    out = model.encoder(source, mask, start_token=False, end_token=False)
    return out[:, : source_ids.size(1)]


def positions(length, d_model):
    return PositionalEncoding(d_model, length)()


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-4)
