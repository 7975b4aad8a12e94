"""Joey NMT 2, with the configuration of its tied Transformer."""

import logging
import sys
import types

import torch
from sources import use

_folder = use("joeynmt")
# Their package also reads corpora and plots; the model needs neither.
_package = types.ModuleType("joeynmt")
_package.__path__ = [str(_folder / "joeynmt")]
sys.modules["joeynmt"] = _package


def _stand_in(name, **contents):
    module = types.ModuleType(f"joeynmt.{name}")
    vars(module).update(contents)
    sys.modules[f"joeynmt.{name}"] = module


def _subsequent(size):
    return torch.ones(1, size, size).tril().bool()


_stand_in(
    "helpers",
    freeze_params=lambda module: None,
    subsequent_mask=_subsequent,
)
_stand_in("helpers_for_ddp", get_logger=logging.getLogger)
_stand_in("vocabulary", Vocabulary=object)
_stand_in("config", ConfigurationError=ValueError)
_stand_in("builders", build_activation=lambda activation: torch.nn.ReLU)
from joeynmt.loss import XentLoss  # noqa: E402
from joeynmt.model import build_model  # noqa: E402
from joeynmt.transformer_layers import PositionalEncoding  # noqa: E402

PAD, BOS, EOS = 1, 2, 3


class _Vocabulary:
    pad_index, bos_index, eos_index, unk_index = PAD, BOS, EOS, 0
    sep_index = None
    specials = lang_tags = ()

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


def build(vocab_size, N, d_model, d_ff, h, dropout):
    side = dict(
        type="transformer",
        num_layers=N,
        num_heads=h,
        hidden_size=d_model,
        ff_size=d_ff,
        dropout=dropout,
        embeddings=dict(embedding_dim=d_model, scale=True, dropout=dropout),
    )
    vocabulary = _Vocabulary(vocab_size)
    config = dict(
        encoder=side,
        decoder=side,
        tied_embeddings=True,
        tied_softmax=True,
    )
    return build_model(config, vocabulary, vocabulary)


def logits(model, source_ids, target_ids):
    mask = (source_ids != PAD).unsqueeze(1)
    memory, hidden = model._encode(source_ids, None, mask)
    target = (target_ids != PAD).unsqueeze(1)
    out = model._decode(
        memory, hidden, mask, target_ids, None, None, None, target
    )
    return out[0]


def positions(length, d_model):
    return PositionalEncoding(d_model, length).pe[0]


def loss(logits, labels, smoothing):
    criterion = XentLoss(PAD, smoothing)
    total = criterion(logits.log_softmax(-1), trg=labels)
    return total / (labels != PAD).sum()
