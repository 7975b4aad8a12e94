"""Batches: pairs of ids, padding, budgets, workers."""

import random
from collections import Counter

import pytest
import torch

from transformer_lib.batching import (
    TokenBatches,
    collate,
    encode_pairs,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer


def some_pairs(n=500):
    """Pairs of like length; the first id names the pair."""
    chance = random.Random(0)
    lengths = [chance.randint(4, 30) for _ in range(n)]
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


def test_encode_pairs(bpe):
    corpus = load_corpus("little_spanish", split="test")
    pairs = encode_pairs(corpus, bpe)
    assert len(pairs) == len(corpus)
    for ids, sentences in zip(pairs, corpus, strict=True):
        for side, text in zip(ids, sentences, strict=True):
            assert side == bpe.encode(text) + [EOS]


def test_one_vocabulary_for_both_languages(bpe):
    [(source, target)] = encode_pairs([("Ana, no", "Ana, no")], bpe)
    assert source == target and max(source) < len(bpe)


def test_long_pairs_are_dropped_not_cut(bpe):
    corpus = load_corpus("little_spanish", split="test")
    whole = encode_pairs(corpus, bpe)
    short = encode_pairs(corpus, bpe, max_length=8)
    assert short == [p for p in whole if max(map(len, p)) <= 8]
    assert 0 < len(short) < len(whole)


def test_no_pair_left(bpe):
    with pytest.raises(ValueError, match="no pair is left"):
        encode_pairs([], bpe)
    with pytest.raises(ValueError, match="max_length=2"):
        encode_pairs([("I like trees", "Me gustan")], bpe, 2)


# One batch


def test_collate():
    batch = collate([([5, 6, EOS], [7, EOS]), ([8, EOS], [9, 4, EOS])])
    assert batch.source_ids.tolist() == [[5, 6, EOS], [8, EOS, PAD]]
    assert batch.target_ids.tolist() == [[BOS, 7, PAD], [BOS, 9, 4]]
    assert batch.labels.tolist() == [[7, EOS, PAD], [9, 4, EOS]]
    assert batch.tokens == 5
    assert batch.labels.dtype == torch.int64


def test_labels_are_one_place_ahead():
    batch = collate(some_pairs(40))
    kept = batch.labels != PAD
    assert batch.tokens == kept.sum()
    assert (batch.target_ids[:, 0] == BOS).all()
    ahead, stays = batch.target_ids[:, 1:], kept[:, 1:]
    assert torch.equal(ahead[stays], batch.labels[:, :-1][stays])
    assert not (batch.target_ids == EOS).any()
    assert torch.equal(kept, batch.target_ids != PAD)


def test_devices():
    batch = collate(some_pairs(7))
    moved = batch.to("meta")
    ids = (moved.source_ids, moved.target_ids, moved.labels)
    assert all(x.is_meta for x in ids) and moved.tokens == batch.tokens


# Batches


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("budget", [34, 200, 10_000])
def test_every_pair_once_and_budget_kept(budget, shuffle):
    batches = TokenBatches(some_pairs(), budget, shuffle=shuffle)
    for number in range(3):
        epoch = list(batches.epoch(number))
        assert len(epoch) == len(batches)
        assert sorted(names(epoch)) == list(range(10, 510))
        for batch in epoch:
            assert batch.source_ids.numel() <= budget
            assert batch.target_ids.numel() <= budget


def test_batches_are_full():
    pairs = some_pairs(20_000)
    assert TokenBatches(pairs).tokens_per_batch == 25_000
    epoch = list(TokenBatches(pairs).epoch(0))
    for side in "source_ids", "labels":
        cells = [getattr(batch, side).numel() for batch in epoch]
        assert max(cells) <= 25_000
        full = [count > 22_000 for count in cells]
        assert sum(full) > 0.8 * len(epoch) > 5


def test_sentences_of_like_length():
    epoch = list(TokenBatches(some_pairs(5000), 1000).epoch(0))
    for batch in epoch:
        source = (batch.source_ids != PAD).sum(1)
        target = (batch.labels != PAD).sum(1)
        longer = torch.maximum(source, target)
        assert longer.max() - longer.min() <= 1
    cells = sum(b.source_ids.numel() + b.labels.numel() for b in epoch)
    text = sum(len(s) + len(t) for s, t in some_pairs(5000))
    assert 1 - text / cells < 0.08


def equal(left, right):
    return len(left) == len(right) and all(
        torch.equal(a.source_ids, b.source_ids)
        and torch.equal(a.labels, b.labels)
        for a, b in zip(left, right, strict=True)
    )


def test_deterministic_in_seed_and_epoch():
    def epoch(number, seed=0, start=0):
        batches = TokenBatches(some_pairs(), 200, seed=seed)
        return list(batches.epoch(number, start))

    torch.manual_seed(9)
    random.seed(9)
    first = epoch(3)
    assert equal(first, epoch(3))
    assert not equal(first, epoch(4))
    assert not equal(first, epoch(3, seed=1))
    assert equal(first[7:], epoch(3, start=7))
    assert epoch(3, start=len(first)) == []


def test_skipped_batches_are_not_made(monkeypatch):
    batches, made = TokenBatches(some_pairs(), 200), []
    monkeypatch.setattr("transformer_lib.batching.collate", made.append)
    assert len(list(batches.epoch(0, start=len(batches) - 2))) == 2
    assert len(made) == 2


def test_not_only_the_order_of_batches_changes():
    batches = TokenBatches(some_pairs(), 200)

    def company(number):
        epoch = batches.epoch(number)
        return {tuple(sorted(names([batch]))) for batch in epoch}

    assert len(company(0) & company(1)) < len(batches) / 2


def test_unshuffled_is_sorted_and_the_same():
    batches = TokenBatches(some_pairs(), 200, shuffle=False)
    widths = [
        max(b.source_ids.shape[1], b.labels.shape[1]) for b in batches.epoch(0)
    ]
    assert widths == sorted(widths)
    assert equal(list(batches.epoch(0)), list(batches.epoch(5)))


@pytest.mark.parametrize("world_size", [2, 3, 1000])
def test_workers(world_size):
    alone = list(TokenBatches(some_pairs(), 200, seed=4).epoch(2))
    shares = []
    for rank in range(world_size):
        worker = TokenBatches(
            some_pairs(), 200, 4, rank=rank, world_size=world_size
        )
        shares.append(list(worker.epoch(2)))
        assert len(worker) == len(shares[-1]) == len(shares[0])
    counts = Counter(i for share in shares for i in names(share))
    assert counts.keys() == set(range(10, 510))  # none left out
    together = [b for turn in zip(*shares, strict=True) for b in turn]
    assert equal(together[: len(alone)], alone)
    assert 0 <= len(together) - len(alone) < world_size


def test_budget_below_a_sentence():
    pairs = [([5] * 40 + [EOS], [6, EOS])]
    with pytest.raises(ValueError, match="41 ids > .*=40: .*max_length"):
        TokenBatches(pairs, 40)
    assert len(TokenBatches(pairs, 41)) == 1


def test_bad_arguments():
    for rank in (-1, 2):
        with pytest.raises(ValueError, match=f"rank={rank}"):
            TokenBatches(some_pairs(5), rank=rank, world_size=2)
