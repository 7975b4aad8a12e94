"""What every translator is held to, and pairs to copy."""

import torch
from torch import nn

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.decoding import DecoderCache


def hides_what_comes_later(model):
    """A later target token never changes earlier logits."""
    size = model.config.vocab_size
    ids, source = torch.randint(4, size, (2, 3, 9))
    for t in range(1, 9):
        changed = ids.clone()
        changed[:, t:] = torch.randint(0, size, (3, 9 - t))
        a, b = model(source, ids), model(source, changed)
        assert torch.equal(a[:, :t], b[:, :t])
        assert not torch.equal(a[:, t], b[:, t])


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


def ignores_padding(model, source_ids, target_ids):
    """Longer padding, and a batch against its sentences one by one."""
    pad = nn.functional.pad
    rows = [
        (s[s != 0][None], t[t != 0][None])
        for s, t in zip(source_ids, target_ids, strict=True)
    ]
    results = []
    for batches in (
        [(source_ids, target_ids)],
        [(pad(source_ids, (0, 7)), pad(target_ids, (0, 5)))],
        rows,
    ):
        model.zero_grad()
        found = torch.cat([model(s, t)[t != 0] for s, t in batches])
        found.logsumexp(-1).sum().backward()
        grads = [p.grad.clone() for p in model.parameters()]
        results.append([found.detach(), *grads])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-12, rtol=1e-9)


def copies(count=50, longest=7, tokens=12, seed=0):
    """Pairs whose target is the source itself."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        length = int(torch.randint(2, longest + 1, (), generator=g))
        ids = torch.randint(4, tokens, (length,), generator=g)
        pairs.append((ids.tolist() + [3], ids.tolist() + [3]))
    return pairs
