"""Corpora: files of one's own, downloads, splits."""

import gzip
import hashlib
import json
import zipfile
from dataclasses import FrozenInstanceError
from importlib.resources import files
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from translators import write_corpus

from transformer_lib.corpora import (
    ParallelCorpus,
    data_folder,
    load_corpus,
    read_parallel,
)

SPLITS = ("train", "validation", "test")
DATA = files("transformer_lib") / "data"
DOWNLOADS = json.loads((DATA / "downloads.json").read_text())
HERE = data_folder()


def needs(name):
    return pytest.mark.skipif(
        not (HERE / name).is_file(), reason=f"{name} is not there"
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no network."""
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    serve(monkeypatch, None)
    return tmp_path


def serve(monkeypatch, content):
    """Let every download give this content; without any, fail."""
    import requests

    response = MagicMock(headers={})
    response.__enter__.return_value = response
    response.iter_content.return_value = [content]
    get = MagicMock(return_value=response)
    if content is None:
        get.side_effect = requests.ConnectionError("no network in this test")
    monkeypatch.setattr(requests, "get", get)


def archive(path, text, name="spa-eng/spa.txt"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("_about.txt", "licence")
        file.writestr(name, text)


# The door


def test_little_spanish(monkeypatch):
    for name in "HOME", "TRANSFORMER_LIB_DATA":  # it needs neither
        monkeypatch.delenv(name, raising=False)
    splits = [load_corpus("little_spanish", split=s) for s in SPLITS]
    assert [len(split) for split in splits] == [5000, 500, 500]
    pairs = [pair for split in splits for pair in split]
    english, spanish = map(set, zip(*pairs, strict=True))
    assert len(pairs) == len(english) == len(spanish) == 6000
    assert splits[2][0] == ("I like trees", "Me gustan los árboles")
    back = load_corpus("little_spanish", "es", "en", "test")
    assert [(b, a) for a, b in splits[2]] == [*back]
    named = (back.name, back.source, back.target, back.split)
    assert named == ("little_spanish", "es", "en", "test")


def test_little_spanish_stays_as_it_is():
    content = (DATA / "little_spanish.tsv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == (
        "c9cba18e04e1af9ea5850280e5540db37ab6296f822d275965d55059a46ae3fe"
    )


def test_in_the_file_of_people_two_meet_in_the_test_alone():
    """Ana and the boy; and no sentence is in the large file too."""
    text = (DATA / "little_people.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    assert len({english for _, english, _ in rows}) == len(rows) == 216
    for part, english, _ in rows:
        both = "Ana" in english and "the boy" in english.lower()
        assert (part == "test") == both, english
    large = (DATA / "little_spanish.tsv").read_text("utf-8")
    known = {line.split("\t")[1] for line in large.splitlines()}
    assert not known & {english for _, english, _ in rows}


def test_a_slice_is_a_corpus():
    corpus = load_corpus("little_spanish")
    part = corpus[10:13]
    assert isinstance(part, ParallelCorpus) and len(part) == 3
    assert part.source == "en"
    assert part.sources == [pair[0] for pair in part]
    assert part.targets == [pair[1] for pair in part]
    assert corpus[-1] == list(corpus)[-1]
    with pytest.raises(FrozenInstanceError):
        part.name = "another"
    assert len(repr(corpus)) < 200 and "'little_spanish'" in repr(corpus)


@pytest.mark.parametrize(
    "wrong",
    [
        (["I like"], ["Me gustan"]),
        ("name", [("I like", "Me gustan")]),
        ([("a", "b", "c")],),
        ([("a", None)],),
        ([3],),
        (zip(["a"], ["b"], strict=True),),
    ],
)
def test_what_is_no_corpus(wrong):
    with pytest.raises(TypeError, match="pairs is .*: give a list of tuples"):
        ParallelCorpus(*wrong)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("little_spanish", "en", "de"), "en-es.*not de-en"),
        (("tatoeba", "de", "es"), "'en-es'.*not de-es"),
        (("multi30k", "es", "en"), "en-fr.*not en-es"),
        (("little_spanish", "en", "es", "dev"), "validation"),
    ],
)
def test_what_there_is_not(arguments, said):
    with pytest.raises(ValueError, match=said):
        load_corpus(*arguments)


# Downloads


def test_data_folder(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", "/some/where")
    assert str(data_folder()) == "/some/where"
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", "")
    monkeypatch.setenv("HOME", "/home/her")
    assert str(data_folder()) == "/home/her/.cache/transformer_lib"


@pytest.mark.parametrize(
    "name, file",
    [("multi30k", "train.en.gz"), ("tatoeba", "deu-eng.zip")],
)
def test_no_file_and_no_network(folder, name, file):
    with pytest.raises(FileNotFoundError) as told:
        load_corpus(name, "en", "de")
    assert str(folder / name / file) in str(told.value)
    assert f"Fetch {DOWNLOADS[f'{name}/{file}'][0]}" in str(told.value)
    assert "TRANSFORMER_LIB_DATA" in str(told.value)
    assert not list(folder.rglob("*.*"))  # nothing half-written


def test_what_was_downloaded_is_kept(folder, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("web") / "spa-eng.zip"
    archive(elsewhere, "Go.\tVe.\n" * 300)
    serve(monkeypatch, elsewhere.read_bytes())  # has no known sum
    corpus = load_corpus("tatoeba")
    assert corpus[0] == ("Go.", "Ve.")
    path = folder / "tatoeba/spa-eng.zip"
    assert [*path.parent.iterdir()] == [path]
    # for all who share the folder
    assert path.stat().st_mode & 0o777 == 0o644
    serve(monkeypatch, None)
    assert load_corpus("tatoeba") == corpus


@needs("multi30k/train.de.gz")
def test_multi30k():
    sizes = [len(load_corpus("multi30k", "de", "en", s)) for s in SPLITS]
    assert sizes == [29_000, 1_014, 1_000]
    there = load_corpus("multi30k", "de", "fr", "test")
    back = load_corpus("multi30k", "fr", "de", "test")
    assert there[5] == back[5][::-1]


# Tatoeba


def test_tatoeba_rows(folder):
    text = (
        "\ufeffI ran.\tCorrí.\tCC-BY 2.0 (France) #1\r\n"
        "I ran.\tYo corrí.\tCC-BY\n"
        "She\u2028swims. \t Ella nada. \n"
    )
    archive(folder / "tatoeba/spa-eng.zip", text)
    assert [*load_corpus("tatoeba")] == [
        ("I ran.", "Corrí."),
        ("I ran.", "Yo corrí."),
        ("She\u2028swims.", "Ella nada."),
    ]
    assert load_corpus("tatoeba", "es", "en")[0] == ("Corrí.", "I ran.")


@pytest.mark.parametrize("end", [0, 200])
def test_an_archive_that_cannot_be_read(folder, end):
    """A page that says "not found", and the first part of a file."""
    path = folder / "tatoeba/spa-eng.zip"
    archive(path, "Go.\tVe.\n" * 1000)
    path.write_bytes(path.read_bytes()[:end] or b"<html>")
    said = "spa-eng.zip cannot be read.*not a zip.*get it"
    with pytest.raises(ValueError, match=said):
        load_corpus("tatoeba", "es", "en")
    zipfile.ZipFile(path, "w").close()
    with pytest.raises(ValueError, match="spa-eng.zip.*there is no file"):
        load_corpus("tatoeba", "es", "en")


def test_a_sentence_stays_in_its_split(folder):
    rows = [f"Sentence {n}.\tFrase {n}." for n in range(3000)]
    rows += [f"SENTENCE {n}!\tOtra frase {n}." for n in range(3000)]
    archive(folder / "tatoeba/spa-eng.zip", "\n".join(rows))
    splits = [load_corpus("tatoeba", split=s) for s in SPLITS]
    assert sum(map(len, splits)) == 6000
    bare = [{s.lower().strip(".!") for s in x.sources} for x in splits]
    assert not bare[0] & (bare[1] | bare[2]) and not bare[1] & bare[2]
    assert all(30 < len(split) < 90 for split in splits[1:])
    # Records depend on which sentence is where: by the sum of its letters.
    for part, split in zip(SPLITS, splits, strict=True):
        for text in split.sources:
            letters = "".join(x for x in text.lower() if x.isalnum())
            digest = hashlib.sha256(letters.encode()).hexdigest()
            place = {0: "test", 1: "validation"}.get(int(digest, 16) % 100)
            assert part == (place or "train")


# One's own files


def test_own_files(tmp_path):
    left, right = tmp_path / "a.en", tmp_path / "a.de.gz"
    left.write_bytes("\ufeffOne.\r\nTwo\u2028three.\r\n\n".encode())
    right.write_bytes(
        gzip.compress("Eins.\nZwo\x85\x0b\x0cGru\u0308n.".encode())
    )
    assert [*read_parallel(left, right)] == [
        ("One.", "Eins."),
        ("Two\u2028three.", "Zwo\x85\x0b\x0cGrün."),
    ]
    # A folder of them: many lines, some of them twice, and long ones.
    for split in SPLITS:
        pairs = [
            (f"A {split}'s  DOG\tno. {n % 70}", f"{'Ein  ' * (n % 90)}Hund")
            for n in range(1500)
        ]
        english, german = (
            "\n".join(side) for side in zip(*pairs, strict=True)
        )
        (tmp_path / f"{split}.en").write_text(english)
        packed = gzip.compress(german.encode())
        (tmp_path / f"{split}.de.gz").write_bytes(packed)
        corpus = load_corpus(str(tmp_path), "en", "de", split)
        assert [*corpus] == pairs
        back = load_corpus(str(tmp_path), "de", "en", split)
        assert [*back] == [pair[::-1] for pair in pairs]


def test_a_folder(tmp_path):
    write_corpus(tmp_path, "train", en="A.\n", de="A.\n")
    corpus = load_corpus(str(tmp_path), "de", "en")
    named = (corpus.name, corpus.source, corpus.target, corpus.split)
    assert named == (str(tmp_path), "de", "en", "train")
    assert load_corpus(tmp_path, "de", "en") == corpus
    for missing, said in (
        (("de", "fr"), "no train.fr .*but .'train.de'.*other languages"),
        (("de", "en", "test"), "no test.de .*'train.en'.*another split"),
    ):
        with pytest.raises(FileNotFoundError, match=said):
            load_corpus(str(tmp_path), *missing)
    with pytest.raises(FileNotFoundError, match="nowhere' is neither a fold"):
        load_corpus("nowhere", "de", "en")
    write_corpus(tmp_path, "train", en="\n", de="\n")
    with pytest.raises(ValueError, match="no pairs for train"):
        load_corpus(str(tmp_path), "de", "en")


def test_a_path_is_a_folder_and_a_name_says_what_it_is(tmp_path, monkeypatch):
    """Also a folder that has the name of a corpus, and one at home."""
    sides = {x: f"my own line in {x}\n" for x in ("en", "es")}
    write_corpus(tmp_path / "little_spanish", "train", **sides)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = [("my own line in en", "my own line in es")]
    for name in (
        Path("little_spanish"),
        "./little_spanish",
        tmp_path / "little_spanish",
        "~/little_spanish",
    ):
        assert [*load_corpus(name)] == mine
    with pytest.warns(UserWarning, match="book's corpus, not ./"):
        assert len(load_corpus("little_spanish")) == 5000
    home = "~/little_spanish/train"
    assert [*read_parallel(f"{home}.en", f"{home}.es")] == mine


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_what_it_holds(packed, tmp_path):
    """A browser unpacks it and keeps its name, or the other way round."""
    text = b"red blue green\n" * 200
    for language in "en", "es":
        file = tmp_path / f"train.{language}{'' if packed else '.gz'}"
        file.write_bytes(gzip.compress(text) if packed else text)
    assert len(load_corpus(tmp_path)) == 200


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "left.txt has no line 1"),
        (b"one\n\n \nfour\n", "line 2: a side is empty.*skip_bad_lines"),
        (b"one\ntwo\n", "left.txt has no line 3"),
        (b"one\ntwo\n3\n4\n", "right.txt has no line 4"),
        (b"one\ngr\xfcn\nthree\n", "line 2: not UTF-8 .*0xfc.*skip_bad_l"),
        (b"one\rtwo\rthree\r", "line 1: a carriage return inside"),
        (b"one\ntw\0o\nthree\n", "line 2: a NUL inside.*skip_bad_lines"),
        (b"\xfd7zXZ\0\0", "left.txt is UTF-16, or packed"),
        ("one\n2\n3\n".encode("utf-16"), "left.txt is UTF-16, or packed"),
        ("one\n2\n3\n".encode("utf-16-le"), "left.txt is UTF-16"),
        ("one\n2\n3\n".encode("utf-16-be"), "left.txt is UTF-16"),
    ],
)
def test_bad_own_files(tmp_path, content, said):
    left, right = tmp_path / "left.txt", tmp_path / "right.txt"
    left.write_bytes(content)
    right.write_text("eins\nzwei\ndrei\n")
    with pytest.raises(ValueError, match=said) as told:
        [*read_parallel(left, right)]
    assert str(left) in str(told.value)
    if "UTF-16" in said:  # which no skipped line can mend
        with pytest.raises(ValueError, match=said):
            [*read_parallel(left, right, skip_bad_lines=True)]


def test_bad_lines_are_skipped_on_both_sides_and_counted(tmp_path):
    left, right = tmp_path / "train.en", tmp_path / "train.de"
    left.write_bytes(b"1\n\n3\n\xff\n5\n6\0\n7\n\n9\n")
    right.write_bytes(b"a\nb\n\nd\n\xef\xbb\xbfe\nf\ng\n\ni\n")
    good = [("1", "a"), ("5", "e"), ("7", "g"), ("9", "i")]
    with pytest.warns(UserWarning, match="train.de: skipped 4 of 9"):
        pairs = [*read_parallel(left, right, skip_bad_lines=True)]
    assert pairs == good
    with pytest.warns(UserWarning, match="train.de: skipped 4 of 9"):
        corpus = load_corpus(str(tmp_path), "en", "de", "train", True)
    assert [*corpus] == good
    right.write_bytes(b"a\nb\n")  # a file that is cut is no bad line
    with pytest.raises(ValueError, match="train.de has no line 3"):
        [*read_parallel(left, right, skip_bad_lines=True)]


def test_a_folder_or_a_dangling_link_is_told_as_what_it_is(tmp_path):
    """And not as a name that is missing beside names that are there."""
    english = tmp_path / "train.en"
    english.mkdir()
    (tmp_path / "train.es").write_text("uno\n")
    with pytest.raises(OSError, match="train.en.$"):  # as systems say it
        load_corpus(tmp_path)
    english.rmdir()
    english.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="No such file.*train.en"):
        load_corpus(tmp_path)


def test_a_file_with_tabs(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"One.\tEins.\tby him\r\n\nTwo.\tZwei."))
    assert [*read_parallel(path)] == [("One.", "Eins."), ("Two.", "Zwei.")]
    path.write_bytes(gzip.compress(b"One.\tEins.\nTwo. Zwei.\n"))
    with pytest.raises(ValueError, match="line 2: a tab is missing"):
        [*read_parallel(path)]


def test_pairs_come_one_by_one(tmp_path):
    """The first one also from a file that turns out to be cut."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 10**5)[:-40])
    pairs = read_parallel(path, path)
    assert next(pairs) == ("a line", "a line")
    with pytest.raises(ValueError, match="gz cannot be read .Compressed file"):
        list(pairs)
    path.write_bytes(gzip.compress(b"")[:10] + b"\7" * 9)
    with pytest.raises(ValueError, match="a.gz cannot .*invalid block type"):
        [*read_parallel(path, path)]
