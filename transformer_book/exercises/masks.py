"""The check of the chapter on masks."""

from typing import Any

import torch

from transformer_book.exercises import exercise
from transformer_lib.masks import (
    causal_mask,
    padding_mask,
)


@exercise("masks.masks")
def masks(answer: Any) -> None:
    """The padding mask of a source and the mask of a decoder."""
    source = torch.randint(4, 9, (2, 5))
    source[1, 3:] = 0
    target = torch.randint(4, 9, (2, 4))
    target[0, 2:] = 0
    wanted = {
        "padding": padding_mask(source),
        "decoder": padding_mask(target) & causal_mask(target.size(1)),
    }
    open_future = padding_mask(target).expand(2, 1, 4, 4)
    for mine, (name, right) in zip(
        answer(source, target), wanted.items(), strict=True
    ):
        shape = tuple(mine.shape)
        assert mine.dtype == torch.bool, (
            f"the {name} mask is {mine.dtype}: a mask is boolean"
        )
        assert shape == tuple(right.shape), (
            f"the {name} mask is {shape}, not {tuple(right.shape)}: "
            "batch, head, query, key"
        )
        assert not torch.equal(mine, ~right), (
            f"the {name} mask says the opposite: True means may attend"
        )
        if name == "decoder":
            assert not torch.equal(mine, open_future), (
                "the decoder's mask leaves the future open"
            )
            assert mine.diagonal(dim1=2, dim2=3)[0, 0, :2].all(), (
                "a position may look at itself, the diagonal is open"
            )
            assert not torch.equal(mine[0], right[1]), (
                "the decoder's mask leaves padding open"
            )
            keys = padding_mask(target)
            for turned in right.mT, causal_mask(4).mT & keys:
                assert not torch.equal(mine, turned), (
                    "queries and keys have changed places: each row "
                    "must be open up to its own column"
                )
        assert torch.equal(mine, right), (
            f"a row of the first {name} mask is wrong; right would be\n"
            f"{right[0, 0].int().tolist()}"
        )
