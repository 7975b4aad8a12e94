"""The self-checks of the tokenization chapter."""

from collections import Counter
from itertools import pairwise

from transformer_book.exercises import check


def count(words, weigh):
    pairs = Counter()
    for symbols, times in words.items():
        for pair in pairwise(symbols):
            pairs[pair] += times if weigh else 1
    return pairs


def joined(symbols, pair):
    out = []
    for symbol in symbols:
        if out and (out[-1], symbol) == pair:
            symbol = out.pop() + symbol
        out.append(symbol)
    return tuple(out)


def learn(words, n, weigh=True):
    found = []
    for _ in range(n):
        found.append(count(words, weigh).most_common(1)[0][0])
        words = {joined(w, found[-1]): c for w, c in words.items()}
    return found


def test_bytes(capsys):
    assert check(
        "tokenization.bytes", lambda text: len(text.encode())
    )
    assert not check("tokenization.bytes", len)
    assert "'árbol' has 5 characters but 6" in capsys.readouterr().out


def test_learn():
    assert check("tokenization.learn", learn)


def test_learn_without_weights(capsys):
    assert not check(
        "tokenization.learn", lambda w, n: learn(w, n, False)
    )
    assert "how often it occurs" in capsys.readouterr().out


def test_learn_without_counting_anew(capsys):
    def once(words, n):
        return [p for p, _ in count(words, True).most_common(n)]

    assert not check("tokenization.learn", once)
    assert "count anew" in capsys.readouterr().out


def test_rare(capsys):
    def share(divide):
        def rare(tokenizer, texts, times):
            counts = Counter(
                i for t in texts for i in tokenizer.encode(t)
            )
            often = sum(n >= times for n in counts.values())
            return 1 - often / divide(tokenizer, counts)

        return rare

    assert check(
        "tokenization.rare", share(lambda t, counts: len(t) - 4)
    )
    assert not check(
        "tokenization.rare", share(lambda t, counts: len(counts))
    )
    assert "never comes" in capsys.readouterr().out
    assert not check("tokenization.rare", share(lambda t, c: len(t)))
    assert "leave them out" in capsys.readouterr().out
