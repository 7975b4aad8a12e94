"""labml.ai's annotated implementations: labml_nn/transformers."""

import copy
import sys
import types

import torch
from sources import use
from torch import nn

_folder = use("labml")
# Their package starts an experiment tracker; the model needs none.
for _name in ("labml", "labml_nn", "labml_nn.transformers", "labml_nn.utils"):
    _module = types.ModuleType(_name)
    _module.__path__ = [str(_folder.joinpath(*_name.split(".")))]
    sys.modules[_name] = _module
sys.modules["labml"].tracker = types.SimpleNamespace(debug=lambda *_: None)


def _clones(module, count):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(count)])


sys.modules["labml_nn.utils"].clone_module_list = _clones
from labml_nn.transformers.feed_forward import FeedForward  # noqa: E402
from labml_nn.transformers.mha import MultiHeadAttention  # noqa: E402
from labml_nn.transformers.models import (  # noqa: E402
    Decoder,
    EmbeddingsWithPositionalEncoding,
    Encoder,
    EncoderDecoder,
    Generator,
    TransformerLayer,
)
from labml_nn.transformers.positional_encoding import (  # noqa: E402
    get_positional_encoding,
)
from labml_nn.transformers.utils import subsequent_mask  # noqa: E402

PAD, BOS, EOS = 1, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    def layer(across):
        return TransformerLayer(
            d_model=d_model,
            self_attn=MultiHeadAttention(h, d_model, dropout),
            src_attn=MultiHeadAttention(h, d_model, dropout)
            if across
            else None,
            feed_forward=FeedForward(d_model, d_ff, dropout),
            dropout_prob=dropout,
        )

    return EncoderDecoder(
        Encoder(layer(False), N),
        Decoder(layer(True), N),
        EmbeddingsWithPositionalEncoding(d_model, vocab_size),
        EmbeddingsWithPositionalEncoding(d_model, vocab_size),
        Generator(vocab_size, d_model),
    )


def _mask(ids):
    """(1, key_len, batch): theirs has the batch last."""
    return (ids != PAD).T[None]


def logits(model, source_ids, target_ids):
    mask = _mask(target_ids) & subsequent_mask(target_ids.size(1))
    out = model(source_ids.T, target_ids.T, _mask(source_ids), mask)
    return model.generator(out).transpose(0, 1)


def encode(model, source_ids):
    return model.encode(source_ids.T, _mask(source_ids)).transpose(0, 1)


def positions(length, d_model):
    return get_positional_encoding(d_model, length)[:, 0]


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    module = MultiHeadAttention(h, x.size(-1), 0.0)
    linears = (
        module.query.linear,
        module.key.linear,
        module.value.linear,
        module.output,
    )
    if mask is not None:  # to (query_len, key_len, batch)
        mask = mask[:, 0].permute(1, 2, 0)
    with torch.no_grad():
        for linear, matrix in zip(linears, (w_q, w_k, w_v, w_o), strict=True):
            linear.weight.copy_(matrix.T)
            linear.bias.zero_()
        x, memory = x.transpose(0, 1), memory.transpose(0, 1)
        out = module(query=x, key=memory, value=memory, mask=mask)
    return out.transpose(0, 1)
