"""rasbt/LLMs-from-scratch, the GPT of its chapter 4."""

import sys
import types

from sources import use

use("rasbt", "ch04/01_main-chapter-code")
sys.modules.setdefault("tiktoken", types.ModuleType("tiktoken"))
from gpt import GPTModel, generate_text_simple  # noqa: E402

PAD, BOS, EOS = 0, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    # d_ff is always 4 * emb_dim there
    return GPTModel(
        dict(
            vocab_size=vocab_size,
            context_length=128,
            emb_dim=d_model,
            n_heads=h,
            n_layers=N,
            drop_rate=dropout,
            qkv_bias=False,
        )
    )


def logits(model, ids):
    return model(ids)


def greedy(model, ids, max_extra):
    model.eval()  # generate leaves that to its caller
    written = generate_text_simple(model, ids, max_extra, 128)
    return written[0, ids.size(1) :].tolist()
