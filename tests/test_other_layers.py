"""Recurrence and convolution by the Transformer's rules."""

import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_book.other_layers import (
    AdditiveAttention,
    ConvolutionInPlace,
    RecurrenceInPlace,
    initialize,
    swapped,
)
from transformer_book.records import load_counts
from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.model import Transformer, TransformerConfig


@pytest.mark.parametrize("kind", [ConvolutionInPlace, RecurrenceInPlace])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_swap_changes_one_place_and_nothing_else(kind, stack):
    """In every layer of one stack; names and shapes say the rest."""
    config = TransformerConfig(14, N=2, d_model=16, d_ff=12, h=4)
    model = swapped(config, stack=stack, kind=kind)
    shapes = [
        {name: w.shape for name, w in each.named_parameters()}
        for each in (Transformer(config), model)
    ]
    ours = re.compile(rf"{stack}\.layers\.\d\.self_attention\.")
    rest = [
        {name: x for name, x in each.items() if not ours.match(name)}
        for each in shapes
    ]
    assert rest[0] == rest[1] and shapes[0] != shapes[1]
    layers = getattr(model, stack).layers
    assert [type(layer.self_attention) for layer in layers] == [kind] * 2


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_additive_attention_is_its_equation(training):
    attend = AdditiveAttention(6, 8).train(training)
    x, memory = torch.randn(3, 4, 6), torch.randn(3, 20, 8)
    lengths = (5, 20, 3)
    mask = torch.arange(20) < torch.tensor(lengths)[:, None, None, None]
    w_q, b, w_k, v = attend.parameters()
    for hidden, sizes in ((mask, lengths), (None, (20, 20, 20))):
        found = attend(x, memory, hidden)
        for row, length in enumerate(sizes):
            for at in range(4):
                q = w_q @ x[row, at] + b
                scores = [
                    (v[0] * (q + w_k @ k).tanh()).sum()
                    for k in memory[row, :length]
                ]
                weights = torch.stack(scores).softmax(0)
                wanted = weights @ memory[row, :length]
                torch.testing.assert_close(found[row, at], wanted)


def cost(function):
    """Multiplications and additions, and the numbers that are kept."""
    sizes = {}

    def pack(tensor):
        sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, id):
        function()
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops(), sum(sizes.values())


def test_additive_attention_multiplies_as_much_and_keeps_more():
    """Section 3.2.1: alike on paper, but a vector for every pair.

    How long both take is in `runs/additive.json`.
    """
    for n, d in ((50, 32), (16, 64), (64, 64), (256, 64)):
        attend, x = AdditiveAttention(d, d), torch.randn(2, n, d)
        mask = torch.ones(2, 1, 1, n).bool()

        def dot_product(attend=attend, x=x, mask=mask):
            query, key = attend.from_query(x), attend.from_key(x)
            found = scaled_dot_product_attention(query, key, x, mask[:, 0])
            return found[0]

        additive = partial(attend, x, x, mask)
        multiplied, kept = zip(cost(additive), cost(dot_product), strict=True)
        assert multiplied[0] == multiplied[1]
        assert kept[0] - kept[1] > n * n * d
        assert kept[0] > 2 * n * n * d and (n < 50 or kept[0] > 5 * kept[1])
    measured = load_counts("additive")["rows"]
    assert {row["n"] for row in measured} == {16, 64, 256}
    for row in measured:
        assert row["time"] >= row["least"] > 1 and row["kept"] > 1


def test_each_gate_and_each_window_has_its_own_range():
    torch.manual_seed(0)
    gru = nn.GRU(60, 90)
    initialize(gru, "xavier")
    for weight, inputs in ((gru.weight_ih_l0, 60), (gru.weight_hh_l0, 90)):
        for gate in weight.chunk(3):
            bound = (6 / (inputs + 90)) ** 0.5
            assert 0.99 * bound < gate.abs().max() <= bound
    assert not gru.bias_ih_l0.any() and not gru.bias_hh_l0.any()
    window = nn.Conv1d(40, 80, 3)
    initialize(window, "xavier")
    bound = (6 / (3 * 40 + 3 * 80)) ** 0.5
    assert 0.99 * bound < window.weight.abs().max() <= bound
    assert not window.bias.any()
