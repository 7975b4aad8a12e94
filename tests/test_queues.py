"""The queue: budget, going on, failures, and that ours would run."""

import json
import time
from pathlib import Path

import pytest

import transformer_lib.queues as queues
from transformer_lib.cli import _make_parser, _task_of
from transformer_lib.queues import SMOKE, read_queue, run_queue
from transformer_lib.recording import recipe

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


def test_every_command_of_our_queue_is_a_training(tmp_path):
    jobs = read_queue(ROOT / "runs" / "queue.yml", tmp_path)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        options = _make_parser().parse_args(job.command)
        model, training = recipe(_task_of(options), 8000)
        assert model.N > 0 and training.max_steps > 0
        assert job.run["measures"]
