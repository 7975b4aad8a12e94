"""Real sentence lengths for the benchmark, from Multi30k.

    python benchmarks/lengths.py    writes benchmarks/lengths.json

Run it where the data is. The lengths are recorded so that the benchmark
does the same work on every machine, with the data or without.
"""

import json
from pathlib import Path

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.corpora import load_corpus
from transformer_lib.tokenization import BPETokenizer

RECORD = Path(__file__).with_name("lengths.json")
VOCAB_SIZE = 8000


def middle_batch(pairs, tokens: int) -> list[tuple[int, int]]:
    """Pair lengths of the batch in the middle of a sorted epoch."""
    batches = list(TokenBatches(pairs, tokens, shuffle=False).epoch(0))
    batch = batches[len(batches) // 2]
    sides = batch.source_ids, batch.labels
    lengths = ((ids != 0).sum(1).tolist() for ids in sides)
    return list(zip(*lengths, strict=True))


def main() -> None:
    train = load_corpus("multi30k", "en", "de", "train")
    test = load_corpus("multi30k", "en", "de", "test")
    texts = train.sources + train.targets
    tokenizer = BPETokenizer.train(texts, VOCAB_SIZE)
    pairs = encode_pairs(train, tokenizer)
    lengths = {
        f"training, {tokens} tokens": middle_batch(pairs, tokens)
        for tokens in (2048, 4096)
    }
    first = encode_pairs(test, tokenizer)[:64]
    lengths["decoding"] = [len(source) for source, _ in first]
    RECORD.write_text(json.dumps(lengths) + "\n")


if __name__ == "__main__":
    main()
