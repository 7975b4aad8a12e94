"""The adapter of `transformer_lib` itself."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import transformer_lib as lib
from transformer_lib import (
    BOS,  # noqa: F401
    EOS,  # noqa: F401
    PAD,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    collate,
    smoothed_loss,
)


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return Transformer(
        TransformerConfig(
            vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout
        )
    )


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    return model.encode(source_ids)


def greedy(model, source_ids, max_extra):
    return _best(lib.greedy_decode(model, source_ids, max_extra))


def greedy_batch(model, source_ids, max_extra):
    decoded = lib.greedy_decode(model, source_ids, max_extra)
    return [found[0].ids for found in decoded]


def beam_search(model, source_ids, beam_size, alpha, max_extra):
    return _best(
        lib.beam_search(model, source_ids, beam_size, alpha, max_extra)
    )


def _best(found):
    return found[0][0].ids


def attention(query, key, value, mask=None):
    return lib.scaled_dot_product_attention(query, key, value, mask)


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    module = lib.MultiHeadAttention(x.size(-1), h)
    names = "w_q", "w_k", "w_v", "w_o"
    with torch.no_grad():
        for name, matrix in zip(names, (w_q, w_k, w_v, w_o), strict=True):
            getattr(module, name).weight.copy_(matrix.T)
        results = []
        for training in (True, False):  # the plain way, and the fused one
            module.train(training)
            results.append(module(x, memory, mask))
    torch.testing.assert_close(*results)
    return results[0]


def feed_forward(x, w_1, b_1, w_2, b_2):
    module = lib.FeedForward(*w_1.shape)
    with torch.no_grad():
        module.w_1.weight.copy_(w_1.T)
        module.w_1.bias.copy_(b_1)
        module.w_2.weight.copy_(w_2.T)
        module.w_2.bias.copy_(b_2)
        return module(x)


def positions(length, d_model):
    return lib.sinusoids(length, d_model)


def masks(source_ids, target_ids):
    causal = lib.causal_mask(target_ids.size(1))
    return (
        lib.padding_mask(source_ids),
        lib.padding_mask(target_ids) & causal,
    )


def shift(targets):
    batch = collate([([4, EOS], target) for target in targets])
    return batch.target_ids, batch.labels


def loss(logits, labels, smoothing):
    return smoothed_loss(logits, labels, smoothing) / (labels != PAD).sum()


def learning_rate(step, d_model, warmup_steps):
    return lib.learning_rate(step, d_model, warmup_steps)


def optimizer(model):
    return lib.adam(model)


class _InOrder:
    """Batches in their order, for `train`."""

    def __init__(self, batches: list):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, start: int = 0) -> Iterator:
        return iter(self.batches[start:])


def updates(model, optimizer, groups):
    """`train` itself, with an optimizer of the suite's."""
    batches = [
        lib.Batch(b.source_ids, b.target_ids, b.labels, b.tokens)
        for group in groups
        for b in group
    ]
    settings = TrainingConfig(
        max_steps=len(groups),
        accumulate=len(groups[0]),
        label_smoothing=0.0,
    )
    lib.train(model, _InOrder(batches), settings, optimizer=optimizer)


def average(states):
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, state in enumerate(states, 1):
            model = nn.ParameterDict(state)
            optimizer = torch.optim.SGD(model.parameters())
            step = {"step": number}
            file = lib.save_checkpoint(Path(folder), model, optimizer, step)
            files.append(file)
        return lib.average_checkpoints(files)
