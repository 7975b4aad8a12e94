"""Recorded runs: each agrees with its own log, weights and card."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from transformer_lib.corpora import load_corpus
from transformer_lib.runs import (
    load_run,
    machine,
    markdown_table,
    recorded_runs,
    write_card,
)
from transformer_lib.translator import Translator

RUNS = sorted(recorded_runs())


def test_there_is_a_first_run():
    assert "little-spanish" in RUNS


@pytest.mark.parametrize("name", RUNS)
def test_card_is_made_of_report_and_log(name, tmp_path):
    folder = recorded_runs()[name]
    for path in folder.glob("*.json*"):
        shutil.copy(path, tmp_path)
    card = (folder / "card.md").read_text("utf-8")
    assert write_card(tmp_path) == card.rstrip("\n")
    assert (tmp_path / "card.md").read_text("utf-8") == card


@pytest.mark.parametrize("name", RUNS)
def test_report_agrees_with_the_log(name):
    run = load_run(name)
    last = run.history.lines[-1]
    assert run.report["result"]["steps"] == last["step"]
    assert run.report["result"]["seconds"] == last["seconds"]
    assert run.report["finished"]
    steps = [line["step"] for line in run.history.lines]
    assert steps == sorted(set(steps))
    assert last["step"] == run.report["training"]["max_steps"]


@pytest.mark.parametrize("name", RUNS)
def test_weights_are_those_of_the_report(name):
    run = load_run(name)
    path = run.folder / "model.safetensors"
    if path.is_file():
        found = sha256(path.read_bytes()).hexdigest()
        assert found == run.report["weights_sha256"]
        assert path.stat().st_size < 16 * 2**20
    assert not list(run.folder.glob("checkpoint-*"))


@pytest.mark.parametrize("name", RUNS)
def test_no_record_tells_where_it_was_made(name):
    for path in recorded_runs()[name].glob("*"):
        if path.suffix in (".json", ".jsonl", ".md", ".txt"):
            text = path.read_text("utf-8")
            assert "/home/" not in text and "/work/" not in text
            assert "/tmp/" not in text and "/Users/" not in text


def test_all_records_together_stay_small():
    files = {
        x
        for place in recorded_runs().values()
        for x in place.rglob("*")
    }
    assert sum(x.stat().st_size for x in files) < 40 * 2**20
    weights = recorded_runs()["little-spanish"] / "model.safetensors"
    assert weights.stat().st_size < 4 * 2**20


def test_little_spanish_translates_what_it_recorded():
    run, corpus = (
        load_run("little-spanish"),
        load_corpus("little_spanish", split="test"),
    )
    assert run.report["test"]["exact"] >= 0.95
    right = sum(map(str.__eq__, run.translations, corpus.targets))
    assert right / len(corpus) == run.report["test"]["exact"]
    again = Translator.from_pretrained("little-spanish").translate(
        corpus.sources[:100]
    )
    same = sum(map(str.__eq__, again, run.translations))
    assert same >= 98  # a rounding may tip a near tie


def test_translates_the_first_sentence():
    translator = Translator.from_pretrained("little-spanish")
    assert (
        translator.translate("I like trees")
        == "Me gustan los árboles"
    )


def test_an_unknown_run_names_the_known(tmp_path):
    with pytest.raises(FileNotFoundError, match="little-spanish"):
        load_run("no-such-run")
    with pytest.raises(FileNotFoundError):
        load_run(tmp_path)


def test_table_prints_figures_short_and_bars_escaped():
    rows = [
        {"a": 12345, "b": 0.123456, "c_d": "x|y"},
        {"a": [1, 2.5]},
    ]
    head, rule, first, second = markdown_table(rows).split("\n")
    assert head == "| a | b | c d |" and rule == "| --- | --- | --- |"
    assert first == r"| 12,345 | 0.1235 | x\|y |"
    assert second == "| 1 2.5 |  |  |"


def test_machine_is_plain_json():
    found = machine()
    assert (
        found["cores"] >= 1 and json.loads(json.dumps(found)) == found
    )


def test_a_card_without_validation(tmp_path):
    folder = Path(
        shutil.copytree(
            recorded_runs()["little-spanish"], tmp_path / "x"
        )
    )
    (folder / "log.jsonl").write_text('{"step": 1, "seconds": 1.0}\n')
    assert "nothing was logged" in write_card(folder)
