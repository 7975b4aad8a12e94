"""Additive attention beside dot products: how long, and how much kept.

    python experiments/additive.py --out runs/additive

Section 3.2.1 says that dot products are faster and need less space, at
about equal cost in theory. Both kinds make their scores from the same
projected queries and keys, 64 wide as in the paper; forward and backward
are timed. They take turns, and each round gives a quotient of two times,
so that whatever else the machine does slows both alike.
"""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from transformer_book.other_layers import AdditiveAttention
from transformer_lib.attention import attention
from transformer_lib.checkpoints import write_atomically

D_K, POSITIONS, ROUNDS = 64, 1024, 15


def processor_seconds(run: Callable[[], Tensor]) -> float:
    began = time.process_time()
    run().sum().backward()
    return time.process_time() - began


def numbers_kept(run: Callable[[], Tensor]) -> int:
    """How many numbers the backward pass needs, each tensor once."""
    sizes = {}

    def keep(tensor: Tensor) -> Tensor:
        sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
        run()
    return sum(sizes.values())


def compare(n: int) -> dict:
    """Both kinds on as many sentences of length `n` as fit."""
    torch.manual_seed(0)
    additive = AdditiveAttention(D_K, D_K)
    x = torch.randn(POSITIONS // n, n, D_K, requires_grad=True)

    def by_network() -> Tensor:
        return additive(x, x)

    def by_product() -> Tensor:
        query, key = additive.from_query(x), additive.from_key(x)
        return attention(query, key, x)[0]

    for run in by_network, by_product:
        processor_seconds(run)  # the first call is slower
    times = [
        processor_seconds(by_network) / processor_seconds(by_product)
        for _ in range(ROUNDS)
    ]
    return {
        "n": n,
        "time": round(statistics.median(times), 2),
        "least": round(min(times), 2),
        "kept": round(numbers_kept(by_network) / numbers_kept(by_product), 2),
    }


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    record = {
        "command": shlex.join(["python", "experiments/additive.py", *words]),
        "d_k": D_K,
        "torch": torch.__version__,
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "rows": [compare(n) for n in (16, 64, 256)],
    }
    text = json.dumps(record, indent=1) + "\n"
    write_atomically(options.out / "additive.json", text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
