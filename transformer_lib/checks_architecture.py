# Collected from book/back/checks_architecture.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks of the exercises from embeddings to masks."""

import torch

from transformer_lib.exercises import exercise
from transformer_lib.positions import sinusoids

__all__ = [
    "embeddings_gradient",
    "embeddings_mixing",
    "embeddings_nearest",
    "embeddings_one_hot",
    "masks_decoder",
    "masks_packed",
    "masks_packed_places",
    "masks_recent",
    "positions_back",
    "positions_closest",
    "positions_encoding",
]


@exercise("embeddings.one_hot")
def embeddings_one_hot(answer):
    """Scaled embeddings by a matrix product.

    Chapter: checks-embeddings
    """
    table = torch.arange(24.0).reshape(6, 4)
    ids = torch.tensor([[1, 5], [0, 2]])
    found = answer(ids, table)
    assert found.shape == (2, 2, 4), (
        f"the shape should be (2, 2, 4), it is {tuple(found.shape)}"
    )
    assert not torch.allclose(found, table[ids]), (
        "the rows are right; the factor sqrt(d_model) is missing"
    )
    assert torch.allclose(found, table[ids] * 2), (
        "these are not the table's rows times sqrt(4)"
    )


@exercise("embeddings.nearest")
def embeddings_nearest(answer):
    """Nearest tokens by cosine.

    Chapter: checks-embeddings
    """
    angle = torch.tensor([0.0, 0.1, 0.3, 2.0])
    table = torch.stack([angle.cos(), angle.sin()], dim=1)
    table[3] *= 100  # long, but pointing elsewhere
    found = list(map(int, answer(table, 0, 2)))
    assert 0 not in found, "leave the token itself out"
    assert 3 not in found, (
        "a long vector won: compare directions, not dot products"
    )
    assert found == [1, 2], (
        f"wanted [1, 2], nearest first; got {found}"
    )


@exercise("embeddings.gradient")
def embeddings_gradient(answer):
    """The gradient of a table that was looked up.

    Chapter: checks-embeddings
    """
    ids = torch.tensor([[1, 4], [4, 0]])
    upstream = torch.randn(2, 2, 3)
    table = torch.zeros(6, 3, requires_grad=True)
    table[ids].backward(upstream)
    found = answer(ids, upstream, 6)
    assert found.shape == (6, 3), (
        f"it is {tuple(found.shape)}, not (6, 3)"
    )
    assert not found[[2, 3, 5]].any(), (
        "tokens not looked up get zeros"
    )
    assert torch.allclose(found[4], table.grad[4]), (
        "token 4 stands twice: its row gets the sum of both gradients"
    )
    assert torch.allclose(found, table.grad), "some rows are mixed up"


@exercise("embeddings.mixing")
def embeddings_mixing(answer):
    """How often a row's nearest rows belong to its own group.

    Chapter: checks-embeddings
    """
    angle = torch.tensor([0.0, 0.1, 0.3, 1.2, 1.3, 1.5])
    rows = torch.stack([angle.cos(), angle.sin()], dim=1)
    rows[3] *= 100  # long, but pointing elsewhere
    cases = ([0, 0, 0, 1, 1, 1], 2, 1), ([0, 0, 1, 1, 1, 0], 1, 2 / 3)
    for group, k, right in cases:
        got = float(answer(rows, group, k))
        assert got <= 1, f"a share is at most 1, not {got:.2f}"
        assert abs(got - right) < 1e-6, (
            f"groups {group}, {k=}: {right:.2f}, not {got:.2f}. By "
            "cosine? Is a row left out of its own neighbours?"
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


@exercise("positions.closest")
def positions_closest(answer):
    """The largest cosine between two different places.

    Chapter: checks-positions
    """
    for base, length in (10_000, 20), (100, 20), (1, 45):
        turn = base ** -(torch.arange(0, 8, 2) / 8.0)
        angle = torch.arange(length)[:, None] * turn
        alike = (angle[:, None] - angle).cos().mean(-1)
        right = alike.fill_diagonal_(-1).max().item()
        got = float(answer(base, 8, length))
        assert got < 1.001, (
            f"a cosine is at most 1, not {got:.1f}: the dot product "
            "over d_model / 2"
        )
        assert got < 0.999 or right > 0.999, (
            "a place is as near to itself as can be: leave it out"
        )
        assert abs(got - right) < 1e-3, (
            f"base {base}, {length} places: {right:.3f}, not "
            f"{got:.3f}. Are all pairs compared, not only neighbours?"
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
        "something open is closed here: True means may attend"
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


@exercise("masks.packed")
def masks_packed(answer):
    """Keeps several sentences in one row apart.

    Chapter: checks-masks
    """
    sentence = torch.tensor([[1, 1, 2, 2, 2], [1, 2, 3, 3, 3]])
    same = sentence[:, :, None] == sentence[:, None, :]
    for causal in (False, True):
        mask = answer(sentence, causal)
        assert mask.shape == (2, 1, 5, 5), (
            f"it is {tuple(mask.shape)}: wanted batch, 1, query, key"
        )
        assert not mask[:, 0][~same].any(), (
            "one sentence can look at another in the same row"
        )
        want = same.tril() if causal else same
        assert not mask[:, 0][~want].any(), "it looks to its right"
        assert mask[:, 0][want].all(), (
            "a position should see more of its own sentence"
        )


@exercise("masks.packed_places")
def masks_packed_places(answer):
    """Positions that begin anew with each sentence of a row.

    Chapter: checks-masks
    """
    sentence = torch.tensor([[1, 1, 2, 2, 2], [1, 2, 3, 3, 3]])
    want = [[0, 1, 0, 1, 2], [0, 0, 0, 1, 2]]
    got = answer(sentence).tolist()
    first = {got[0][0], got[0][2], *got[1][:3]}
    assert first == {0}, (
        "each sentence begins at place 0, wherever it lies in its row"
    )
    assert got == want, f"wanted {want}, got {got}"
