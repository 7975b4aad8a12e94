"""Are the hour's models behind the shipped one, or is it chance?

    python experiments/coins.py --out runs/coins

sacreBLEU's paired randomization test: ten thousand times, a coin is tossed
for each sentence of Tatoeba's test set, whether a model and `tatoeba-de-en`
exchange their recorded translations of it. A model's p is how often their
scores are then at least as far apart as they are.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from transformer_book.records import load_run, recorded_runs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import load_corpus

BASELINE = "tatoeba-de-en"
TRIALS = 10_000


def compare(systems, references, trials):
    """{name: BLEU and p} of systems' translations, the baseline first."""
    test = PairedTest(
        [*systems.items()],
        {"BLEU": BLEU()},
        [references],
        test_type="ar",
        n_samples=trials,
    )
    _, scores = test()
    rows = zip(scores["System"], scores["BLEU"], strict=True)
    return {
        name: {"bleu": float(result.score), "p": result.p_value}
        for name, result in rows
    }


def main(words):
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("--trials", type=int, default=TRIALS)
    made.add_argument("--out", type=Path, required=True)
    options = made.parse_args(words)
    names = [name for name in recorded_runs("hour") if "paper" not in name]
    translations = {n: load_run(n).translations for n in [BASELINE, *names]}
    references = load_corpus("tatoeba", "de", "en", "test").targets
    found = {
        "command": shlex.join(["python", "experiments/coins.py", *words]),
        "trials": options.trials,
        "systems": compare(translations, references, options.trials),
    }
    content = json.dumps(found, indent=1) + "\n"
    write_atomically(options.out / "coins.json", content)
    print(content)


if __name__ == "__main__":
    main(sys.argv[1:])
