"""What a checker of types is told, and what it makes of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

USED = """\
from transformer_lib import TransformerConfig, TrainingConfig
from transformer_lib import Hypothesis, Translator, greedy_decode, load_model

translator = Translator.from_pretrained("little-spanish")
text: str = translator.translate("I like trees")
texts: list[str] = translator.translate(["I like trees"], beam_size=1)
maps = translator.attention("I like trees").maps
share: float = maps["encoder.layers.0.self_attention"].mean().item()
config: TransformerConfig = TransformerConfig.tiny(8000, N=2)
settings = TrainingConfig(max_steps=10, betas=(0.9, 0.98))
model, tokenizer, info = load_model("folder")
found: list[list[Hypothesis]] = greedy_decode(model, maps["x"])
"""
MISUSED = """\
from transformer_lib import TransformerConfig, TrainingConfig
from transformer_lib import Translator, nonsense

translator = Translator.from_pretrained(5.0)
text: int = translator.translate("I like trees")
translator.translate("I like trees", beams=4)
TransformerConfig("8000")
TrainingConfig(max_steps="10")
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The lines of both programs that pyright finds wrong."""
    if not shutil.which("node"):
        assert not os.environ.get("BROWSER_REQUIRED"), "no node"
        pytest.skip("pyright runs on node, which is not here")
    folder = tmp_path_factory.mktemp("programs")
    (folder / "used.py").write_text(USED)
    (folder / "misused.py").write_text(MISUSED)
    pyright = [sys.executable, "-m", "pyright", "--outputjson"]
    done = subprocess.run(
        [*pyright, "--pythonpath", sys.executable, "."],
        cwd=folder,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        stdout=subprocess.PIPE,
    )
    lines = {"used": [], "misused": []}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        lines[Path(one["file"]).stem].append(line)
    return lines


def test_a_program_of_a_user(refused):
    assert refused["used"] == []


def test_a_program_with_a_mistake_on_every_line(refused):
    assert refused["misused"] == [2, 4, 5, 6, 7, 8]
