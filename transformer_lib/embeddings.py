# Collected from book/architecture/embeddings.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Token embeddings of section 3.4: a table of vectors, looked up."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Embeddings"]


class Embeddings(nn.Module):
    """Vectors for tokens, times sqrt(d_model), section 3.4.

    The table is drawn from N(0, d_model^-0.5), so that the scaled
    vectors have components of size 1.

    Raises:
        ValueError: if an id is not in the vocabulary (on a CPU).

    Chapter: embeddings
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
        # (batch, len) -> (batch, len, d_model)
        if ids.device.type == "cpu" and ids.numel():
            low, high = (int(end) for end in ids.aminmax())
            if low < 0 or high >= len(self.weight):
                wrong = low if low < 0 else high
                raise ValueError(
                    f"token id {wrong} is outside the vocabulary of "
                    f"{len(self.weight)}: encode the text with the "
                    "tokenizer that the model was trained with"
                )
        return F.embedding(ids, self.weight) * self.factor
