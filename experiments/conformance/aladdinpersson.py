"""aladdinpersson/Machine-Learning-Collection."""

from sources import use

use("aladdinpersson", "ML/Pytorch/more_advanced/transformer_from_scratch")
from transformer_from_scratch import Transformer  # noqa: E402

PAD, BOS, EOS = 0, 2, 3


def build(vocab_size, N, d_model, d_ff, h, dropout):
    sizes = vocab_size, vocab_size, PAD, PAD, d_model, N, d_ff // d_model
    return Transformer(*sizes, h, dropout)


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    return model.encoder(source_ids, model.make_src_mask(source_ids))
