"""Corpora: the grammar, the files, the splits."""

import gzip
import hashlib
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient

from transformer_lib import corpora, grammar
from transformer_lib.corpora import (
    CORPORA,
    SHA256,
    ParallelCorpus,
    corpus_files,
    data_folder,
    fetch,
    load_corpus,
    read_parallel,
    split_of,
)
from transformer_lib.grammar import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    agree,
    held_out,
    little_spanish,
    sentence,
    thing,
)

SPLITS = ("train", "validation", "test")
HERE = data_folder()
needs_multi30k = pytest.mark.skipif(
    not all(path.is_file() for path in corpus_files("multi30k")),
    reason="the files of Multi30k are not there",
)
needs_tatoeba = pytest.mark.skipif(
    not all(path.is_file() for path in corpus_files("tatoeba")),
    reason="the files of Tatoeba are not there",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no network."""
    import requests

    def unplugged(*arguments, **options):
        raise requests.ConnectionError("no network in this test")

    monkeypatch.setattr(requests, "get", unplugged)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    return tmp_path


def archive(path, text, name="spa-eng/spa.txt"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("_about.txt", "licence")
        file.writestr(name, text)


# The grammar


@pytest.mark.parametrize(
    "arguments, english, spanish",
    [
        (
            ("I", "like", "tree", "/los/las", True),
            "I like trees",
            "Me gustan los árboles",
        ),
        (
            (
                "the boy",
                "like",
                "key",
                "my/mi/mi",
                False,
                "red",
                "negation",
            ),
            "The boy does not like my red key",
            "Al niño no le gusta mi llave roja",
        ),
        (
            (
                "the girls",
                "like",
                "pencil",
                "these/estos/estas",
                True,
                "",
                "question",
            ),
            "Do the girls like these pencils?",
            "¿A las niñas les gustan estos lápices?",
        ),
        (
            (
                "Ana",
                "look for",
                "apple",
                "a/un/una",
                False,
                "",
                "statement",
            ),
            "Ana looks for an apple",
            "Ana busca una manzana",
        ),
        (
            (
                "he",
                "have",
                "car",
                "a/un/una",
                False,
                "expensive",
                "question",
            ),
            "Does he have an expensive car?",
            "¿Tiene él un coche caro?",
        ),
        (
            ("we", "want", "lamp", "//", True, "blue", "negation"),
            "We do not want blue lamps",
            "No queremos lámparas azules",
        ),
        (
            (
                "I",
                "red",
                "house",
                "the/el/la",
                False,
                "old",
                "question",
            ),
            "Is the old house red?",
            "¿Es roja la casa vieja?",
        ),
        (
            (
                "I",
                "big",
                "truck",
                "the/los/las",
                True,
                "",
                "negation",
            ),
            "The trucks are not big",
            "Los camiones no son grandes",
        ),
    ],
)
def test_sentences(arguments, english, spanish):
    assert sentence(*arguments) == (english, spanish)


def test_agreement():
    forms = {
        (noun, plural): agree("red", noun, plural)
        for noun in ("car", "house")
        for plural in (False, True)
    }
    assert [*forms.values()] == ["rojo", "rojos", "roja", "rojas"]
    assert agree("blue", "house", True) == "azules"
    assert agree("green", "house", True) == "verdes"
    assert agree("big", "car", True) == "grandes"


def test_article_before_a_vowel():
    assert thing("apple", "a/un/una", False)[0] == "an apple"
    assert (
        thing("apple", "a/un/una", False, "red")[0] == "a red apple"
    )
    assert thing("hat", "a/un/una", False, "old")[0] == "an old hat"


def test_one_translation_each_way():
    pairs = little_spanish()
    assert len(pairs) == 6000
    assert len({english for english, _ in pairs}) == 6000
    assert len({spanish for _, spanish in pairs}) == 6000


def test_splits_share_no_sentence():
    splits = [dict(little_spanish(split)) for split in SPLITS]
    assert [len(split) for split in splits] == [5000, 500, 500]
    assert len(set().union(*splits)) == 6000
    assert splits[2]["I like trees"] == "Me gustan los árboles"


def met(english):
    """The combinations of a sentence, read off its English words."""
    words = re.sub(r"look(s?) for", r"look_for\1", english.lower())
    words = words.rstrip("?").replace("has", "have").split()
    noun = next(n for n in NOUNS for w in words if w in (n, n + "s"))
    known = [*VERBS, *ADJECTIVES]
    bare = [w.replace("_", " ") for w in words]
    return {
        (noun, partner)
        for partner in known
        if partner in bare or partner + "s" in bare
    }


def test_combinations_of_the_test_are_new():
    seen, kept = set(), set()
    for english, _ in little_spanish("train") + little_spanish(
        "validation"
    ):
        assert met(english)
        assert not any(held_out(*pair) for pair in met(english))
        seen |= met(english)
    for english, _ in little_spanish("test"):
        new = {pair for pair in met(english) if held_out(*pair)}
        assert new and not new & seen
        kept |= new
    assert len(kept) == 36  # every combination kept back is asked for


def test_every_word_of_the_test_is_in_training():
    def words(split, side):
        return {
            word.strip("¿?").lower()
            for pair in little_spanish(split)
            for word in pair[side].split()
        }

    for side in (0, 1):
        assert words("test", side) <= words("train", side)
        assert words("validation", side) <= words("train", side)


def test_marks_and_accents():
    for english, spanish in little_spanish():
        asks = english.endswith("?")
        assert (
            asks == spanish.startswith("¿") == spanish.endswith("?")
        )
        assert english[0].isupper() and spanish[asks].isupper()
        assert "  " not in english + spanish
        assert " a el " not in spanish.lower()
        assert not english.endswith(".") and not spanish.endswith(".")


def test_the_same_in_every_process():
    code = (
        "import hashlib; from transformer_lib.grammar import *;"
        "text = repr(little_spanish()).encode();"
        "print(hashlib.sha256(text).hexdigest())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    here = hashlib.sha256(repr(little_spanish()).encode()).hexdigest()
    assert told.stdout.strip() == here


def test_no_global_random_state():
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    grammar._splits.cache_clear()
    little_spanish()
    assert random.random() == expected


# The door


def test_either_way_round():
    there = load_corpus("little_spanish", "en", "es", "test")
    back = load_corpus("little_spanish", "es", "en", "test")
    assert [(b, a) for a, b in there] == list(back)
    assert (back.source, back.target, back.split) == (
        "es",
        "en",
        "test",
    )
    assert there[0] == ("I like trees", "Me gustan los árboles")


def test_a_slice_is_a_corpus():
    corpus = load_corpus("little_spanish")
    part = corpus[10:13]
    assert isinstance(part, ParallelCorpus) and len(part) == 3
    assert part.source == "en" and part.licence == corpus.licence
    assert part.sources == [pair[0] for pair in part]
    assert part.targets == [pair[1] for pair in part]
    assert corpus[-1] == list(corpus)[-1]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("spanish",), "little_spanish"),
        (("little_spanish", "en", "de"), "'es'"),
        (("little_spanish", "en", "en"), "'en' to 'en'"),
        (("tatoeba", "de", "es"), "'en' among them"),
        (("multi30k", "es", "en"), "'fr'"),
        (("little_spanish", "en", "es", "dev"), "validation"),
        (("little_spanish", "en", "es", "val"), "validation"),
    ],
)
def test_what_there_is_not(arguments, said):
    with pytest.raises(ValueError, match=said):
        load_corpus(*arguments)


# Files


def test_data_folder(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", "/some/where")
    assert str(data_folder()) == "/some/where"
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert str(data_folder()) == "/cache/transformer_lib"


def test_corpus_files(folder):
    assert corpus_files("little_spanish") == []
    assert len(corpus_files("multi30k")) == 9
    assert (
        corpus_files("tatoeba")[1] == folder / "tatoeba/spa-eng.zip"
    )
    assert all(len(sum_) == 64 for sum_ in SHA256.values())


@pytest.mark.parametrize("name", ["multi30k", "tatoeba"])
def test_no_file_and_no_network(folder, name):
    with pytest.raises(FileNotFoundError) as told:
        load_corpus(name, "en", "de")
    file = corpus_files(name)[0 if name == "tatoeba" else 1]
    assert str(file) in str(told.value)  # where to put it
    assert CORPORA[name][1] + file.name in str(told.value)
    assert not list(folder.rglob("*.*"))  # nothing half-written


def test_corrupt_file(folder):
    path = folder / "multi30k" / "train.en.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"A dog.\n"))
    with pytest.raises(
        ValueError, match="corrupt.*Delete it"
    ) as told:
        fetch("multi30k", "train.en.gz")
    assert str(path) in str(told.value)


class FakeResponse:
    def __init__(self, content):
        self.content, self.headers = content, {}

    def raise_for_status(self):
        pass

    def iter_content(self, chunk_size):
        yield self.content

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def serve(monkeypatch, content):
    import requests

    def get(*arguments, **options):
        return FakeResponse(content)

    monkeypatch.setattr(requests, "get", get)


def test_download(folder, monkeypatch):
    content = gzip.compress(b"A dog.\n", mtime=0)
    sum_ = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(SHA256, "train.en.gz", sum_)
    serve(monkeypatch, content)
    path = fetch("multi30k", "train.en.gz")
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [
        path.name
    ]
    serve(monkeypatch, b"something else")  # the file is used as it is
    assert fetch("multi30k", "train.en.gz").read_bytes() == content


def test_download_with_a_wrong_sum(folder, monkeypatch):
    serve(monkeypatch, b"<html>not found</html>")
    with pytest.raises(FileNotFoundError, match="was not downloaded"):
        fetch("multi30k", "train.en.gz")
    assert not list((folder / "multi30k").iterdir())


def test_a_download_in_a_notebook_warns_of_nothing(folder):
    """What a chapter writes to stderr would fail the book's build."""
    cell = """
from transformer_lib import corpora
languages, _, licence = corpora.CORPORA["multi30k"]
nowhere = languages, "http://127.0.0.1:9/", licence
corpora.CORPORA["multi30k"] = nowhere
try:
    corpora.fetch("multi30k", "train.en.gz")
except FileNotFoundError as error:
    print(error)
"""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell)]
    NotebookClient(notebook, kernel_name="python3").execute()
    (said,) = notebook.cells[0].outputs
    assert said.name == "stdout" and "was not downloaded" in said.text


def test_a_present_file_needs_no_pooch(folder, monkeypatch):
    archive(folder / "tatoeba/spa-eng.zip", "Go.\tVe.\n")
    monkeypatch.setitem(
        sys.modules, "pooch", None
    )  # cannot be imported
    assert [
        len(load_corpus("tatoeba", split=s)) for s in SPLITS
    ].count(1) == 1
    with pytest.raises(FileNotFoundError, match="pooch"):
        load_corpus("multi30k", "en", "de")


# Tatoeba


def test_tatoeba_is_read_tolerantly(folder):
    text = (
        "\ufeffI ran.\tCorrí.\tCC-BY 2.0 (France) #1\r\n"
        "I ran.\tCorrí.\n"  # the same pair again
        "I ran.\tYo corrí.\tCC-BY\n"
        "\n"
        "no tab\n"
        "\tVacío.\n"
        " She\u00a0swims. \t Ella nada. \n"
    )
    archive(folder / "tatoeba/spa-eng.zip", text)
    pairs = [
        pair
        for s in SPLITS
        for pair in load_corpus("tatoeba", split=s)
    ]
    assert sorted(pairs) == [
        ("I ran.", "Corrí."),
        ("I ran.", "Yo corrí."),
        ("She\u00a0swims.", "Ella nada."),
    ]


@pytest.mark.parametrize("broken", ["no zip", "cut", "other name"])
def test_corrupt_archive(folder, broken):
    path = folder / "tatoeba/spa-eng.zip"
    name = "other.txt" if broken == "other name" else "spa.txt"
    archive(path, "Go.\tVe.\n" * 1000, name)
    content = path.read_bytes()
    if broken == "cut":
        path.write_bytes(content[: len(content) // 2])
    if broken == "no zip":
        path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match="Delete it") as told:
        load_corpus("tatoeba", "es", "en")
    assert str(path) in str(told.value)


def test_split_by_english_sentence():
    assert (
        split_of("I ran!") == split_of("i  RAN") == split_of("I ran.")
    )
    splits = [split_of(f"sentence {n}") for n in range(20_000)]
    for name in ("validation", "test"):
        assert 150 < splits.count(name) < 250


EDITION_2018 = {
    "de": (
        169_813,
        "b7688f84f99fa33c17397c14d8bd9cef1fdeb2ee0bf50074767023aee8926e28",
    ),
    "es": (
        118_964,
        "0c4fd7825d3d872488d38c157f784e035edab4f2ff0df25a2a208790ecb5b58f",
    ),
}


@needs_tatoeba
@pytest.mark.parametrize("language, place", [("de", 0), ("es", 1)])
def test_tatoeba(language, place):
    splits = [
        load_corpus("tatoeba", "en", language, s) for s in SPLITS
    ]
    english = [set(split.sources) for split in splits]
    assert not english[0] & (english[1] | english[2])
    assert not english[1] & english[2]
    assert all(len(split) > 1000 for split in splits)
    total, sum_ = EDITION_2018[language]
    content = corpus_files("tatoeba")[place].read_bytes()
    if hashlib.sha256(content).hexdigest() == sum_:
        assert sum(map(len, splits)) == total


@needs_multi30k
def test_multi30k():
    sizes = [
        len(load_corpus("multi30k", "de", "en", s)) for s in SPLITS
    ]
    assert sizes == [29_000, 1_014, 1_000]
    own = load_corpus("multi30k", "de", "fr", "test_2016_flickr")
    assert own.split == "test" and len(own) == 1000
    assert (
        load_corpus("multi30k", "fr", "de", "test")[5] == own[5][::-1]
    )
    val = load_corpus("multi30k", "de", "en", "val")
    assert val == load_corpus("multi30k", "de", "en", "validation")


# One's own files


def write(path, text):
    path.write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    return path


def test_own_files(tmp_path):
    left = write(tmp_path / "a.en", "\ufeffOne.\r\nTwo\u2028three.\n")
    right = tmp_path / "a.de.gz"
    right.write_bytes(gzip.compress("Eins.\nZwei\x85drei.".encode()))
    corpus = read_parallel(left, right, "en", "de")
    assert list(corpus) == [
        ("One.", "Eins."),
        ("Two\u2028three.", "Zwei\x85drei."),
    ]
    assert (corpus.source, corpus.target) == ("en", "de")


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"one\ntwo\n", "2 lines.*3"),
        (b"gr\xfcn\n", "UTF-8"),
    ],
)
def test_bad_own_files(tmp_path, content, said):
    left = write(tmp_path / "left.txt", content)
    right = write(tmp_path / "right.txt", "eins\nzwei\ndrei\n")
    with pytest.raises(ValueError, match=said) as told:
        read_parallel(left, right)
    assert str(left) in str(told.value)


def test_own_file_cut_short(tmp_path):
    content = gzip.compress(b"a sentence\n" * 100)
    left = write(tmp_path / "left.gz", content[:-12])
    with pytest.raises(ValueError, match="cut short"):
        read_parallel(left, left)


def test_missing_own_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.txt"):
        read_parallel(
            tmp_path / "nowhere.txt", tmp_path / "nowhere.txt"
        )


def test_import_is_light():
    code = (
        "import sys, transformer_lib.corpora;"
        "print([m for m in ('pooch', 'torch', 'requests')"
        " if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert told.stdout.strip() == "[]", told.stderr


def test_here_is_what_the_environment_says():
    assert corpora.data_folder() == HERE
