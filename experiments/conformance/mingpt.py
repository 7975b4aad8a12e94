"""karpathy/minGPT."""

from sources import use

use("mingpt")
from mingpt.model import GPT  # noqa: E402

PAD, BOS, EOS = 0, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    # d_ff is always 4 * n_embd there
    config = GPT.get_default_config()
    config.model_type = None
    config.vocab_size, config.block_size = vocab_size, 128
    config.n_layer, config.n_head, config.n_embd = N, h, d_model
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = dropout
    return GPT(config)


def logits(model, ids):
    return model(ids)[0]


def greedy(model, ids, max_extra):
    model.eval()  # generate leaves that to its caller
    written = model.generate(ids, max_extra)
    return written[0, ids.size(1) :].tolist()
