"""The initialization of the weights: one of them, one seed, one record.

    python experiments/starts.py packed --out runs/starts/packed-0
    python experiments/starts.py packed --N 6 --max-steps 1000 --out ...
    python experiments/starts.py packed --task copying --rate 0.5 --out ...

The paper does not say how it initializes its weights. Here the literature's
recipe for Multi30k, English to German, is trained with eleven of them.
Each is a set of factors on the same first draws, which are Xavier
Glorot's, one matrix at a time. Interrupted, a run goes on where it was;
finished, it leaves config.json, log.jsonl and report.json, which has the
sizes of every sub-layer's output and the gradients before any training,
after 100 steps and at the end. The tasks `race` and `copying` are those
of `rivals.py`, with the Transformer of each.
"""

import argparse
import json
import math
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from filelock import FileLock
from rivals import rows_to_copy

from transformer_lib.batching import (
    TokenBatches,
    collate,
    encode_pairs,
)
from transformer_lib.checkpoints import (
    load_config,
    save_config,
    write_atomically,
)
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import EOS
from transformer_lib.evaluation import bleu
from transformer_lib.experiment import describe_run, write_report
from transformer_lib.layers import Residual
from transformer_lib.loss import projected_losses, validation_loss
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.schedule import TrainingConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.training import train
from transformer_lib.translator import Translator

# The literature's recipe (fairseq's, for Multi30k), at 4,096 tokens.
MODEL = dict(N=4, d_model=128, d_ff=256, h=4, dropout=0.3)
TOKENS = {"literature": 4096, "race": 2048, "copying": 2048}
TRAINING = dict(
    warmup_steps=2000,
    learning_rate_scale=2.53,
    precision="fp32",
    log_every=20,
    validate_every=400,
    checkpoint_every=100,
    keep_checkpoints=1,
)


def packed(model):
    """Queries, keys and values initialized as one matrix.

    So did the authors' code, for queries, keys and values of a
    self-attention, and for keys and values of the attention to the
    source. A matrix with three times the outputs has a range of
    sqrt(6 / (d + 3d)), one with twice, of sqrt(6 / (d + 2d)).
    """
    factors = {}
    for name, _ in model.named_modules():
        if name.endswith("self_attention"):
            for matrix in ("w_q", "w_k", "w_v"):
                factors[f"{name}.{matrix}"] = math.sqrt(2 / 4)
        elif name.endswith("cross_attention"):
            for matrix in ("w_k", "w_v"):
                factors[f"{name}.{matrix}"] = math.sqrt(2 / 3)
    return factors


def matrices(model, factors):
    """Factors by the last part of a module's name."""
    found = {}
    for name, part in model.named_modules():
        last = name.rsplit(".", 1)[-1]
        if isinstance(part, torch.nn.Linear) and last in factors:
            found[name] = factors[last]
    return found


def linear(model):
    """Feed-forward matrices in the range of nn.Linear's own initialization."""
    factors = {}
    for name, part in model.named_modules():
        if name.endswith((".w_1", ".w_2")):
            inputs, outputs = part.in_features, part.out_features
            xavier = math.sqrt(6 / (inputs + outputs))
            factors[name] = 1 / math.sqrt(inputs) / xavier
    return factors


def deepnorm(model):
    """Wang et al. 2022: values, outputs and feed-forward, by depth.

    Their factors for the first draws alone: the weight that they give
    the skip besides changes x + f(x).
    """
    N = model.config.N
    factors = {}
    for stack, factor in (
        (model.encoder, 0.87 * (N**4 * N) ** (-1 / 16)),
        (model.decoder, (12 * N) ** (-1 / 4)),
    ):
        for part in stack.modules():
            for matrix in ("w_v", "w_o", "w_1", "w_2"):
                if hasattr(part, matrix):
                    factors[getattr(part, matrix)] = factor
    return {
        name: factors[part]
        for name, part in model.named_modules()
        if part in factors
    }


def joined(*several):
    """The product of several initializations' factors."""

    def factors(model):
        found = {}
        for start in several:
            for name, factor in start(model).items():
                found[name] = found.get(name, 1.0) * factor
        return found

    return factors


def ends(w_o, w_2):
    """What ends a sub-layer, w_o and w_2, times a factor each."""
    return lambda model: matrices(model, dict(w_o=w_o, w_2=w_2))


def values(model):
    return matrices(model, {"w_v": math.sqrt(1 / 2)})


STARTS = {
    "xavier": lambda model: {},
    "packed": packed,
    "values": values,
    "linear": linear,
    "packed-linear": joined(packed, linear),
    "deepnorm": deepnorm,
    "packed-half": joined(packed, ends(1 / 2, 1 / 2)),
    "packed-quarter": joined(packed, ends(1 / 4, 1 / 4)),
    "packed-half-quarter": joined(packed, ends(1 / 2, 1 / 4)),
    "packed-nothing": joined(packed, ends(0.0, 0.0)),
    "packed-linear-half": joined(packed, linear, ends(1 / 2, 1 / 2)),
}


def initialize(model, start):
    """Multiply fresh weights by the factors of an initialization."""
    with torch.no_grad():
        for name, factor in STARTS[start](model).items():
            model.get_submodule(name).weight.mul_(factor)


def sizes(model, pairs):
    """Each sub-layer's output beside its skip, and the gradients.

    In the order of the model: the standard deviation of what comes in
    and of what the sub-layer adds to it, and the norm of the gradient
    of the sub-layer's weights, of the mean loss of these pairs.
    """
    rows, handles = [], []
    batch = collate(pairs).to(model.output_weight.device)

    def note(residual, args):
        x, sublayer = args
        row = {"skip": x.std().item()}
        rows.append(row)

        def noted(x):
            out = sublayer(x)
            row["branch"] = out.std().item()
            return out

        return x, noted

    for part in model.modules():
        if isinstance(part, Residual):
            handles.append(part.register_forward_pre_hook(note))
    model.eval()
    hidden = model.decode(
        batch.target_ids,
        model.encode(batch.source_ids),
        batch.source_ids,
    )
    loss, _ = projected_losses(hidden, model.output_weight, batch.labels)
    (loss / batch.tokens).backward()
    for handle in handles:
        handle.remove()
    sublayers = []
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, stack).layers):
            for name, part in layer.named_children():
                if name != "residuals":
                    sublayers.append((f"{stack}.{i}.{name}", part))
    for row, (name, part) in zip(rows, sublayers, strict=True):
        squares = (w.grad.square().sum() for w in part.parameters())
        row["name"] = name
        row["gradient"] = math.sqrt(sum(squares).item())
    model.zero_grad()
    model.train()
    return rows


def judge(tokenizer, corpus, pairs):
    """Validation loss and, of a text, BLEU of greedy translations."""
    batches = TokenBatches(pairs, 4096, shuffle=False)

    def look(model, step):
        found = {"validation_loss": validation_loss(model, batches)}
        if tokenizer:
            texts = Translator(model, tokenizer).translate(
                list(corpus.sources), beam_size=1
            )
            score = bleu(texts, list(corpus.targets))
            found["validation_bleu"] = score.value
        return found

    return look


def literature(options):
    """The literature's recipe for Multi30k, at 4,096 tokens a step."""
    steps = options.max_steps or 800
    training = TRAINING | dict(max_steps=steps)
    return texts(10_000), MODEL | dict(N=options.N or MODEL["N"]), training


def rivals(options, steps):
    """How `rivals.py` trains: clipped, a third of the steps warm-up."""
    training = dict(
        warmup_steps=steps // 3,
        learning_rate_scale=options.rate or 1.0,
        clip_norm=1.0,
        max_steps=steps,
        precision="fp32",
        log_every=steps // 100,
        validate_every=steps // 8,
        checkpoint_every=steps // 40,
        keep_checkpoints=1,
    )
    return dict(N=3, d_model=128, d_ff=512, h=4, dropout=0.1), training


def race(options):
    """Table 2's race, Multi30k with 4,000 pieces."""
    return texts(4000), *rivals(options, options.max_steps or 2104)


def copying(options):
    """Rows of up to 100 random symbols."""
    data = (
        None,
        None,
        rows_to_copy(100, 20_000, options.seed),
        rows_to_copy(100, 200, "new"),
    )
    return data, *rivals(options, options.max_steps or 917)


TASKS = {"literature": literature, "race": race, "copying": copying}


def texts(pieces):
    """Multi30k: tokenizer, what is held out, and the ids of both."""
    corpus, held_out = (
        load_corpus("multi30k", "en", "de", part)
        for part in ("train", "validation")
    )
    tokenizer = BPETokenizer.train(corpus.sources + corpus.targets, pieces)
    pairs = encode_pairs(corpus, tokenizer)
    return (
        tokenizer,
        held_out,
        pairs,
        encode_pairs(held_out, tokenizer),
    )


def parser():
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("start", choices=STARTS)
    made.add_argument("--task", choices=TASKS, default="literature")
    made.add_argument("--N", type=int)  # literature: 4 if not given
    made.add_argument("--rate", type=float)  # the others: 1
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--max-steps", type=int)
    made.add_argument("--device", default="cpu")
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words):
    options = parser().parse_args(words)
    ignored = "rate" if options.task == "literature" else "N"
    if getattr(options, ignored) is not None:
        raise SystemExit(f"--{ignored} has no part in {options.task}")
    if options.max_steps is not None and options.max_steps <= 100:
        raise SystemExit("--max-steps: give more than 100")
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=0):
        run(options, folder, words)


def run(options, folder, words):
    info = {"task": options.task, "init": options.start}
    if (folder / "report.json").exists():
        raise SystemExit(f"{folder} is finished: see its report.json")
    if (folder / "config.json").exists():
        begun = load_config(folder)[2]
        if begun != info:
            raise SystemExit(f"{folder} is of {begun}: name another folder")
    data, sizes_of_model, settings = TASKS[options.task](options)
    tokenizer, held_out, pairs, checks = data
    training = TrainingConfig(**settings, seed=options.seed)
    sizes_path = folder / "sizes.json"

    torch.manual_seed(options.seed)
    vocab_size = len(tokenizer) if tokenizer else EOS + 33
    config = TransformerConfig(vocab_size, **sizes_of_model, init="xavier")
    model = Transformer(config)
    initialize(model, options.start)
    model.to(options.device)
    if not sizes_path.exists():
        before = {"0": sizes(model, checks[:64])}
        write_atomically(sizes_path, json.dumps(before) + "\n")
        save_config(folder, model, info=info)

    batches = TokenBatches(pairs, TOKENS[options.task], options.seed)
    look = judge(tokenizer, held_out, checks)
    # 100 steps first, for the sizes; the training then goes on.
    for last in (100, training.max_steps):
        found = json.loads(sizes_path.read_text())
        if last == 100 and "100" in found:
            continue  # it was interrupted after them
        part = TrainingConfig(**(asdict(training) | {"max_steps": last}))
        history = train(
            model, batches, part, look if last > 100 else None, folder
        )
        if str(last) not in found:
            found[str(last)] = sizes(model, checks[:64])
            write_atomically(sizes_path, json.dumps(found) + "\n")

    last = history.lines[-1]
    scores = {k: v for k, v in last.items() if k.startswith("validation")}
    command = shlex.join(["python", "experiments/starts.py", *words])
    described = describe_run(model, batches, training, history)
    described["result"] |= scores
    described |= {"task": options.task, "init": options.start}
    described["sizes"] = json.loads(sizes_path.read_text())
    report = write_report(folder, command, described)
    sizes_path.unlink()
    print(folder.name, report["result"])


if __name__ == "__main__":
    main(sys.argv[1:])
