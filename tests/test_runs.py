"""Recorded runs: each agrees with its own log, weights and card."""

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import bleu
from transformer_lib.runs import (
    add_published,
    load_run,
    machine,
    markdown_table,
    peak_memory,
    recorded_runs,
    write_card,
)
from transformer_lib.translator import Translator, bundled_models

RUNS = sorted(recorded_runs())
TRAINED = [
    x for x in RUNS if (recorded_runs()[x] / "log.jsonl").is_file()
]
SHIPPED = sorted(bundled_models())
# a path of some machine, with or without a drive's letter
ABSOLUTE = re.compile(r"(?<![\w.:/<])(/\w[\w.-]*){2,}|[A-Z]:\\\\")


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


@pytest.mark.parametrize("name", TRAINED)
def test_report_agrees_with_the_log(name):
    run = load_run(name)
    last, result = run.history.lines[-1], run.report["result"]
    assert run.report["finished"]
    assert result["seconds"] == last["seconds"]
    steps = [line["step"] for line in run.history.lines]
    assert steps == sorted(set(steps))
    if "speed" in run.report:
        rows = run.report["speed"]
        assert result["ways"] == last["step"] == len(rows)
        for row, line in zip(rows, run.history.lines, strict=True):
            assert row.items() <= line.items()
        return
    assert result["steps"] == last["step"]
    assert last["step"] == run.report["training"]["max_steps"]
    speed = last["tokens"] / last["seconds"]
    assert result["target_tokens_per_second"] == speed


@pytest.mark.parametrize("name", RUNS)
def test_a_sum_of_seeds_agrees_with_each(name):
    run = load_run(name)
    if "best_seed" not in run.report["result"]:
        return
    seeds = run.report["result"]["seeds"]
    reports = [
        load_run(f"{name}/seed-{seed}").report for seed in seeds
    ]
    for part in ("result", "test"):
        for key, value in run.report.get(part, {}).items():
            if isinstance(value, list) and key in reports[0][part]:
                assert value == [
                    report[part][key] for report in reports
                ]
    best = reports[seeds.index(run.report["result"]["best_seed"])]
    assert best["weights_sha256"] == run.report["weights_sha256"]


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_are_those_of_the_report(name):
    run = load_run(name)
    path = run.folder / "model.safetensors"
    found = sha256(path.read_bytes()).hexdigest()
    assert found == run.report["weights_sha256"]
    assert path.stat().st_size < 16 * 2**20
    assert not list(run.folder.rglob("checkpoint-*"))
    assert not list(run.folder.glob("*/model.safetensors"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_reach_the_recorded_score(name):
    """Greedy on the whole test set, or beams where none is recorded.

    The translations are the recorded ones but for a few near ties.
    """
    run = load_run(name)
    test = run.report["test"]
    told = test["corpus"], *test["languages"], test["split"]
    try:
        corpus = load_corpus(*told)[: test["sentences"]]
    except (OSError, ImportError) as error:
        pytest.skip(f"the corpus is not here: {error}")
    translator = Translator.from_pretrained(name, "cpu")
    greedy = "greedy_bleu" in test and not isinstance(
        test["greedy_bleu"], list
    )
    wanted = test["greedy_bleu"] if greedy else test["bleu"]
    if isinstance(wanted, list):
        seeds = run.report["result"]["seeds"]
        best = seeds.index(run.report["result"]["best_seed"])
        wanted = test["greedy_bleu"][best]
        greedy = True
    width = 1 if greedy else test["beam_size"]
    found = translator.translate(corpus.sources, beam_size=width)
    assert abs(bleu(found, corpus.targets).value - wanted) < 0.1


@pytest.mark.parametrize("name", RUNS)
def test_no_record_tells_where_it_was_made(name):
    for path in recorded_runs()[name].glob("*"):
        if path.suffix in (".json", ".jsonl", ".md", ".txt"):
            text = path.read_text("utf-8")
            assert not ABSOLUTE.search(text), ABSOLUTE.search(text)


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
    assert "The curve" not in write_card(folder)
    (folder / "report.json").write_text(
        '{"name": "x", "measures": "y", "command": "z", '
        '"finished": true, "speed": [{"way": "a", "share": 0.5}]}'
    )
    assert "| a | 0.5 |" in write_card(folder)


def test_peak_memory_is_more_than_the_interpreter_s():
    assert 20 * 2**20 < peak_memory() < 2**40


def test_a_score_that_comes_later(tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(recorded_runs()["little-spanish"], folder)
    score = add_published(folder)
    assert score > 99
    test = load_run(folder).report["test"]
    assert test["bleu_published"] == score
    assert "lc.norm.tok" in test["bleu_published_signature"]
    assert "lc.norm.tok" in (folder / "card.md").read_text("utf-8")
    report = load_run(folder).report
    del report["test"]
    (folder / "report.json").write_text(json.dumps(report))
    with pytest.raises(ValueError, match="no translations"):
        add_published(folder)
