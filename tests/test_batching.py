"""Batches: pairs of ids, padding, budgets, workers."""

import random
from collections import Counter

import pytest
import torch

from transformer_lib.batching import (
    Batch,
    TokenBatches,
    collate,
    encode_pairs,
    padding_share,
)
from transformer_lib.corpora import corpus_files, load_corpus
from transformer_lib.tokenization import BOS, EOS, PAD, BPETokenizer


def some_pairs(n=500, seed=0):
    """Pairs of like length; the first id names the pair."""
    chance = random.Random(seed)
    pairs = []
    for i in range(n):
        length = chance.randint(1, 30)
        other = max(1, length + chance.randint(-3, 3))
        pairs.append(
            ([10 + i] * length + [EOS], [10 + i] * other + [EOS])
        )
    return pairs


def names(batches):
    return [
        id_ for b in batches for id_ in b.source_ids[:, 0].tolist()
    ]


@pytest.fixture(scope="module")
def bpe():
    corpus = load_corpus("little_spanish")
    texts = [sentence for pair in corpus for sentence in pair]
    return BPETokenizer.train(texts, vocab_size=800)


# Pairs


def test_encode_pairs(bpe):
    corpus = load_corpus("little_spanish", split="test")
    pairs = encode_pairs(corpus, bpe)
    assert len(pairs) == len(corpus) and pairs.dropped == 0
    for ids, sentences in zip(pairs, corpus, strict=True):
        for side, text in zip(ids, sentences, strict=True):
            assert side == bpe.encode(text) + [EOS]


def test_long_pairs_are_dropped_not_cut(bpe):
    corpus = load_corpus("little_spanish", split="test")
    whole = encode_pairs(corpus, bpe)
    short = encode_pairs(corpus, bpe, max_length=8)
    assert short == [p for p in whole if max(map(len, p)) <= 8]
    assert 0 < short.dropped == len(whole) - len(short)
    assert all(side[-1] == EOS for pair in short for side in pair)


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_empty_sentence(bpe, empty):
    with pytest.raises(ValueError, match="source.*line 2.*empty"):
        encode_pairs([("A", "B"), (empty, "C")], bpe)
    with pytest.raises(ValueError, match="target.*line 1.*empty"):
        encode_pairs([("A", empty)], bpe)


def test_no_pair_left(bpe):
    with pytest.raises(ValueError, match="no pair is left"):
        encode_pairs([], bpe)
    with pytest.raises(ValueError, match="1 .*max_length=2"):
        encode_pairs(
            [("I like trees", "Me gustan")], bpe, max_length=2
        )


# One batch


def test_collate():
    batch = collate(
        [([5, 6, EOS], [7, EOS]), ([8, EOS], [9, 4, EOS])]
    )
    assert batch.source_ids.tolist() == [[5, 6, EOS], [8, EOS, PAD]]
    assert batch.target_ids.tolist() == [[BOS, 7, PAD], [BOS, 9, 4]]
    assert batch.labels.tolist() == [[7, EOS, PAD], [9, 4, EOS]]
    assert batch.tokens == 5
    assert batch.labels.dtype == torch.int64


def test_labels_are_one_place_ahead():
    batch = collate(some_pairs(40))
    kept = batch.labels != PAD
    assert (batch.target_ids[:, 0] == BOS).all()
    ahead = batch.target_ids[:, 1:]
    stays = kept[:, 1:]
    assert torch.equal(ahead[stays], batch.labels[:, :-1][stays])
    assert not (batch.target_ids == EOS).any()
    assert torch.equal(kept, batch.target_ids != PAD)


def test_tokens_and_devices():
    batch = collate(some_pairs(7))
    by_hand = Batch(batch.source_ids, batch.target_ids, batch.labels)
    assert by_hand.tokens == int((batch.labels != PAD).sum())
    moved = batch.to("cpu")
    assert torch.equal(moved.labels, batch.labels)
    assert moved.tokens == batch.tokens
    assert (
        batch.to("meta").tokens == batch.tokens
    )  # not counted again


# Batches


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("budget", [34, 200, 10_000])
def test_every_pair_once_and_budget_kept(budget, shuffle):
    pairs = some_pairs()
    batches = TokenBatches(pairs, budget, shuffle=shuffle)
    for number in range(3):
        epoch = list(batches.epoch(number))
        assert len(epoch) == len(batches)
        assert sorted(names(epoch)) == list(range(10, 510))
        for batch in epoch:
            assert batch.source_ids.numel() <= budget
            assert batch.target_ids.numel() <= budget


def equal(left, right):
    return len(left) == len(right) and all(
        torch.equal(a.source_ids, b.source_ids)
        and torch.equal(a.labels, b.labels)
        for a, b in zip(left, right, strict=True)
    )


def test_deterministic_in_seed_and_epoch():
    def epoch(number, seed=0):
        batches = TokenBatches(some_pairs(), 200, seed=seed)
        return list(batches.epoch(number))

    assert equal(epoch(3), epoch(3))
    assert not equal(epoch(3), epoch(4))
    assert not equal(epoch(3), epoch(3, seed=1))
    torch.manual_seed(9)
    random.seed(9)
    assert equal(epoch(3), epoch(3, seed=0))


def test_not_only_the_order_of_batches_changes():
    batches = TokenBatches(some_pairs(), 200)

    def sets(number):
        epoch = batches.epoch(number)
        return {tuple(sorted(names([batch]))) for batch in epoch}

    assert len(sets(0) & sets(1)) < len(batches) / 2


def test_unshuffled_is_sorted_and_the_same():
    batches = TokenBatches(some_pairs(), 200, shuffle=False)
    widths = [
        max(b.source_ids.shape[1], b.labels.shape[1])
        for b in batches.epoch(0)
    ]
    assert widths == sorted(widths)
    assert equal(list(batches.epoch(0)), list(batches.epoch(5)))


@pytest.mark.parametrize("world_size", [2, 3, 7, 100])
def test_workers(world_size):
    pairs = some_pairs()
    alone = TokenBatches(pairs, 200, seed=4)
    workers = [
        TokenBatches(pairs, 200, 4, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    shares = [list(worker.epoch(2)) for worker in workers]
    assert {len(worker) for worker in workers} == {len(shares[0])}
    assert {len(share) for share in shares} == {len(shares[0])}
    counts = Counter(
        name for share in shares for name in names(share)
    )
    assert counts.keys() == set(range(10, 510))  # none left out
    together = [
        batch for turn in zip(*shares, strict=True) for batch in turn
    ]
    assert equal(together[: len(alone)], list(alone.epoch(2)))
    again = len(together) - len(alone)  # some are given out twice
    assert 0 <= again < world_size


def test_more_workers_than_batches():
    workers = [
        TokenBatches(some_pairs(3), 1000, rank=rank, world_size=4)
        for rank in range(4)
    ]
    assert all(len(list(worker.epoch(0))) == 1 for worker in workers)


def test_budget_below_a_sentence():
    pairs = [([5] * 40 + [EOS], [6, EOS])]
    with pytest.raises(ValueError, match="=40.*41 ids.*max_length"):
        TokenBatches(pairs, 40)
    assert len(TokenBatches(pairs, 41)) == 1


def test_bad_arguments():
    with pytest.raises(ValueError, match="0 pairs"):
        TokenBatches([], 100)
    for rank in (-1, 2):
        with pytest.raises(ValueError, match=f"rank={rank}"):
            TokenBatches(some_pairs(5), rank=rank, world_size=2)


# Padding


def test_padding_share():
    even = collate([([5, EOS], [6, EOS])] * 3)
    assert padding_share([even]) == 0
    uneven = collate(
        [([5, EOS], [6, EOS]), ([5, 5, 5, EOS], [6, EOS])]
    )
    assert padding_share([uneven]) == 2 / 12
    assert padding_share([even, uneven]) == 2 / 24
    assert padding_share(iter([uneven])) == 2 / 12


@pytest.mark.skipif(
    not all(path.is_file() for path in corpus_files("multi30k")),
    reason="the files of Multi30k are not there",
)
def test_multi30k_wastes_little():
    corpus = load_corpus("multi30k", "de", "en")
    texts = [sentence for pair in corpus for sentence in pair]
    pairs = encode_pairs(corpus, BPETokenizer.train(texts, 8000))
    batches = TokenBatches(pairs, 4096)
    assert padding_share(batches.epoch(0)) < 0.05
    assert padding_share(batches.epoch(1)) < 0.05
    assert len(batches) < 123
    whole = TokenBatches(pairs, 25_000)  # 21 batches: a length each
    assert padding_share(whole.epoch(0)) < 0.10
