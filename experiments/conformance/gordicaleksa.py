"""gordicaleksa/pytorch-original-transformer."""

import torch
from sources import use

use("gordicaleksa")
from models.definitions.transformer_model import (  # noqa: E402
    PositionalEncoding,
    Transformer,
)
from utils.optimizers_and_distributions import (  # noqa: E402
    CustomLRAdamOptimizer,
    LabelSmoothingDistribution,
)

PAD, BOS, EOS = 1, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return Transformer(d_model, vocab_size, vocab_size, h, N, dropout)


def logits(model, source_ids, target_ids):
    length = target_ids.size(1)
    future = torch.triu(torch.ones(1, 1, length, length) == 1).transpose(2, 3)
    source = (source_ids != PAD).view(len(source_ids), 1, 1, -1)
    target = (target_ids != PAD).view(len(source_ids), 1, 1, -1) & future
    return model(source_ids, target_ids, source, target).view(
        *target_ids.shape, -1
    )


def encode(model, source_ids):
    mask = (source_ids != PAD).view(len(source_ids), 1, 1, -1)
    return model.encode(source_ids, mask)


def positions(length, d_model):
    table = PositionalEncoding(d_model, 0.0).positional_encodings_table
    return table[:length]


def loss(logits, labels, smoothing):
    size = logits.size(-1)
    targets = LabelSmoothingDistribution(smoothing, PAD, size, "cpu")
    logs = logits.log_softmax(-1).reshape(-1, size)
    divergence = torch.nn.KLDivLoss(reduction="batchmean")
    return divergence(logs, targets(labels.reshape(-1, 1)))


def learning_rate(step, d_model, warmup_steps):
    schedule = CustomLRAdamOptimizer(None, d_model, warmup_steps)
    schedule.current_step_number = step
    return schedule.get_current_learning_rate()
