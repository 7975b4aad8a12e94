"""Does the everyday model know what "it" stands for?

    python experiments/pronouns.py --out runs/pronouns

English has one "it" for things, German has three: er, sie, es, as the
noun that it stands for is masculine, feminine or neuter. In each of sixty
sentences only that noun decides. The model is asked twice. Which of the
three German sentences, alike but for the pronoun, does it find likeliest?
And which pronoun does it write when it translates by itself? A model that
always says the pronoun that is commonest is right in a third.
"""

import argparse
import json
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import torch

from transformer_lib.batching import collate
from transformer_lib.checkpoints import write_atomically
from transformer_lib.embeddings import EOS, PAD
from transformer_lib.translator import Translator

MODEL = Path(__file__).resolve().parent.parent / "pretrained/tatoeba-en-de"
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}
ARTICLES = {"m": ("Der", "mein"), "f": ("Die", "meine"), "n": ("Das", "mein")}
NOUNS = {
    "m": {
        "table": "Tisch",
        "chair": "Stuhl",
        "hat": "Hut",
        "key": "Schlüssel",
        "letter": "Brief",
        "apple": "Apfel",
        "train": "Zug",
        "tree": "Baum",
        "garden": "Garten",
        "computer": "Computer",
    },
    "f": {
        "lamp": "Lampe",
        "door": "Tür",
        "bag": "Tasche",
        "clock": "Uhr",
        "flower": "Blume",
        "soup": "Suppe",
        "bridge": "Brücke",
        "school": "Schule",
        "city": "Stadt",
        "bottle": "Flasche",
    },
    "n": {
        "book": "Buch",
        "house": "Haus",
        "car": "Auto",
        "window": "Fenster",
        "bed": "Bett",
        "knife": "Messer",
        "picture": "Bild",
        "room": "Zimmer",
        "boat": "Boot",
        "bicycle": "Fahrrad",
    },
}


def sentences():
    """(gender, English, German with {} for the pronoun), sixty of them."""
    for gender, nouns in NOUNS.items():
        the, my = ARTICLES[gender]
        for english, german in nouns.items():
            yield (
                gender,
                f"The {english} is old, but it is beautiful.",
                f"{the} {german} ist alt, aber {{}} ist schön.",
            )
            yield (
                gender,
                f"This is my {english} and it is new.",
                f"Das ist {my} {german} und {{}} ist neu.",
            )


@torch.no_grad()
def nats(translator: Translator, source: str, targets: list[str]) -> list:
    """What each of some translations of one sentence costs, in nats."""
    tokenizer, model = translator.tokenizer, translator.model
    ids = [*tokenizer.encode(source), EOS]
    batch = collate([(ids, [*tokenizer.encode(t), EOS]) for t in targets])
    logits = model(batch.source_ids, batch.target_ids).float()
    losses = torch.nn.functional.cross_entropy(
        logits.mT, batch.labels, ignore_index=PAD, reduction="none"
    )
    return losses.sum(dim=1).tolist()


def written(translation: str) -> str:
    """The pronoun in the second half of a translation, or "other"."""
    second = re.split(r", | und ", translation, maxsplit=1)[-1]
    found = re.findall(r"\b(er|sie|es)\b", second)
    return found[0] if found else "other"


def examine(translator: Translator) -> list[dict]:
    """Each sentence with what the model prefers and what it writes."""
    rows = []
    for gender, english, german in sentences():
        costs = nats(
            translator, english, [german.format(p) for p in PRONOUNS.values()]
        )
        by_pronoun = dict(zip(PRONOUNS.values(), costs, strict=True))
        translation = translator.translate(english)
        rows.append(
            {
                "english": english,
                "right": PRONOUNS[gender],
                "preferred": min(by_pronoun, key=by_pronoun.get),
                "written": written(translation),
                "translation": translation,
                "nats": {p: round(n, 3) for p, n in by_pronoun.items()},
            }
        )
    return rows


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("--out", type=Path, required=True)
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    rows = examine(Translator.from_pretrained(MODEL, "cpu"))
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "model": MODEL.name,
        "sentences": rows,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_atomically(given.out / "pronouns.json", text)
    for kind in ("preferred", "written"):
        print(kind, Counter((r["right"], r[kind]) for r in rows))


if __name__ == "__main__":
    main()
