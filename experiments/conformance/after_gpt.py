"""The GPT of the chapter `after`: its own cell, run as it stands."""

import re
from pathlib import Path

from transformer_conformance.examples.gpt import (  # noqa: F401
    BOS,
    EOS,
    PAD,
    greedy,
    logits,
)

_PAGE = Path(__file__).parents[2] / "book/results/after.md"
_TEXT = _PAGE.read_text("utf-8")
_CELLS = re.findall(r"^```\{code-cell.*?\n(.*?)^```", _TEXT, re.S | re.M)
exec(next(cell for cell in _CELLS if "class LanguageModel" in cell))


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return LanguageModel(vocab_size, d_model, h, d_ff, N)  # noqa: F821
