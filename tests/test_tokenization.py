"""The tokenizer: byte pairs, round trips, special tokens."""

import copy
import json
import pickle
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tokenizers.normalizers import Lowercase

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import load_config, save_model
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS, PAD, UNK
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import SPECIAL, BPETokenizer, Tokenizer
from transformer_lib.training import train
from transformer_lib.translator import Translator

CORPUS = load_corpus("little_spanish")
TEXTS = CORPUS.sources + CORPUS.targets
LETTERS = "abcdefghijklmnop"


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


GERMAN = [
    "Die Straße ist schön, weiß und länger als früher.",
    "Der Hund hört die Vögel, und die Vögel hören den Hund.",
    "Wir müssen größere Häuser für die Gäste bauen!",
    "The street is nice, white and longer than before.",
    "The dog hears the birds, and the birds hear the dog.",
]


def test_merges_are_the_tokenizer(bpe, tmp_path):
    german = BPETokenizer.train(GERMAN, vocab_size=380)
    german.save(tmp_path / "bpe.json")
    loaded = BPETokenizer.load(tmp_path / "bpe.json")
    page = " ".join(GERMAN * 3)
    unseen = ["Unseen wörds: ñandú, 日本", "Äußerst süße Füße", page]
    for tokenizer, texts in (
        (bpe, TEXTS[:300]),
        (german, GERMAN),
        (loaded, GERMAN),
    ):
        pairs, texts = learnt(tokenizer), texts + unseen
        assert len({*map("".join, pairs)}) == len(tokenizer) - 260 > 100
        wanted = []
        for text in texts:
            symbols = [
                symbol
                for word in words_of(tokenizer, [text])
                for symbol in merged(word, pairs)
            ]
            ids = [tokenizer.tokenizer.token_to_id(s) for s in symbols]
            assert tokenizer.encode(text) == ids
            wanted.append(ids)
        assert tokenizer.encode_all(texts) == wanted


def test_a_vocabulary_of_the_size_asked_for(root):
    for size in (260, 333):
        assert len(BPETokenizer.train(TEXTS, size)) == size
    chance = random.Random(1)
    invented = ["".join(chance.choices(LETTERS, k=8)) for _ in range(17_000)]
    assert len(BPETokenizer.train(invented, 37_001)) == 37_001
    assert len(BPETokenizer.train(invented[:5000])) == 8000
    # The recorded translators say what they asked for and what they have.
    folders = [*root.glob("pretrained/*/config.json")]
    assert len(folders) > 3
    for path in folders:
        config, tokenizer, info = load_config(path.parent)
        size = len(tokenizer)
        assert config.vocab_size == size
        assert size <= info.get("pieces_asked", size)
        assert all(tokenizer.pieces(range(size)))


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
    foreign = other(bpe, swapped).encode()
    for content in (b"", b"{}", b"[1]", b"{", b"\xff", foreign):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="tokenizer.json"):
            BPETokenizer.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        BPETokenizer.load(tmp_path / "nowhere.json")


TRUNCATION = {
    "direction": "Right",
    "max_length": 3,
    "strategy": "LongestFirst",
    "stride": 0,
}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<eos>", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {
        "<eos>": {"id": "<eos>", "ids": [3], "tokens": ["<eos>"]}
    },
}
WORDS = {
    "type": "WordLevel",
    "vocab": {"<pad>": 0, "<unk>": 1, "<bos>": 2, "<eos>": 3, "a": 4},
    "unk_token": "<unk>",
}


@pytest.mark.parametrize(
    "part, value",
    [
        ("normalizer", {"type": "Lowercase"}),
        ("pre_tokenizer", None),
        ("decoder", None),
        ("truncation", TRUNCATION),
        ("post_processor", TEMPLATE),
        ("model", WORDS),
        ("added_tokens", []),
    ],
)
def test_a_file_of_another_make(bpe, tmp_path, part, value):
    """It would load, and translate otherwise."""
    path = tmp_path / "tokenizer.json"
    path.write_text(other(bpe, lambda kept: kept.update({part: value})))
    with pytest.raises(ValueError, match=f"tokenizer.json.*make, in.*{part}"):
        BPETokenizer.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"dropout": 0.1},
        {"merges": []},
        {"ignore_merges": True},
        {"byte_fallback": True},
        {"unk_token": "<unk>"},
    ],
)
def test_a_model_of_another_make(bpe, tmp_path, change):
    path = tmp_path / "tokenizer.json"
    path.write_text(other(bpe, lambda kept: kept["model"].update(change)))
    with pytest.raises(ValueError, match=r"make, in \['model'\]"):
        BPETokenizer.load(path)


def test_what_could_not_be_loaded_is_neither_made_nor_saved(bpe, tmp_path):
    foreign = copy.deepcopy(bpe).tokenizer
    foreign.normalizer = Lowercase()
    with pytest.raises(ValueError, match="normalizer.*BPETokenizer.train"):
        BPETokenizer(foreign)
    changed = copy.deepcopy(bpe)
    changed.tokenizer.normalizer = Lowercase()
    with pytest.raises(ValueError, match="normalizer"):
        changed.save(tmp_path / "new" / "tokenizer.json")
    assert not list(tmp_path.iterdir())
    bpe.save(tmp_path / "tokenizer.json")
    loaded = BPETokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.tokenizer.to_str() == bpe.tokenizer.to_str()


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda bpe: pickle.loads(pickle.dumps(bpe)),
    ],
)
def test_in_a_copy_special_tokens_are_text_too(bpe, copied):
    again = copied(bpe)
    assert type(again) is BPETokenizer
    assert min(again.encode("<eos> a")) > EOS
    assert again.encode("<eos> a") == bpe.encode("<eos> a")


def test_many_texts_at_once(bpe):
    texts = [*TEXTS[:50], "<eos> a", "", "日本"]
    assert bpe.encode_all(iter(texts)) == [bpe.encode(x) for x in texts]
    with pytest.raises(ValueError, match="10001 characters"):
        bpe.encode_all(["a", "a" * 10_001])
    with pytest.raises(TypeError, match="'one sentence'.*a list of texts"):
        bpe.encode_all("one sentence")


def test_ids_of_another_vocabulary_do_not_vanish(bpe):
    most = len(bpe)
    assert bpe.decode([most - 1])
    for wrong in (most, -1):
        with pytest.raises(ValueError, match=f"{wrong}.* of {most} tokens"):
            bpe.decode([*bpe.encode("a"), wrong])


def test_a_full_disk_leaves_the_tokenizer_that_was_there(
    bpe, tmp_path, monkeypatch
):
    path = tmp_path / "tokenizer.json"
    bpe.save(path)
    before = path.read_text("utf-8")

    def full(self, text, encoding):
        self.write_bytes(text[:50].encode(encoding))
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        BPETokenizer.train(["another"], 300).save(path)
    assert path.read_text("utf-8") == before
    assert [*tmp_path.iterdir()] == [path]


def test_nothing_to_learn_from():
    for nothing in ([], iter(())):
        with pytest.raises(ValueError, match="no texts"):
            BPETokenizer.train(nothing)
    with pytest.raises(TypeError, match="'one sentence'.*a list of texts"):
        BPETokenizer.train("one sentence")
    for wrong in ([5], [("a", "b")], [b"bytes"]):
        with pytest.raises(TypeError, match="is no text"):
            BPETokenizer.train(wrong)


@pytest.mark.parametrize("size", [0, 259, 10**6 + 1])
def test_a_vocabulary_too_small_or_too_large(size):
    with pytest.raises(ValueError, match=f"{size}: give 260 to 1000000"):
        BPETokenizer.train(TEXTS, vocab_size=size)


def test_a_vocabulary_of_a_million_may_be_asked_for():
    assert len(BPETokenizer.train(["a"], 10**6)) == 260


def test_a_sentence_has_an_end(bpe):
    assert bpe.encode("a" * 10_000)
    for door in (bpe.encode, lambda text: BPETokenizer.train([text])):
        with pytest.raises(ValueError, match="10001 characters"):
            door("a" * 10_001)


# A tokenizer of one's own


class Words:
    """Words at spaces: no bytes, no merges, no parent class."""

    def __init__(self, texts):
        words = {word for text in texts for word in text.split()}
        self.tokens = [*SPECIAL.values(), *sorted(words)]

    def __len__(self):
        return len(self.tokens)

    def encode(self, text):
        known = {word: i for i, word in enumerate(self.tokens)}
        return [known.get(word, UNK) for word in text.split()]

    def decode(self, ids):  # an eos in it would be seen
        return " ".join(self.tokens[int(i)] for i in ids)


@pytest.fixture(scope="module")
def own():
    """Trained until two sentences are known by heart."""
    corpus = [("a dog runs", "ein Hund rennt"), ("a cat", "eine Katze")]
    words: Tokenizer = Words([text for pair in corpus for text in pair])
    torch.manual_seed(0)
    sizes = dict(N=1, d_model=32, d_ff=32, h=2, dropout=0.0)
    model = Transformer(TransformerConfig(len(words), **sizes))
    batches = TokenBatches(encode_pairs(corpus, words), 100)
    settings = dict(warmup_steps=30, max_steps=150, label_smoothing=0.0)
    train(model, batches, TrainingConfig(**settings))
    return Translator(model, words), corpus


def test_a_tokenizer_of_another_make_trains_and_translates(own):
    translator, corpus = own
    sources = [source for source, _ in corpus]
    assert translator.translate(sources) == [target for _, target in corpus]


def test_a_tokenizer_of_another_make_is_not_saved(own, tmp_path):
    class Saved(Words):
        def save(self, path):
            path.write_text("its words")

    translator, corpus = own
    saved = Saved([text for pair in corpus for text in pair])
    with pytest.raises(ValueError, match="nothing was saved.*tokenizer.json"):
        save_model(tmp_path / "m", translator.model, saved)
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_of_ones_own_with_pieces_labels_the_maps(own):
    class Shown(Words):
        def pieces(self, ids):
            return [self.tokens[int(i)] for i in ids]

    translator, corpus = own
    shown = Shown([text for pair in corpus for text in pair])
    seen = Translator(translator.model, shown).attention("a cat")
    assert seen.source == ["a", "cat", "<eos>"]
