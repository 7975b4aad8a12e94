"""Typical wrong answers to the exercises on embeddings."""

from transformer_lib.exercises import check


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
