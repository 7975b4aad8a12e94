"""The self-checks of the batching chapter."""

from transformer_book.exercises import check


def test_padding(capsys):
    def padding(lengths):
        return 1 - sum(lengths) / (len(lengths) * max(lengths))

    def per_token(lengths):  # of the real tokens, not of the batch
        return len(lengths) * max(lengths) / sum(lengths) - 1

    assert check("batching.padding", padding)
    assert not check("batching.padding", per_token)
    assert "4 columns and 2 rows" in capsys.readouterr().out


def test_share(capsys):
    def again(batches, rank, size):
        turns = -(-len(batches) // size)
        places = range(rank, turns * size, size)
        return [batches[place % len(batches)] for place in places]

    def slices(batches, rank, size):
        return batches[rank::size]

    def cut(batches, rank, size):
        return batches[: len(batches) // size * size][rank::size]

    assert check("batching.share", again)
    assert not check("batching.share", slices)
    assert "wait for ever" in capsys.readouterr().out
    assert not check("batching.share", cut)
    assert "Nobody gets" in capsys.readouterr().out


def test_shape(capsys):
    def rounded(width, budget, multiple):
        wide = -(-width // multiple) * multiple
        return budget // wide, wide

    def rows_first(width, budget, multiple):
        return budget // width, -(-width // multiple) * multiple

    def down(width, budget, multiple):
        wide = width // multiple * multiple
        return budget // wide, wide

    assert check("batching.shape", rounded)
    assert not check("batching.shape", rows_first)
    assert "by the rounded width" in capsys.readouterr().out
    assert not check("batching.shape", down)
    assert "rounded up" in capsys.readouterr().out
