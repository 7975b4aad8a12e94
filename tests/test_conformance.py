"""The conformance suite: verdicts on what is right, and on what is not."""

import importlib
from pathlib import Path

import pytest
import yaml

from transformer_book import conformance
from transformer_book.conformance import Adapter, run
from transformer_book.conformance.__main__ import main
from transformer_book.conformance.plant import ours as library
from transformer_book.conformance.plant import planted
from transformer_book.conformance.report import page

OURS = conformance.__path__[0] + "/ours.py"


@pytest.fixture(scope="module")
def ours():
    """The suite's verdicts on the library."""
    return list(run(Adapter.load(OURS)))


def test_the_library_is_the_paper(ours):
    kinds = {"paper", "not tried"}
    wrong = [r for r in ours if r.verdict.kind not in kinds]
    assert not wrong, conformance.as_text(wrong)
    untried = {
        n for r in ours for n in r.probe.needs if r.verdict.kind != "paper"
    }
    assert untried <= {"embeddings", "encoder_layer", "decoder_layer"}


def test_the_suite_takes_less_than_a_minute(ours):
    assert sum(result.seconds for result in ours) < 60


def test_every_probe_is_of_a_row_and_leads_to_its_place(root):
    text = (root / "book" / "fidelity.yml").read_text("utf-8")
    rows = {row["id"]: row for row in yaml.safe_load(text)}
    for probe in conformance.PROBES:
        assert probe.row in rows, probe.name
        file, _, anchor = page(probe.label).partition("#")
        source = (root / file).with_suffix(".md").read_text("utf-8")
        assert f"({anchor})=" in source.replace("_", "-"), probe.name
        assert probe.says.endswith("."), probe.name


def test_an_empty_template_is_not_tried(tmp_path, capsys):
    assert main(["--template"]) == 0
    file = tmp_path / "mine.py"
    file.write_text(capsys.readouterr().out, "utf-8")
    assert main([str(file)]) == 0
    assert "0 faults" in capsys.readouterr().out


def test_a_fault_is_an_exit_code_and_a_page(tmp_path, capsys):
    file, out = tmp_path / "mine.py", tmp_path / "mine.html"
    file.write_text(
        "def learning_rate(step, d_model, warmup_steps):\n"
        "    return d_model**-0.5 * step**-0.5\n",
        "utf-8",
    )
    assert main([str(file), "--html", str(out)]) == 1
    said = capsys.readouterr().out
    assert "there is no ramp" in said and "schedule.html#schedule-rate" in said
    assert "there is no ramp" in out.read_text("utf-8")


def test_what_an_adapter_raises_is_shown_with_its_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "def positions(length, d_model):\n    return undefined\n", "utf-8"
    )
    assert main([str(file)]) == 1
    said = capsys.readouterr().out
    assert "NameError" in said and "line 2 of positions" in said


def test_a_misspelt_function_is_named(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def possitions(length, d_model):\n    pass\n", "utf-8")
    assert main([str(file)]) == 2
    assert "'positions'" in capsys.readouterr().err


def test_numpy_is_as_good(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "ARRAYS = 'numpy'\n"
        "def attention(query, key, value, mask=None):\n"
        "    scores = query @ np.swapaxes(key, -1, -2)\n"
        "    scores = scores / query.shape[-1] ** 0.5\n"
        "    if mask is not None:\n"
        "        scores = np.where(mask, scores, -1e30)\n"
        "    scores = scores - scores.max(-1, keepdims=True)\n"
        "    weights = np.exp(scores)\n"
        "    return weights / weights.sum(-1, keepdims=True) @ value\n",
        "utf-8",
    )
    results = [
        r for r in run(Adapter.load(file)) if r.probe.needs == ("attention",)
    ]
    assert len(results) >= 6
    assert {r.verdict.kind for r in results} == {"paper"}


# Planted faults

FAULTS = yaml.safe_load(
    (
        Path(__file__).parents[1] / "experiments/conformance/faults.yml"
    ).read_text("utf-8")
)


@pytest.mark.parametrize("module, old, new, row", FAULTS)
def test_a_planted_fault_is_named(module, old, new, row):
    """By a probe of its row, as a fault or as what others do."""
    probes = [probe for probe in conformance.PROBES if probe.row == row]
    with planted((module, old, new)):
        kinds = {r.verdict.kind for r in run(library(), probes)}
    assert kinds & {"fault", "deviation"}, f"{new!r} is not noticed"


def test_forty_faults_are_planted_and_nothing_stays():
    assert len(FAULTS) >= 40
    before = importlib.import_module("transformer_lib.attention")
    with planted(("attention", "/ math.sqrt(d_k)", "/ d_k")):
        assert importlib.import_module(before.__name__) is not before
    assert importlib.import_module(before.__name__) is before
    with pytest.raises(ValueError, match="'nowhere' is not in"):
        with planted(("attention", "nowhere", "")):
            importlib.import_module(before.__name__)
