"""karpathy/nanoGPT."""

from sources import use

use("nanogpt")
from model import GPT, GPTConfig  # noqa: E402

PAD, BOS, EOS = 0, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    # d_ff is always 4 * n_embd there
    sizes = dict(n_layer=N, n_head=h, n_embd=d_model, dropout=dropout)
    return GPT(GPTConfig(block_size=128, vocab_size=vocab_size, **sizes))


def logits(model, ids):
    # without targets it gives the last position's scores alone
    return model(ids, targets=ids)[0]


def greedy(model, ids, max_extra):
    model.eval()  # generate leaves that to its caller
    written = model.generate(ids, max_extra, top_k=1)
    return written[0, ids.size(1) :].tolist()
