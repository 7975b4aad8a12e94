"""Typical wrong answers to the exercises on decoding."""

from transformer_book.exercises import check


def test_cache_size_without_values(capsys):
    def answer(config, batch, source_len, target_len):
        return (
            config.N
            * config.d_model
            * batch
            * (source_len + target_len)
        )

    assert not check("decoding.cache_size", answer)
    assert "Keys and values" in capsys.readouterr().out


def test_cache_size_of_one_layer(capsys):
    def answer(config, batch, source_len, target_len):
        return 2 * config.d_model * batch * (source_len + target_len)

    assert not check("decoding.cache_size", answer)
    assert "Every one of the N layers" in capsys.readouterr().out


def test_greedy_that_drops_eos(capsys):
    def answer(model, limit):
        ids = []
        while len(ids) < limit:
            best = model(ids).argmax().item()
            if best == 3:
                break
            ids.append(best)
        return ids

    assert not check("decoding.greedy", answer)
    assert "belongs to the output" in capsys.readouterr().out


def test_greedy_that_never_stops(capsys):
    def answer(model, limit):
        ids = []
        for _ in range(limit):
            ids.append(model(ids).argmax().item())
        return ids

    assert not check("decoding.greedy", answer)
    assert "stop at eos" in capsys.readouterr().out


def test_nucleus_not_scaled(capsys):
    def answer(probabilities, p):
        ordered, places = probabilities.sort(descending=True)
        probabilities[places[ordered.cumsum(0) - ordered >= p]] = 0
        return probabilities

    assert not check("decoding.nucleus", answer)
    assert "must sum to 1" in capsys.readouterr().out


def test_nucleus_one_too_few(capsys):
    def answer(probabilities, p):
        ordered, places = probabilities.sort(descending=True)
        kept = probabilities.clone()
        kept[places[ordered.cumsum(0) >= p]] = 0
        return kept / kept.sum()

    assert not check("decoding.nucleus", answer)
    assert "two pieces" in capsys.readouterr().out
