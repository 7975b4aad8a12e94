"""The recorded runs: what makes them, and that it still can."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import decoding
import pack
import pytest
import rivals
import starts
import tangle
import torch
import variations

import runs
from transformer_book.records import (
    load_counts,
    load_run,
    read_record,
    runs_folder,
)
from transformer_lib.batching import TokenBatches
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import BOS, EOS
from transformer_lib.loss import validation_loss


def recorded_commands():
    """{run: the command in its record}"""
    found = {}
    for path in sorted(runs_folder().glob("*.jsonl")):
        for run, content in read_record(path).items():
            for result in pack.RESULTS:
                if result in content:
                    found[f"{path.stem}/{run}"] = content[result]["command"]
    for path in sorted(runs_folder().glob("*.json")):
        counted = load_counts(path.stem)
        if "command" in counted:
            found[path.stem] = counted["command"]
    return found


COMMANDS = recorded_commands()


def told(words):
    """The options of a command, and what is not one."""
    first = next(i for i, word in enumerate(words) if word.startswith("--"))
    options = {"--device": ["cpu"], "--seed": ["0"], "": words[:first]}
    for word in words[first:]:
        if word.startswith("--"):
            options[word] = values = []
        else:
            values.append(word)
    del options["--out"]
    return options


@pytest.mark.parametrize("name", COMMANDS)
def test_a_record_was_made_by_the_command_of_the_table(name):
    recorded = told(shlex.split(COMMANDS[name])[1:])
    if recorded[""][0] != "-m":  # the scripts may have moved since
        script = Path(recorded[""][0]).name
        recorded[""][0] = f"experiments/{script}"
        assert (tangle.ROOT / recorded[""][0]).is_file()
    if "--rate-of" in recorded:  # it was a path, runs/NAME/…
        path = recorded["--rate-of"][0].removeprefix("runs/")
        recorded["--rate-of"] = ["/".join(path.split("/")[:2])]
    precision = recorded.pop("--precision", [None])[0]
    device = recorded["--device"][0]
    words = runs.command(name, device, precision or "fp32")
    assert words[-2:] == ["--out", f"runs/{name}"]
    made = told(words)
    assert (
        made.pop("--precision", [precision])[0] == precision or not precision
    )
    assert made == recorded


def test_all_names_are_listed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["runs.py"])
    runs.main()
    names = capsys.readouterr().out.split()
    assert {"headline", "gpu", "own", *runs.RUNS} <= {*names}


def test_an_experiment_is_its_runs_that_are_not_recorded():
    assert runs.to_make("variations") == []
    assert runs.to_make("variations/h-16-0") == ["variations/h-16-0"]
    left = runs.to_make("gpu")
    assert "gpu/headline-2" in left and "gpu/base-de-en-0" not in left
    assert runs.to_make("rivals/recurrent-0") == ["rivals/recurrent-0"]
    with pytest.raises(SystemExit, match="no run 'nowhere'"):
        runs.to_make("nowhere")


def test_a_trial_of_few_steps_takes_few_steps():
    """All runs but those that race by the clock, and counts."""
    for name in runs.RUNS:
        words = runs.command(name)
        folder = name.split("/")[0]
        if "/" in name and folder not in ("rivals", "swaps", "copying"):
            assert runs.few(words, 3) != words, name


def test_ctrl_c_stops_make_and_starts_no_further_run(tmp_path):
    """Two runs are asked for; the signal comes during the first."""
    copy = tmp_path / "copy"
    shutil.copytree(tangle.ROOT / "experiments", copy / "experiments")
    started = copy / "started"
    code = f"open({str(started)!r}, 'a').write('x'); import time"
    program = f'-c "{code}; time.sleep(30)"'
    (copy / "experiments/runs.py").write_text(
        f"print('python ' + {program!r})\n" * 2
    )
    making = subprocess.Popen(
        ["make", "-C", "experiments", "both"],
        cwd=copy,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    while not started.exists() or not started.read_text():
        assert making.poll() is None
        time.sleep(0.05)
    os.killpg(making.pid, signal.SIGINT)
    assert making.wait(timeout=20) != 0
    assert started.read_text() == "x"


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
    (tmp_path / "count").mkdir()
    (tmp_path / "count/count.json").write_text("[1]\n")
    pack.pack(tmp_path / "count")
    assert (tmp_path / "count.json").read_text() == "[1]\n"


@pytest.mark.parametrize("row", variations.ROWS)
def test_a_row_is_another_model_or_another_training(row):
    torch.manual_seed(0)
    model, training = variations.build(row, 40)
    base, usual = variations.build("base", 40)
    changed = model.config != base.config or training != usual
    parts = [name for name, _ in model.named_parameters()]
    usual_parts = [name for name, _ in base.named_parameters()]
    assert row == "base" or changed or parts != usual_parts


def test_additive_scores_are_a_hidden_layers():
    """Written out for the second head."""
    torch.manual_seed(0)
    model, _ = variations.build("additive", 40)
    additive = model.decoder.layers[0].cross_attention
    x, memory = torch.randn(1, 3, 128), torch.randn(1, 5, 128)
    mask = torch.tensor([[[[True, True, True, False, True]]]])
    additive.w_o.weight.data = torch.eye(128)
    w_q, w_k, w_v = (
        linear.weight[32:64].T
        for linear in (additive.w_q, additive.w_k, additive.w_v)
    )
    seen = memory[0, [0, 1, 2, 4]]
    sums = (x[0] @ w_q)[:, None] + seen @ w_k  # (query_len, key_len, d_k)
    wanted = (sums.tanh() @ additive.v.weight[1]).softmax(-1) @ seen @ w_v
    found = additive(x, memory, mask)[0, :, 32:64]
    torch.testing.assert_close(found, wanted)


def test_without_decoder_self_attention_no_token_sees_another():
    torch.manual_seed(0)
    model, _ = variations.build("no-decoder-self-attention", 40)
    model.eval()
    source, target = torch.randint(4, 40, (2, 1, 7))
    other = target.clone()
    other[0, 2] = 4 + (other[0, 2] - 3) % 36
    moved = (model(source, target) - model(source, other)).abs().amax(-1)
    assert moved[0, 2] > 1e-3
    moved[0, 2] = 0
    assert moved.max() < 1e-5


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


def test_ways_to_decode_are_compared_pair_by_pair():
    targets = [f"Ein Hund Nummer {i} rennt im Gras ." for i in range(60)]
    worse = [line.replace("rennt im", "sitzt am") for line in targets]
    said = {"as in 6.1": targets, "worse": worse, "same": targets}
    found = decoding.compare(said, targets, "de")
    right, wrong, same = found["rows"]
    assert right["bleu"] > 99 and right["p_value"] is None
    assert wrong["bleu"] < 60 and wrong["p_value"] < 0.01
    assert wrong["changed_sentences"] == 60
    assert same["changed_sentences"] == 0
    assert "seed:12345" in found["signature"]


def test_a_race_keeps_the_rate_with_the_lowest_loss(tmp_path):
    rows = rivals.rows_to_copy(20, 40, 0)
    held_out = TokenBatches(rows, 512, shuffle=False)
    options = SimpleNamespace(
        model="transformer",
        rates=[30.0, 1.0],
        steps=4,
        seed=0,
        device="cpu",
    )
    options.out = tmp_path
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


def test_a_start_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    """Also after its first 100 steps, after which it measures."""
    rows = rivals.rows_to_copy(4, 8, 0)
    small = {"N": 1, "d_model": 8, "d_ff": 8, "h": 2, "dropout": 0.0}
    told = {"max_steps": 104, "warmup_steps": 9}
    told |= {"checkpoint_every": 51, "log_every": 52}
    task = (None, None, rows, rows), small, told
    monkeypatch.setattr(starts, "TASKS", {"copying": lambda options: task})
    words = ["packed", "--task", "copying", "--out"]
    starts.main([*words, str(tmp_path / "whole")])

    def stops_later(model, batches, config, *rest):
        train(model, batches, replace(config, max_steps=102), *rest)
        raise KeyboardInterrupt

    train = starts.train
    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        calls = iter([train, stops_later])
        patch.setattr(starts, "train", lambda *all: next(calls)(*all))
        with pytest.raises(KeyboardInterrupt):
            starts.main([*words, str(broken)])
    assert [*broken.glob("*102.pt")] and not (broken / "report.json").exists()
    starts.main([*words, str(broken)])
    whole, again = (
        json.loads((tmp_path / name / "report.json").read_text())
        for name in ("whole", "broken")
    )
    assert again["sizes"] == whole["sizes"]
    assert [*whole["sizes"]] == ["0", "100", "104"]
    key = "validation_loss"
    assert again["result"][key] == whole["result"][key]


@pytest.mark.parametrize("name", rivals.SWAPS)
def test_a_swapped_model_takes_the_transformers_steps(name, tmp_path):
    """And is made by its name, of the Transformer's size."""
    sizes = {}
    for kind in "transformer", name:
        model = rivals.build(kind, 4000, 0)
        sizes[kind] = sum(w.numel() for w in model.parameters())
    assert abs(sizes[name] / sizes["transformer"] - 1) < 0.01
    rows = rivals.rows_to_copy(20, 10, 0)
    held_out = TokenBatches(rows, 512, shuffle=False)
    options = SimpleNamespace(
        model=name,
        rates=[1.0],
        steps=2,
        seed=0,
        device="cpu",
        out=tmp_path,
    )
    size = EOS + 1 + rivals.SYMBOLS
    *_, clock = rivals.trained(options, "copying-20", size, held_out, held_out)
    assert clock["paced_by"] == "transformer"


def test_recorded_translations_give_the_recorded_scores():
    """Where the references can be had: those of the headline's runs."""
    from transformer_lib.evaluation import bleu, published_bleu

    try:
        wanted = load_corpus("multi30k", "en", "de", "test").targets
    except OSError as error:
        pytest.skip(f"no references: {error}")
    systems = load_counts("errors")["systems"]
    trained = [name for name in systems if "-" in name]
    assert len(trained) >= 5
    for name in trained:
        run = load_run(name)
        score = bleu(run.translations, wanted).value
        assert score == pytest.approx(run.report["test"]["bleu"], abs=1e-6)
        score = published_bleu(run.translations, wanted, "de").value
        assert score == pytest.approx(systems[name]["published"], abs=1e-6)
