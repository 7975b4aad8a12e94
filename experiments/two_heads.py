"""Two heads take turns: which word was just written, which comes next?

    python experiments/two_heads.py --out runs/two_heads

Five counts over the first 200 validation captions of Multi30k, English to
German, by the model that ships, whose decoder reads the reference. *Turns*:
for each pair of heads of the attention to the source, how often does the
first, once a token is written, look most at the token at which the second
looked most when it was about to be written? *Tasks*: the mean weight of
each of these heads on the counterpart of the token just written, and of the
token to be written. *Articles*: how much of its weight each head of the
encoder puts on articles. *Moved*: with one head of the decoder's first
layer silenced, how often does a head above look most at another token?
*Written*: how many greedy translations change, and in how many of them does
a token stand twice in a row? No caption is kept.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from heads import ALIGNED, KINDS, ROOT, Counterparts, without
from torch import Tensor

from transformer_lib.batching import encode_pairs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.translator import Translator

ARTICLES = {"A", "▁a", "An", "▁an", "The", "▁the"}


def names(translator: Translator) -> list[str]:
    """The heads of one kind, by layer: 1.1, 1.2, ..."""
    config = translator.model.config
    layers, heads = range(1, config.N + 1), range(1, config.h + 1)
    return [f"{layer}.{head}" for layer in layers for head in heads]


def maps(translator: Translator, found: Any, kind: str) -> Tensor:
    """All weights of a kind: (heads, query_len, key_len)."""
    layers = range(translator.model.config.N)
    return torch.cat([found.maps[KINDS[kind].format(i)] for i in layers])


def looked_at(translator: Translator, pairs: ParallelCorpus) -> list[Tensor]:
    """For each caption, where each head on the source looks most."""
    places = []
    for source, target in pairs:
        found = translator.attention(source, target)
        places.append(maps(translator, found, "cross").argmax(-1))
    return places


def turns(heads: list[str], places: list[Tensor]) -> dict:
    """The share of places at which two heads look at one token.

    The first looks after a token was written, the second before.
    """
    equal = torch.zeros(len(heads), len(heads))
    for at in places:
        after, before = at[:, None, 1:], at[None, :, :-1]
        equal += (after == before).sum(-1)
    count = sum(at.size(1) - 1 for at in places)
    shares = (equal / count).tolist()
    table = {
        first: {
            second: round(share, 4)
            for second, share in zip(heads, row, strict=True)
        }
        for first, row in zip(heads, shares, strict=True)
    }
    return {"places": count, "agree": table}


def tasks(
    translator: Translator,
    pairs: ParallelCorpus,
    counterparts: Counterparts,
) -> dict[str, dict[str, float]]:
    """Mean weight on counterparts, and of the encoder on articles."""
    sums: dict[str, list[Tensor]] = {"written": [], "next": []}
    articles, even = [], []
    for source, target in pairs:
        found = translator.attention(source, target)
        (ids,), (labels,) = (translator.encode([x]) for x in (source, target))
        at = torch.tensor([counterparts.place(ids, x) for x in labels])
        weights = maps(translator, found, "cross")
        known = at >= 0
        for what, rows in ("next", weights), ("written", weights[:, 1:]):
            there = known[: rows.size(1)]  # of row i: the label i
            places = at[: rows.size(1)][there]
            sums[what].append(rows[:, there.nonzero()[:, 0], places])
        article = torch.tensor([piece in ARTICLES for piece in found.source])
        share = maps(translator, found, "encoder")[..., article].sum(-1)
        articles.append(share.mean(-1))
        even.append(article.float().mean())
    heads = names(translator)

    def by_head(values: Tensor) -> dict[str, float]:
        rounded = [round(value, 4) for value in values.tolist()]
        return dict(zip(heads, rounded, strict=True))

    return {
        what: by_head(torch.cat(parts, dim=1).mean(1))
        for what, parts in sums.items()
    } | {
        "articles": by_head(torch.stack(articles).mean(0)),
        "articles_evenly": round(torch.stack(even).mean().item(), 4),
    }


def repeats(translator: Translator, texts: list[str]) -> int:
    """In how many texts a token stands twice in a row."""
    every = translator.encode(texts)
    return sum(
        any(one == other for one, other in zip(ids, ids[1:], strict=False))
        for ids in every
    )


def silenced(
    translator: Translator, pairs: ParallelCorpus, places: list[Tensor]
) -> dict[str, dict]:
    """What becomes of looks and translations without one head."""
    heads = names(translator)
    whole = translator.translate(pairs.sources, beam_size=1)
    report: dict[str, dict] = {"none": {"repeats": repeats(translator, whole)}}
    for head in ["1.1", "1.2", "1.3", "1.4", "2.1"]:
        layer, number = map(int, head.split("."))
        with without(translator, KINDS["cross"].format(layer - 1), number):
            now = looked_at(translator, pairs)
            written = translator.translate(pairs.sources, beam_size=1)
        other = sum((a != b).sum(-1) for a, b in zip(places, now, strict=True))
        shares = (other / sum(at.size(1) for at in places)).tolist()
        report[head] = {
            "moved": {
                name: round(share, 4)
                for name, share in zip(heads, shares, strict=True)
                if int(name[0]) > layer
            },
            "changed": sum(
                a != b for a, b in zip(whole, written, strict=True)
            ),
            "repeats": repeats(translator, written),
        }
    return report


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    given = made.parse_args()
    translator = Translator.from_pretrained(
        ROOT / "pretrained" / "multi30k-en-de", "cpu"
    )
    pairs = load_corpus("multi30k", "en", "de", "validation")[:200]
    train = load_corpus("multi30k", "en", "de", "train")[:ALIGNED]
    together = Counterparts(encode_pairs(train, translator.tokenizer))
    places = looked_at(translator, pairs)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "sentences": len(pairs),
        "turns": turns(names(translator), places),
        "tasks": tasks(translator, pairs, together),
        "silenced": silenced(translator, pairs, places),
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "two_heads.json", text)


if __name__ == "__main__":
    main()
