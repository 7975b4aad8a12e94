# Collected from book/back/checks_training.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks: grammar, corpora, tokens, batches, loss."""

import torch

from transformer_lib.exercises import exercise

__all__ = [
    "batching_padding",
    "batching_share",
    "corpora_overlap",
    "corpora_split",
    "grammar_article",
    "grammar_combinations",
    "loss_epoch",
    "loss_floor",
    "loss_smoothed",
    "tokenization_bytes",
    "tokenization_learn",
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
        "the "
        "sentence alone, by its hash for example (hashlib's: "
        "Python's "
        "own hash() of a text changes from run to run)"
    )


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
        "how "
        "often it occurs"
    )
    assert got[0] == ("b", "c"), f"'b c' is commonest, not {got[0]}"
    assert got[1] == ("a", "bc"), (
        "after 'b c' is merged the commonest pair is 'a bc', 9 "
        "times; "
        f"you say {got[1]}: count anew after each merge"
    )


@exercise("batching.padding")
def batching_padding(answer):
    """The share of padding in one batch of these lengths.

    Chapter: checks-batching
    """
    for lengths, want in (([4, 4], 0), ([1, 4], 3 / 8), ([5], 0)):
        got = answer(lengths)
        assert abs(got - want) < 1e-9, (
            f"lengths {lengths}: the batch has {max(lengths)} "
            "columns "
            f"and {len(lengths)} rows, so {want} of it is padding, "
            "not "
            f"{got}"
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
            "and "
            f"some {max(counts)}, and those with more wait for ever"
        )
        lost = set(range(n)) - {b for hand in hands for b in hand}
        assert not lost, f"nobody gets the batches {sorted(lost)}"
        most = -(-n // size)
        assert len(hands[0]) == most, (
            f"{most} batches each are enough"
        )


@exercise("loss.floor")
def loss_floor(answer):
    """The lowest smoothed loss of a token, in nats.

    Chapter: checks-loss
    """
    none = answer(100, 0.0)
    assert abs(none) < 1e-9, (
        f"without smoothing it is 0, not {none:.3g}"
    )
    for size, share in ((8, 0.4), (8000, 0.1), (37_000, 0.2)):
        every = share / size
        q = torch.full((size,), every, dtype=torch.float64)
        q[0] += 1 - share
        wanted, got = -(q * q.log()).sum().item(), answer(size, share)
        assert abs(got - wanted) < 1e-6 * wanted, (
            f"for V={size} and a share of {share} you give "
            f"{got:.4f}; the "
            f"target's entropy is {wanted:.4f}. The right piece has "
            "1 - share + share / V"
        )


@exercise("loss.smoothed")
def loss_smoothed(answer):
    """The loss per token with uniform smoothing, without padding.

    Chapter: checks-loss
    """
    logits = 3 * torch.randn(2, 5, 8)
    labels = torch.tensor([[4, 6, 5, 4, 3], [7, 5, 3, 0, 0]])
    for share in (0.0, 0.1, 0.5):
        got = float(answer(logits, labels, share))
        wanted = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=0,
            label_smoothing=share,
        ).item()
        assert abs(got - wanted) < 1e-4 * wanted, (
            f"with a share of {share} it is {wanted:.4f}, not "
            f"{got:.4f}. Is "
            "padding left out, of the sum and of the count? Does "
            "every "
            "piece get share / V, the right one too?"
        )


@exercise("loss.epoch")
def loss_epoch(answer):
    """The perplexity of an epoch from its batches' mean losses.

    Chapter: checks-loss
    """
    same = answer([2.0, 2.0], [10, 90])
    assert abs(same - 7.389056) < 1e-4, (
        "two batches at 2 nats are at e^2 = 7.389 together, not "
        f"{same:.3f}"
    )
    got = answer([1.0, 3.0], [300, 100])
    assert abs(got - 4.481689) < 1e-4, (
        f"300 tokens at 1 nat and 100 at 3 make 1.5 nats a token, a "
        f"perplexity of 4.482; you give {got:.3f}. Weigh by tokens, "
        "and "
        "take the exponential last"
    )
