"""The self-checks of the grammar and of the corpora chapter."""

import hashlib
import random

from transformer_book.exercises import check
from transformer_lib.grammar import thing


def by_hash(pairs):
    def kept(sentence):
        return hashlib.sha256(sentence.encode()).digest()[0] < 26

    return (
        [pair for pair in pairs if not kept(pair[0])],
        [pair for pair in pairs if kept(pair[0])],
    )


def test_article(capsys):
    def without_water(noun, gender, plural):
        masculine, feminine = (
            ("los", "las") if plural else ("el", "la")
        )
        return masculine if gender == "m" else feminine

    assert not check("grammar.article", without_water)
    assert "el agua" in capsys.readouterr().out


def test_article_in_the_plural(capsys):
    def always(noun, gender, plural):
        if gender == "m" or noun in ("agua", "hacha"):
            return "los" if plural else "el"
        return "las" if plural else "la"

    assert not check("grammar.article", always)
    assert "las, not los" in capsys.readouterr().out


def test_combinations(capsys):
    assert check("grammar.combinations", (288, 36))
    assert not check("grammar.combinations", (16 * 17, 34))
    assert "'like' is one" in capsys.readouterr().out


def test_overlap(capsys):
    def sentences(train, test):
        known = {source for source, _ in train}
        return sum(s in known for s, _ in test) / len(test)

    def pairs(train, test):
        return sum(pair in train for pair in test) / len(test)

    assert check("corpora.overlap", sentences)
    assert not check("corpora.overlap", pairs)
    assert "not whole pairs" in capsys.readouterr().out


def test_split(capsys):
    def shuffled(pairs):
        pairs = random.Random(0).sample(pairs, len(pairs))
        return pairs[300:], pairs[:300]

    def in_order(pairs):
        return pairs[300:], pairs[:300]

    assert check("corpora.split", by_hash)
    assert not check("corpora.split", shuffled)
    assert "on both sides" in capsys.readouterr().out
    assert not check("corpora.split", in_order)
    assert "order of the pairs" in capsys.readouterr().out


def test_there(capsys):
    def with_articles(noun, place, plural, some):
        what, qué = thing(noun, some, plural)
        where, dónde = thing(place, "the/el/la", False)
        be = "are" if plural else "is"
        return (
            f"There {be} {what} in {where}",
            f"Hay {qué} en {dónde}",
        )

    def two_spaces(noun, plural, place):
        some = "//" if plural else "a/un/una"
        return with_articles(noun, place, plural, some)

    def right(noun, plural, place):
        pair = two_spaces(noun, plural, place)
        return [" ".join(text.split()) for text in pair]

    def the_many(noun, plural, place):
        some = "/los/las" if plural else "a/un/una"
        pair = with_articles(noun, place, plural, some)
        return [" ".join(text.split()) for text in pair]

    assert check("grammar.there", right)
    assert not check("grammar.there", two_spaces)
    assert "There are  flowers" in capsys.readouterr().out
    assert not check("grammar.there", the_many)
    assert "'Hay flores en la casa'" in capsys.readouterr().out


def test_suspects(capsys):
    def by(key):
        def suspects(pairs, n):
            def worst(pair):
                return key(*(len(side.split()) for side in pair))

            return sorted(pairs, key=worst, reverse=True)[:n]

        return suspects

    assert check(
        "corpora.suspects", by(lambda a, b: max(a, b) / min(a, b))
    )
    assert not check("corpora.suspects", by(lambda a, b: abs(a - b)))
    assert "take the ratio" in capsys.readouterr().out
    assert not check("corpora.suspects", by(lambda a, b: b / a))
    assert "whichever it is" in capsys.readouterr().out
