# Collected from book/architecture/embeddings.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Token embeddings of section 3.4: a table of vectors, looked up."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Embeddings"]


class Embeddings(nn.Module):
    """Vectors for tokens, times sqrt(d_model), section 3.4.

    Maps ids (batch, len) to (batch, len, d_model). `weight`
    (vocab_size, d_model) is drawn with standard deviation
    d_model^-0.5, so that the scaled vectors have components of size
    1. `scale=False` leaves the factor out.

    Raises:
        ValueError: if an id is not in the vocabulary. On a GPU the
            check would cost a wait, so there PyTorch's own error
            speaks.

    Chapter: embeddings-module
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        pad_id: int = 0,
        scale: bool = True,
    ):
        super().__init__()
        self.pad_id = pad_id
        self.factor = d_model**0.5 if scale else 1.0
        table = torch.randn(vocab_size, d_model) * d_model**-0.5
        self.weight = nn.Parameter(table)

    def forward(self, ids: Tensor) -> Tensor:
        if ids.device.type == "cpu" and ids.numel():
            low, high = (int(end) for end in ids.aminmax())
            if low < 0 or high >= len(self.weight):
                raise ValueError(
                    f"token id {low if low < 0 else high} is outside "
                    f"the vocabulary of {len(self.weight)}: encode "
                    "with the tokenizer the model was trained with"
                )
        return F.embedding(ids, self.weight) * self.factor
