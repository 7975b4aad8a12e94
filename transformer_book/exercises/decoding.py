"""Checks of the exercises in the chapter on decoding."""

import torch
import torch.nn.functional as F

from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer, TransformerConfig

from . import exercise


class _Scripted:
    """A model that finds the tokens of `path` likeliest, in order."""

    def __init__(self, path, bold=False):
        self.path, self.bold = torch.tensor(path), bold

    def encode(self, source_ids):
        return source_ids[..., None].float()

    def decode(self, target_ids, memory, source_ids):
        path = self.path[: target_ids.size(1)]
        logits = 4 * F.one_hot(path, 9).float()
        if self.bold:
            logits[:, [PAD, BOS]] = 5.0
        return logits[None]

    def project(self, hidden):
        return hidden

    def __call__(self, source_ids, target_ids):
        return self.decode(target_ids, None, source_ids)


def _as_list(answer):
    """An answer whose ids may come as a tensor."""

    def listed(*args, **named):
        ids = answer(*args, **named)
        assert ids is not None, "nothing is returned"
        return torch.as_tensor(ids).flatten().tolist()

    return listed


@exercise("decoding.greedy")
def _greedy(answer):
    """Greedy decoding of one sentence, without a cache."""
    answer = _as_list(answer)
    source = torch.tensor([[4, 5, 6, EOS]])
    path = [5, 4, 8, 5, EOS, 4] + [7] * 60
    got = answer(_Scripted(path), source)
    right = path[:5]
    assert got[:1] != [BOS], "bos is an input, not a part of the output"
    assert got != right[:-1], "eos belongs to the output: keep it"
    assert got[:4] != [5] * 4, (
        "the same token again and again: what comes next is at "
        "the last position, not at the first"
    )
    assert len(got) <= 5, "eos was chosen, and the output went on"
    assert got == right, f"expected {right}, got {got}"
    got = answer(_Scripted(path, bold=True), source)
    assert not {PAD, BOS} & {*got}, (
        "pad or bos came out: give them a logit of -inf"
    )
    got = answer(_Scripted([4, 5] * 40), source, max_extra=7)
    assert len(got) == 10, (
        "3 tokens without eos and max_extra=7: the output may have "
        f"10, yours has {len(got)}"
    )
    config = TransformerConfig(9, N=1, d_model=16, d_ff=32, h=2)
    model = Transformer(config).eval()
    for _ in range(5):
        ids = torch.randint(4, 9, (1, 6))
        ids[0, -1] = EOS
        right = greedy_decode(model, ids, 6).ids[0][0]
        got = answer(model, ids, max_extra=6)
        assert got == right, f"the library says {right}, yours {got}"
