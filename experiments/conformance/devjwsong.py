"""devjwsong/transformer-translator-pytorch."""

import sys
import types

import torch
from sources import use

_folder = use("devjwsong", "src")

PAD, BOS, EOS = 0, 1, 2


def _theirs(**sizes):
    """Their modules read sizes from `constants`: load them anew."""
    constants = types.ModuleType("constants")
    text = (_folder / "constants.py").read_text("utf-8")
    exec(text, vars(constants))
    vars(constants).update(sizes, device=torch.device("cpu"))
    constants.d_k = constants.d_model // constants.num_heads
    sys.modules["constants"] = constants
    for name in ("layers", "transformer"):
        sys.modules.pop(name, None)
    import transformer

    return transformer


def build(vocab_size, N, d_model, d_ff, h, dropout):
    theirs = _theirs(
        num_layers=N,
        d_model=d_model,
        d_ff=d_ff,
        num_heads=h,
        drop_out_rate=dropout,
        seq_len=64,
    )
    model = theirs.Transformer(vocab_size, vocab_size)
    for weight in model.parameters():  # as their Manager
        if weight.dim() > 1:
            torch.nn.init.xavier_uniform_(weight)
    return model


def _padded(ids):
    """Their sentences are all as long as the table of positions."""
    return torch.nn.functional.pad(ids, (0, 64 - ids.size(1)), value=PAD)


def logits(model, source_ids, target_ids):
    length = target_ids.size(1)
    source_ids, target_ids = _padded(source_ids), _padded(target_ids)
    future = torch.ones(1, 64, 64).tril().bool()
    source = (source_ids != PAD).unsqueeze(1)
    target = (target_ids != PAD).unsqueeze(1) & future
    return model(source_ids, target_ids, source, target)[:, :length]


def positions(length, d_model):
    theirs = _theirs(seq_len=length, d_model=d_model, num_heads=1)
    return theirs.PositionalEncoder().positional_encoding[0]
