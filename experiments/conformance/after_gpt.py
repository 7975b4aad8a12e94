"""The GPT of the chapter `after`: its own cell, run as it stands."""

from pathlib import Path

import torch

PAD, BOS, EOS = 0, 2, 3

_PAGE = Path(__file__).parents[2] / "book/results/after.md"
_CELL = _PAGE.read_text("utf-8").partition("class LanguageModel")[0]
_CELL = _CELL.rpartition("```{code-cell} ipython3\n")[2]
_CLASS = _PAGE.read_text("utf-8").partition("class LanguageModel")[2]
exec(f"{_CELL}class LanguageModel{_CLASS.partition('```')[0]}")


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return LanguageModel(vocab_size, d_model, h, d_ff, N)  # noqa: F821


def logits(model, ids):
    return model(ids)


@torch.no_grad()
def greedy(model, ids, max_extra):
    model.eval()
    written = []
    while len(written) < max_extra and EOS not in written:
        scores = model(ids)[0, -1]
        scores[[PAD, BOS]] = -torch.inf
        written.append(int(scores.argmax()))
        ids = torch.cat([ids, torch.tensor([written[-1:]])], dim=1)
    return written
