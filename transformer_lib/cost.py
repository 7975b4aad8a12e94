# Collected from book/results/cost.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""What training costs, counted: section 5.2, table 2."""

import math
import random
from collections.abc import Iterable

from transformer_lib.batching import Batch, EncodedPairs, collate
from transformer_lib.model import TransformerConfig
from transformer_lib.tokenization import EOS

__all__ = [
    "batch_lengths",
    "forward_operations",
    "operations_by_time",
    "sentence_batches",
    "synthetic_pairs",
    "training_operations",
]


def forward_operations(
    config: TransformerConfig, source_len: int, target_len: int
) -> dict[str, int]:
    """FLOPs of all matrix products for one pair, by part; 5.2.

    Forward, without padding; a product of (a, b) and (b, c) counts
    2abc. Attention counts every pair of places, masked or not.

    Chapter: cost-count
    """
    c, n, m = config, source_len, target_len
    d_k, d_v = (x or c.d_model // c.h for x in (c.d_k, c.d_v))

    def attend(queries: int, keys: int) -> int:
        projected = (queries + keys) * c.d_model  # w_q, w_o; w_k, w_v
        return c.N * c.h * (d_k + d_v) * (projected + queries * keys)

    feed_forward = 2 * c.d_model * c.d_ff * c.N
    products = {
        "encoder self-attention": attend(n, n),
        "encoder feed-forward": n * feed_forward,
        "decoder self-attention": attend(m, m),
        "cross-attention": attend(m, n),
        "decoder feed-forward": m * feed_forward,
        "projection to pieces": m * c.d_model * c.vocab_size,
    }
    return {name: 2 * count for name, count in products.items()}


def training_operations(
    config: TransformerConfig, lengths: Iterable[tuple[int, int]]
) -> int:
    """FLOPs of training once on pairs of (source, target) lengths.

    Backward takes two products for each one of forward.

    Chapter: cost-count
    """
    pairs = (forward_operations(config, *pair) for pair in lengths)
    return 3 * sum(sum(parts.values()) for parts in pairs)


def synthetic_pairs(
    count: int,
    vocab_size: int,
    seed: int = 0,
    median: float = 25.0,
    longest: int = 200,
) -> EncodedPairs:
    """Random ids, as long as the sentences of WMT 2014.

    Lengths are log-normal, a deviation of 0.6 around `median`; the
    target is as long as the source, give or take a sixth.

    Chapter: cost-lengths
    """
    chance, pairs = random.Random(seed), EncodedPairs()
    for _ in range(count):
        source = chance.lognormvariate(math.log(median), 0.6)
        target = source * chance.lognormvariate(0, 0.15)
        sides = [
            chance.choices(range(4, vocab_size), k=length - 1) + [EOS]
            for x in (source, target)
            for length in [min(max(round(x), 2), longest)]
        ]
        pairs.append((sides[0], sides[1]))
    return pairs


def batch_lengths(
    batches: Iterable[Batch], pad_id: int = 0
) -> list[tuple[int, int]]:
    """The two lengths of each pair in some batches, unpadded.

    Chapter: cost-lengths
    """
    return [
        (int((source != pad_id).sum()), int((target != pad_id).sum()))
        for batch in batches
        for source, target in zip(
            batch.source_ids, batch.labels, strict=True
        )
    ]


def operations_by_time(
    seconds: float, cards: int = 8, tflops: float = 9.5
) -> float:
    """FLOPs as table 2 estimates them, from time; 9.5 is a P100.

    Chapter: cost-time
    """
    return seconds * cards * tflops * 1e12


def sentence_batches(
    pairs: EncodedPairs, size: int, seed: int = 0
) -> list[Batch]:
    """Batches of `size` pairs as they come, whatever their length.

    Chapter: cost-here
    """
    order = random.Random(seed).sample(pairs, len(pairs))
    starts = range(0, len(order), size)
    return [collate(order[start : start + size]) for start in starts]
