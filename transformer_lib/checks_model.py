# Collected from book/back/checks_model.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: attention, layers, model, layer types."""

import torch

from transformer_lib.attention import MultiHeadAttention, attention
from transformer_lib.exercises import exercise
from transformer_lib.layer_types import table_1
from transformer_lib.layers import FeedForward
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
    parameter_count,
)

__all__ = [
    "attention_causal",
    "attention_mirror",
    "attention_shared_keys",
    "layer_types_cheapest",
    "layer_types_layers_needed",
    "layer_types_look_back",
    "layers_both",
    "layers_layer_norm",
    "layers_merge",
    "model_budget",
    "model_share",
    "model_untie",
]


@exercise("attention.causal")
def attention_causal(answer):
    """Attention that looks at itself and at what stands before.

    Chapter: checks-attention
    """
    query, key, value = torch.randn(3, 2, 2, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    right, _ = attention(query, key, value, mask)
    got = answer(query, key, value)
    assert isinstance(got, torch.Tensor), "return the output alone"
    assert torch.allclose(got[:, :, 0], value[:, :, 0], atol=1e-5), (
        "position 0 sees itself alone, so its output is its own value"
    )
    last = torch.allclose(got[:, :, -1], right[:, :, -1], atol=1e-5)
    assert last, (
        "the last one sees all: is its output scaled as in eq. 1?"
    )
    assert torch.allclose(got, right, atol=1e-5), (
        "a position between the ends sees too much or too little"
    )


@exercise("attention.shared_keys")
def attention_shared_keys(answer):
    """Heads with own queries, and one key and value for all.

    Chapter: checks-attention
    """
    shared, full = answer(12, 3), MultiHeadAttention(12, 3)
    size = tuple(shared.w_k.weight.shape)
    assert size == (4, 12), (
        f"the matrix w_k maps 12 to d_k = 4, not {size}"
    )
    with torch.no_grad():
        for name, heads in (("q", 1), ("k", 3), ("v", 3), ("o", 1)):
            weight = getattr(shared, f"w_{name}").weight
            getattr(full, f"w_{name}").weight.copy_(
                weight.repeat(heads, 1)
            )
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    assert torch.allclose(
        shared(x, memory), full(x, memory), atol=1e-5
    ), "it must equal h heads whose w_k and w_v are copies of one"


@exercise("attention.mirror")
def attention_mirror(answer):
    """Queries and keys of width 2 that look at the mirror place.

    Chapter: checks-attention
    """
    query, key = answer(16)
    assert query.shape == key.shape and len(key) == 16, (
        f"both are (16, d_k), yours {query.shape} and {key.shape}"
    )
    weights = attention(query, key, key)[1]
    least = weights.flip(1).diagonal().min().item()
    assert least > 0.9, (
        f"a position gives its mirror image {least:.2f}: sharpen it"
    )
    assert key.size(1) <= 2, (
        f"a width of 2 is enough, yours is {key.size(1)}"
    )


@exercise("layers.layer_norm")
def layers_layer_norm(answer):
    """Layer normalization from means and roots.

    Chapter: checks-layers
    """
    gain, offset = torch.rand(2, 8)
    for size in (3.0, 0.03):  # small numbers make eps visible
        x = size * (1 + torch.randn(2, 4, 8))
        right = torch.nn.functional.layer_norm(
            x, (8,), gain, offset, 1e-3
        )
        off = (answer(x, gain, offset, 1e-3) - right).abs().max()
        assert off < 1e-3, (
            f"numbers of size {size}: off by up to {off:.3f}. Is the "
            "mean over the last axis, does the variance divide by d, "
            "is eps added under the root?"
        )


@exercise("layers.both")
def layers_both(answer):
    """A residual with a norm before and after its sub-layer.

    Chapter: checks-layers
    """
    both, x = answer(8), 5 * torch.randn(2, 4, 8)
    same = both(x, torch.zeros_like)
    assert torch.allclose(same, x, atol=1e-5), (
        "a sub-layer that gives 0 must leave x as it is: keep norms "
        "off the path"
    )
    with torch.no_grad():
        both.norm_in.weight.mul_(2)
    right = x + both.norm_out(both.norm_in(x).exp())
    assert torch.allclose(both(x, torch.exp), right, atol=1e-5), (
        "the sub-layer sees norm_in(x), and norm_out sees its answer"
    )


@exercise("layers.merge")
def layers_merge(answer):
    """One linear layer for a feed-forward network without ReLU.

    Chapter: checks-layers
    """
    network, x = FeedForward(6, 10), torch.randn(3, 6)
    merged, right = answer(network), network.w_2(network.w_1(x))
    size = tuple(merged.weight.shape)
    assert size == (6, 6), f"d_model to d_model is (6, 6), not {size}"
    slope = merged(x) - merged(x.flip(0))
    assert torch.allclose(slope, right - right.flip(0), atol=1e-5), (
        "the matrix is wrong: nn.Linear multiplies by weight.T"
    )
    assert torch.allclose(merged(x), right, atol=1e-5), (
        "the offset is wrong: b_1 passes W_2 too, and b_2 is added"
    )


@exercise("model.share")
def model_share(answer):
    """The feed-forward networks' share of a model's parameters.

    Chapter: checks-model
    """
    for config in (
        TransformerConfig(100, N=3, d_model=8, d_ff=24, h=2),
        TransformerConfig.base(37_000, norm="pre", tie="none"),
    ):
        count = parameter_count(config)
        both = [n for k, n in count.items() if "feed-forward" in k]
        want, got = sum(both) / count["total"], answer(config)
        hint = "count both stacks, and divide by the total"
        assert abs(got - want) < 1e-9, (
            f"{got}, not {want:.4f}: {hint}"
        )


@exercise("model.untie")
def model_untie(answer):
    """A model with three matrices of its own and the same logits.

    Chapter: checks-model
    """
    sizes = dict(N=1, d_model=8, d_ff=8, h=2)
    model = Transformer(TransformerConfig(9, **sizes)).eval()
    free, ids = answer(model).eval(), torch.tensor([[5, 6, 3]])
    three = [
        free.source_embedding.weight,
        free.target_embedding.weight,
    ]
    places = {w.data_ptr() for w in [*three, free.output_weight]}
    assert len(places) == 3, (
        f"{len(places)} matrices in memory, not 3"
    )
    home = model.output_weight.data_ptr()
    assert home not in places, (
        "the old matrix is shared: copy the values"
    )
    same = torch.equal(free(ids, ids), model(ids, ids))
    assert same, "other logits: load all the old weights"
    kept = model.source_embedding.weight is model.output_weight
    assert kept, "the model you were given is no longer tied"


@exercise("model.budget")
def model_budget(answer):
    """Other depths at the parameters of the tiny model.

    Chapter: checks-model
    """
    want = parameter_count(TransformerConfig.tiny(500))["total"]
    for depth in (1, 2, 4, 8):
        config = answer(depth)
        assert config.N == depth, (
            f"asked for N={depth}, got {config.N}"
        )
        assert config.vocab_size == 500, "keep the vocabulary at 500"
        off = parameter_count(config)["total"] / want - 1
        assert abs(off) < 0.02, (
            f"N={depth} is {off:+.1%} off the budget"
        )


@exercise("layer_types.cheapest")
def layer_types_cheapest(answer):
    """The layer type with the fewest operations in table 1.

    Chapter: checks-layer-types
    """
    for sizes in (
        (30, 512, 3, 64),
        (9000, 512, 3, 64),
        (9, 8, 3, 99),
    ):
        rows, got = table_1(*sizes), answer(*sizes)
        assert got in rows, f"{got!r} is no row of table_1"
        want = min(rows, key=lambda name: rows[name][0])
        assert rows[got][0] == rows[want][0], (
            f"n, d, k, r = {sizes}: {got} takes {rows[got][0]:,} "
            f"operations, {want} {rows[want][0]:,}"
        )


@exercise("layer_types.look_back")
def layer_types_look_back(answer):
    """Attention to oneself and the r - 1 positions before.

    Chapter: checks-layer-types
    """
    for n, r in ((7, 3), (8, 4), (5, 1), (4, 9)):
        q, k, v = torch.randn(3, 2, n, 4).unbind(0)
        far = torch.arange(n)[:, None] - torch.arange(n)
        want, _ = attention(q, k, v, (far >= 0) & (far < r))
        got = answer(q, k, v, r)
        assert got.shape == want.shape, f"{n=}, shape {got.shape}"
        wrong = ~torch.isclose(got, want, atol=1e-5).all(-1).all(0)
        assert not wrong.any(), (
            f"{n=}, {r=}: positions {wrong.nonzero()[:, 0].tolist()}"
            " see too much or too little: from 0 to r - 1 back"
        )


@exercise("layer_types.layers_needed")
def layer_types_layers_needed(answer):
    """How many dilated layers join the first position to the last.

    Chapter: checks-layer-types
    """
    for k in (2, 3, 5, 10):
        for n in (1, 2, k, k + 1, k**3, k**3 + 1, k**5):
            want = next(i for i in range(99) if k**i >= n)
            got = answer(n, k)
            assert got == want, (
                f"{n=}, {k=}: {want} layers, not {got}"
            )
