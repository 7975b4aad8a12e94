"""Training and decoding on a GPU: ours and its peers.

    python benchmarks/gpu/bench.py [--device cpu --quick] [--only WORDS]

Real batches: Multi30k for the tiny model, Tatoeba for the base model.
A line for each measurement, all of them in --out. Rows come in order of
interest; those that the budget does not reach are named.
"""

import argparse
import contextlib
import io
import json
import re
import statistics
import sys
import time
import traceback
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.append(str(Path(__file__).parents[1]))
from models import as_marian, as_torch, random_model
from searches import marian_search, our_search
from steps import marian_forward, smoothed_cross_entropy, torch_forward

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.corpora import load_corpus
from transformer_lib.embeddings import EOS
from transformer_lib.loss import projected_losses
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.replays import Replays
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train
from transformer_lib.translator import Translator

made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
made.add_argument("--device", default="cuda")
made.add_argument("--quick", action="store_true", help="does it all run?")
made.add_argument("--budget", type=float, default=220, help="seconds")
made.add_argument("--only", default="", help="rows that match")
made.add_argument("--seconds", type=float, default=5, help="of a row")
made.add_argument("--out", type=Path, default=Path("bench.json"))
options = made.parse_args()

DEVICE = torch.device(options.device)
BEGAN, FOUND = time.time(), {}
SHRINK, EVERY = (40, 1) if options.quick else (1, 10)
SECONDS = 0.1 if options.quick else options.seconds
WITHOUT_CUDNN = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def wait():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def note(name, value):
    FOUND[name] = value
    print(f"{time.time() - BEGAN:6.1f} s  {name}: {value}", flush=True)
    options.out.write_text(json.dumps(FOUND, indent=1) + "\n")


def encoded(corpus, model):
    tokenizer = Translator.from_pretrained(model).tokenizer
    pairs = load_corpus(corpus, "en", "de", "train")
    pairs = pairs[:500] if options.quick else pairs
    return encode_pairs(pairs, tokenizer), len(tokenizer)


DATA = {
    "tiny": encoded("multi30k", "multi30k-en-de"),
    "base": encoded("tatoeba", "tatoeba-en-de"),
}


def config(size, vocab_size=None, **more):
    kind = getattr(TransformerConfig, size)
    more |= {"N": 1} if options.quick else {}
    return kind(vocab_size or DATA[size][1], **more)


def batches_of(size, tokens):
    return TokenBatches(DATA[size][0], tokens // SHRINK)


class Enough(Exception):
    pass


def rate(marks):
    """Steps a second of the later half, when shapes are known; of all."""
    middle = marks[len(marks) // 2]

    def between(a, b):
        return round((b[0] - a[0]) / (b[1] - a[1]), 2)

    found = {"late": between(middle, marks[-1])}
    return found | {"all": between(marks[0], marks[-1]), "steps": marks[-1][0]}


def enough(marks):
    return len(marks) > 2 and marks[-1][1] - marks[0][1] > SECONDS


def ours(size, tokens, precision, vocab_size=None):
    """The library's own `train`: at its third visit a shape is known."""
    torch.manual_seed(0)
    model = Transformer(config(size, vocab_size)).to(DEVICE)
    batches = batches_of(size, tokens)
    marks, known = [], 0 if options.quick else 2 * len(batches)

    def look(model, step):
        wait()
        marks.append((step, time.perf_counter()))
        if enough([mark for mark in marks if mark[0] >= known]):
            raise Enough
        return {}

    settings = TrainingConfig(
        precision=precision, validate_every=EVERY, log_every=0
    )
    began = time.perf_counter()
    with (
        contextlib.suppress(Enough),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        replays = Replays if DEVICE.type == "cuda" else None
        train(model, batches, settings, look, gradients=replays)
    late = [mark for mark in marks if mark[0] >= known]
    found = rate(late) | {"until known": round(late[0][1] - began, 1)}
    if DEVICE.type == "cuda":
        found["GB"] = round(torch.cuda.max_memory_reserved() / 2**30, 1)
        torch.cuda.reset_peak_memory_stats()
    return found | {"steps": marks[-1][0]}


def loop(make, size, tokens):
    """A plain loop: make() gives the weights, and a loss of a batch."""
    torch.manual_seed(0)
    weights, loss_of = make()
    adam = torch.optim.Adam(
        weights, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    marks, step = [], 0
    while True:
        for batch in batches_of(size, tokens).epoch(0):
            batch = batch.to(DEVICE)
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = loss_of(batch)
            loss.backward()
            adam.step()
            adam.zero_grad()
            step += 1
            if step % EVERY == 0:
                wait()
                marks.append((step, time.perf_counter()))
                if enough(marks):
                    return rate(marks)


def plain(size):
    """Our model in the plain loop."""

    def make():
        model = Transformer(config(size)).to(DEVICE).train()

        def loss_of(batch):
            hidden = model.hidden(batch.source_ids, batch.target_ids)
            if DEVICE.type == "cuda":
                hidden = hidden.to(torch.bfloat16)
            weight = model.output_weight
            loss, _ = projected_losses(hidden, weight, batch.labels)
            return loss / batch.tokens

        return list(model.parameters()), loss_of

    return make


def torch_peer(size):
    def make():
        mine = Transformer(config(size, bias=True)).to(DEVICE)
        theirs = as_torch(mine).to(DEVICE).train()
        weights = [*theirs.parameters(), mine.output_weight]

        def loss_of(batch):
            logits = torch_forward(mine, theirs, batch)
            return smoothed_cross_entropy(logits, batch.labels)

        return weights, loss_of

    return make


def marian_peer(size):
    def make():
        theirs = as_marian(Transformer(config(size, bias=True)), "sdpa")
        theirs = theirs.to(DEVICE).train()

        def loss_of(batch):
            logits = marian_forward(theirs, batch)
            return smoothed_cross_entropy(logits, batch.labels)

        return list(theirs.parameters()), loss_of

    return make


def sentences_for(size, number):
    """An untrained model, and so many random sentences of 14 tokens."""
    number = max(1, number // SHRINK) if number > 1 else 1
    ids = torch.randint(4, 8000, (number, 14))
    ids[:, -1] = EOS
    return random_model(config(size, 8000, bias=True)).eval(), ids


def decode(size, sentences, beam_size):
    """How many times as fast as Hugging Face's `generate` ours is."""
    mine, ids = sentences_for(size, sentences)
    theirs = as_marian(mine, "sdpa").eval().to(DEVICE)
    mine, ids = mine.to(DEVICE), ids.to(DEVICE)
    runs = (
        our_search(mine, ids, beam_size),
        marian_search(theirs, ids, beam_size),
    )
    same = sum(a == b for a, b in zip(runs[0](), runs[1](), strict=True))
    ratios, spent = [], []
    for _ in range(1 if options.quick else 3):
        took = []
        for run in runs:
            began = time.perf_counter()
            run()
            took.append(time.perf_counter() - began)
        ratios.append(took[1] / took[0])
        spent.append(round(1000 * took[0]))
    found = {"times Hugging Face": round(statistics.median(ratios), 2)}
    return found | {"ms": spent, "same": f"{same} of {len(ids)}"}


def step_of(size, tokens):
    """Forward and backward on the next batch, at each call."""
    _, loss_of = plain(size)()
    stream = batches_of(size, tokens).epoch(0)

    def step():
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = loss_of(next(stream).to(DEVICE))
        loss.backward()

    return step


def search_of(size, sentences):
    """A search with a beam of four, the same at each call."""
    mine, ids = sentences_for(size, sentences)
    return our_search(mine.to(DEVICE), ids.to(DEVICE), 4)


def profile(make, steps):
    """Milliseconds of a step, of the GPU's work in it, and launches."""
    from torch.profiler import ProfilerActivity, profile

    step = make()
    step()
    kinds = [ProfilerActivity.CPU]
    kinds += [ProfilerActivity.CUDA] if DEVICE.type == "cuda" else []
    steps = 1 if options.quick else steps
    wait()
    began = time.perf_counter()
    with profile(activities=kinds) as found:
        for _ in range(steps):
            step()
        wait()
    took = time.perf_counter() - began
    cpu = torch.autograd.DeviceType.CPU
    # An annotation's row repeats the time of its kernels.
    rows = [e for e in found.key_averages() if e.device_type != cpu]
    rows = [e for e in rows if "#" not in e.key]
    for row in sorted(rows, key=lambda e: -e.self_device_time_total)[:12]:
        each = row.self_device_time_total / steps / 1000
        print(f"    {each:8.3f} ms {row.count // steps:5} {row.key[:80]}")
    rows_of_host = [e for e in found.key_averages() if e.device_type == cpu]
    for row in sorted(rows_of_host, key=lambda e: -e.self_cpu_time_total)[:10]:
        each = row.self_cpu_time_total / steps / 1000
        print(f"    host {each:8.3f} ms {row.count // steps:5} {row.key[:80]}")
    work = sum(e.self_device_time_total for e in rows) / steps / 1000
    return {
        "ms": round(1000 * took / steps, 1),
        "ms of work": round(work, 1),
        "launches": sum(e.count for e in rows) // steps,
    }


def plan():
    """(name, without cuDNN's attention, what is measured), by interest."""
    tiny, base = ("tiny", 8192), ("base", 25_000)
    yield "tiny 8192 train, bf16", False, lambda: ours(*tiny, "bf16")
    yield "tiny 8192 train, fp32", False, lambda: ours(*tiny, "fp32")
    peers = {"Hugging Face": marian_peer, "nn.Transformer": torch_peer}
    for name, peer in peers.items():
        make = peer("tiny")
        yield f"tiny 8192 {name}", True, partial(loop, make, *tiny)
    yield "base 25000 train, bf16", False, lambda: ours(*base, "bf16")
    of_paper = partial(ours, *base, "bf16", 37_000)
    yield "base 25000 train, 37,000 subwords", False, of_paper
    for name, peer in peers.items():
        make = peer("base")
        yield f"base 25000 {name}", True, partial(loop, make, *base)
    for size, sentences in ("tiny", 64), ("tiny", 512), ("base", 64):
        search = partial(decode, size, sentences, 4)
        yield f"{size} beam 4, {sentences} sentences", True, search
    for size, tokens in tiny, base:
        run = partial(loop, plain(size), size, tokens)
        yield f"{size} {tokens} plain loop", True, run
        name = f"{size} {tokens} plain loop with cuDNN's attention"
        yield name, False, run
        make = partial(step_of, size, tokens)
        yield f"profile {size} {tokens}", True, partial(profile, make, 8)
    make = partial(search_of, "tiny", 512)
    yield "profile tiny beam 4, 512 sentences", True, partial(profile, make, 2)
    for sentences in 64, 1:
        search = partial(decode, "tiny", sentences, 1)
        yield f"tiny greedy, {sentences} sentences", True, search
    for precision in "bf16", "fp32":
        run = partial(ours, "base", 8192, precision)
        yield f"base 8192 train, {precision}", False, run


torch.set_float32_matmul_precision("high")
for name, without_cudnn, measure in plan():
    if not re.search(options.only, name):
        continue
    if time.time() - BEGAN > options.budget:
        note(name, "left out")
        continue
    try:
        with sdpa_kernel(WITHOUT_CUDNN) if without_cudnn else nullcontext():
            note(name, measure())
    except Exception as error:
        note(name, f"FAILED {type(error).__name__}: {str(error)[:200]}")
        traceback.print_exc(limit=3)
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
