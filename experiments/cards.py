"""The cards of the models that ship: pretrained/NAME/README.md.

    python experiments/cards.py             the cards, from the records
    python experiments/cards.py --measure   runs/limits.json first

What a model can't is shown by sentences that it gets wrong, and counted: of
the test set's sentences with a digit, how many keep all of them?
"""

import argparse
import json
import re
from pathlib import Path

from transformer_book.records import load_counts, load_run
from transformer_lib.corpora import load_corpus
from transformer_lib.translator import Translator

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(path.name for path in (ROOT / "pretrained").iterdir())
LANGUAGES = {"de": "German", "en": "English", "es": "Spanish"}
LICENCES = {  # the model card's keys, and the sentence that they stand for
    "little_spanish": (
        "license: mit",
        "MIT. The corpus was written by a small grammar of this book.",
    ),
    "multi30k": (
        "license: other\nlicense_name: multi30k-research-and-education",
        "The corpus is for research and education, and so is this model. "
        "The code is MIT.",
    ),
    "tatoeba": (
        "license: other\nlicense_name: cc-by-2.0-fr",
        "The corpus is tatoeba.org's, CC BY 2.0 FR, by way of "
        "manythings.org. The code is MIT.",
    ),
}
TITLES = {
    "little_spanish": "Little Spanish",
    "multi30k": "Multi30k, task 1",
    "tatoeba": "Tatoeba",
}
TEXTS = {
    "little_spanish": "sentences of a small grammar",
    "multi30k": "captions of photographs",
    "tatoeba": "everyday sentences",
}
TRIED = {
    "little_spanish": (
        "I LIKE TREES",
        "I like trees. I buy a car. We see the houses.",
        "I have 23 books",
    ),
    "en": (
        "TWO DOGS ARE PLAYING IN THE SNOW.",
        "I came home. The door was open. Nobody was there. I was afraid.",
        "On 23 November 1987 we had 1,250 trees.",
    ),
    "de": (
        "ZWEI HUNDE SPIELEN IM SCHNEE.",
        "Ich kam nach Hause. Die Tür war offen. Niemand war da. Ich hatte "
        "Angst.",
        "Am 23. November 1987 hatten wir 1.250 Hunde.",
    ),
}


def digits(text: str) -> list[str]:
    return sorted(re.findall(r"\d", text))


def limits(name: str) -> dict:
    """What the model makes of TRIED, and of digits in its test set."""
    run = load_run(name)
    test = run.report["test"]
    source, target = test["languages"]
    corpus = load_corpus(test["corpus"], source, target, "test")
    kept = [
        digits(text) == digits(output)
        for text, output in zip(corpus.sources, run.translations, strict=True)
        if digits(text)
    ]
    tried = TRIED.get(test["corpus"]) or TRIED[source]
    outputs = Translator.from_pretrained(name).translate([*tried])
    return {
        "digits": {"sentences": len(kept), "kept": sum(kept)},
        "shown": list(zip(tried, outputs, strict=True)),
    }


def between(scores: dict) -> str:
    low, high = scores["interval"]
    return f"{scores['bleu']:.1f} ({low:.1f} to {high:.1f})"


def card(name: str) -> str:
    """The card of a model, all of its numbers from the records."""
    run, bad = load_run(name), load_counts("limits")["models"][name]
    report, info = run.report, run.config["info"]
    test, result, sizes = report["test"], report["result"], run.config["model"]
    keys, licence = LICENCES[test["corpus"]]
    source, target = (LANGUAGES[code] for code in test["languages"])
    precision = report["training"]["precision"]
    capitals, several, numbers = (f"*{a}* → *{b}*" for a, b in bad["shown"])
    kept = (
        f"Of the test set's {bad['digits']['sentences']} sentences with a "
        f"digit, {bad['digits']['kept']} keep all digits."
        if bad["digits"]["sentences"]
        else "There are no digits in its corpus."
    )
    return f"""\
---
language: [{", ".join(test["languages"])}]
{keys}
library_name: executable-transformer
pipeline_tag: translation
metrics: [bleu, chrf]
model-index:
- name: {name}
  results:
  - task: {{type: translation}}
    dataset: {{name: {TITLES[test["corpus"]]}, type: {test["corpus"]}, \
split: test}}
    metrics:
    - {{type: bleu, value: {test["bleu"]:.1f}}}
    - {{type: chrf, value: {test["chrf"]:.1f}}}
---

# {name}

A small Transformer that translates {TEXTS[test["corpus"]]} from {source} to \
{target}. It ships with the book *The Executable Transformer*, to be looked \
into and to be trained further, and is no service for translation.

```python
from transformer_lib import Translator

Translator.from_pretrained("{name}").translate("…")
```

- **Data:** {TITLES[test["corpus"]]}, {info["pairs"]:,} pairs for training.
- **Licence:** {licence}
- **Model:** the paper's, with N={sizes["N"]}, d_model={sizes["d_model"]}, \
d_ff={sizes["d_ff"]}, h={sizes["h"]}, {sizes["vocab_size"]:,} tokens: \
{result["parameters"]:,} parameters. The file holds the mean of \
{result["averaged_checkpoints"]} checkpoints in 16 bits.
- **Training:** {result["steps"]:,} steps, {result["seconds"] / 60:,.0f} \
minutes on one core of a CPU, in {precision}.

```text
{report["command"]}
```

## Scores

On the {test["sentences"]:,} sentences of the test set, with beam \
{test["beam_size"]}; in parentheses the bootstrap's interval of 95%.

| BLEU | chrF | exactly right | nats a token |
|---|---|---|---|
| {between(test)} | {test["chrf"]:.1f} | {test["exact"]:.1%} | \
{test["nats_per_token"]:.3f} |

BLEU's signature is `{test["signature"]}`.

## What it can't

- **Capitals.** {capitals}
- **Several sentences at once.** Split a text into sentences first. {several}
- **Numbers and dates.** {kept} {numbers}
- **Anything else than {TEXTS[test["corpus"]]}.** It does not say that it \
does not know: it writes something fluent and wrong.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        record = {
            "command": "python experiments/cards.py --measure",
            "models": {name: limits(name) for name in NAMES},
        }
        path = ROOT / "runs/limits.json"
        text = json.dumps(record, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", "utf-8")
    for name in NAMES:
        path = ROOT / "pretrained" / name / "README.md"
        path.write_text(card(name), "utf-8")


if __name__ == "__main__":
    main()
