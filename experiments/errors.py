"""Where the headline's translations fail, and what its score is beside.

    python experiments/errors.py --out runs/errors

The recorded translations of Multi30k's test set, compared with its
references: every system's score, that of two floors, the score by the
length of the source, how often a word is found by how often it was seen
in training, and the translations that share the fewest words with their
references. No sentence of Multi30k is kept.
"""

import argparse
import json
import re
import shlex
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from transformer_book.records import load_run, recorded_runs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.evaluation import bleu, published_bleu

FIRST = "multi30k-en-de"  # whose mistakes are counted
SCORED = ("headline/", "rivals/recurrent")
SEEN = {"never": 0, "1 to 5 times": 5, "6 to 50 times": 50}


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def memory(train: ParallelCorpus, sentences: list[str]) -> list[str]:
    """The translation of the most similar training sentence.

    It shares the most words with the sentence; a word counts the more,
    the fewer training sentences have it.
    """
    rows = defaultdict(list)
    for i, text in enumerate(train.sources):
        for word in set(text.lower().split()):
            rows[word].append(i)
    said = []
    for text in sentences:
        points = np.zeros(len(train))
        for word in set(text.lower().split()) & rows.keys():
            points[rows[word]] += 1 / len(rows[word])
        said.append(train.targets[int(points.argmax())])
    return said


def scores(said: list[str], wanted: list[str]) -> dict:
    score = bleu(said, wanted, samples=1000)
    published = published_bleu(said, wanted, "de")
    return {
        "bleu": score.value,
        "interval": list(score.interval),
        "published": published.value,
        "published_signature": published.signature,
    }


def by_length(said: list[str], test: ParallelCorpus) -> list[dict]:
    """BLEU of each quarter of the test set, the shortest first."""
    long = [len(words_of(text)) for text in test.sources]
    order = sorted(range(len(test)), key=long.__getitem__)
    rows = []
    for quarter in np.array_split(order, 4):
        part = bleu(
            [said[i] for i in quarter], [test.targets[i] for i in quarter]
        )
        rows.append(
            {
                "words": [long[quarter[0]], long[quarter[-1]]],
                "bleu": part.value,
            }
        )
    return rows


def by_rarity(
    said: list[str], train: ParallelCorpus, test: ParallelCorpus
) -> list[dict]:
    """The share of the references' words that the translations have."""
    seen = Counter(word for text in train.targets for word in words_of(text))
    found: Counter = Counter()
    asked: Counter = Counter()
    for guess, reference in zip(said, test.targets, strict=True):
        for word in set(words_of(reference)):
            often = (name for name, most in SEEN.items() if seen[word] <= most)
            name = next(often, "more often")
            asked[name] += 1
            found[name] += word in words_of(guess)
    return [
        {"seen": name, "words": asked[name], "found": found[name]}
        for name in [*SEEN, "more often"]
    ]


def worst(
    said: list[str], train: ParallelCorpus, test: ParallelCorpus
) -> list[dict]:
    """Three of at least eight words that share the fewest with theirs.

    Of what is missing only the rarest words are kept.
    """
    rows = []
    seen = Counter(word for text in train.targets for word in words_of(text))
    for i, (source, reference) in enumerate(test):
        if len(words_of(source)) < 8:
            continue
        wanted = set(words_of(reference))
        missing = sorted(wanted - set(words_of(said[i])))
        shared = 1 - len(missing) / len(wanted)
        rows.append((shared, i, sorted(missing, key=seen.__getitem__)[:4]))
    return [
        {"sentence": i, "shared": share, "missing": missing}
        for share, i, missing in sorted(rows)[:3]
    ]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    train, test = (
        load_corpus("multi30k", "en", "de", split)
        for split in ("train", "test")
    )
    said = load_run(FIRST).translations
    systems = {
        "copied": scores(test.sources, test.targets),
        "memory": scores(memory(train, test.sources), test.targets),
    }
    for name in recorded_runs():
        if name == FIRST or name.startswith(SCORED):
            systems[name] = scores(load_run(name).translations, test.targets)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "systems": systems,
        "by_length": by_length(said, test),
        "by_rarity": by_rarity(said, train, test),
        "worst": worst(said, train, test),
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(given.out / "errors.json", text)
    print(text)


if __name__ == "__main__":
    main()
