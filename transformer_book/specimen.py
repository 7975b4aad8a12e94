"""The paper in one file: a Transformer that translates, in NumPy.

`Specimen("pretrained/little-spanish/model.safetensors", h=4)` reads a
model that the library has saved. Sections 3.1 to 3.5; no training.
"""

import numpy as np
from safetensors.numpy import load_file

PAD, BOS, EOS = 0, 2, 3


def softmax(scores):
    """Shares that sum to 1 along the last axis."""
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def attention(query, key, value, mask=None):
    """Equation 1. `mask` is True where a query may attend to a key."""
    d_k = query.shape[-1]
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask, scores, -1e30)
    return softmax(scores) @ value


def split(x, h):
    """(batch, len, d_model) to (batch, h, len, d_k): cut into heads."""
    batch, length, d_model = x.shape
    return x.reshape(batch, length, h, d_model // h).swapaxes(1, 2)


def multi_head(x, memory, w_q, w_k, w_v, w_o, h, mask=None):
    """Section 3.2.2: queries from x, keys and values from memory."""
    query = split(x @ w_q, h)
    key = split(memory @ w_k, h)
    value = split(memory @ w_v, h)
    heads = attention(query, key, value, mask).swapaxes(1, 2)
    return heads.reshape(x.shape) @ w_o  # joined, and mixed


def feed_forward(x, w_1, b_1, w_2, b_2):
    """Equation 2, at each position by itself."""
    return np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2


def layer_norm(x, weight, bias):
    """Mean 0 and variance 1 at each position, then scaled and moved."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * weight + bias


def positions(length, d_model):
    """Section 3.5: a sine and a cosine for each pair of dimensions."""
    pos = np.arange(length)[:, None]
    angle = pos / 10_000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, -1)


def masks(source_ids, target_ids):
    """Who may be attended to: the source's words, the target's past."""
    words = (source_ids != PAD)[:, None, None, :]
    past = np.tril(np.ones((target_ids.shape[1],) * 2, dtype=bool))
    return words, past & (target_ids != PAD)[:, None, None, :]


class Specimen:
    """A Transformer from a file of weights, or from a dict of them."""

    def __init__(self, weights, h):
        if not isinstance(weights, dict):
            weights = load_file(weights)
        self.weights = {k: w.astype(np.float64) for k, w in weights.items()}
        self.h = h
        self.table = self.weights["pre_softmax.weight"]  # for words, too

    def layers(self, stack):
        """The names of a stack's layers, from the lowest to the top."""
        names = {k.split(".")[2] for k in self.weights if k.startswith(stack)}
        return [f"{stack}.layers.{i}" for i in range(len(names))]

    def embed(self, ids):
        """Section 3.4: the words' vectors, with their positions."""
        d_model = self.table.shape[1]
        words = self.table[ids] * np.sqrt(d_model)
        return words + positions(ids.shape[1], d_model)

    def attend(self, layer, kind, x, memory, mask):
        """A layer's self_attention or cross_attention."""
        w_q, w_k, w_v, w_o = (
            self.weights[f"{layer}.{kind}.{w}.weight"].T
            for w in ("w_q", "w_k", "w_v", "w_o")
        )
        return multi_head(x, memory, w_q, w_k, w_v, w_o, self.h, mask)

    def network(self, layer, x):
        """The feed-forward network of a layer."""
        name = f"{layer}.feed_forward"
        w_1, w_2 = (self.weights[f"{name}.w_{i}.weight"].T for i in (1, 2))
        b_1, b_2 = (self.weights[f"{name}.w_{i}.bias"] for i in (1, 2))
        return feed_forward(x, w_1, b_1, w_2, b_2)

    def norm(self, layer, number, x):
        """The norm after a layer's first, second or third sub-layer."""
        name = f"{layer}.residuals.{number}.norm"
        weight = self.weights[f"{name}.weight"]
        return layer_norm(x, weight, self.weights[f"{name}.bias"])

    def encode(self, source_ids):
        """Section 3.1: the memory, (batch, source_len, d_model)."""
        mask, _ = masks(source_ids, source_ids)
        x = self.embed(source_ids)
        for layer in self.layers("encoder"):
            attended = self.attend(layer, "self_attention", x, x, mask)
            x = self.norm(layer, 0, x + attended)
            x = self.norm(layer, 1, x + self.network(layer, x))
        return x

    def decode(self, target_ids, memory, source_ids):
        """Section 3.1: (batch, target_len, d_model)."""
        source, own = masks(source_ids, target_ids)
        x = self.embed(target_ids)
        for layer in self.layers("decoder"):
            attended = self.attend(layer, "self_attention", x, x, own)
            x = self.norm(layer, 0, x + attended)
            attended = self.attend(layer, "cross_attention", x, memory, source)
            x = self.norm(layer, 1, x + attended)
            x = self.norm(layer, 2, x + self.network(layer, x))
        return x

    def logits(self, source_ids, target_ids):
        """A score for each token of the vocabulary at each position."""
        memory = self.encode(source_ids)
        return self.decode(target_ids, memory, source_ids) @ self.table.T

    def greedy(self, source_ids, max_extra=50):
        """The likeliest token, again and again: ids, and their shares."""
        memory = self.encode(source_ids)
        most = (source_ids > PAD).sum() - 1 + max_extra  # without its eos
        ids, shares = [BOS], []
        while len(ids) <= most and ids[-1] != EOS:
            hidden = self.decode(np.array([ids]), memory, source_ids)
            probabilities = softmax(hidden[0, -1] @ self.table.T)
            allowed = probabilities.copy()
            allowed[[PAD, BOS]] = 0  # these never follow
            ids.append(int(allowed.argmax()))
            shares.append(probabilities[ids[-1]])
        return ids[1:], shares
