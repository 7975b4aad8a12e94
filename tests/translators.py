"""Small models and sentences, what every model is held to, pairs to copy."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.decoding import DecoderCache
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer, TransformerConfig

SMALL = TransformerConfig(
    7, N=2, d_model=16, d_ff=32, h=2, tie="none", dropout=0.1
)


def a_model(seed=0, config=SMALL, end=0.0):
    """Random weights whose choices are clear; `end` is added to eos.

    Each matrix is initialized separately: with "small", a random model
    repeats the token that it has just read.
    """
    torch.manual_seed(seed)
    model = Transformer(replace(config, init="xavier")).eval()
    with torch.no_grad():
        model.output_weight.mul_(4.0)
    bias = torch.zeros(config.vocab_size)
    bias[EOS] = end
    model.pre_softmax.register_forward_hook(
        lambda module, x, y: y + bias.to(y.dtype)
    )
    return model


def sources(*lengths, seed=1, vocab_size=7):
    """Sentences of these lengths (without eos), padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, n in zip(ids, lengths, strict=True):
        row[:n] = torch.randint(4, vocab_size, (n,), generator=generator)
        row[n] = EOS
    return ids


@torch.no_grad()
def naive(model, source, limit):
    """Greedy for one row, the whole prefix at every step."""
    source = source[source != PAD]
    ids = [BOS]
    while len(ids) <= limit and ids[-1] != EOS:
        logits = model(source[None], torch.tensor([ids]))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        ids.append(logits.argmax().item())
    return ids[1:]


@torch.no_grad()
def log_probabilities(model, source, outputs):
    """Of each output, by one uncached, teacher-forced pass."""
    rows = [torch.tensor(ids) for ids in outputs]
    labels = pad_sequence(rows, batch_first=True, padding_value=PAD)
    inputs = torch.cat([torch.full_like(labels[:, :1], BOS), labels], 1)
    logits = model(source.expand(len(rows), -1), inputs[:, :-1])
    logs = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    return (logs * (labels != PAD)).sum(1).tolist()


PYTORCHS_NAMES = {
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "w_q.": "in_proj_",
    "w_o": "out_proj",
    "feed_forward.w_": "linear",
    "residuals.0.norm": "norm1",
    "residuals.1.norm": "norm2",
    "residuals.2.norm": "norm3",
}


def as_torch(ours):
    """What `torch.nn` calls the weights of a layer, a stack or a part.

    `ours` are tensors by our names: the weights, or their gradients.
    """
    theirs = {}
    for name, value in ours.items():
        if "w_k." in name or "w_v." in name:
            continue  # in one matrix with w_q
        if "w_q." in name:
            three = [ours[name.replace("w_q", f"w_{x}")] for x in "qkv"]
            value = torch.cat(three)
        for old, new in PYTORCHS_NAMES.items():
            name = name.replace(old, new)
        theirs[name] = value
    return theirs


def slopes_of(module):
    """The gradient of each weight, by its name."""
    return {name: p.grad for name, p in module.named_parameters()}


def equal(one, other):
    """Whether each weight is, to the last bit."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def silence_attention(model):
    """Whatever a head fetches, nothing of it is passed on."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            nn.init.zeros_(module.w_o.weight)


def decode_in_parts(model, target, memory, source, sizes=1):
    """Hidden states with a cache, the target given in parts."""
    cache = DecoderCache(model, memory)
    parts = [
        model.decode(new, None, source, cache)
        for new in target.split(sizes, 1)
    ]
    return torch.cat(parts, 1)


def write_corpus(folder, *splits, **sides):
    """Files of one's own: a text for each language, in each split."""
    folder.mkdir(exist_ok=True)
    for split in splits or ("train", "validation", "test"):
        for language, text in sides.items():
            (folder / f"{split}.{language}").write_text(text, "utf-8")


def copies(count=50, seed=0):
    """Pairs whose target is the source itself."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        length = int(torch.randint(2, 8, (), generator=g))
        ids = torch.randint(4, 12, (length,), generator=g)
        pairs.append((ids.tolist() + [3], ids.tolist() + [3]))
    return pairs
