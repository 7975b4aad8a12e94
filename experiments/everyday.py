"""How well everyday sentences are translated, and which are not.

    python experiments/everyday.py --out runs/everyday

The recorded translations of Tatoeba's test set, German to English: the
base model that was trained on a GPU beside the small one, two floors,
scores by the length of the source, and sentences with their sources and
references. The sentences are tatoeba.org's, CC BY 2.0 FR.
"""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

from errors import by_length, memory, words_of
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from transformer_book.records import load_run
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus
from transformer_lib.evaluation import bleu

BASE, SMALL = "gpu/base-de-en-0", "tatoeba-de-en"
EVERY = 280  # of the test set's sentences, one in so many is shown


def scores(outputs, references):
    score = bleu(outputs, references, samples=1000)
    return {"bleu": score.value, "interval": list(score.interval)}


def chance(first, second, references):
    """The p-value of sacreBLEU's paired bootstrap."""
    systems = [("first", first), ("second", second)]
    test = PairedTest(systems, {"BLEU": BLEU()}, [references], "bs", 1000)
    return test()[1]["BLEU"][1].p_value


def least_shared(outputs, corpus):
    """The three longer sentences that share least with the reference."""
    rows = []
    for i, (source, reference) in enumerate(corpus):
        wanted = set(words_of(reference))
        if len(words_of(source)) >= 8:
            kept = len(wanted & set(words_of(outputs[i])))
            rows.append((kept / len(wanted), i))
    return [i for _, i in sorted(rows)[:3]]


def main(words):
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("--out", type=Path, required=True)
    out = made.parse_args(words).out
    train, held_out, test = (
        load_corpus("tatoeba", "de", "en", part)
        for part in ("train", "validation", "test")
    )
    outputs = {name: load_run(name).translations for name in (BASE, SMALL)}
    systems = {
        "copied": scores(test.sources, test.targets),
        "memory": scores(memory(train, test.sources), test.targets),
        SMALL: scores(outputs[SMALL], test.targets),
        BASE: scores(outputs[BASE], test.targets),
    }

    def row(i):
        found = {name: outputs[name][i] for name in outputs}
        source, reference = test.sources[i], test.targets[i]
        return {"number": i, "source": source, "reference": reference} | found

    seen = set(train.sources)
    new = [i for i in range(len(test)) if test.sources[i] not in seen]

    def of_new(name):
        mine = [outputs[name][i] for i in new]
        return bleu(mine, [test.targets[i] for i in new]).value

    report = {
        "command": shlex.join(["python", "experiments/everyday.py", *words]),
        "licence": test.licence,
        "systems": systems,
        "p_value": chance(outputs[BASE], outputs[SMALL], test.targets),
        "by_length": {
            name: by_length(outputs[name], test) for name in (BASE, SMALL)
        },
        "new_sources": {
            "sentences": len(new),
            "bleu": {name: of_new(name) for name in outputs},
        },
        "in_training": {
            text: sum(bool(re.search(rf"\b{text}", x)) for x in train.sources)
            for text in (
                r"Tom\b",
                "Boston",
                "Merkel",
                "nur Bahnhof",
                "[Nn]euronal",
            )
        },
        "validation": [list(pair) for pair in list(held_out)[:3]],
        "test": [row(i) for i in range(EVERY - 1, len(test), EVERY)],
        "worst": [row(i) for i in least_shared(outputs[BASE], test)],
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(out / "everyday.json", text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
