# Collected from book/back/checks_data.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: grammar, corpora, tokens, batches."""

from collections import Counter

from transformer_lib.exercises import exercise
from transformer_lib.tokenization import SPECIAL, BPETokenizer

__all__ = [
    "batching_padding",
    "batching_shape",
    "batching_share",
    "corpora_overlap",
    "corpora_split",
    "corpora_suspects",
    "grammar_article",
    "grammar_combinations",
    "grammar_there",
    "tokenization_bytes",
    "tokenization_learn",
    "tokenization_rare",
]


@exercise("grammar.article")
def grammar_article(answer):
    """The article of a noun, with "el agua" right.

    Chapter: checks-grammar
    """
    for word in (
        "el coche m",
        "la casa f",
        "el agua f",
        "el hacha f",
    ):
        article, noun, gender = word.split()
        got = answer(noun, gender, False)
        assert got == article, f"one says {article} {noun}, not {got}"
    for noun, gender, article in (
        ("agua", "f", "las"),
        ("coche", "m", "los"),
    ):
        got = answer(noun, gender, True)
        assert got == article, f"several: {article}, not {got}"


@exercise("grammar.combinations")
def grammar_combinations(answer):
    """How many combinations there are, and how many are kept.

    Chapter: checks-grammar
    """
    every, kept = answer
    assert every == 288, (
        f"{every}: 16 nouns meet 8 verbs ('like' is one) and 10 "
        "adjectives"
    )
    assert kept == 36, f"{kept}: two nouns of 16 for each partner"


@exercise("grammar.there")
def grammar_there(answer):
    """There is a tree in the garden: both languages.

    Chapter: checks-grammar
    """
    for noun, place, plural, what, where in (
        ("tree", "garden", False, "a tree/un árbol", "el jardín"),
        ("apple", "car", False, "an apple/una manzana", "el coche"),
        ("flower", "house", True, "flowers/flores", "la casa"),
    ):
        english, spanish = what.split("/")
        be = "are" if plural else "is"
        wanted = (
            f"There {be} {english} in the {place}",
            f"Hay {spanish} en {where}",
        )
        for got, right in zip(
            answer(noun, plural, place), wanted, strict=True
        ):
            assert got == right, f"{got!r} should be {right!r}"


@exercise("corpora.overlap")
def corpora_overlap(answer):
    """The share of a test whose source sentences training has.

    Chapter: checks-corpora
    """
    train = [("Go.", "Ve."), ("Run!", "Corre"), ("Go.", "Vete.")]
    test = [
        ("Go.", "Vaya."),
        ("Go.", "Ve."),
        ("Hi.", "Hola."),
        ("No", "No"),
    ]
    got = answer(train, test)
    assert got != 1 / 4, (
        "compare source sentences, not whole pairs: 'Go.' is known, "
        "whatever its translation"
    )
    assert got == 2 / 4, f"2 of 4 test pairs are known, you say {got}"
    assert answer(train, test[2:]) == 0, "'Hi.' and 'No' are new"


@exercise("corpora.split")
def corpora_split(answer):
    """Pairs split in two that share no source sentence.

    Chapter: checks-corpora
    """
    pairs = [
        (f"sentence {n // 3}", f"frase {n}") for n in range(3000)
    ]
    train, test = map(set, answer(pairs))
    assert train | test == set(pairs), "some pairs were lost"
    both = {a for a, _ in train} & {a for a, _ in test}
    assert not both, f"{len(both)} sentences are on both sides"
    share = len(test) / len(pairs)
    assert 0.05 < share < 0.15, f"a tenth was asked, got {share:.2f}"
    again = [set(part) for part in answer(pairs[::-1])]
    assert again == [train, test], (
        "another order of the pairs gives another split: decide by "
        "the sentence alone, by its hash for example (hashlib's: "
        "Python's own hash() of a text changes from run to run)"
    )


@exercise("corpora.suspects")
def corpora_suspects(answer):
    """The pairs whose sides differ most in length, worst first.

    Chapter: checks-corpora
    """
    pairs = [("a b c", "x y z"), ("a", "v w x y"), ("b c d e f", "x")]
    pairs += [("a b", "x"), (20 * "a ", 28 * "x ")]
    got = [tuple(pair) for pair in answer(pairs, 2)]
    assert pairs[2] in got, (
        "5 words beside 1 are as suspect as 1 beside 5: take the "
        "longer side by the shorter, whichever it is"
    )
    assert pairs[4] not in got, (
        "eight words more are little beside twenty: take the ratio"
    )
    assert got == [pairs[2], pairs[1]], f"the worst first, not {got}"


@exercise("tokenization.bytes")
def tokenization_bytes(answer):
    """How many tokens a text has before any merge.

    Chapter: checks-tokenization
    """
    for text in ("tree", "árbol", "日本", "", "👍"):
        want, got = len(text.encode()), answer(text)
        assert got != len(text) or got == want, (
            f"{text!r} has {len(text)} characters but {want} bytes"
        )
        assert got == want, f"{text!r}: {want} bytes, you say {got}"


@exercise("tokenization.learn")
def tokenization_learn(answer):
    """The first merges that byte-pair encoding learns.

    Chapter: checks-tokenization
    """
    words = {("a", "b", "c"): 9, ("b", "c"): 5, ("a", "b"): 3}
    got = [tuple(pair) for pair in answer(dict(words), 2)]
    assert len(got) == 2, f"2 merges were asked, got {len(got)}"
    assert got[0] != ("a", "b"), (
        "'a b' stands in 12 words, 'b c' in 14: weigh each word by "
        "how often it occurs"
    )
    assert got[0] == ("b", "c"), f"'b c' is commonest, not {got[0]}"
    assert got[1] == ("a", "bc"), (
        "after 'b c' is merged the commonest pair is 'a bc', 9 "
        f"times; you say {got[1]}: count anew after each merge"
    )


@exercise("tokenization.rare")
def tokenization_rare(answer):
    """The share of a vocabulary that texts use too seldom.

    Chapter: checks-tokenization
    """
    texts = ["low low lower", "slow low lower"]
    tokenizer = BPETokenizer.train(texts, vocab_size=270)
    used = Counter(id_ for t in texts for id_ in tokenizer.encode(t))
    often = sum(n >= 2 for n in used.values())
    wanted = 1 - often / (len(tokenizer) - len(SPECIAL))
    got = answer(tokenizer, texts, 2)
    assert abs(got - 1 + often / len(used)) > 1e-9, (
        "a token that never comes is the rarest of all: count it too"
    )
    assert abs(got - 1 + often / len(tokenizer)) > 1e-9, (
        "the four special tokens stand for no text: leave them out"
    )
    assert abs(got - wanted) < 1e-9, f"{wanted:.4f}, not {got:.4f}"


@exercise("batching.padding")
def batching_padding(answer):
    """The share of padding in one batch of these lengths.

    Chapter: checks-batching
    """
    for lengths, want in (([4, 4], 0), ([1, 4], 3 / 8), ([5], 0)):
        got = answer(lengths)
        assert abs(got - want) < 1e-9, (
            f"lengths {lengths}: the batch has {max(lengths)} "
            f"columns and {len(lengths)} rows, so {want} of it is "
            f"padding, not {got}"
        )


@exercise("batching.share")
def batching_share(answer):
    """Batches dealt out to workers, as many to each.

    Chapter: checks-batching
    """
    for n, size in ((6, 2), (7, 3), (2, 4)):
        hands = [
            list(answer(list(range(n)), r, size)) for r in range(size)
        ]
        counts = {len(hand) for hand in hands}
        assert len(counts) == 1, (
            f"{n} batches, {size} workers: some get {min(counts)} "
            f"and some {max(counts)}, and those with more wait for "
            "ever"
        )
        lost = set(range(n)) - {b for hand in hands for b in hand}
        assert not lost, f"nobody gets the batches {sorted(lost)}"
        most = -(-n // size)
        assert len(hands[0]) == most, (
            f"{most} batches each are enough"
        )


@exercise("batching.shape")
def batching_shape(answer):
    """Rows and width of a batch that is rounded up.

    Chapter: checks-batching
    """
    for width, multiple, rows, wide in (
        (16, 8, 256, 16),
        (13, 8, 256, 16),
        (13, 1, 315, 13),
    ):
        got = tuple(answer(width, 4096, multiple))
        assert got[1] == wide, (
            f"{width} rounded up to a multiple of {multiple} is "
            f"{wide}, not {got[1]}"
        )
        assert got[0] == rows, (
            f"{rows} rows of {wide} fit into 4,096, not {got[0]}: "
            "divide the budget by the rounded width"
        )
