"""The ladder from 2017 to now: its rungs, its tuning, its arithmetic."""

import ast
import inspect
import json
import math
import re
import shutil

import coins
import hour
import jupytext
import pack
import pytest
import since
import tangle
import torch

import runs
from transformer_book import ladder
from transformer_book.drawings import after as drawings
from transformer_book.records import (
    Run,
    load_counts,
    load_run,
    read_folder,
    read_record,
    recorded_runs,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import EOS
from transformer_lib.evaluation import bleu
from transformer_lib.translator import Translator


@pytest.mark.parametrize("name", since.RUNGS)
def test_a_rung_has_the_papers_size(name):
    ours, paper = (
        sum(weight.numel() for weight in model.parameters())
        for model in (
            since.build(since.RUNGS[rung], 40, 0) for rung in (name, "paper")
        )
    )
    # Grouped heads have fewer weights: that is what they are for.
    assert 0.85 < ours / paper < 1.02


def test_a_rung_is_built_of_what_it_is_named_for():
    """An override that is misspelt would leave the paper's part."""
    models = {
        name: since.build(rung, 40, 0) for name, rung in since.RUNGS.items()
    }
    parts = {
        name: {type(part) for part in model.modules()}
        for name, model in models.items()
    }
    norm = torch.nn.LayerNorm
    assert norm in parts["paper"] and norm not in parts["rms-norm"]
    assert torch.nn.RMSNorm in parts["rms-norm"]
    network = type(models["paper"].encoder.layers[0].feed_forward)
    assert network in parts["paper"] and network not in parts["gated"]
    assert since.GatedFeedForward in parts["gated"]
    plain = since.MultiHeadAttention
    for name, part in {
        "grouped": since.GroupedAttention,
        "qk-norm": since.NormalizedAttention,
    }.items():
        assert part in parts[name] and plain not in parts[name]
    for name in "rotary", "together", "all-three":
        assert since.RotaryAttention in parts[name]
    weights = dict(models["no-biases"].named_parameters())
    assert not any(name.endswith("bias") for name in weights)
    assert models["pre-norm"].config.norm == "pre"
    assert since.RUNGS["no-smoothing"].training["label_smoothing"] == 0


def test_normed_heads_have_one_length():
    attention = since.NormalizedAttention(16, 2)
    heads = attention.place(torch.randn(3, 2, 5, 8), 0)
    lengths = heads.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 8**0.5))


def test_short_sentences_come_first_in_the_first_epoch_alone():
    pairs = [([5] * n + [EOS], [6] * n + [EOS]) for n in (9, 2, 7, 4, 1, 8)]
    ours, plain = (
        kind(pairs, 12, 0) for kind in (since.ShortFirst, since.TokenBatches)
    )
    first = [batch.source_ids for batch in ours.epoch(0)]
    lengths = [ids.size(1) for ids in first]
    assert lengths == sorted(lengths) and len({*lengths}) > 2
    rest = [batch.source_ids for batch in ours.epoch(0, 2)]
    assert all(map(torch.equal, rest, first[2:])) and rest
    for one, other in zip(ours.epoch(1), plain.epoch(1), strict=True):
        assert torch.equal(one.source_ids, other.source_ids)


def test_adamw_decays_matrices_alone():
    model = since.build(since.RUNGS["adamw"], 40, 0)
    [optimizer] = since.adamw(model, 1e-3)
    for group in optimizer.param_groups:
        assert group["betas"] == (0.9, 0.95)
        for weight in group["params"]:
            assert (weight.dim() > 1) == (group["weight_decay"] > 0)


def test_rotary_attention_sees_distances_alone():
    attention = since.RotaryAttention(16, 2).double()
    heads = torch.randn(1, 2, 5, 8).double()
    near = attention.place(heads, 0) @ attention.place(heads, 0).mT
    far = attention.place(heads, 30) @ attention.place(heads, 30).mT
    torch.testing.assert_close(near, far, atol=1e-5, rtol=0)
    assert not torch.allclose(near, heads @ heads.mT)


def test_grouped_attention_keeps_half():
    model = since.build(since.RUNGS["grouped"], 40, 0)
    paper = since.build(since.RUNGS["paper"], 40, 0)
    x = torch.randn(2, 5, 128)
    kept, whole = (
        sum(part.numel() for part in layer.self_attention.keys_values(x))
        for layer in (model.decoder.layers[0], paper.decoder.layers[0])
    )
    assert kept == whole / 2


def test_schedules_reach_the_whole_rate_after_the_warm_up():
    for schedule in since.equation_3, since.cool_down:
        assert schedule(since.WARMUP) == 1
        assert schedule(since.WARMUP / 2) == 0.5
    assert since.equation_3(4 * since.WARMUP) == 0.5
    for steps in 6, since.STEPS, 3600:
        for rung in since.RUNGS.values():
            factor = since.schedule_of(rung, steps)
            cools = rung.schedule is since.cool_down
            assert (factor(steps) == 0) == cools
            assert factor(min(since.WARMUP, steps // 2)) > 0


def test_every_weight_has_one_optimizer():
    for rung in since.RUNGS.values():
        model = since.build(rung, 40, 0)
        held = [
            weight
            for optimizer in rung.optimizers(model, 1e-3)
            for group in optimizer.param_groups
            for weight in group["params"]
        ]
        assert len(held) == len(set(held)) == len([*model.parameters()])


def test_a_change_is_a_few_lines():
    lines = {name: rung.lines() for name, rung in since.RUNGS.items()}
    assert lines.pop("paper") == 0 and lines["pre-norm"] == 1
    assert lines["rms-norm"] == 3
    pair = lines.pop("together")
    assert pair == lines["muon"] + lines["rotary"]
    assert lines.pop("all-three") == pair + lines["cool-down"]
    for rung in "muon", "rotary":
        both = lines[rung] + lines["cool-down"]
        assert lines[f"{rung}-cool-down"] == both


@pytest.mark.parametrize("part", [since.muon, since.cool_down])
def test_the_page_shows_what_was_recorded(part):
    """A function of the last chapter is the records', line by line."""
    page = jupytext.read(tangle.ROOT / "book/results/after.md")
    starts = f"def {part.__name__}("
    [shown] = [c.source for c in page.cells if c.source.startswith(starts)]
    recorded = ast.parse(inspect.getsource(part)).body[0]
    del recorded.body[0]  # the docstring
    recorded.args.defaults = [  # STEPS and the like, in numbers
        ast.Constant(value) for value in part.__defaults__ or ()
    ]
    assert ast.dump(ast.parse(shown).body[0]) == ast.dump(recorded)


def test_the_table_says_whose_rate_a_rung_takes():
    for name in runs.RATE_OF:
        rung = since.RUNGS[name]
        trains_alike = (rung.optimizers, rung.schedule) == (
            since.adam,
            since.equation_3,
        )
        wanted = "paper" if trains_alike else name
        if name in drawings.COMBINED:
            wanted = "muon"  # whose optimizer they have
        assert runs.RATE_OF[name] == wanted
        first, second = (runs.RUNS[f"since/{name}-{n}"] for n in (0, 1))
        assert second.after == f"since/{wanted}-0"
        assert f"--rate-of {second.after} " in second.command
        assert ("--rate-of" in first.command) == (name != wanted)


def test_the_best_rate_lies_between_two_that_were_tried():
    assert since.beyond({0.35: 2.0, 0.7: 1.9, 1.4: 2.1}) is None
    assert since.beyond({0.35: 2.0, 0.7: 1.9, 1.4: 1.8}) == 2.8
    assert since.beyond({0.35: 1.8, 0.7: 1.9, 1.4: math.inf}) == 0.175


def little_spanish(name, source, target, split):
    """A corpus that is read at once, and needs no download."""
    return load_corpus("little_spanish", split=split)


def test_a_rung_is_tuned_recorded_and_taken_up_again(tmp_path, monkeypatch):
    monkeypatch.setattr(since, "beyond", lambda losses: None)
    monkeypatch.setattr(since, "RATES", [0.35, 0.7])
    monkeypatch.setattr(since, "load_corpus", little_spanish)
    first, second = tmp_path / "since/first", tmp_path / "since/second"
    small = "--max-steps 6 --limit 20".split()

    def train_but_once(*given, **settings):
        monkeypatch.setattr(since, "train", interrupted)
        return train(*given, **settings)

    def interrupted(*given, **settings):
        raise KeyboardInterrupt

    train = since.train
    monkeypatch.setattr(since, "train", train_but_once)
    words = ["cool-down", *small, "--out", str(first)]
    with pytest.raises(SystemExit, match="the same command goes on"):
        since.main(words)
    pack.pack(first)  # the rate that was tried to its end
    recorded = read_record(tmp_path / "since.jsonl")["first"]
    files = "log.jsonl", "report.json", "translations.txt"
    assert [*recorded] == [f"rate-0.35/{file}" for file in files]

    monkeypatch.setattr(since, "train", train)
    since.main(words)
    again = read_folder(first)
    assert again["rate-0.35/report.json"] == recorded["rate-0.35/report.json"]
    shutil.rmtree(first / "rate-0.35")  # as on a machine that lacks it
    for _ in range(2):  # the second time, over a record that is whole
        pack.pack(first)
    assert (
        recorded.items()
        <= read_record(tmp_path / "since.jsonl")["first"].items()
    )
    with pytest.raises(SystemExit, match="is finished"):
        since.main(words)
    report = again["report.json"]
    assert [*report["rates"]] == ["0.35", "0.7"]
    training = report["training"]
    assert training["warmup_steps"] == since.WARMUP
    assert training["learning_rate_scale"] == report["rate"]
    assert [each["name"] for each in report["optimizers"]] == ["Adam"]
    best = min(report["rates"].values())
    assert report["rates"][f"{report['rate']:g}"] == best
    assert report["result"]["validation_loss"] == best
    assert again["log.jsonl"][-1]["validation_loss"] == best
    assert report["result"]["cpu_seconds_a_step"] > 0
    assert len(again["translations.txt"]) == report["test"]["sentences"]

    more = ["--seed", "1", "--rate-of", str(first), "--out", str(second)]
    monkeypatch.setattr(since, "EVERY", 2)
    since.main(["cool-down", *small, *more, "--average", "3"])
    other = read_folder(second)["report.json"]
    assert other["result"]["averaged_checkpoints"] == 3
    last = other["result"]["last_validation_loss"]
    assert last != other["result"]["validation_loss"]
    assert [*other["rates"]] == [f"{report['rate']:g}"]
    assert other["training"]["seed"] == 1
    tests = other["last_test"], other["test"]
    assert tests[0]["nats_per_token"] != tests[1]["nats_per_token"]

    words = ["cool-down", *small, "--rate", "0.7", "--average", "3"]
    words += ["--warmup-steps", "2", "--seed", "1"]
    since.main([*words, "--out", str(tmp_path / "third")])
    third = read_folder(tmp_path / "third")
    assert {*third} == {"log.jsonl", "report.json", "translations.txt"}
    training = third["report.json"]["training"]
    assert training["learning_rate_scale"] == 0.7
    assert training["warmup_steps"] == 2
    rates = [line["learning_rate"] for line in third["log.jsonl"]]
    highest = since.highest_rate(0.7, 128)
    assert rates == pytest.approx([highest, highest / 2, 0])


def test_a_finished_record_is_no_reason_not_to_train(tmp_path, monkeypatch):
    """By its own name a run is made again; a trial is not."""
    files = {"rate-0.7/report.json": {"rate": 0.7}}
    record = {"since/muon-1": files | {"report.json": {}}}
    record["since/muon-0"] = files
    monkeypatch.setattr(since, "load_files", lambda name: record.get(name, {}))
    monkeypatch.setattr(since, "runs_folder", lambda: tmp_path / "runs")
    folder = tmp_path / "runs/since"
    assert since.files_of(folder / "muon-1") == {}
    assert since.files_of(folder / "muon-0") == files
    elsewhere = tmp_path / "trial/since/muon-0"
    assert since.files_of(elsewhere) == {}


def test_a_run_goes_on_at_the_step_of_its_checkpoint(tmp_path):
    assert since.steps_done(tmp_path) == 0
    for step in 50, 300:
        (tmp_path / f"checkpoint-{step:08}.pt").touch()
    assert since.steps_done(tmp_path) == 300


def test_the_same_steps_are_measured_once(tmp_path, monkeypatch):
    """So a schedule costs nothing, as it should."""
    monkeypatch.setattr(since, "load_corpus", little_spanish)
    monkeypatch.setattr(since, "TOKENS", 64)
    words = "seconds --rounds 1 --limit 60 --out".split()
    since.main([*words, str(tmp_path)])
    report = json.loads((tmp_path / "since_seconds.json").read_text())
    found = report["rungs"]
    assert len(report["again"]) == 1
    assert [*found] == [*since.RUNGS]
    for name in "cool-down", "short-first":
        assert found[name]["seconds"] == found["paper"]["seconds"]
    assert found["all-three"]["seconds"] == found["together"]["seconds"]
    assert found["muon"]["operations"] > found["paper"]["operations"]
    assert all(len(each["seconds"]) == 1 for each in found.values())


def test_the_hours_recipe_leaves_a_translator(tmp_path, monkeypatch):
    """Also if it was stopped before it was tested."""
    monkeypatch.setattr(since, "load_corpus", little_spanish)
    words = ["--rung", "all-three", "--max-steps", "4", "--limit", "20"]
    words += ["--out", str(tmp_path)]

    def stopped(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hour, "evaluate", stopped)
        with pytest.raises(SystemExit, match="the same command goes on"):
            hour.main(words)
    hour.main(words)
    found = read_folder(tmp_path)
    result = found["report.json"]["result"]
    assert result["steps"] == 4
    assert result["validation_loss"] > 0
    [line] = found["log.jsonl"]
    assert result["cpu_seconds"] == pytest.approx(
        4 * line["cpu_seconds_a_step"], abs=0.01
    )
    assert len(found["translations.txt"]) == 20
    translator = Translator.from_pretrained(tmp_path, model=since.Rotary)
    said = translator.translate("I like trees")
    assert isinstance(said, str)
    for rung, steps in hour.STEPS.items():
        factor = since.schedule_of(hour.rung_of(rung), steps)
        assert factor(since.WARMUP) == 1
        assert (factor(steps) == 0) == (rung != "paper")


def test_the_readme_has_the_hours_command_minutes_and_score():
    text = (tangle.ROOT / "README.md").read_text("utf-8")
    [name] = re.findall(r"make -C experiments (hour/\S+)", text)
    assert name in runs.RUNS
    reports = [load_run(f"hour/all-three-{n}").report for n in range(3)]
    spent = sorted(r["result"]["cpu_seconds"] / 60 for r in reports)
    assert f"{spent[0]:.0f} to {spent[-1]:.0f} minutes of a core" in text
    scores = sorted(report["test"]["bleu"] for report in reports)
    assert f"{scores[0]:.1f} to {scores[-1]:.1f} BLEU" in text


def test_translations_that_differ_by_chance_alone_are_told_as_that():
    references = [f"word {n} and {n + 1} and {n + 2}" for n in range(60)]
    worse = [f"word {n} or {n + 1} or {n + 2}" for n in range(60)]
    mixed = [worse[:30] + references[30:], references[:30] + worse[30:]]
    systems = {"base": mixed[0], "other": mixed[1], "worse": worse}
    found = coins.compare(systems, references, 200)
    assert [*found] == [*systems] and found["base"]["p"] is None
    assert found["other"]["p"] > 0.5 and found["worse"]["p"] < 0.05
    for name, texts in systems.items():
        assert found[name]["bleu"] == pytest.approx(
            bleu(texts, references).value
        )


def test_a_validation_that_is_made_up_for_has_no_steps_to_time():
    """As after one that failed: the checkpoint is of the same step."""
    model = since.build(since.RUNGS["paper"], 40, 0)
    judge = since.Judge([([5, EOS], [6, EOS])], 300)
    assert [*judge(model, 300)] == ["validation_loss"]
    assert judge(model, 301)["cpu_seconds_a_step"] >= 0


def test_the_seconds_of_steps_leave_out_validations():
    lines = [
        {"step": 300, "cpu_seconds_a_step": 1.0, "seconds": 330.0},
        {"step": 400, "cpu_seconds_a_step": 2.0, "seconds": 560.0},
    ]
    assert hour.cpu_seconds(lines) == 500


def test_every_rung_of_the_records_is_in_the_table():
    """Under its verdict, with what a step of it costs."""
    rows = ladder.rungs()
    table = drawings.ladder_table(rows).data
    measured = load_counts("since_seconds")["rungs"]
    assert {*measured} == {*drawings.RUNGS} <= {*since.RUNGS}
    for row in rows:
        lines = since.RUNGS[row["rung"]].lines()
        assert measured[row["rung"]]["lines"] == row["lines"] == lines
        assert f"| {drawings.RUNGS[row['rung']]} " in table
        if row["verdict"]:
            assert f" ({row['lines']}) |" in table
            assert f"| **{row['verdict']}** |" in table


@pytest.mark.parametrize(
    "gap, said",
    [(-0.0004, "0.000"), (0.0004, "0.000"), (-0.02, "\u22120.020")],
)
def test_a_gap_of_nothing_has_no_sign(gap, said):
    paper, other, *_ = ladder.rungs()
    table = drawings.ladder_table([paper, other | {"gap": gap}]).data
    assert f"| {said} \u00b1 " in table


@pytest.fixture(scope="module")
def references():
    try:
        return load_corpus("tatoeba", *since.LANGUAGES, "test").targets
    except OSError as error:
        pytest.skip(f"no references: {error}")


@pytest.mark.parametrize("name", recorded_runs("since"))
def test_a_record_is_what_its_files_say(name):
    """The same steps and precision for all, and the best rate."""
    run = load_run(name)
    report, last = run.report, run.log[-1]
    assert last["step"] == since.STEPS
    assert report["training"]["tokens_per_batch"] == since.TOKENS
    assert report["training"]["precision"] == "bf16"
    assert report["result"]["validation_loss"] == last["validation_loss"]
    best = min(report["rates"], key=report["rates"].get)
    assert best == f"{report['rate']:g}"
    assert report["rates"][best] == last["validation_loss"]
    rung, _, seed = name.removeprefix("since/").rpartition("-")
    assert (report["rung"], report["training"]["seed"]) == (rung, int(seed))
    source = runs.RATE_OF[rung]
    if source != rung or seed != "0":
        assert report["rate"] == load_run(f"since/{source}-0").report["rate"]


@pytest.mark.parametrize(
    "name",
    [
        name
        for experiment in ("since", "averaged", "kernels", "hour")
        for name in recorded_runs(experiment)
        if "paper-0" not in name or experiment != "hour"
    ],
)
def test_the_bleu_of_a_record_is_that_of_its_translations(name, references):
    run = load_run(name)
    score = bleu(run.translations, references).value
    assert score == pytest.approx(run.report["test"]["bleu"], abs=1e-6)


def test_students_t():
    """Against tables of the distribution."""
    assert ladder.quantile(0.975, 4) == pytest.approx(2.776, abs=1e-3)
    assert ladder.quantile(0.995, 20) == pytest.approx(2.845, abs=1e-3)
    assert ladder.below(0, 3) == 0.5


def test_a_gap_is_judged_by_the_spread_of_all_rungs():
    """By hand: spread 0.01 with 4 degrees of freedom."""
    losses = {"paper": [2.0, 2.01, 2.02], "other": [1.9, 1.91, 1.92]}
    gap, within, p = ladder.compared(losses, "other")
    assert gap == pytest.approx(-0.1)
    error = 0.01 * math.sqrt(2 / 3)
    assert within == pytest.approx(4.604 * error, rel=1e-3)
    assert 0 < p < 0.01
    _, _, same = ladder.compared(losses, "paper")
    assert same == pytest.approx(1)


def test_the_rule_says_nothing_before_three_seeds():
    assert ladder.verdict("paper", 3, 0.0, 1.0) == ""
    assert ladder.verdict("muon", 1, -0.1, 0.001) == "one seed so far"
    assert ladder.verdict("muon", 2, -0.1, 0.001) == "two seeds so far"
    assert ladder.verdict("muon", 3, -0.1, 0.001) == "better"
    assert ladder.verdict("muon", 3, 0.1, 0.009) == "worse"
    assert ladder.verdict("muon", 3, -0.1, 0.01) == "no difference shown"


def test_a_ladder_without_its_first_rung_has_no_rows(monkeypatch):
    monkeypatch.setattr(ladder, "recorded_runs", lambda experiment: [])
    assert ladder.rungs() == []


def test_the_rows_of_a_ladder(monkeypatch):
    """Two rungs of two seeds each, the second one sooner and better."""
    runs = {}
    for rung, losses in {"muon": (1.8, 1.82), "paper": (2.0, 2.02)}.items():
        for seed, loss in enumerate(losses):
            log = [
                {"step": 50, "validation_loss": 3.0},
                {"step": 100, "validation_loss": loss},
            ]
            report = {
                "rung": rung,
                "rate": 0.7,
                "rates": {"0.35": 2.5, "0.7": loss, "1.4": 2.4},
                "result": {"validation_loss": loss},
                "test": {"bleu": 20.0 + seed},
            }
            files = {"log.jsonl": log, "report.json": report}
            runs[f"since/{rung}-{seed}"] = Run(f"{rung}-{seed}", files)
    cost = {"seconds": [0.5, 2.0, 0.5], "operations": 10, "lines": 6}
    slower = cost | {"seconds": [0.6, 2.4, 5.0]}  # the last turn was busy
    monkeypatch.setattr(ladder, "recorded_runs", lambda experiment: [*runs])
    monkeypatch.setattr(ladder, "load_run", runs.get)
    counts = {"rungs": {"paper": cost, "muon": slower}}
    monkeypatch.setattr(ladder, "load_counts", lambda name: counts)
    paper, muon = ladder.rungs()
    assert (paper["rung"], muon["rung"]) == ("paper", "muon")
    assert muon["gap"] == pytest.approx(-0.2) and muon["p"] < 0.01
    assert muon["verdict"] == "two seeds so far" and muon["rates_tried"] == 3
    assert muon["bleu"] == 20.5 and muon["lines"] == 6
    # Until 2.01, the mean of the paper's ends; its mean is 1.81.
    assert paper["steps"] == 100
    assert muon["steps"] == pytest.approx(50 + 50 * (3 - 2.01) / (3 - 1.81))
    assert paper["seconds"] == pytest.approx(paper["steps"] / 2)
    assert muon["step_time"] == pytest.approx(1.2)
    assert muon["seconds"] == pytest.approx(muon["steps"] * 1.2 / 2)


def test_steps_until_a_loss():
    log = [50, 100, 150], [4.0, 3.0, 2.0]
    assert ladder.steps_until(*log, 2.5) == 125
    assert ladder.steps_until(*log, 4.5) == 50
    assert math.isnan(ladder.steps_until(*log, 1.0))


def test_a_loss_that_rises_again_was_not_there_yet():
    steps = [50, 100, 150, 200]
    assert ladder.steps_until(steps, [4.0, 2.0, 3.0, 2.0], 2.5) == 175
    assert math.isnan(ladder.steps_until(steps, [4.0, 2.0, 3.0, 3.0], 2.5))
