"""The Annotated Transformer, edition of 2022."""

import copy
import math
import re
import types

import torch
from sources import use
from torch import nn

PAD, BOS, EOS = 2, 0, 1

# The file also trains and draws; we take its classes and functions.
_text = (use("annotated") / "the_annotated_transformer.py").read_text("utf-8")
_first, _last = (
    _text.index("class EncoderDecoder("),
    _text.index("def load_tokenizers("),
)
_theirs = types.ModuleType("annotated_transformer")
vars(_theirs).update(
    copy=copy,
    math=math,
    nn=nn,
    torch=torch,
    pad=nn.functional.pad,
    log_softmax=nn.functional.log_softmax,
    show_example=lambda *_: None,
    execute_example=lambda *_: None,
)
_calls = r"^(show_example|execute_example|example_\w+)\(.*\)$"
_text = re.sub(_calls, "", _text[_first:_last], flags=re.M)
exec(_text, vars(_theirs))


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return _theirs.make_model(
        vocab_size, vocab_size, N, d_model, d_ff, h, dropout
    )


def logits(model, source_ids, target_ids):
    batch = _theirs.Batch(source_ids, None, PAD)
    mask = _theirs.Batch.make_std_mask(target_ids, PAD)
    out = model.forward(source_ids, target_ids, batch.src_mask, mask)
    return model.generator(out)


def encode(model, source_ids):
    return model.encode(source_ids, (source_ids != PAD).unsqueeze(-2))


def greedy(model, source_ids, max_extra):
    mask = (source_ids != PAD).unsqueeze(-2)
    length = source_ids.size(1) - 1 + max_extra
    model.eval()
    ids = _theirs.greedy_decode(model, source_ids, mask, length + 1, BOS)
    ids = ids[0, 1:].tolist()
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def attention(query, key, value, mask=None):
    return _theirs.attention(query, key, value, mask)


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    module = _theirs.MultiHeadedAttention(h, x.size(-1)).eval()
    mask = None if mask is None else mask[:, 0]
    with torch.no_grad():
        for linear, matrix in zip(
            module.linears, (w_q, w_k, w_v, w_o), strict=True
        ):
            linear.weight.copy_(matrix.T)
            linear.bias.zero_()
        return module(x, memory, memory, mask)


def feed_forward(x, w_1, b_1, w_2, b_2):
    module = _theirs.PositionwiseFeedForward(*w_1.shape).eval()
    with torch.no_grad():
        for linear, weight, bias in (
            (module.w_1, w_1, b_1),
            (module.w_2, w_2, b_2),
        ):
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
        return module(x)


def positions(length, d_model):
    return _theirs.PositionalEncoding(d_model, 0.0).pe[0, :length]


def loss(logits, labels, smoothing):
    size = logits.size(-1)
    criterion = _theirs.LabelSmoothing(size, PAD, smoothing)
    logs = logits.log_softmax(-1).reshape(-1, size)
    total = criterion(logs, labels.reshape(-1))
    return total / (labels != PAD).sum()


def learning_rate(step, d_model, warmup_steps):
    return _theirs.rate(step, d_model, 1.0, warmup_steps)
