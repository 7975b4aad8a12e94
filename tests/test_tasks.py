"""What a training is told, and the batches made from it."""

from pathlib import Path

import pytest
import torch

from transformer_lib.batching import encode_pairs
from transformer_lib.corpora import load_corpus
from transformer_lib.tasks import (
    RedrawnBatches,
    Task,
    read_split,
    recipe,
    task_batches,
    task_tokenizer,
    word_cuts,
)
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import preset


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("little_spanish", split="train")[:60]


@pytest.fixture(scope="module")
def tokenizer(corpus):
    texts = [text for pair in corpus for text in pair]
    return BPETokenizer.train(texts, 400)


def said(batches, number, tokenizer):
    """The target sentences of an epoch, and all its ids."""
    rows = [
        row for batch in batches.epoch(number) for row in batch.labels
    ]
    texts = sorted(tokenizer.decode(row.tolist()) for row in rows)
    return texts, [row.tolist() for row in rows]


@pytest.mark.parametrize("size", ["tiny", "base", "big"])
def test_sizes(size):
    model, _ = recipe(Task(preset=size), 500)
    widths = {"tiny": 128, "base": 512, "big": 1024}
    assert (model.d_model, model.vocab_size) == (widths[size], 500)


@pytest.mark.parametrize(
    "name", ["paper", "tensor2tensor", "annotated"]
)
def test_recipes_are_the_library_s_own(name):
    assert recipe(Task(preset=name), 500) == preset(name, 500)


def test_changes_have_the_last_word():
    task = Task(
        table3="B: d_k=16", changes={"d_k": 8, "max_steps": 7}
    )
    model, training = recipe(task, 500)
    assert (model.d_k, model.N, training.max_steps) == (8, 6, 7)


def test_own_files_come_in_pairs(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}\n")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    with pytest.raises(ValueError, match="translations"):
        read_split(Task(source_file=a), "train")
    task = Task(source_file=a, target_file=a)
    assert read_split(task, "validation") is None
    assert list(read_split(task, "train")) == [("a", "a")]
    task.test_source, task.test_target = b, b
    assert list(read_split(task, "test")) == [("b", "b")]
    task.test_target = None
    with pytest.raises(ValueError, match="translations"):
        read_split(task, "test")


def test_cuts_of_a_word_spell_it(tokenizer):
    cuts = word_cuts("Ġtrees", tokenizer, 0.5, 30)
    assert {tokenizer.decode(ids) for ids in cuts} == {" trees"}
    assert len({tuple(ids) for ids in cuts}) > 3
    assert cuts == word_cuts("Ġtrees", tokenizer, 0.5, 30)
    (whole,) = word_cuts("Ġtrees", tokenizer, 0.0, 1)
    assert whole == tokenizer.encode(" trees")


def test_an_epoch_says_the_same_in_other_pieces(corpus, tokenizer):
    pairs = encode_pairs(corpus, tokenizer)
    batches = RedrawnBatches(pairs, tokenizer, 0.3, 512)
    texts, first = said(batches, 0, tokenizer)
    assert texts == sorted(target for _, target in corpus)
    again, second = said(batches, 1, tokenizer)
    assert again == texts
    assert sum(map(len, first)) > sum(len(b) for _, b in pairs)
    assert sorted(first) != sorted(second)


def test_an_epoch_is_drawn_by_seed_and_number(corpus, tokenizer):
    pairs = encode_pairs(corpus, tokenizer)

    def ids(seed, number):
        batches = RedrawnBatches(pairs, tokenizer, 0.3, 512, seed)
        list(batches.epoch(5))  # what was drawn before is no matter
        return said(batches, number, tokenizer)[1]

    assert ids(0, 3) == ids(0, 3)
    assert ids(0, 3) != ids(1, 3)


def test_no_dropout_is_the_plain_batches(corpus, tokenizer, tmp_path):
    task = Task(out=str(tmp_path), vocab_size=400)
    found = task_tokenizer(task, corpus)
    assert found.decode(found.encode("I like trees")) == (
        "I like trees"
    )
    _, training = recipe(task, 400)
    plain = task_batches(task, corpus, tokenizer, training)
    pairs = encode_pairs(corpus, tokenizer)
    drawn = RedrawnBatches(pairs, tokenizer, 0.0, 4096, 0)
    for ours, theirs in zip(
        plain.epoch(2), drawn.epoch(2), strict=True
    ):
        assert torch.equal(ours.labels, theirs.labels)
        assert torch.equal(ours.source_ids, theirs.source_ids)


def test_workers_share_a_redrawn_epoch(corpus, tokenizer):
    pairs = encode_pairs(corpus, tokenizer)
    every = []
    for rank in range(2):
        how = 128, 0, True, rank, 2
        batches = RedrawnBatches(pairs, tokenizer, 0.3, *how)
        every.append(said(batches, 0, tokenizer)[0])
    assert len(every[0]) > 10 and len(every[1]) > 10
    together = set(every[0]) | set(every[1])
    assert together == {target for _, target in corpus}


def test_a_dropout_is_a_share(corpus, tokenizer):
    pairs = encode_pairs(corpus, tokenizer)
    with pytest.raises(ValueError, match="dropout=1"):
        RedrawnBatches(pairs, tokenizer, 1.0, 512)


def test_the_tokenizer_is_learnt_once(tmp_path, corpus):
    task = Task(out=str(tmp_path / "x"), vocab_size=300)
    first = task_tokenizer(task, corpus)
    path = Path(task.out, "tokenizer.json")
    before = path.read_bytes()
    assert len(task_tokenizer(task, corpus[:2])) == len(first)
    assert path.read_bytes() == before
