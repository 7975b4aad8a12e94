"""A corpus larger than memory: ids in files, and the same batches."""

import gzip
import json
from dataclasses import replace

import large
import pytest
import torch

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import load_model
from transformer_lib.corpora import load_corpus
from transformer_lib.tokenization import BPETokenizer

CORPUS = load_corpus("little_spanish")[:400]


@pytest.fixture
def text(tmp_path):
    """Two files; the second one packed."""
    english, spanish = tmp_path / "t.en", tmp_path / "t.es.gz"
    english.write_text("\n".join(CORPUS.sources))
    packed = "\n".join(CORPUS.targets).encode()
    spanish.write_bytes(gzip.compress(packed))
    return [str(english), str(spanish)]


def prepare(to, files, *more):
    words = ["prepare", *files, "--out", str(to)]
    large.main([*words, "--vocab-size", "300", *more])
    return large.StoredPairs(to)


def test_the_same_pairs_and_batches_as_in_memory(text, tmp_path):
    stored = prepare(tmp_path / "ids", text)
    tokenizer = BPETokenizer.load(tmp_path / "ids/tokenizer.json")
    both = CORPUS.sources + CORPUS.targets
    usual = BPETokenizer.train(both, 300)
    assert usual.tokenizer.to_str() == tokenizer.tokenizer.to_str()
    pairs = encode_pairs(CORPUS, tokenizer)
    assert [*stored] == pairs and stored[-1] == pairs[-1]
    ways = [TokenBatches(x, 300, seed=3) for x in (stored, pairs)]
    for number in range(2):
        epochs = (batches.epoch(number) for batches in ways)
        for one, other in zip(*epochs, strict=True):
            assert torch.equal(one.source_ids, other.source_ids)
            assert torch.equal(one.labels, other.labels)


def test_what_is_too_long_or_no_sentence_is_left_out(text, tmp_path):
    rows = [f"{x}\t{y}\n" for x, y in CORPUS]
    rows[7:7] = ["no tab\n", " \t \n", "x\t \n"]
    path = tmp_path / "t.tsv"
    path.write_text("".join(rows))
    with pytest.raises(SystemExit, match="line 8: a tab is missing"):
        prepare(tmp_path / "no", [str(path)])
    assert not (tmp_path / "no").exists()
    skip = "--skip-bad-lines", "--max-length", "12"
    with pytest.warns(UserWarning, match="t.tsv: skipped 2 of 403"):
        stored = prepare(tmp_path / "ids", [str(path)], *skip)
    tokenizer = BPETokenizer.load(tmp_path / "ids/tokenizer.json")
    pairs = encode_pairs(CORPUS, tokenizer, max_length=12)
    assert [*stored] == pairs and 0 < len(pairs) < 400


def test_a_prepared_folder_is_kept_and_a_cut_one_refused(text, tmp_path):
    stored = prepare(tmp_path / "ids", text)
    with pytest.raises(SystemExit, match="is prepared"):
        prepare(tmp_path / "ids", text)
    with pytest.raises(SystemExit, match="tokenizer.json"):
        large.main(["train", str(tmp_path), "--out", str(tmp_path)])
    path = tmp_path / "ids/ids"
    assert path.stat().st_size == 2 * len(stored.ids)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match="cut short"):
        large.StoredPairs(tmp_path / "ids")


def test_a_run_from_files_goes_on(text, tmp_path, monkeypatch):
    prepare(tmp_path / "ids", text)
    tiny = large.Experiment.tiny()
    model = replace(tiny.model, N=1, d_model=8, d_ff=8, h=2)
    monkeypatch.setattr(
        large.Experiment, "tiny", lambda: replace(tiny, model=model)
    )
    out = tmp_path / "run"

    def run(steps):
        words = ["train", str(tmp_path / "ids"), "--out", str(out)]
        words += "--preset tiny --checkpoint-every 1 --device cpu".split()
        words += ["--tokens-per-batch", "500", "--languages", "en", "es"]
        words += ["--validation", *text, "--max-steps", str(steps)]
        large.main(words)
        return (out / "log.jsonl").read_text().splitlines()

    begun = run(2)
    assert load_model(out).info["languages"] == ["en", "es"]
    with pytest.raises(SystemExit, match="is finished"):
        run(4)
    (out / "report.json").unlink()
    log = run(4)
    assert log[: len(begun)] == begun  # no step is made twice
    last = json.loads(log[-1])
    assert last["step"] == 4 and "validation_loss" in last
