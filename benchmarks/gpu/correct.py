"""Does the library compute on a GPU what it computes on a CPU?

python benchmarks/gpu/correct.py cuda [--quick] [CASE ...]
"""

import copy
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.beams import beam_search
from transformer_lib.corpora import load_corpus
from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import EOS
from transformer_lib.evaluation import evaluate
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.replays import Replays
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train
from transformer_lib.translator import Translator

DEVICE = torch.device(sys.argv[1])
QUICK = "--quick" in sys.argv
STEPS = 4 if QUICK else 30
REPLAYS = Replays if DEVICE.type == "cuda" else None
TEST = load_corpus("multi30k", "en", "de", "test")[: 20 if QUICK else 1000]
KINDS = None, torch.bfloat16, torch.float16


def autocast(kind):
    enabled = kind is not None
    return torch.autocast(DEVICE.type, kind or torch.bfloat16, enabled=enabled)


def logits():
    """Largest difference of logits at real positions."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(1000)).eval()
    source = torch.randint(4, 1000, (8, 21))
    target = torch.randint(4, 1000, (8, 19))
    source[:4, 15:], target[2:, 12:] = 0, 0
    other = copy.deepcopy(model).to(DEVICE)
    found = {}
    with torch.no_grad():
        wanted = model(source, target)
        for kind in KINDS:
            with autocast(kind):
                got = other(source.to(DEVICE), target.to(DEVICE)).float().cpu()
            far = (got - wanted)[target != 0].abs().max().item()
            found[str(kind)] = far
    return found


def fully_masked():
    """A query that may attend to no key is finite."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(64, 4).eval().to(DEVICE)
    x = torch.randn(2, 5, 64, device=DEVICE)
    mask = torch.ones(2, 1, 5, 5, device=DEVICE).bool()
    mask[1, :, 2] = False
    found = {}
    with torch.no_grad():
        for kind in KINDS:
            with autocast(kind):
                finite = attention(x, x, mask).isfinite().all()
            found[str(kind)] = bool(finite)
    return found


def searches():
    """Sentences whose translations are the same on both."""
    here = Translator.from_pretrained("multi30k-en-de")
    ids = [here.tokenizer.encode(x) + [EOS] for x in TEST.sources[:128]]
    batch = pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    there = copy.deepcopy(here.model).to(DEVICE)
    found = {"sentences": len(batch)}
    for name, search in ("beam", beam_search), ("greedy", greedy_decode):
        one = search(here.model, batch)
        other = search(there, batch.to(DEVICE))
        found[name] = sum(
            a[0].ids == b[0].ids for a, b in zip(one, other, strict=True)
        )
    return found


def scores():
    """BLEU and perplexity, and the seconds that they take."""
    found = {}
    for device in "cpu", DEVICE:
        model = Translator.from_pretrained("multi30k-en-de", device)
        began = time.time()
        told = evaluate(model.model, model.tokenizer, TEST)
        found[str(device)] = {k: told[k] for k in ("bleu", "perplexity")}
        found[f"{device} seconds"] = round(time.time() - began, 1)
    return found


def trained(
    folder=None,
    precision="fp32",
    device=DEVICE,
    steps=STEPS,
    gradients=REPLAYS,
):
    tokenizer = Translator.from_pretrained("multi30k-en-de").tokenizer
    corpus = load_corpus("multi30k", "en", "de", "train")
    few, tokens = (200, 256) if QUICK else (4000, 2048)
    batches = TokenBatches(encode_pairs(corpus[:few], tokenizer), tokens)
    torch.manual_seed(0)
    config = TransformerConfig.tiny(len(tokenizer))
    model = Transformer(config).to(device)
    settings = TrainingConfig(
        max_steps=steps,
        warmup_steps=100,
        log_every=max(1, steps // 3),
        checkpoint_every=steps // 2,
        precision=precision,
    )
    history = train(
        model, batches, settings, folder=folder, gradients=gradients
    )
    return model.state_dict(), history.series("loss")[1]


def losses():
    """The first steps of a training run, here and there."""
    found = {
        str(device): trained(device=device)[1] for device in ("cpu", DEVICE)
    }
    found["bf16"] = trained(precision="bf16")[1]
    return found


def repeats_and_resumes():
    """Bit for bit."""
    steps = STEPS if QUICK else 120  # each shape twice and more
    with tempfile.TemporaryDirectory() as folder:
        whole = trained(folder, steps=steps)[0]
        again = trained(steps=steps)[0]
        last = max(Path(folder).glob("checkpoint-*.pt"))
        last.unlink()
        resumed = trained(folder, steps=steps)[0]
    return [
        all(torch.equal(whole[name], other[name]) for name in whole)
        for other in (again, resumed)
    ]


def replays():
    """Weights of runs with CUDA graphs and without, bit for bit."""
    if DEVICE.type != "cuda":
        return "needs a GPU"
    found = {}
    for precision in "fp32", "bf16":
        replayed = trained(precision=precision, steps=120)
        memory = torch.cuda.max_memory_reserved() >> 20
        plain = trained(precision=precision, steps=120, gradients=None)
        weights = zip(plain[0].values(), replayed[0].values(), strict=True)
        same = all(torch.equal(a, b) for a, b in weights)
        found[precision] = same, plain[1] == replayed[1], f"{memory} MB"
    return found


def command_line():
    with tempfile.TemporaryDirectory() as folder:
        words = (
            f"-m transformer_lib train --out {folder}/m --max-steps {STEPS}"
        )
        words += " --limit 500 --test test --vocab-size 500"
        words += f" --device {DEVICE.type}"
        done = subprocess.run(
            [sys.executable, *words.split()], capture_output=True, text=True
        )
        if done.returncode:
            return done.stderr[-400:]
        report = json.loads(Path(folder, "m/report.json").read_text())
        return report["machine"], report["training"]["precision"]


for case in (
    logits,
    fully_masked,
    searches,
    scores,
    losses,
    replays,
    repeats_and_resumes,
    command_line,
):
    named = [word for word in sys.argv[2:] if word != "--quick"]
    if named and case.__name__ not in named:
        continue
    began = time.time()
    try:
        print(f"{case.__name__}: {case()}  ({time.time() - began:.1f} s)")
    except Exception:
        print(f"{case.__name__}: FAILED")
        traceback.print_exc(limit=4)
    sys.stdout.flush()
