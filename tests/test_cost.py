"""What training costs: our count against PyTorch's own counter."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.batching import Batch, collate
from transformer_lib.cost import (
    batch_lengths,
    forward_operations,
    operations_by_time,
    sentence_batches,
    synthetic_pairs,
    training_operations,
)
from transformer_lib.loss import accumulate_gradients
from transformer_lib.model import Transformer, TransformerConfig

TINY = TransformerConfig(50, N=2, d_model=16, d_ff=24, h=4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"h": 2, "d_k": 4, "d_v": 10}, {"N": 1}, {"tie": "none"}],
)
@pytest.mark.parametrize("lengths", [(5, 7), (6, 3)])
def test_counts_what_torch_counts(changes, lengths):
    config = replace(TINY, **changes)
    model = Transformer(config).train()
    n, m = lengths
    source, target = (torch.randint(4, 50, (1, x)) for x in lengths)
    parts = forward_operations(config, n, m)
    with FlopCounterMode(display=False) as counter:
        model(source, target)
    assert counter.get_total_flops() == sum(parts.values())
    batch = Batch(source, target, target)
    with FlopCounterMode(display=False) as counter:
        accumulate_gradients(model, [batch], torch.ones(1))
    found = counter.get_total_flops()
    assert found == training_operations(config, [lengths])


def test_base_needs_as_much_as_its_weights_say():
    """Long batches: 6 FLOPs a weight and token, and attention."""
    base = TransformerConfig.base(37_000)
    parts = forward_operations(base, 1, 1)
    encoder = parts["encoder self-attention"]
    assert encoder == 2 * 6 * (4 * 512**2 + 2 * 512)
    assert parts["projection to pieces"] == 2 * 512 * 37_000


@pytest.mark.parametrize(
    "days, printed", [(0.5, "3.3e+18"), (3.5, "2.3e+19")]
)
def test_table_2_is_time_times_cards_times_speed(days, printed):
    assert f"{operations_by_time(days * 86_400):.1e}" == printed


def test_synthetic_lengths():
    pairs = synthetic_pairs(4000, 500)
    assert pairs == synthetic_pairs(4000, 500)
    lengths = torch.tensor([[len(a), len(b)] for a, b in pairs])
    lengths = lengths.double()
    assert 27 < lengths[:, 0].mean() < 32
    assert 23 < lengths[:, 0].median() < 27
    assert torch.corrcoef(lengths.T)[0, 1] > 0.9
    assert lengths.max() <= 200 and lengths.min() >= 2
    for side in (side for pair in pairs for side in pair):
        assert side[-1] == 3 and 4 <= min(side[:-1]) < 500


def test_sentence_batches_hold_all_and_are_unsorted():
    pairs = synthetic_pairs(50, 100)
    batches = sentence_batches(pairs, 8)
    assert sum(len(batch.labels) for batch in batches) == 50
    lengths = batch_lengths(batches)
    assert sorted(lengths) == sorted(
        (len(source), len(target)) for source, target in pairs
    )
    assert lengths != sorted(lengths)


def test_lengths_leave_out_padding():
    batch = collate([([5, 3], [6, 7, 3]), ([5, 6, 7, 3], [3])])
    assert batch_lengths([batch]) == [(2, 3), (4, 1)]
