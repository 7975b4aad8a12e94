r"""Table 3 again, smaller: one row, one seed, one record.

    python experiments/variations.py h-16 --seed 0 \
        --out runs/variations/h-16-0

Multi30k, English to German. As section 6.2 has it: the validation
set, a beam of four, no averaging. Interrupted, it goes on where it
was; finished, it leaves config.json, log.jsonl, translations.txt and
report.json, in which every sentence has its nats, so that rows can be
compared sentence by sentence.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import (
    TokenBatches,
    collate,
    encode_pairs,
)
from transformer_lib.checkpoints import load_config, save_config
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import PAD
from transformer_lib.evaluation import evaluate
from transformer_lib.experiment import describe_run, write_report
from transformer_lib.model import Transformer, TransformerConfig, evaluating
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train

BASE = dict(N=3, d_model=128, d_ff=512, h=4, dropout=0.1)
TOKENS = 2048  # of a batch, on either side
TRAINING = TrainingConfig(
    warmup_steps=800,
    max_steps=2000,
    precision="bf16",
    log_every=50,
    validate_every=250,
    checkpoint_every=250,
    keep_checkpoints=1,
)


class Nothing(nn.Module):
    """In a sub-layer's place: only the residual connection is left."""

    def keys_values(self, memory, offset=0):
        return memory[:, None], memory[:, None]

    def forward(self, x, *memory_and_mask):
        return torch.zeros_like(x)


def no_feed_forward(model):
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.feed_forward = Nothing()


def one_feed_forward(model):
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.feed_forward = model.encoder.layers[0].feed_forward


def no_decoder_self_attention(model):
    for layer in model.decoder.layers:
        layer.self_attention = Nothing()


class AdditiveHeads(MultiHeadAttention):
    """A hidden layer scores each query and key, section 3.2.1.

    All else is as with products. Row i of `v` is the i-th head's.
    """

    def __init__(self, d_model, h, *sizes):
        super().__init__(d_model, h, *sizes)
        d_k = self.w_k.out_features // h
        self.v = nn.Linear(d_k, h, bias=False)

    def attend(self, query, key, value, mask=None, need_weights=False):
        # (batch, h, query_len, key_len, d_k)
        hidden = (query[:, :, :, None] + key[:, :, None]).tanh()
        scores = torch.einsum("bhqkd,hd->bhqk", hidden, self.v.weight)
        if mask is not None:
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask, lowest)
        weights = scores.softmax(-1)
        return weights @ value, weights


class AdditiveTransformer(Transformer):
    """A Transformer with additive scores in all three attentions."""

    def attention(self):
        c = self.config
        return AdditiveHeads(c.d_model, c.h, c.d_k, c.d_v)


ROWS = {  # of table 3, and five that it has not
    "base": {},
    "h-1": {"h": 1},
    "h-16": {"h": 16},
    "d_k-8": {"d_k": 8},
    "N-1": {"N": 1},
    "N-6": {"N": 6},
    "d_model-256": {"d_model": 256},
    "d_ff-128": {"d_ff": 128},
    "dropout-0": {"dropout": 0.0},
    "dropout-0.3": {"dropout": 0.3},
    "label_smoothing-0": {"label_smoothing": 0.0},
    "label_smoothing-0.2": {"label_smoothing": 0.2},
    "positions-learned": {"positions": "learned"},
    "additive": AdditiveTransformer,
    "no-feed-forward": no_feed_forward,
    "one-feed-forward": one_feed_forward,
    "no-decoder-self-attention": no_decoder_self_attention,
    "precision-fp32": {"precision": "fp32"},
}


def build(row, vocab_size, training=TRAINING):
    """The row's model, and how it is trained."""
    changes = ROWS[row]
    config = TransformerConfig(vocab_size, **BASE)
    if changes is AdditiveTransformer:
        return changes(config), training
    if callable(changes):
        model = Transformer(config)
        changes(model)
        return model, training
    own = {k: v for k, v in changes.items() if hasattr(config, k)}
    rest = {k: v for k, v in changes.items() if k not in own}
    model = Transformer(replace(config, **own))
    return model, replace(training, **rest)


def sentence_nats(model, pairs):
    """Each sentence's nats, and its tokens."""
    nats = []
    with evaluating(model):
        for start in range(0, len(pairs), 64):
            batch = collate(pairs[start : start + 64])
            labels = batch.labels.to(model.output_weight.device)
            ids = batch.source_ids, batch.target_ids
            logits = model(*(x.to(labels.device) for x in ids))
            log_p = logits.log_softmax(-1).gather(2, labels[..., None])
            log_p = log_p[..., 0].masked_fill(labels == PAD, 0)
            nats += (-log_p.double().sum(1)).tolist()
    return [round(x, 4) for x in nats], [len(y) for _, y in pairs]


def multi30k():
    """Its three splits, and a tokenizer of 4,000 subwords."""
    splits = [
        load_corpus("multi30k", "en", "de", part)
        for part in ("train", "validation", "test")
    ]
    texts = splits[0].sources + splits[0].targets
    return *splits, BPETokenizer.train(texts, 4000)


def record(
    folder,
    command,
    training,
    history,
    model,
    batches,
    tokenizer,
    corpus,
    pairs,
    result=None,
    **more,
):
    """What a finished run found, written last.

    Translations and scores are of `corpus`, nats of each of `pairs`.
    """
    scores = evaluate(model, tokenizer, corpus)
    scores.pop("bleu_published", None)  # only for the headline
    nats, pieces = sentence_nats(model, pairs)
    described = describe_run(model, batches, training, history)
    described["result"] |= result or {}
    described |= more | {"sentences": {"nats": nats, "pieces": pieces}}
    write_report(folder, command, described, scores)
    print(f"{folder}: {scores['nats_per_token']:.4f} nats per token,")
    print(f"{scores['bleu']:.2f} BLEU")


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("row", choices=ROWS)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--max-steps", type=int, default=2000)
    made.add_argument("--device", default="cpu")
    made.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    return made


def vary(options, words):
    """Train a row and leave its record."""
    train_set, held_out, _, tokenizer = multi30k()
    torch.manual_seed(options.seed)
    training = replace(TRAINING, precision=options.precision)
    model, training = build(options.row, len(tokenizer), training)
    training = replace(
        training,
        seed=options.seed,
        max_steps=options.max_steps,
    )
    folder = options.out
    info = {"corpus": "multi30k", "row": options.row}
    if not (folder / "config.json").exists():
        save_config(folder, model, tokenizer, info=info)
    elif load_config(folder)[2] != info:
        raise SystemExit(f"{folder} is of another row: name another folder")
    pairs, checked = (
        encode_pairs(part, tokenizer) for part in (train_set, held_out)
    )
    batches, checks = (
        TokenBatches(ids, TOKENS, options.seed) for ids in (pairs, checked)
    )
    model.to(options.device)
    history = train(model, batches, training, checks, folder)
    command = shlex.join(["python", "experiments/variations.py", *words])
    record(
        folder,
        command,
        training,
        history,
        model=model,
        batches=batches,
        tokenizer=tokenizer,
        corpus=held_out,
        pairs=checked,
    )


def main(words):
    vary(parser().parse_args(words), words)


if __name__ == "__main__":
    main(sys.argv[1:])
