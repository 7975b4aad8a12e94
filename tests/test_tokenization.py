"""Tokenizers: round trips, special tokens, merges, words."""

import json
import random
import subprocess
import sys

import pytest
import torch

from transformer_lib.corpora import load_corpus
from transformer_lib.tokenization import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    BPETokenizer,
    WordTokenizer,
    merges,
)

TEXTS = [
    sentence
    for pair in load_corpus("little_spanish")
    for sentence in pair
]


@pytest.fixture(scope="module")
def bpe():
    return BPETokenizer.train(TEXTS, vocab_size=500)


@pytest.fixture(scope="module")
def words():
    pytest.importorskip("spacy")
    return WordTokenizer.train(TEXTS, "en")


def any_text(chance):
    """A string of any Unicode characters but halves of a pair."""
    kinds = [range(128), range(0x300), range(0x3000), range(0x110000)]
    signs = [
        chr(chance.choice(chance.choice(kinds))) for _ in range(20)
    ]
    return "".join(s for s in signs if not "\ud800" <= s <= "\udfff")


def test_special_tokens(bpe, words):
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert bpe.pieces(range(4)) == words.pieces(range(4)) == SPECIAL


@pytest.mark.parametrize("dropout", [0.0, 0.3, 1.0])
def test_round_trip_of_any_text(bpe, dropout):
    chance = random.Random(3)
    texts = [any_text(chance) for _ in range(500)]
    texts += [
        "",
        " ",
        "  two  spaces ",
        "\n\t",
        "🏳️‍🌈 é e\u0301",
        "日本",
    ]
    for text in texts + TEXTS[:50]:
        ids = bpe.encode(text, dropout)
        assert bpe.decode(ids) == text
        assert all(len(SPECIAL) <= id_ < len(bpe) for id_ in ids)


@pytest.mark.parametrize("where", ["{}", "a {} b", "{}{}"])
def test_special_tokens_cannot_be_injected(
    bpe, words, where, tmp_path
):
    bpe.save(tmp_path / "bpe.json")
    loaded = BPETokenizer.load(tmp_path / "bpe.json")
    for special in SPECIAL:
        text = where.format(special, special)
        for tokenizer in (bpe, loaded):
            assert min(tokenizer.encode(text)) >= len(SPECIAL)
            assert tokenizer.decode(tokenizer.encode(text)) == text
        assert not set(words.encode(text)) & {PAD, BOS, EOS}


def test_special_ids_are_passed_over(bpe):
    ids = bpe.encode("I like trees")
    padded = [BOS, *ids, EOS, PAD, PAD]
    assert bpe.decode(padded) == "I like trees"
    assert bpe.decode(torch.tensor(padded)) == "I like trees"
    assert bpe.pieces(torch.tensor(ids)) == bpe.pieces(ids)


def test_pieces_spell_the_text(bpe):
    ids = bpe.encode("Do you like trees?")
    assert "".join(bpe.pieces(ids)) == "Do▁you▁like▁trees?"


def test_merges_are_the_tokenizer(bpe):
    for text in TEXTS[:300] + ["Unseen wörds: ñandú, 日本"]:
        replayed = []
        split = bpe.tokenizer.pre_tokenizer.pre_tokenize_str(text)
        for word, _ in split:
            *_, last = merges(word, bpe.ranks)
            replayed += last
        assert replayed == bpe.tokenizer.encode(text).tokens


def test_merges_one_at_a_time():
    ranks = {("l", "o"): 0, ("lo", "w"): 1, ("e", "r"): 2}
    states = list(merges("lower", ranks))
    assert states == [
        ["l", "o", "w", "e", "r"],
        ["lo", "w", "e", "r"],
        ["low", "e", "r"],
        ["low", "er"],
    ]
    assert list(merges("xyz", ranks)) == [["x", "y", "z"]]
    assert list(merges("", ranks)) == [[]]


def test_dropout(bpe):
    text = "Los camiones blancos son caros"
    whole = bpe.encode(text)
    assert bpe.encode(text, dropout=0.0, seed=5) == whole
    assert bpe.encode(text, 0.5, 1) == bpe.encode(text, 0.5, 1)
    many = {tuple(bpe.encode(text, 0.5, seed)) for seed in range(20)}
    assert len(many) > 10
    assert all(len(ids) >= len(whole) for ids in many)
    assert len(bpe.encode(text, 1.0)) == len(text.encode())


def test_training_is_deterministic(bpe):
    again = BPETokenizer.train(iter(TEXTS), vocab_size=500)
    assert again.tokenizer.to_str() == bpe.tokenizer.to_str()
    assert len(bpe) == len(again) == 500


def test_one_vocabulary_for_two_languages(bpe):
    english, spanish = (
        {id_ for text in side for id_ in bpe.encode(text)}
        for side in (TEXTS[::2], TEXTS[1::2])
    )
    assert (
        english & spanish and english - spanish and spanish - english
    )


def test_save_and_load(bpe, words, tmp_path):
    for tokenizer in (bpe, words):
        path = tmp_path / "new" / "tokenizer.json"
        tokenizer.save(path)
        tokenizer.save(path)  # over the old one
        loaded = type(tokenizer).load(path)
        assert len(loaded) == len(tokenizer)
        for text in TEXTS[:100]:
            assert loaded.encode(text) == tokenizer.encode(text)
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_saving_is_whole_or_nothing(bpe, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("the old one")

    def cut(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", cut)
    with pytest.raises(OSError, match="disk full"):
        bpe.save(path)
    assert path.read_text() == "the old one"


@pytest.mark.parametrize("kind", [BPETokenizer, WordTokenizer])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        "{",
        '{"words": ["a"], "language": "en"}',
        b"\xff",
    ],
)
def test_what_is_no_tokenizer(kind, content, tmp_path):
    path = tmp_path / "tokenizer.json"
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="tokenizer.json"):
        kind.load(path)


def test_a_tokenizer_of_other_making(bpe, tmp_path):
    kept = json.loads(bpe.tokenizer.to_str())
    vocabulary = kept["model"]["vocab"]
    vocabulary["<eos>"], vocabulary["<bos>"] = 2, 3
    kept["added_tokens"] = []
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="first tokens"):
        BPETokenizer.load(path)


def test_missing_file(tmp_path):
    for kind in (BPETokenizer, WordTokenizer):
        with pytest.raises(FileNotFoundError, match="nowhere.json"):
            kind.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("texts", [[], "one sentence", iter(())])
def test_nothing_to_learn_from(texts):
    with pytest.raises(ValueError, match="list of sentences"):
        BPETokenizer.train(texts)
    with pytest.raises(ValueError, match="list of sentences"):
        WordTokenizer.train(texts, "en")


def test_vocabulary_too_small():
    with pytest.raises(ValueError, match="259.*260"):
        BPETokenizer.train(TEXTS, vocab_size=259)
    with pytest.raises(ValueError, match="room"):
        WordTokenizer.train(TEXTS, "en", vocab_size=4)


def test_words():
    pytest.importorskip("spacy")
    texts = ["A dog runs.", "A dog, a  dog isn't here."]
    tokenizer = WordTokenizer.train(texts, "en", min_count=2)
    assert tokenizer.words == [*SPECIAL, "dog", "A", "."]
    few = WordTokenizer.train(texts, "en", vocab_size=6)
    assert few.words == [*SPECIAL, "dog", "A"]
    ids = tokenizer.encode("A cat.")
    assert ids == [5, UNK, 6]
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == "A <unk> ."
    assert tokenizer.pieces(ids) == ["A", "<unk>", "."]
    assert tokenizer.cut("isn't  it") == ["is", "n't", "it"]


def test_import_needs_no_spacy():
    code = (
        "import sys, transformer_lib.tokenization;"
        "print([m for m in ('spacy', 'torch') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert told.stdout.strip() == "[]", told.stderr
