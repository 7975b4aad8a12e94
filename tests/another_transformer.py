"""A correct Transformer of another make: the suite must not accuse it.

One tensor holds the matrices of all heads, products are einsums, masks
are numbers that are added, the norm is written out, everything inside is
(len, batch, d_model), and what comes out are log-probabilities. Its
searches may write padding and bos, and leave them out of the output.
"""

import torch
from torch import nn

PAD, BOS, EOS = 1, 0, 2


class _Norm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return self.gain * x + self.shift


class _Heads(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        size = 4, h, d_model, d_model // h
        self.maps = nn.Parameter(torch.randn(size) * d_model**-0.5)

    def forward(self, x, memory, hidden):
        w_q, w_k, w_v, w_o = self.maps
        query = torch.einsum("qbd,hdk->bhqk", x, w_q)
        key = torch.einsum("sbd,hdk->bhsk", memory, w_k)
        value = torch.einsum("sbd,hdk->bhsk", memory, w_v)
        scores = torch.einsum("bhqk,bhsk->bhqs", query, key)
        scores = scores / query.size(-1) ** 0.5 + hidden
        weights = torch.softmax(scores, -1)
        heads = torch.einsum("bhqs,bhsk->bhqk", weights, value)
        return torch.einsum("bhqk,hdk->qbd", heads, w_o)


class _Layer(nn.Module):
    def __init__(self, d_model, d_ff, h, dropout, attentions):
        super().__init__()
        self.attentions = nn.ModuleList(
            _Heads(d_model, h) for _ in range(attentions)
        )
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.norms = nn.ModuleList(
            _Norm(d_model) for _ in range(attentions + 1)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, *seen):
        """seen: for each attention the memory, or None, and a mask."""
        for attention, norm, (memory, hidden) in zip(
            self.attentions, self.norms, seen, strict=False
        ):
            memory = x if memory is None else memory
            x = norm(x + self.dropout(attention(x, memory, hidden)))
        out = self.outer(torch.relu(self.inner(x)))
        return self.norms[-1](x + self.dropout(out))


class _Model(nn.Module):
    def __init__(self, vocab_size, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model))
        self.table.data.mul_(d_model**-0.5)
        sizes = d_model, d_ff, h, dropout
        self.encoder = nn.ModuleList(_Layer(*sizes, 1) for _ in range(N))
        self.decoder = nn.ModuleList(_Layer(*sizes, 2) for _ in range(N))
        self.dropout = nn.Dropout(dropout)

    def embed(self, ids):
        width = self.table.size(1)
        waves = 10_000 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(ids.size(1))[:, None] * waves
        rows = torch.zeros(ids.size(1), width)
        rows[:, 0::2], rows[:, 1::2] = angles.sin(), angles.cos()
        words = nn.functional.embedding(ids.T, self.table)
        return self.dropout(words * width**0.5 + rows[:, None])

    def encode(self, source_ids):
        x, hidden = self.embed(source_ids), _padding(source_ids)
        for layer in self.encoder:
            x = layer(x, (None, hidden))
        return x

    def forward(self, source_ids, target_ids):
        memory, across = self.encode(source_ids), _padding(source_ids)
        length = target_ids.size(1)
        later = torch.full((length, length), -1e9).triu(1)
        y = self.embed(target_ids)
        for layer in self.decoder:
            y = layer(y, (None, later), (memory, across))
        scores = torch.einsum("qbd,vd->bqv", y, self.table)
        return scores.log_softmax(-1)


def _padding(ids):
    return -1e9 * (ids == PAD)[:, None, None, :].float()


def build(vocab_size, N, d_model, d_ff, h, dropout):
    return _Model(vocab_size, N, d_model, d_ff, h, dropout)


def logits(model, source_ids, target_ids):
    return model(source_ids, target_ids)


def encode(model, source_ids):
    return model.encode(source_ids).transpose(0, 1)


def _words(ids):
    return [i for i in ids if i not in (PAD, BOS)]


@torch.no_grad()
def greedy_batch(model, source_ids, max_extra):
    model.eval()
    ids = torch.full((len(source_ids), 1), BOS)
    most = (~torch.isin(source_ids, torch.tensor([PAD, EOS]))).sum(1)
    most = most + max_extra
    for _ in range(int(most.max())):
        best = model(source_ids, ids)[:, -1].argmax(-1)
        ids = torch.cat([ids, best[:, None]], 1)
    outputs = []
    for row, limit in zip(ids[:, 1:].tolist(), most.tolist(), strict=True):
        row = row[:limit]
        end = row.index(EOS) + 1 if EOS in row else limit
        outputs.append(_words(row[:end]))
    return outputs


def greedy(model, source_ids, max_extra):
    return greedy_batch(model, source_ids, max_extra)[0]


@torch.no_grad()
def beam_search(model, source_ids, beam_size, alpha, max_extra):
    model.eval()
    going, ended = [(0.0, [BOS])], []
    for _ in range(source_ids.size(1) - 1 + max_extra):
        rows = torch.tensor([ids for _, ids in going])
        logs = model(source_ids.expand(len(rows), -1), rows)[:, -1]
        logs = logs.double()
        total = logs + torch.tensor([[x] for x, _ in going])
        best, flat = total.flatten().topk(min(2 * beam_size, total.numel()))
        found = []
        for rank, (score, place) in enumerate(
            zip(best.tolist(), flat, strict=True)
        ):
            row, token = divmod(int(place), total.size(1))
            ids = [*going[row][1], token]
            if token != EOS:
                found.append((score, ids))
            elif rank < beam_size:
                divided = score / ((4 + len(ids)) / 6) ** alpha
                ended.append((divided, ids))
        going = found[:beam_size]
        if len(ended) >= beam_size:
            break
    # no one's length differs here, so their order is that of the scores
    return _words(max(ended or going)[1][1:])


def shift(targets):
    width = max(map(len, targets))
    labels = torch.full((len(targets), width), PAD)
    for row, target in enumerate(targets):
        labels[row, : len(target)] = torch.tensor(target)
    inputs = labels.roll(1, 1)
    inputs[:, 0] = BOS
    return inputs.masked_fill(labels == PAD, PAD), labels


def loss(logits, labels, smoothing):
    return nn.functional.cross_entropy(
        logits.mT, labels, ignore_index=PAD, label_smoothing=smoothing
    )


def learning_rate(step, d_model, warmup_steps):
    rising = step / warmup_steps**1.5
    return min(rising, 1 / step**0.5) / d_model**0.5


def optimizer(model):
    return torch.optim.Adam(model.parameters(), 1.0, (0.9, 0.98), 1e-9)


def update(model, optimizer, batches):
    optimizer.zero_grad()
    total = sum(batch.tokens for batch in batches)
    for batch in batches:
        scores = model(batch.source_ids, batch.target_ids)
        share = batch.tokens / total
        (share * loss(scores, batch.labels, 0.0)).backward()
    optimizer.step()


def average(states):
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        for name in states[0]
    }
