"""The queue: budget, going on, failures, and that ours would run."""

import json
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

import transformer_lib.queues as queues
from transformer_lib.cli import _make_parser, _task_of
from transformer_lib.model import parameter_count
from transformer_lib.queues import (
    SMOKE,
    Job,
    keep_best,
    may_start,
    read_queue,
    run_queue,
)
from transformer_lib.runs import load_run
from transformer_lib.tasks import recipe
from transformer_lib.translator import Translator

ROOT = Path(__file__).parent.parent
TRAIN = f"train --corpus little_spanish {SMOKE}"


@pytest.fixture
def queue(tmp_path):
    def write(*runs):
        path = tmp_path / "queue.yml"
        path.write_text(json.dumps({"runs": runs}))  # JSON is YAML
        return path

    return write


def test_seeds_and_folders(queue, tmp_path):
    path = queue(
        {"name": "one", "command": TRAIN},
        {"name": "many", "seeds": [0, 1, 2], "command": TRAIN},
    )
    jobs = read_queue(path, tmp_path)
    names = ["one", "many/seed-0", "many/seed-1", "many/seed-2"]
    assert [job.name for job in jobs] == names
    assert jobs[3].folder == tmp_path / "many" / "seed-2"
    assert "--seed=2" in jobs[3].command
    smoke = read_queue(path, tmp_path, smoke=True)
    assert [job.name for job in smoke] == names[:2]
    assert not smoke[0].folder.is_relative_to(tmp_path / "one")


@pytest.mark.parametrize(
    "run", [{"name": "x", "command": "train"}, {"command": TRAIN}]
)
def test_a_run_needs_a_name_and_an_end(queue, run, tmp_path):
    with pytest.raises(ValueError, match="--max-steps"):
        read_queue(queue(run), tmp_path)


def test_runs_skips_and_goes_on(queue, tmp_path, capsys):
    path = queue(
        {"name": "good", "command": TRAIN, "measures": "nothing"},
        {"name": "bad", "command": f"{TRAIN} --corpus nope"},
        {"name": "far", "command": TRAIN, "needs": ["no/such/file"]},
    )
    records = tmp_path / "records"
    ends = run_queue(path, records, jobs=2)
    assert ends["good"] == "finished"
    assert (
        ends["bad"].startswith("failed: ") and "nope" in ends["bad"]
    )
    assert ends["far"].startswith("skipped: ")
    report = json.loads(
        (records / "good" / "report.json").read_text()
    )
    assert (
        report["name"] == "good" and report["measures"] == "nothing"
    )
    left = {path.name for path in (records / "good").iterdir()}
    assert "card.md" in left and "output.txt" not in left
    assert not any(name.startswith("checkpoint") for name in left)
    began = time.monotonic()
    ends = run_queue(
        queue({"name": "good", "command": TRAIN}), records
    )
    assert (
        ends == {"good": "finished"} and time.monotonic() - began < 1
    )


def test_no_budget_starts_nothing(queue, tmp_path):
    path = queue({"name": "one", "command": TRAIN})
    ends = run_queue(path, tmp_path, budget_minutes=0)
    assert ends == {"one": "not started"}
    assert not (tmp_path / "one").exists()


def test_a_stopped_run_goes_on(queue, tmp_path):
    command = TRAIN.replace("--max-steps 4", "--max-steps 100000")
    path = queue(
        {"name": "long", "command": command, "minutes": 0.03}
    )
    steps = []
    for _ in range(2):
        ends = run_queue(path, tmp_path, budget_minutes=3)
        assert ends == {"long": "stopped, goes on next time"}
        report = json.loads(
            (tmp_path / "long" / "report.json").read_text()
        )
        steps.append(report["result"]["steps"])
    assert steps[1] > steps[0] > 0


def test_an_interrupt_stops_the_processes(
    queue, tmp_path, monkeypatch
):
    command = TRAIN.replace("--max-steps 4", "--max-steps 100000")
    path = queue({"name": "long", "command": command})
    started = []

    def start(job, minutes):
        started.append(real(job, minutes))
        return started[-1]

    def interrupt(seconds):
        raise KeyboardInterrupt

    real = queues._start_job
    monkeypatch.setattr(queues, "_start_job", start)
    monkeypatch.setattr(queues.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_queue(path, tmp_path)
    assert started[0].poll() is not None


@pytest.mark.parametrize(
    "queue", ["queue.yml", "queue-cpu.yml", "queue-search.yml"]
)
def test_every_command_of_our_queues_is_good(queue, tmp_path):
    jobs = read_queue(ROOT / "runs" / queue, tmp_path)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        options = _make_parser().parse_args(job.command)
        task = _task_of(options)
        model, training = recipe(task, task.vocab_size)
        assert model.N > 0 and training.max_steps > 0
        assert job.run["measures"]
        if task.most_mib:
            count = parameter_count(model)["total"]
            assert count <= 8e6 and 2 * count < 16 * 2**20
        elif task.half:
            assert parameter_count(model)["total"] <= 8e6


def test_times_are_taken_alone():
    runs = read_queue(ROOT / "runs" / "queue.yml", "x")
    for job in runs:
        measured = job.command[0] == "measure"
        assert bool(job.run.get("alone")) == measured


def test_who_wants_to_be_alone_waits_and_is_waited_for(tmp_path):
    alone = Job("a", tmp_path, [], {"alone": True})
    other = Job("b", tmp_path, [], {})
    assert may_start(alone, [], 2) and may_start(other, [other], 2)
    assert not may_start(other, [other, other], 2)
    assert not may_start(alone, [other], 2)
    assert not may_start(other, [alone], 2)


def test_alone_and_together(queue, tmp_path, monkeypatch):
    runs = [{"name": name, "command": TRAIN} for name in "abcd"]
    runs[1]["alone"] = True
    seen, running = {}, set()

    class Process:
        returncode = 0

        def __init__(self, name):
            running.add(name)
            self.name, self.looks = name, 3
            seen[name] = set(running)

        def poll(self):
            self.looks -= 1
            if self.looks:
                return None
            running.discard(self.name)
            return 0

    monkeypatch.setattr(
        queues, "_start_job", lambda job, _: Process(job.name)
    )
    monkeypatch.setattr(queues, "_end_job", lambda *_: "finished")
    monkeypatch.setattr(queues.time, "sleep", lambda _: None)
    ends = run_queue(queue(*runs), tmp_path, jobs=3)
    assert set(ends.values()) == {"finished"}
    assert seen["a"] == {"a"} and seen["b"] == {"b"}
    assert seen["d"] == {"c", "d"}


def make_seed(folder, seed, bleu, test):
    """A record of one seed, as `record_training` leaves it."""
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).write_text(f"{name} {seed}")
    (folder / "config.json").write_text("{}")
    result = {"steps": 4, "seconds": 1.0 + seed}
    result |= {"validation_loss": 2.0, "validation_bleu": bleu}
    report = {"name": f"run/seed-{seed}", "measures": "x"}
    report |= {"command": f"c --seed={seed}", "finished": True}
    report |= {"weights_sha256": f"sha {seed}", "result": result}
    report |= {"data": {}, "model": {}, "machine": {}}
    report |= {"training": {"seed": seed}}
    report["test"] = {"bleu": test, "bleu_signature": "s"}
    (folder / "report.json").write_text(json.dumps(report))


def test_the_best_on_the_validation_set_is_kept(tmp_path):
    seeds = (0, 30.0, 50.0), (1, 32.0, 41.0), (2, 31.0, 47.0)
    for seed, bleu, test in seeds:
        make_seed(tmp_path / f"run/seed-{seed}", seed, bleu, test)
    report = keep_best(tmp_path / "run")
    assert report["result"]["best_seed"] == 1, "not the best on test"
    assert report["weights_sha256"] == "sha 1"
    model = tmp_path / "run" / "model.safetensors"
    assert model.read_text() == "model.safetensors 1"
    assert report["test"]["bleu"] == [50.0, 41.0, 47.0]
    assert report["test"]["bleu_mean"] == pytest.approx(46.0)
    spread = report["test"]["bleu_spread"]
    assert spread == pytest.approx(21**0.5)
    assert report["test"]["bleu_signature"] == "s"
    assert report["result"]["seconds"] == [1.0, 2.0, 3.0]
    left = {
        path.name for path in tmp_path.rglob("*") if path.is_file()
    }
    assert not list(tmp_path.glob("run/seed-*/model.safetensors"))
    assert len(list(tmp_path.glob("run/seed-*/report.json"))) == 3
    assert "card.md" in left
    assert keep_best(tmp_path / "run") == report, "twice is once"


def test_a_queue_of_seeds_ends_with_one_model(queue, tmp_path):
    command = f"{TRAIN} --test test --half --most-mib 1"
    run = {"name": "many", "seeds": [0, 1], "command": command}
    path = queue(run)
    assert run_queue(path, tmp_path, budget_minutes=0)
    assert not (tmp_path / "many" / "report.json").exists()
    ends = run_queue(path, tmp_path, jobs=2)
    assert set(ends.values()) == {"finished"}
    report = load_run(tmp_path / "many").report
    assert report["result"]["seeds"] == [0, 1] and report["finished"]
    weights = tmp_path / "many" / "model.safetensors"
    found = sha256(weights.read_bytes()).hexdigest()
    assert found == report["weights_sha256"]
    Translator.from_pretrained(tmp_path / "many").translate("Trees")
    for seed in range(2):
        left = tmp_path / "many" / f"seed-{seed}"
        names = {path.name for path in left.iterdir()}
        assert names == {
            "card.md",
            "config.json",
            "log.jsonl",
            "report.json",
            "translations.txt",
        }
    ends = run_queue(path, tmp_path, jobs=2)
    assert set(ends.values()) == {"finished"}


def test_a_reader_s_wmt_would_run(tmp_path, monkeypatch):
    """The queue on tiny files in place of the paper's own corpus."""
    jobs = read_queue(ROOT / "runs/queue.yml", tmp_path, smoke=True)
    (job,) = [job for job in jobs if job.name == "wmt14-en-de-big"]
    monkeypatch.chdir(tmp_path)
    assert job.obstacle.startswith("skipped: needs")
    (tmp_path / "wmt14").mkdir()
    for name in job.run["needs"]:
        Path(name).write_text("some words here\nand more\n" * 20)
    assert not job.obstacle
    runs = [job.run | {"seeds": [0]}]
    (tmp_path / "own.yml").write_text(json.dumps({"runs": runs}))
    ends = run_queue("own.yml", tmp_path / "out", smoke=True)
    assert ends == {"wmt14-en-de-big": "finished"}


def test_recipes_are_not_chosen_by_the_test_set(tmp_path):
    for job in read_queue(ROOT / "runs/queue-search.yml", tmp_path):
        assert "--test" not in job.command


@pytest.mark.parametrize(
    "words",
    ["train --validation-bleu --test test", "measure --ways naive"],
)
def test_a_machine_with_little_installed_is_enough(words, tmp_path):
    """torch, tokenizers, safetensors, sacrebleu, tqdm and no more."""
    code = (
        "import sys\n"
        "for name in ('pooch', 'sacremoses', 'matplotlib', 'altair',\n"
        "    'pandas', 'spacy', 'IPython', 'jupytext'):\n"
        "    sys.modules[name] = None\n"
        "from transformer_lib.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    out = ["--out", str(tmp_path / "x"), "--max-minutes", "3"]
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(
        [*command, *SMOKE.split(), *out],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "x" / "card.md").is_file()
