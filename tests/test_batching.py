"""Batches: pairs of ids, padding, budgets."""

import random
from functools import partial

import numpy as np
import pytest
import torch

from transformer_lib.batching import (
    TokenBatches,
    collate,
    encode_pairs,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.export import export_model
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import Translator


def some_pairs(n=500, longest=30):
    """Pairs of like length; the first id names the pair."""
    chance = random.Random(0)
    lengths = [chance.randint(4, longest) for _ in range(n)]
    others = [length + chance.randint(-3, 3) for length in lengths]
    return [
        ([10 + i] * a + [EOS], [10 + i] * b + [EOS])
        for i, (a, b) in enumerate(zip(lengths, others, strict=True))
    ]


def names(batches):
    return [i for b in batches for i in b.source_ids[:, 0].tolist()]


@pytest.fixture(scope="module")
def bpe():
    corpus = load_corpus("little_spanish")
    return BPETokenizer.train(corpus.sources + corpus.targets, 800)


# Pairs


class Letters:
    """A tokenizer of one's own: a letter is its number."""

    def __len__(self):
        return 0x3000

    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_a_tokenizer_made_from_ours_is_asked(bpe, tmp_path):
    """And isn't saved as ours, which would cut words in another way."""

    class Lower(BPETokenizer):
        def encode(self, text):
            return super().encode(text.lower())

    lower = Lower(bpe.tokenizer)
    [[source, _]] = encode_pairs([("I LIKE", "a")], lower)
    assert source[:-1] == bpe.encode("i like") != bpe.encode("I LIKE")
    model = Transformer(TransformerConfig(len(bpe), N=1, d_model=8, h=1))
    translator = Translator(model, lower)
    for use in translator.save, partial(export_model, translator):
        with pytest.raises(TypeError, match="a Lower is no BPETokenizer"):
            use(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("max_length", [None, 20])
def test_one_vocabulary_for_both_languages(bpe, max_length):
    corpus = load_corpus("little_spanish")
    texts = corpus.sources[:600] + corpus.targets[:600]
    for tokenizer in (bpe, Letters()):
        whole = [[*tokenizer.encode(text), EOS] for text in texts]
        kept = [ids for ids in whole if len(ids) <= (max_length or 99)]
        both = [(text, text) for text in texts]
        found = encode_pairs(both, tokenizer, max_length)
        assert found == [(ids, ids) for ids in kept]
        assert max(map(max, kept)) < len(tokenizer)
    with pytest.raises(ValueError, match="gave bos or eos, 2 or 3"):
        encode_pairs([("a\3", "b")], Letters())


def test_no_pair_left(bpe):
    with pytest.raises(ValueError, match="no pairs, or all are too long"):
        TokenBatches.in_order(encode_pairs([("I like", "Me gustan")], bpe, 1))


@pytest.mark.parametrize(
    "wrong, said",
    [
        (["I A".split(), "Yo Un".split()], "of two lists list.zip"),
        ([("I", "Yo"), ("A", None)], "None is not a text: give a str"),
        ([("I", "Yo", "Ich")], "too many values to unpack"),
        (["I like"], "these are no pairs: give tuples"),
        (["ab", "cd"], "these are no pairs: give tuples"),
        ([{"en": "I", "es": "Yo"}], "these are no pairs: give tuples"),
    ],
)
def test_what_are_not_pairs_of_texts(wrong, said, bpe):
    with pytest.raises((TypeError, ValueError), match=said):
        encode_pairs(wrong, bpe)


# One batch


def test_a_batch_of_nothing_or_of_texts():
    with pytest.raises(ValueError, match="no pairs"):
        collate([])
    with pytest.raises(ValueError, match="encode_pairs adds it"):
        TokenBatches([("I like", "Me gustan")])


@pytest.mark.parametrize("pair", [([5], [7, EOS]), ([EOS], [7]), ([], [EOS])])
def test_ids_without_eos_are_refused(pair):
    """As `tokenizer.encode` gives them: the last token would be lost."""
    for place in 1, 2:
        pairs = [([5, EOS], [6, EOS])] * (place - 1) + [pair]
        said = f"pair {place} lacks eos at an end: encode_pairs adds it"
        with pytest.raises(ValueError, match=said):
            TokenBatches(pairs)


def test_pairs_may_come_one_by_one():
    pairs = some_pairs(60)
    sources, targets = zip(*pairs, strict=True)
    batches = TokenBatches(zip(sources, targets, strict=True), 200)
    assert batches.pairs == pairs


def test_padding_inside_a_pair_is_refused():
    """It would be counted as tokens: a tokenizer may pad by itself."""
    with pytest.raises(ValueError, match="0, that of padding"):
        collate([([5, 3], [6, 3]), ([5, 3], [6, 3, 0, 0])])


def test_a_budget_holds_the_longest_sentence():
    pairs = [([5] * 5000 + [EOS], [6, EOS]), ([5, EOS], [6, EOS])]
    with pytest.raises(ValueError, match="5001 ids, tokens_per_batch=5000"):
        TokenBatches(pairs, 5000)
    assert len(TokenBatches(pairs, 5001)) == 2
    batches = TokenBatches.in_order(pair for pair in pairs)
    assert not batches.shuffle and len(batches.pairs) == 2
    assert sum(batch.tokens for batch in batches.epoch(0)) == 4


def test_labels_are_one_place_ahead():
    chance = random.Random(0)

    def sentence(length):
        return [*chance.choices(range(4, 999), k=length), EOS]

    pairs = [(sentence(i % 7), sentence(i % 61)) for i in range(122)]
    for group in (pairs, pairs[5:6]):
        batch = collate(group).to("cpu")
        kept = batch.labels != PAD
        assert batch.tokens == kept.sum()
        assert batch.labels.dtype == batch.source_ids.dtype == torch.int64
        assert (batch.target_ids[:, 0] == BOS).all()
        ahead, stays = batch.target_ids[:, 1:], kept[:, 1:]
        assert torch.equal(ahead[stays], batch.labels[:, :-1][stays])
        assert not (batch.target_ids == EOS).any()
        assert torch.equal(kept, batch.target_ids != PAD)
        rows = zip(batch.source_ids, batch.labels, group, strict=True)
        for source_ids, labels, (source, target) in rows:
            padding = [PAD] * (len(source_ids) - len(source))
            assert source_ids.tolist() == source + padding
            assert labels[labels != PAD].tolist() == target


# Batches


def plain_epoch(lengths, budget, seed, number, shuffle):
    """Places of pairs by batch: the plain loop, kept as it first was.

    Recorded trainings depend on it: their batches must stay the same.
    """

    def key(i):
        source, target = lengths[i]
        longer, difference = max(source, target), source - target
        return longer, difference if longer % 2 else -difference

    order = [*range(len(lengths))]
    chance = random.Random(f"{seed} {number}")
    if shuffle:
        chance.shuffle(order)
    batches = [[]]
    for i in sorted(order, key=key):
        if (len(batches[-1]) + 1) * max(lengths[i]) > budget:
            batches.append([])
        batches[-1].append(i)
    if shuffle:
        chance.shuffle(batches)
    return batches


@pytest.mark.parametrize("case", range(40))
def test_the_batches_are_those_of_the_plain_loop(case):
    chance = random.Random(case)
    longest = chance.choice([2, 3, 10, 61])
    lengths = [
        (chance.randint(2, longest), chance.randint(2, longest))
        for _ in range(chance.randint(1, 500))
    ]
    pairs = [
        ([10 + i] * (source - 1) + [EOS], [10 + i] * (target - 1) + [EOS])
        for i, (source, target) in enumerate(lengths)
    ]
    budget = longest * chance.choice([1, 2, 7, 10**5])
    seed, shuffle = chance.randint(0, 10**6), case % 4 > 0
    batches = TokenBatches(pairs, budget, seed=seed, shuffle=shuffle)
    for number in (0, 1, 7):
        plain = plain_epoch(lengths, budget, seed, number, shuffle)
        assert len(batches) == len(plain)
        for batch, places in zip(batches.epoch(number), plain, strict=True):
            assert names([batch]) == [10 + place for place in places]


WAYS = [({}, 0), ({}, 3), (dict(shuffle=False), 0), (dict(seed=5), 1)]


@pytest.mark.parametrize("settings, number", WAYS)
def test_batches_are_full(settings, number):
    pairs = some_pairs(9_000, longest=90)
    batches = TokenBatches(pairs, **settings)
    assert batches.tokens_per_batch == 25_000
    epoch = list(batches.epoch(number))
    for side in "source_ids", "labels":
        cells = [getattr(batch, side).numel() for batch in epoch]
        assert max(cells) <= 25_000
        full = [count > 24_000 for count in cells]
        assert sum(full) > 0.8 * len(epoch) > 5
        tokens = [(getattr(batch, side) != PAD).sum() for batch in epoch]
        full = [count > 20_000 for count in tokens]
        assert sum(full) > 0.7 * len(epoch)


def test_an_epoch_goes_on_where_it_was_left(monkeypatch):
    batches, made = TokenBatches(some_pairs(), 200), []
    epoch = names(batches.epoch(3))
    left = names(batches.epoch(3, start=7))
    assert epoch[-len(left) :] == left and len(left) > 99
    assert list(batches.epoch(3, start=len(batches))) == []
    # And what is skipped is not made.
    monkeypatch.setattr("transformer_lib.batching.collate", made.append)
    assert len(list(batches.epoch(0, start=len(batches) - 2))) == 2
    assert len(made) == 2


# The fingerprint


def test_a_fingerprint_says_what_the_batches_hold():
    def fingerprint(pairs):
        return TokenBatches(pairs, 5000).fingerprint()

    pairs = some_pairs(60)
    first = fingerprint(pairs)
    assert fingerprint(some_pairs(60)) == first
    (source, target), *rest = pairs
    others = [
        fingerprint(pairs[::-1]),
        fingerprint([([11, *source[1:]], target), *rest]),
        fingerprint([([5, EOS], [EOS, EOS]), *rest]),
        fingerprint([([5, EOS, EOS], [EOS]), *rest]),
    ]
    assert len({first, *others}) == 1 + len(others)
    for kind in tuple, np.array:  # the same ids
        assert fingerprint([(kind(a), kind(b)) for a, b in pairs]) == first
    # Arrays whose text is shortened in the middle.
    long, other = np.full((2, 2001), 7)
    long[-1] = other[-1] = EOS
    other[1000] = 8
    assert fingerprint([(long, long)]) != fingerprint([(other, other)])
