"""The paper in one file, `transformer.py`: lists of floats, no padding.

Its own ids of the beginning and the end are 0 and 1; the suite's ids are
counted from its BOS, so that padding and unk become its last two words.
"""

import math
import random

import numpy as np

import transformer as paper
from transformer_conformance.template import BOS, EOS, PAD  # noqa: F401

ARRAYS = "numpy"


def own(ids, vocab_size):
    """The file's ids of a sentence, without its padding."""
    return [(int(i) - BOS) % vocab_size for i in ids if i != PAD]


def build(vocab_size, N, d_model, d_ff, h, dropout):
    random.seed(int(np.random.randint(2**31)))
    return paper.Transformer(vocab_size, N, d_model, d_ff, h)


def padded(rows, length):
    """Matrices with up to `length` rows as one array, zeros below."""
    arrays = np.zeros((len(rows), length, len(rows[0].rows[0])))
    for array, matrix in zip(arrays, rows, strict=True):
        array[: len(matrix.rows)] = matrix.rows
    return arrays


def memory_of(model, ids):
    source = own(ids, len(model.table.rows))
    return model.encode(source or [paper.EOS])


def encode(model, source_ids):
    rows = [memory_of(model, ids) for ids in source_ids]
    return padded(rows, source_ids.shape[1])


def logits(model, source_ids, target_ids):
    vocab_size = len(model.table.rows)
    scores = [
        model.decode(own(target, vocab_size), memory_of(model, source))
        for source, target in zip(source_ids, target_ids, strict=True)
    ]
    return np.roll(padded(scores, target_ids.shape[1]), BOS, axis=-1)


def greedy(model, source_ids, max_extra):
    vocab_size = len(model.table.rows)
    source = own(source_ids[0], vocab_size)
    target = paper.translate(model, source, max_extra)
    return [(i + BOS) % vocab_size for i in target]


def matrix(array):
    return paper.Matrix(np.atleast_2d(array).tolist())


def masked(mask):
    """Minus infinity where a mask (query_len, key_len) is False."""
    return paper.Matrix(np.where(mask, 0.0, -math.inf).tolist())


def attention(query, key, value, mask=None):
    output = np.zeros((*query.shape[:-1], value.shape[-1]))
    for at in np.ndindex(query.shape[:-2]):
        full = (*query.shape[:-1], key.shape[-2])
        hides = (
            masked(np.broadcast_to(mask, full)[at])
            if mask is not None
            else None
        )
        parts = (matrix(each[at]) for each in (query, key, value))
        output[at] = paper.attention(*parts, hides).rows
    return output


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    cut = [np.split(w, h, axis=1) for w in (w_q, w_k, w_v)]
    heads = [[matrix(w) for w in head] for head in zip(*cut, strict=True)]
    output = np.zeros_like(x)
    for i, (one, other) in enumerate(zip(x, memory, strict=True)):
        shape = len(one), len(other)
        hides = (
            masked(np.broadcast_to(mask[i, 0], shape))
            if mask is not None
            else None
        )
        output[i] = paper.multi_head(
            matrix(one), matrix(other), heads, matrix(w_o), hides
        ).rows
    return output


def feed_forward(x, w_1, b_1, w_2, b_2):
    weights = [matrix(w) for w in (w_1, b_1, w_2, b_2)]
    return np.array(
        [paper.feed_forward(matrix(row), *weights).rows for row in x]
    )


def positions(length, d_model):
    return np.array(paper.positions(length, d_model).rows)


def loss(logits, labels, smoothing):
    real = labels != PAD
    scores = matrix(logits[real])
    return paper.smoothed_loss(scores, labels[real].tolist(), smoothing).rows[
        0
    ][0]


def learning_rate(step, d_model, warmup_steps):
    return paper.learning_rate(step, d_model, warmup_steps)
