"""Every tensor on its device, and no wait that need not be."""

import subprocess
import sys
from pathlib import Path

import placement
import pytest

SCRIPT = Path(placement.__file__)


def run(*words):
    return subprocess.run(
        [sys.executable, SCRIPT, *words],
        capture_output=True,
        text=True,
    )


def test_everything_is_where_it_belongs():
    found = run()
    assert found.returncode == 0, found.stderr[-2000:]


WORDS = {
    "mask_left_behind": "same device",
    "hidden_wait": "DataDependentOutputException",
    "labels_left_behind": "same device",
    "second_transfer": "AssertionError: of 3 steps",
}


@pytest.mark.parametrize("fault", placement.FAULTS)
def test_a_fault_is_found(fault):
    found = run(fault)
    assert found.returncode == 1
    assert WORDS[fault] in found.stderr
