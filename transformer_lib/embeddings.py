# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""Token embeddings of section 3.4: a table of vectors, looked up.

Chapter: book/architecture/embeddings
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD, UNK, BOS, EOS = 0, 1, 2, 3


class Embeddings(nn.Module):
    """Vectors for tokens, times sqrt(d_model), section 3.4.

    Maps ids (batch, len) to (batch, len, d_model). `weight`
    (vocab_size, d_model) is initialized with standard deviation
    d_model^-0.5, so that the scaled vectors have components of size
    1. `scale=False` omits the factor.

    Chapter: embeddings-module
    """

    def __init__(self, vocab_size: int, d_model: int, scale: bool = True):
        super().__init__()
        self.factor = d_model**0.5 if scale else 1.0
        table = torch.randn(vocab_size, d_model) * d_model**-0.5
        self.weight = nn.Parameter(table)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, len) to (batch, len, d_model)."""
        return F.embedding(ids, self.weight) * self.factor
