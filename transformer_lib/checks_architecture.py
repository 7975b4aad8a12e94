# Collected from book/back/checks_architecture.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks of the exercises on sections 1 to 4 of the paper."""

import torch

from transformer_lib.attention import MultiHeadAttention, attention
from transformer_lib.exercises import exercise
from transformer_lib.positions import sinusoids

__all__ = [
    "attention_causal",
    "attention_mirror",
    "attention_shared_keys",
    "background_dilated",
    "background_reach",
    "exercises_softmax",
    "masks_decoder",
    "masks_recent",
    "model_budget",
    "model_share",
    "model_untie",
    "positions_back",
    "positions_encoding",
]


@exercise("background.reach")
def background_reach(answer):
    """How far back a stack of convolutions sees.

    Chapter: checks-background
    """
    assert answer(3, 1) == 2, (
        f"one layer of width 3 sees 2 words back, you say {answer(3, 1)}"
    )
    assert answer(3, 4) == 8, (
        "each layer adds k - 1 words: four layers of width 3 see 8, "
        f"you say {answer(3, 4)}"
    )
    assert answer(9, 2) == 16, (
        f"k=9, 2 layers: {answer(9, 2)} is not 16"
    )


@exercise("background.dilated")
def background_dilated(answer):
    """Layers that dilated convolutions need for a distance.

    Chapter: checks-background
    """
    for k, distance, layers in (
        (3, 1, 1),
        (3, 2, 1),
        (3, 3, 2),
        (3, 8, 2),
        (3, 64, 4),
        (2, 7, 3),
    ):
        found = answer(k, distance)
        assert found == layers, (
            f"k={k}, distance {distance}: {layers} layers reach "
            f"{k**layers - 1} words back, you say {found}"
        )


@exercise("positions.encoding")
def positions_encoding(answer):
    """One number of the sinusoidal encoding.

    Chapter: checks-positions
    """
    table = sinusoids(50, 32)
    assert abs(answer(0, 0, 32)) < 1e-6, (
        "position 0 begins with sin 0"
    )
    assert abs(answer(0, 1, 32) - 1) < 1e-6, (
        "odd dimensions are cosines: at position 0 they are 1"
    )
    for pos, j in ((3, 6), (3, 7), (40, 30), (40, 31)):
        assert (
            abs(answer(pos, j, 32) - float(table[pos, j])) < 1e-5
        ), (
            f"PE({pos}, {j}) should be {table[pos, j]:.4f}: the sine "
            "and the cosine of a pair share one frequency"
        )


@exercise("positions.back")
def positions_back(answer):
    """The matrix that moves an encoding k places back.

    Chapter: checks-positions
    """
    table = sinusoids(30, 16)
    for k in (1, 4):
        matrix = torch.as_tensor(answer(k, 16)).float()
        assert matrix.shape == (16, 16), "it maps d_model to d_model"
        moved = table[10 + k] @ matrix.T
        assert not torch.allclose(
            moved, table[10 + 2 * k], atol=1e-3
        ), "it moves forward: turn the other way"
        assert torch.allclose(moved, table[10], atol=1e-3), (
            f"it does not take PE({10 + k}) to PE(10)"
        )


@exercise("masks.decoder")
def masks_decoder(answer):
    """A mask (batch, 1, len, len) without future and padding.

    Chapter: checks-masks
    """
    ids = torch.tensor([[2, 5, 6, 7], [2, 5, 0, 0]])
    mask = answer(ids)
    assert mask.dtype == torch.bool, (
        f"a mask is boolean, yours is {mask.dtype}"
    )
    assert mask.shape == (2, 1, 4, 4), (
        f"the shape should be (2, 1, 4, 4), it is {tuple(mask.shape)}"
    )
    assert not mask[0, 0].triu(1).any(), (
        "a position can look to its right: where is the triangle?"
    )
    assert not mask[1, 0, :, 2:].any(), "padding can be looked at"
    assert torch.equal(mask[0, 0], torch.ones(4, 4).tril().bool()), (
        "something that should be open is closed: True means may attend"
    )


@exercise("masks.recent")
def masks_recent(answer):
    """A causal mask that reaches back `width` positions.

    Chapter: checks-masks
    """
    mask = answer(5, 2)
    assert mask.shape == (1, 1, 5, 5), (
        f"the shape should be (1, 1, 5, 5), it is {tuple(mask.shape)}"
    )
    assert not mask[0, 0].triu(1).any(), "it looks into the future"
    assert mask[0, 0].diagonal().all(), "a position may see itself"
    reach = mask[0, 0, 4].sum()
    assert reach == 2, (
        f"with width 2 the last query sees {reach} keys, not 2"
    )


@exercise("attention.causal")
def attention_causal(answer):
    """Attention in which each position sees itself and those before.

    Chapter: checks-attention
    """
    query, key, value = torch.randn(3, 2, 2, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    got, right = (
        answer(query, key, value),
        attention(query, key, value, mask)[0],
    )
    assert isinstance(got, torch.Tensor), "return the output alone"
    assert torch.allclose(got[:, :, 0], value[:, :, 0], atol=1e-5), (
        "position 0 sees itself alone, so its output is its own value"
    )
    assert torch.allclose(
        got[:, :, -1], right[:, :, -1], atol=1e-5
    ), "the last position sees all: is its output scaled as in eq. 1?"
    assert torch.allclose(got, right, atol=1e-5), (
        "a position between first and last sees too much or too little"
    )


@exercise("attention.shared_keys")
def attention_shared_keys(answer):
    """Heads with queries of their own and one key and value for all.

    Chapter: checks-attention
    """
    shared, full = answer(12, 3), MultiHeadAttention(12, 3)
    size = tuple(shared.w_k.weight.shape)
    assert size == (4, 12), (
        f"w_k maps 12 numbers to d_k = 4, not {size}"
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
    """A query and key of width 2 by which 16 positions see their mirror.

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
        f"d_k = 2 is enough, yours is {key.size(1)}"
    )


@exercise("model.share")
def model_share(answer):
    """The feed-forward networks' share of a model's parameters.

    Chapter: checks-model
    """
    from transformer_lib.model import (
        TransformerConfig,
        parameter_count,
    )

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
    from transformer_lib.model import Transformer, TransformerConfig

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
    from transformer_lib.model import (
        TransformerConfig,
        parameter_count,
    )

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


def _verdict(test, candidate) -> bool:
    """Whether a learner's own test lets a candidate pass."""
    try:
        test(candidate)
    except AssertionError:
        return False
    return True


@exercise("exercises.softmax")
def exercises_softmax(answer):
    """A check that tells a softmax over the last axis from others.

    Chapter: checks-exercises
    """
    assert _verdict(answer, lambda x: torch.softmax(x, -1)), (
        "your check refuses torch's own softmax over the last axis"
    )
    assert not _verdict(answer, torch.exp), (
        "your check lets exp(x) pass: what must each row sum to?"
    )
    assert not _verdict(answer, lambda x: x / x.sum(-1, True)), (
        "your check lets x / x.sum() pass: can a weight be negative?"
    )
    assert not _verdict(answer, lambda x: torch.softmax(x, 0)), (
        "your check lets a softmax over the first axis pass: try it "
        "on a matrix that is not square"
    )
