"""How far apart may two symbols be, for a stack to learn that they agree?

    python experiments/distance.py --out runs/distance

A sequence of random symbols is read, and at its end the first one is to be
given: nothing else in the sequence helps. Stacks of four kinds of layer, of
about as many weights, learn it at several distances, for the same steps.
What comes out is the share of new sequences in which each is right; one in
eight is guessing.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.attention import MultiHeadAttention
from transformer_lib.checkpoints import write_atomically
from transformer_lib.positions import SinusoidalPositions

SYMBOLS, ROWS = 8, 32
KERNEL = 3
DISTANCES = 5, 10, 20, 50, 100, 200
SEEDS = 0, 1


class Recurrence(nn.Module):
    """h_t = tanh(W x_t + U h_(t-1)): two matrices."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.rnn = nn.RNN(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class Convolution(nn.Module):
    """A window of three positions that ends at its own: three matrices."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.left = (KERNEL - 1) * dilation
        self.mix = nn.Conv1d(width, width, KERNEL, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(F.pad(x.mT, (self.left, 0))).mT.relu()


class SelfAttention(nn.Module):
    """One head over all positions: four matrices."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.attend = MultiHeadAttention(width, h=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x)


# the layer, the width of its vectors, and the dilation of each of a stack
KINDS = {
    "recurrent": (Recurrence, 46, [1, 1]),
    "convolutional": (Convolution, 24, [1] * 5),
    "dilated": (Convolution, 24, [KERNEL**i for i in range(5)]),
    "self-attention": (SelfAttention, 32, [1, 1]),
}


class Stack(nn.Module):
    """Layers of one kind, each with a residual connection and a norm."""

    def __init__(self, kind: str):
        super().__init__()
        layer, width, dilations = KINDS[kind]
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.positions = SinusoidalPositions(width)
        self.layers = nn.ModuleList(layer(width, each) for each in dilations)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in dilations)
        self.answer = nn.Linear(width, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, n) to what the last position says: (batch, symbols)."""
        x = self.positions(self.embedding(ids))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + layer(x))
        return self.answer(x[:, -1])


def learn(kind: str, distance: int, seed: int, steps: int) -> float:
    """The share of new sequences whose first symbol is given at the end."""
    torch.manual_seed(seed)
    model = Stack(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        ids = torch.randint(SYMBOLS, (ROWS, distance + 1))
        loss = F.cross_entropy(model(ids), ids[:, 0])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    ids = torch.randint(SYMBOLS, (1000, distance + 1))
    with torch.no_grad():
        right = model(ids).argmax(-1) == ids[:, 0]
    return right.float().mean().item()


def matrices(kind: str) -> int:
    """Weights of the layers, biases and norms left out."""
    weights = Stack(kind).layers.parameters()
    return sum(weight.numel() for weight in weights if weight.dim() > 1)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--steps", type=int, default=500)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    torch.set_num_threads(1)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "steps": given.steps,
        "seeds": SEEDS,
        "weights": {kind: matrices(kind) for kind in KINDS},
        "right": {},
    }
    for kind in KINDS:
        found = report["right"][kind] = {}
        for distance in DISTANCES:
            found[str(distance)] = [
                learn(kind, distance, seed, given.steps) for seed in SEEDS
            ]
            print(kind, distance, found[str(distance)], flush=True)
    text = json.dumps(report, indent=1) + "\n"
    path = given.out / "distance.json"
    write_atomically(path, text)


if __name__ == "__main__":
    main()
