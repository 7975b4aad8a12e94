"""The tokenizer: one form of a text, byte pairs, special tokens."""

import copy
import json
import pickle
import random
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import torch

from transformer_lib.checkpoints import load_config
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.tokenization import BPETokenizer

CORPUS = load_corpus("little_spanish")
TEXTS = CORPUS.sources + CORPUS.targets
LETTERS = "abcdefghijklmnop"
SPECIAL = ["<pad>", "<unk>", "<bos>", "<eos>"]


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
    # The recorded translators say what they have.
    folders = [*root.glob("pretrained/*/config.json")]
    assert len(folders) > 3
    for path in folders:
        config, tokenizer, *_ = load_config(path.parent)
        assert config.vocab_size == len(tokenizer)
        assert all(tokenizer.pieces(range(len(tokenizer))))


def test_round_trip_of_any_text(bpe):
    """What comes back is the text, apart from its form."""
    chance = random.Random(3)
    kinds = [range(128), range(0x300), range(0x3000), range(0x110000)]
    for _ in range(500):
        signs = [chr(chance.choice(chance.choice(kinds))) for _ in range(20)]
        text = "".join(s for s in signs if not 0xD800 <= ord(s) < 0xE000)
        assert bpe.decode(bpe.encode(text)) == plain(text)
        assert all(EOS < i < len(bpe) for i in bpe.encode(text))
    for text in ["", "two spaces", "🏳️\u200d🌈", *TEXTS[:99]]:
        assert bpe.decode(bpe.encode(text)) == text


HIDDEN = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
HIDDEN += "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))


SPACES = "\t-\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def plain(text):
    """The form that a text is brought into."""
    text = "".join(sign for sign in text if sign not in HIDDEN)
    text = unicodedata.normalize("NFC", text)
    return re.sub(f"[ {SPACES}]+", " ", text).strip(" ")


OTHER_SPACES = [
    *"\t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u3000"
]
OTHER_SPACES += ["  ", "   ", "\r\n", "\n\n", " \xa0 "]
SAME = {  # a sentence, and the beginning of a word in it
    "de": ("Das Mädchen trägt grüne Schuhe.", "grü"),
    "es": ("Me gustan los árboles y las niñas.", "ni"),
    "fr": ("Une fille à côté d'une fenêtre.", "fe"),
    "ja": ("私は 東京が 好きです。", "東京"),
    "zh": ("一 只狗 在跑。", "只狗"),
}


@pytest.mark.parametrize("language", SAME)
def test_texts_that_look_the_same_are_the_same(bpe, root, language):
    """For a tokenizer that is trained here, and for those that ship."""
    sentence, part = SAME[language]
    shipped = root / "pretrained/tatoeba-de-en/tokenizer.json"
    for tokenizer in (bpe, BPETokenizer.load(shipped)):
        ids = tokenizer.encode(sentence)
        forms = [sentence.replace(" ", space) for space in OTHER_SPACES]
        for hidden in HIDDEN:
            inside = sentence.replace(part, part[0] + hidden + part[1:])
            forms.append(hidden + inside + hidden)
        forms += [f"{space}{sentence}{space}" for space in OTHER_SPACES]
        apart = unicodedata.normalize("NFD", sentence)
        forms += [apart, re.sub("([\u0300-\u036f])", "\u00ad\\1", apart)]
        assert {tuple(tokenizer.encode(form)) for form in forms} == {(*ids,)}
        assert tokenizer.encode_all(forms) == [ids] * len(forms)
        assert tokenizer.decode(ids) == sentence
    for joiner in "\u200c", "\u200d":  # these carry meaning
        assert joiner in bpe.decode(bpe.encode(f"a{joiner}b"))


def test_a_failed_save_leaves_the_old_file(bpe, tmp_path, monkeypatch):
    path = tmp_path / "bpe.json"
    bpe.save(path)
    old = path.read_text("utf-8")

    def full(self, text, encoding):
        self.write_bytes(text.encode(encoding)[:100])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space left"):
        bpe.save(path)
    assert path.read_text("utf-8") == old
    assert [*tmp_path.iterdir()] == [path]


NASTY = ["<eos>", "a <pad> b", "<bos><unk>", " two  spaces\r", "\ufeff", " "]


def test_its_file_says_all_of_it(bpe, root, tmp_path, monkeypatch):
    """A copy, and any program that reads the file, gives the same ids."""
    monkeypatch.setenv("HOME", str(tmp_path))
    bpe.save("~/new/bpe.json")
    assert len(BPETokenizer.load("~/new/bpe.json")) == len(bpe)
    shipped = [*root.glob("pretrained/*/tokenizer.json")]
    for path in (tmp_path / "new" / "bpe.json", *shipped):
        ours = BPETokenizer.load(path)
        twins = [
            tokenizers.Tokenizer.from_file(str(path)),
            copy.deepcopy(ours).tokenizer,
            pickle.loads(pickle.dumps(ours)).tokenizer,
        ]
        for text in [*NASTY, *TEXTS[:50]]:
            ids = ours.encode(text)
            assert [twin.encode(text).ids for twin in twins] == [ids] * 3
            assert not {*ids} & {*range(4)}  # none can be injected
            assert ours.decode(ids) == plain(text)
        assert ours.pieces(range(4)) == SPECIAL


def test_what_is_not_a_text(bpe):
    for wrong in (None, b"I like", ["I", "like"], 5):
        for call in (bpe.encode, lambda x: bpe.encode_all(["A", x])):
            with pytest.raises(TypeError, match="is not a text: give a str"):
                call(wrong)
    with pytest.raises(TypeError, match="None is not a text"):
        BPETokenizer.train(["I like", None])
    # Half a character, of JSON's or JavaScript's: whole, or a sign of it.
    assert bpe.decode(bpe.encode("\ud83c\udf33 \ud83c!")) == "🌳 \ufffd!"


def test_ids_to_be_read(bpe):
    ids = torch.tensor([BOS, *bpe.encode("Do I see it?"), EOS, PAD])
    assert bpe.decode(ids) == "Do I see it?"
    assert "".join(bpe.pieces(ids[1:-2])) == "Do▁I▁see▁it?"
    # A byte that is only part of a character is shown as
    # decoders show it; here with a space before it.
    words = BPETokenizer.train(["東 本 日 水 海 樹 春"], 261)
    assert words.pieces([260]) == ["▁�"]
    every = bpe.pieces(range(4, 260))
    assert every.count("�") == 128
    assert {chr(byte) for byte in range(33, 127)} < {*every}


ADDED = {"id": EOS, "content": "<eos>", "special": True, "normalized": False}
ADDED |= dict.fromkeys(["single_word", "lstrip", "rstrip"], False)


def test_what_is_not_a_tokenizer(bpe, tmp_path):
    kept = json.loads(bpe.tokenizer.to_str())
    others = json.loads(bpe.tokenizer.to_str())
    others["model"]["vocab"] |= {"<eos>": 2, "<bos>": 3}
    kept["added_tokens"] = [ADDED]
    path = tmp_path / "tokenizer.json"
    for content, said in (
        ("", "EOF"),
        ("{}", "Model"),
        (json.dumps(others), "<bos> is not token 2"),
        (json.dumps(kept), "'<eos>'. would be read in a text: use a"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"tokenizer.json: .*{said}"):
            BPETokenizer.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        BPETokenizer.load(tmp_path / "nowhere.json")


def test_one_text_is_not_many_and_bytes_need_room():
    tokenizer = BPETokenizer.train(["one sentence"], 260)
    for use in BPETokenizer.train, tokenizer.encode_all:
        with pytest.raises(TypeError, match="'one sentence'.*a list of texts"):
            use("one sentence")
    with pytest.raises(ValueError, match="259: give at least 260"):
        BPETokenizer.train(TEXTS, vocab_size=259)


@pytest.mark.parametrize("number", [-1, 300])
def test_an_id_of_another_tokenizer_is_named(number):
    """The package would leave it out of the text, without a word."""
    tokenizer = BPETokenizer.train(["one two"], 260)
    for use in tokenizer.decode, tokenizer.pieces:
        with pytest.raises(ValueError, match=f"no id {number}, .* 0 to "):
            use([4, number])
    for wrong in "456", [4.5], [[4, 5]]:
        with pytest.raises(TypeError, match="integer"):
            tokenizer.decode(wrong)
