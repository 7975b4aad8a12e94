"""The book's NumPy specimen; its weights come from the library."""

import numpy as np
import torch

from transformer_book.specimen import (
    BOS,  # noqa: F401
    EOS,  # noqa: F401
    PAD,  # noqa: F401
    Specimen,
    attention,  # noqa: F401
    feed_forward,  # noqa: F401
    masks,  # noqa: F401
    multi_head,  # noqa: F401
    positions,  # noqa: F401
)
from transformer_lib import Transformer, TransformerConfig

ARRAYS = "numpy"


def build(vocab_size, N, d_model, d_ff, h, dropout):
    torch.manual_seed(int(np.random.randint(2**31)))
    config = TransformerConfig(
        vocab_size, N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout
    )
    weights = {
        name: 2 * weight.numpy() if "w_" in name else weight.numpy()
        for name, weight in Transformer(config).state_dict().items()
    }
    return Specimen(weights, h)


def logits(model, source_ids, target_ids):
    return model.logits(source_ids, target_ids)


def encode(model, source_ids):
    return model.encode(source_ids)


def greedy(model, source_ids, max_extra):
    return model.greedy(source_ids, max_extra)[0]
