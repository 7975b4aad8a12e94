"""What the chapters on data count in corpora that are not ours to ship.

    python experiments/counted.py --out runs/counted

Multi30k and Tatoeba are downloaded by each reader. What the chapters say
of them is counted here once, so that a page shows the same where they are
missing. No sentence is kept.
"""

import argparse
import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from statistics import median

import spacy

from transformer_lib.batching import encode_pairs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import SPLITS, load_corpus
from transformer_lib.tokenization import BPETokenizer

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "pretrained" / "multi30k-de-en" / "tokenizer.json"
SIZES = 260, 300, 400, 600, 1000, 1500, 2500, 4000, 6000, 10_000


def size_of(name: str, source: str, target: str) -> dict:
    """Pairs of a corpus's training set, and words of its sentences."""
    corpus = load_corpus(name, source, target)
    words = median(len(text.split()) for text in corpus.sources)
    return {"pairs": len(corpus), "median_words": words}


def known_of(name: str, source: str, target: str) -> dict:
    """The share of test sentences that training has, by way of a split."""
    from random import Random

    parts = [load_corpus(name, source, target, split) for split in SPLITS]
    whole = [pair for part in parts for pair in part]
    mixed = Random(0).sample(whole, len(whole))
    size = len(parts[2])
    ways = {
        "by pair": (mixed[size:], mixed[:size]),
        "by sentence": (parts[0], parts[2]),
    }
    shares = {}
    for way, (train, test) in ways.items():
        seen = [{pair[side] for pair in train} for side in (0, 1)]
        shares[way] = [
            round(
                sum(pair[side] in seen[side] for pair in test) / len(test), 4
            )
            for side in (0, 1)
        ]
    return {"pairs": len(whole), "shares": shares}


def words_of(language: str, train: list[str], test: list[str]) -> dict:
    """Words by spaCy's rules, those of training that come twice or more."""
    cut = spacy.blank(language).tokenizer
    times = Counter(word.text for text in cut.pipe(train) for word in text)
    known = {word for word, n in times.items() if n >= 2}
    sentences = [[word.text for word in text] for text in cut.pipe(test)]
    words = [word for sentence in sentences for word in sentence]
    unseen = [word for word in words if word not in known]
    hit = sum(not known.issuperset(sentence) for sentence in sentences)
    return {
        "vocabulary": len(known),
        "unseen": round(len(unseen) / len(words), 4),
        "sentences_hit": round(hit / len(sentences), 4),
        "per_sentence": round(len(words) / len(sentences), 2),
        "birthday_cake": "Kindergeburtstagstorte" in known,
    }


def stopped_at(tokenizer: BPETokenizer, vocab_size: int) -> BPETokenizer:
    """The tokenizer as it was when it had `vocab_size` tokens."""
    kept = json.loads(tokenizer.tokenizer.to_str())
    kept["model"]["merges"] = kept["model"]["merges"][: vocab_size - 260]
    vocab = kept["model"]["vocab"].items()
    kept["model"]["vocab"] = {t: i for t, i in vocab if i < vocab_size}
    return BPETokenizer(type(tokenizer.tokenizer).from_str(json.dumps(kept)))


def captions() -> dict:
    """Lengths of Multi30k's sentences, in words and in tokens."""
    train = load_corpus("multi30k", "de", "en")
    test = load_corpus("multi30k", "de", "en", "test")
    tokenizer = BPETokenizer.load(SHIPPED)
    lengths = Counter(
        (len(source), len(target))
        for source, target in encode_pairs(train, tokenizer)
    )
    curves = {"de": [], "en": []}
    for size in SIZES:
        shorter = stopped_at(tokenizer, size)
        for language, side in zip(
            curves, (test.sources, test.targets), strict=True
        ):
            tokens = sum(map(len, shorter.encode_all(side)))
            curves[language].append(round(tokens / len(side), 3))
    return {
        "sizes": SIZES,
        "tokens_per_sentence": curves,
        "words": {
            "de": words_of("de", train.sources, test.sources),
            "en": words_of("en", train.targets, test.targets),
        },
        "lengths": sorted([*pair, n] for pair, n in lengths.items()),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "multi30k": size_of("multi30k", "de", "en") | captions(),
        "tatoeba": size_of("tatoeba", "en", "es")
        | {
            "known": known_of("tatoeba", "en", "es"),
            "known_from_german": known_of("tatoeba", "de", "en"),
        },
    }
    write_atomically(given.out / "counted.json", json.dumps(report) + "\n")
    print({name: str(report[name])[:900] for name in report})


if __name__ == "__main__":
    main()
