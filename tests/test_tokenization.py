"""The tokenizer: byte pairs, round trips, special tokens."""

import json
import random
from collections import Counter
from itertools import pairwise

import pytest
import torch

from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS, PAD, UNK
from transformer_lib.tokenization import SPECIAL, BPETokenizer

CORPUS = load_corpus("little_spanish")
TEXTS = CORPUS.sources + CORPUS.targets


@pytest.fixture(scope="module")
def bpe():
    return BPETokenizer.train(TEXTS, vocab_size=500)


def learnt(bpe):
    kept = json.loads(bpe.tokenizer.to_str())
    return [tuple(pair) for pair in kept["model"]["merges"]]


def merged(symbols, pairs):
    """Merge neighbours, the earliest learnt pair first."""
    while True:
        found = [
            (pairs.index(pair), i)
            for i, pair in enumerate(pairwise(symbols))
            if pair in pairs
        ]
        if not found:
            return symbols
        _, i = min(found)
        new = symbols[i] + symbols[i + 1]
        symbols = (*symbols[:i], new, *symbols[i + 2 :])


def words_of(bpe, texts):
    cut = bpe.tokenizer.pre_tokenizer.pre_tokenize_str
    return [tuple(word) for text in texts for word, _ in cut(text)]


def test_the_commonest_pair_is_merged_first(bpe):
    words, pairs = Counter(words_of(bpe, TEXTS)), learnt(bpe)
    for best in pairs[:8]:
        counts = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        assert counts[best] == max(counts.values())
        words = Counter(
            {merged(w, [best]): times for w, times in words.items()}
        )


def test_merges_are_the_tokenizer(bpe):
    pairs = learnt(bpe)
    for text in TEXTS[:300] + ["Unseen wörds: ñandú, 日本"]:
        symbols = [
            symbol
            for word in words_of(bpe, [text])
            for symbol in merged(word, pairs)
        ]
        ids = [bpe.tokenizer.token_to_id(s) for s in symbols]
        assert bpe.encode(text) == ids


@pytest.mark.parametrize("size", [260, 333])
def test_a_vocabulary_of_the_size_asked_for(size):
    assert len(BPETokenizer.train(TEXTS, size)) == size


def test_training_is_deterministic(bpe):
    again = BPETokenizer.train(iter(TEXTS), 500)
    assert again.tokenizer.to_str() == bpe.tokenizer.to_str()


def test_round_trip_of_any_text(bpe):
    chance = random.Random(3)
    kinds = [range(128), range(0x300), range(0x3000), range(0x110000)]
    for _ in range(500):
        signs = [chr(chance.choice(chance.choice(kinds))) for _ in range(20)]
        text = "".join(s for s in signs if not 0xD800 <= ord(s) < 0xE000)
        assert bpe.decode(bpe.encode(text)) == text
        assert all(EOS < i < len(bpe) for i in bpe.encode(text))
    for text in ["", " ", "  two  spaces ", "\n\t", "🏳️‍🌈 e\u0301"]:
        assert bpe.decode(bpe.encode(text)) == text


def test_special_tokens(bpe, tmp_path):
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert bpe.pieces(range(4)) == [*SPECIAL.values()]
    bpe.save(tmp_path / "new" / "bpe.json")
    loaded = BPETokenizer.load(tmp_path / "new" / "bpe.json")
    for text in ("<eos>", "a <pad> b", "<bos><unk>", "I like trees"):
        for tokenizer in (bpe, loaded):  # none can be injected
            assert tokenizer.encode(text) == bpe.encode(text)
            assert min(tokenizer.encode(text)) > EOS
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_ids_to_be_read(bpe):
    ids = torch.tensor([BOS, *bpe.encode("Do I see it?"), EOS, PAD])
    assert bpe.decode(ids) == "Do I see it?"
    assert "".join(bpe.pieces(ids[1:-2])) == "Do▁I▁see▁it?"


def other(bpe, change):
    kept = json.loads(bpe.tokenizer.to_str())
    change(kept)
    return json.dumps(kept)


def test_what_is_no_tokenizer(bpe, tmp_path):
    def swapped(kept):
        kept["model"]["vocab"] |= {"<eos>": 2, "<bos>": 3}
        kept["added_tokens"] = []

    path = tmp_path / "tokenizer.json"
    for content in (
        "",
        "{}",
        "[1]",
        "{",
        b"\xff",
        other(bpe, swapped),
    ):
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="tokenizer.json"):
            BPETokenizer.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        BPETokenizer.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("texts", [[], "one sentence", iter(())])
def test_nothing_to_learn_from(texts):
    with pytest.raises(ValueError, match="no texts"):
        BPETokenizer.train(texts)


def test_vocabulary_too_small():
    with pytest.raises(ValueError, match="259: give 260"):
        BPETokenizer.train(TEXTS, vocab_size=259)


def test_a_sentence_has_an_end(bpe):
    assert bpe.encode("a" * 10_000)
    for door in (bpe.encode, lambda text: BPETokenizer.train([text])):
        with pytest.raises(ValueError, match="10001 characters"):
            door("a" * 10_001)
