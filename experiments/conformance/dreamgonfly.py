"""dreamgonfly/transformer-pytorch."""

import numpy as np
import torch
from sources import use

np.float = float  # gone from NumPy since
use("dreamgonfly")
import models  # noqa: E402
from embeddings import PositionalEncoding  # noqa: E402
from losses import LabelSmoothingLoss  # noqa: E402
from optimizers import NoamOptimizer  # noqa: E402
from utils.pad import pad_masking  # noqa: E402

PAD, BOS, EOS = 0, 2, 3
_future = models.subsequent_masking
# PyTorch no longer takes masks of bytes.
models.subsequent_masking = lambda ids: _future(ids).bool()


def build(vocab_size, N, d_model, d_ff, h, dropout):
    config = dict(
        positional_encoding=True,
        d_model=d_model,
        layers_count=N,
        heads_count=h,
        d_ff=d_ff,
        dropout_prob=dropout,
    )
    return models.build_model(config, vocab_size, vocab_size)


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    mask = pad_masking(source_ids, source_ids.size(1))
    return model.encoder(source_ids, mask)


def positions(length, d_model):
    return PositionalEncoding(9, d_model, d_model, max_len=length).pe[0]


def loss(logits, labels, smoothing):
    if not smoothing:
        raise NotImplementedError("their smoothing must be above 0")
    criterion = LabelSmoothingLoss(smoothing, logits.size(-1), PAD)
    total, count = criterion(logits, labels)
    return total / count


def learning_rate(step, d_model, warmup_steps):
    weight = torch.nn.Parameter(torch.zeros(1))
    schedule = NoamOptimizer([weight], d_model, warmup_steps=warmup_steps)
    schedule.step_num = step
    return schedule.lrate()
