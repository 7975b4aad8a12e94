"""Typical wrong answers to the exercises on embeddings."""

import torch

from transformer_book.exercises import check


def test_the_factor_forgotten(capsys):
    assert not check(
        "embeddings.one_hot", lambda ids, table: table[ids]
    )
    assert "factor" in capsys.readouterr().out


def test_dot_products_for_cosines(capsys):
    def wrong(table, id, k):
        likeness = (table @ table[id]).abs()
        likeness[id] = 0
        return likeness.topk(k).indices.tolist()

    assert not check("embeddings.nearest", wrong)
    assert "directions" in capsys.readouterr().out


def test_the_last_of_equal_ids_wins(capsys):
    def wrong(ids, upstream, vocab_size):
        gradient = torch.zeros(vocab_size, upstream.size(-1))
        gradient[ids] = upstream
        return gradient

    assert not check("embeddings.gradient", wrong)
    assert "stands twice" in capsys.readouterr().out


def test_a_row_among_its_own_neighbours(capsys):
    def wrong(rows, group, k):
        unit = rows / rows.norm(dim=1, keepdim=True)
        near = (unit @ unit.T).topk(k).indices
        labels = torch.tensor(group)
        return (labels[near] == labels[:, None]).float().mean()

    assert not check("embeddings.mixing", wrong)
    assert "left out of its own" in capsys.readouterr().out


def test_neighbours_by_dot_product(capsys):
    def wrong(rows, group, k):
        likeness = (rows @ rows.T).fill_diagonal_(-torch.inf)
        labels = torch.tensor(group)
        near = likeness.topk(k).indices
        return (labels[near] == labels[:, None]).float().mean()

    assert not check("embeddings.mixing", wrong)
    assert "By cosine?" in capsys.readouterr().out
