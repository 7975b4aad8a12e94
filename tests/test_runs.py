"""The recorded runs: what makes them, and that it still can."""

import json
import re
import subprocess
from dataclasses import asdict
from threading import Thread
from unittest.mock import Mock

import again
import hour
import pack
import pytest
import rivals
import since
import tangle
import torch
import variations
from filelock import FileLock

from transformer_book.records import (
    load_counts,
    load_run,
    read_record,
    recorded_runs,
    runs_folder,
)
from transformer_lib import cli
from transformer_lib.batching import TokenBatches
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS
from transformer_lib.evaluation import bleu, published_bleu
from transformer_lib.loss import validation_loss
from transformer_lib.tokenization import normalize
from transformer_lib.translator import bundled_models

PARSERS = {
    f"experiments/{script.__name__}.py": script.parser
    for script in (hour, rivals, since, variations)
}
COMMANDS = again.recorded() | again.waiting()


@pytest.mark.parametrize("name", COMMANDS)
def test_what_made_a_record_is_still_there(name, monkeypatch):
    """Its script takes its options, or runs/README.md says where it is."""
    script, *options = COMMANDS[name][1:]
    if script in PARSERS:
        PARSERS[script]().parse_args(options)
    elif script == "-m":
        monkeypatch.setattr(cli, "run_experiment", lambda *run, **more: None)
        assert cli.main(options[1:]) == 0
    else:
        gone = (runs_folder() / "README.md").read_text("utf-8")
        assert f"`{script.removeprefix('experiments/')}`" in gone
        assert not (tangle.ROOT / script).exists()


def test_the_scripts_that_are_gone_are_at_the_commit_that_is_named():
    text = (runs_folder() / "README.md").read_text("utf-8")
    [commit] = re.findall(r"commit `(\w+)`", text)
    shown = subprocess.run(
        ["git", "ls-tree", "--name-only", commit, "experiments/"],
        cwd=tangle.ROOT,
        capture_output=True,
        text=True,
    )
    if shown.returncode:
        pytest.skip("no history here")
    made_by = dict(re.findall(r"^\| `(\S+)` \| `(\S+)` \|", text, re.M))
    assert made_by
    for record, script in made_by.items():
        assert (runs_folder() / record).is_file()
        assert f"experiments/{script}" in shown.stdout.split()


def test_records_of_a_changed_tree_are_told():
    text = (runs_folder() / "README.md").read_text("utf-8")
    for name in again.recorded():
        if not name.startswith("copying/"):
            report = load_run(name.removeprefix("models/")).report
            commit = report.get("machine", {}).get("commit", "")
            assert commit.endswith("-dirty") == (f"`{name}`" in text), name


def test_a_run_is_found_by_its_name_or_its_experiments(monkeypatch):
    held = {"table/row-0": ["python", "made.py"]}
    left = {f"table/row-{n}": ["python", str(n)] for n in (0, 1, 2)}
    monkeypatch.setattr(again, "recorded", lambda: held)
    monkeypatch.setattr(again, "waiting", lambda: left)
    files = {"table/row-0": {"report.json": {}}}
    monkeypatch.setattr(again, "load_files", lambda run: files.get(run, {}))
    assert again.chosen(["table/row-0"]) == held
    assert [*again.chosen(["table"])] == ["table/row-1", "table/row-2"]
    with pytest.raises(SystemExit, match="no run"):
        again.chosen(["elsewhere"])


def test_ctrl_c_lets_a_run_save_and_starts_no_further_one(
    tmp_path, monkeypatch
):
    """Two runs are asked for; the signal comes during the first.

    SIGTERM reaches only the script that starts it, which hands it on.
    """
    process = Mock(wait=Mock(side_effect=[KeyboardInterrupt, 1]))
    begun = []

    def run(command, **settings):
        """It saves, and ends by 1, as the library's command line does."""
        begun.append(command)
        FileLock(tmp_path / command[-1] / ".lock", timeout=0).acquire()
        return process

    monkeypatch.setattr(again, "ROOT", tmp_path)
    monkeypatch.setattr(again.signal, "signal", Mock())
    monkeypatch.setattr(again.subprocess, "Popen", run)
    monkeypatch.setattr(again, "recorded", lambda: dict.fromkeys("ab", []))
    monkeypatch.setattr(again, "waiting", dict)
    with pytest.raises(SystemExit, match="^1$"):
        again.main(["a", "b"])
    [[*_, out]] = begun
    assert out == "runs/a"
    [((name, stop), _)] = again.signal.signal.call_args_list
    assert name == again.signal.SIGTERM and not process.terminate.called
    stop(name, None)
    assert process.terminate.called


def test_two_that_pack_at_once_lose_no_run(tmp_path):
    folder = tmp_path / "table" / "row-0"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text("{}")
    with FileLock(tmp_path / "table" / ".lock"):
        packing = Thread(target=pack.pack, args=[folder])
        packing.start()
        packing.join(0.3)
        assert packing.is_alive()
        pack.write_record(tmp_path / "table.jsonl", {"row-1": {"a": 1}})
    packing.join()
    assert {*read_record(tmp_path / "table.jsonl")} == {"row-0", "row-1"}


def test_a_finished_run_is_packed_as_it_is(tmp_path):
    """Into the record of its experiment, in place of an earlier one."""
    folder = tmp_path / "table" / "row-0"
    (folder / "rate-1").mkdir(parents=True)
    said = ["Ein Hund.", "", "a\u2028b"]
    (folder / "translations.txt").write_text("\n".join([*said, ""]), "utf-8")
    (folder / "rate-1/log.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "checkpoint-00000002.pt").write_text("")
    assert "not finished" in pack.pack(folder)
    for steps in 1, 2:
        (folder / "report.json").write_text(json.dumps({"steps": steps}))
        pack.pack(folder)
    other = folder.with_name("row-1")
    other.mkdir()
    (other / "report.json").write_text("{}")
    assert pack.finished(tmp_path) == [folder, other]
    pack.pack(other)
    assert read_record(tmp_path / "table.jsonl") == {
        "row-0": {
            "rate-1/log.jsonl": [{"step": 1}, {"step": 2}],
            "report.json": {"steps": 2},
            "translations.txt": said,
        },
        "row-1": {"report.json": {}},
    }


@pytest.mark.parametrize("name", bundled_models())
def test_the_card_of_a_model_has_its_records_numbers(name):
    path = tangle.ROOT / "pretrained" / name / "README.md"
    card, report = path.read_text("utf-8"), load_run(name).report
    test, [low, high] = report["test"], report["test"]["interval"]
    for said in (
        f"| {test['bleu']:.1f} ({low:.1f} to {high:.1f}) | {test['chrf']:.1f}",
        f" {test['exact']:.1%} | {test['nats_per_token']:.3f} |",
        f"`{test['signature']}`",
        f" {report['result']['parameters']:,} parameters",
        f"\n{report['command']}\n",
    ):
        assert said in card


@pytest.mark.parametrize("row", variations.ROWS)
def test_a_row_is_another_model_or_another_training(row):
    torch.manual_seed(0)
    model, training = variations.build(row, 40)
    base, usual = variations.build("base", 40)
    changed = model.config != base.config or training != usual
    parts = [name for name, _ in model.named_parameters()]
    usual_parts = [name for name, _ in base.named_parameters()]
    assert row == "base" or changed or parts != usual_parts
    run = load_run(f"variations/{row}-0")
    vocab_size = run.config["model"]["vocab_size"]
    sizes = asdict(model.config) | {"vocab_size": vocab_size}
    assert run.config["model"] == sizes
    told = run.report["training"]
    settings = asdict(training) | {"betas": [*training.betas]}
    assert told == told | {n: settings[n] for n in told if n in settings}


def test_nats_of_each_sentence():
    torch.manual_seed(0)
    model, _ = variations.build("base", 40)
    pairs = [([5, 6, EOS], [7, 8, 9, EOS]), ([5, EOS], [9, EOS])]
    nats, pieces = variations.sentence_nats(model, pairs)
    assert pieces == [4, 2]
    for (source, labels), told in zip(pairs, nats, strict=True):
        target = torch.tensor([[BOS, *labels[:-1]]])
        with torch.no_grad():
            logits = model.eval()(torch.tensor([source]), target)
        log_p = logits[0].log_softmax(-1)[range(len(labels)), labels]
        assert told == pytest.approx(-log_p.sum().item(), abs=1e-3)


def test_a_race_keeps_the_rate_with_the_lowest_loss(tmp_path):
    rows = rivals.rows_to_copy(20, 40, 0)
    held_out = TokenBatches(rows, 512, shuffle=False)
    words = "race transformer --rates 30 1 --steps 4 --out".split()
    options = rivals.parser().parse_args([*words, str(tmp_path)])
    size = EOS + 1 + rivals.SYMBOLS
    for _ in "made", "found made":
        model, c, history, losses, _ = rivals.trained(
            options, "copying-20", size, held_out, held_out
        )
        assert c.learning_rate_scale == 1 and c.warmup_steps == 1
        assert losses["1"] < losses["30"]
        told = validation_loss(model, held_out)
        assert told == pytest.approx(losses["1"], abs=1e-4)
        log = (tmp_path / "log.jsonl").read_text()
        assert log == (tmp_path / "rate-1" / "log.jsonl").read_text()
        assert history.lines == [*map(json.loads, log.splitlines())]


@pytest.mark.parametrize("name", rivals.SWAPS)
def test_a_swapped_model_has_the_transformers_size(name):
    sizes = {}
    for kind in "transformer", name:
        model = rivals.build(kind, 4000, 0)
        sizes[kind] = sum(w.numel() for w in model.parameters())
    assert abs(sizes[name] / sizes["transformer"] - 1) < 0.01


LADDER = "since", "averaged", "tuned", "budgets", "kernels", "hour"
TRANSLATED = [
    *(name for name in load_counts("errors")["systems"] if "-" in name),
    *(name for one in LADDER for name in recorded_runs(one)),
]


@pytest.mark.parametrize("name", TRANSLATED)
def test_recorded_translations_give_the_recorded_scores(name):
    """Where the references can be had; in the form in which all are scored."""
    run = load_run(name)
    test = run.report["test"]
    try:
        corpus = load_corpus(test["corpus"], *test["languages"], "test")
    except OSError as error:
        pytest.skip(f"no references: {error}")
    # Older records are scored on the references as written, newer ones in
    # the form that a model can write: one of them has a soft hyphen.
    normal = [normalize(text) for text in corpus.targets]
    scores = [
        bleu(run.translations, x).value for x in (corpus.targets, normal)
    ]
    assert min(abs(score - test["bleu"]) for score in scores) < 1e-6
    if told := load_counts("errors")["systems"].get(name):
        score = published_bleu(run.translations, corpus.targets, "de").value
        assert score == pytest.approx(told["published"], abs=1e-6)
