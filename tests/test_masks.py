"""Masks: shapes, who sees whom, and what padding can reach."""

import pytest
import torch

from transformer_lib.masks import (
    causal_mask,
    decoder_mask,
    neighbourhood_mask,
    padding_mask,
)

IDS = torch.tensor([[2, 5, 6, 7], [2, 5, 0, 0]])


def test_padding_mask_closes_padding():
    mask = padding_mask(IDS)
    assert mask.shape == (2, 1, 1, 4) and mask.dtype == torch.bool
    assert mask[1, 0, 0].tolist() == [True, True, False, False]
    assert padding_mask(IDS, pad_id=7)[0, 0, 0].tolist() == [
        True,
        True,
        True,
        False,
    ]


def test_causal_mask_is_a_triangle():
    mask = causal_mask(3)
    assert mask.shape == (1, 1, 3, 3) and mask.dtype == torch.bool
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


def test_decoder_mask_is_both():
    mask = decoder_mask(IDS)
    assert mask.shape == (2, 1, 4, 4)
    assert torch.equal(mask[0, 0], causal_mask(4)[0, 0])
    assert mask[1, 0].int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
    ]


@pytest.mark.parametrize("r, seen", [(1, 1), (3, 3), (5, 5), (99, 9)])
def test_neighbourhood(r, seen):
    mask = neighbourhood_mask(9, r)
    assert mask.shape == (1, 1, 9, 9)
    assert mask[0, 0, 4].sum() == seen
    assert torch.equal(mask, mask.mT)


def test_empty_neighbourhood_is_refused():
    with pytest.raises(ValueError, match="r=0 is empty"):
        neighbourhood_mask(4, 0)


@pytest.mark.parametrize("r", [2, 4, 16])
def test_a_neighbourhood_without_a_middle_is_refused(r):
    with pytest.raises(ValueError, match=f"take {r - 1} or {r + 1}"):
        neighbourhood_mask(9, r)
