"""What do the heads of the recorded models look at, and what for?

    python experiments/heads.py --out runs/heads

Four questions, answered by counting. *Tasks*: how much weight does each
head put on the piece before, on the next, on the counterpart of what is
said? *Prices*: what does the model lose without a head? *Syntax*: a
word depends on another, an article on its noun, a verb on its subject. Does
some head look most strongly at the word on which a word depends, oftener
than at the word a fixed number of pieces away? In little Spanish the
grammar knows every such pair; in Multi30k articles and their nouns are
found by rules. *Pronouns*: does some head look from "her" or "his" at the
person who is meant? The head, and the offset, are chosen on every other
sentence and judged on the rest. No sentence of Multi30k is kept.
"""

import argparse
import json
import random
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jupytext
import numpy as np
import torch

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.checkpoints import write_atomically
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.evaluation import bleu
from transformer_lib.loss import validation_loss
from transformer_lib.translator import Translator

ROOT = Path(__file__).resolve().parent.parent
GRAMMAR = ROOT / "book/appendix/grammar.md"
TABLES = {"NOUNS", "ADJECTIVES", "VERBS", "SUBJECTS"}
OFFSETS = [k for k in range(-6, 7) if k]
PERSONS = {
    "her": "woman girl lady female mother".split(),
    "his": "man boy guy gentleman male father".split(),
}
# what ends the words between an article and its noun, noun included
ENDS = set(
    "a an the this that these those his her their its my and or but with of "
    "in on at by to from for into onto over under near behind beside besides "
    "through across around along between among against above below inside "
    "outside during while as after before is are was were be being been has "
    "have had do does did can will who whom which where when what there it "
    "he she they them him himself herself themselves not off up down out "
    "away next about toward towards without like than one another".split()
)

KINDS = {
    "encoder": "encoder.layers.{}.self_attention",
    "decoder": "decoder.layers.{}.self_attention",
    "cross": "decoder.layers.{}.cross_attention",
}
ALIGNED = 8000  # training pairs, to say which pieces go together

Dependency = tuple[str, str, int, int]  # text, kind, from word, to word


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.lower())


def grammar_tables() -> dict[str, dict]:
    """The words of little Spanish, from the page that makes it."""
    space: dict = {}
    for cell in jupytext.read(GRAMMAR).cells:
        if cell.cell_type == "code":
            exec(cell.source, space)
        if space.keys() >= TABLES:
            return space
    raise ValueError(f"{GRAMMAR} has no tables {sorted(TABLES)}")


def of_little_spanish(texts: list[str]) -> Iterator[Dependency]:
    """Article and noun, adjective and noun, verb and subject."""
    tables = grammar_tables()
    nouns = {n for noun in tables["NOUNS"] for n in (noun, noun + "s")}
    people = {who.split()[-1].lower() for who in tables["SUBJECTS"]}
    verbs = {
        form.split()[0]
        for first, rest in tables["VERBS"].items()
        for form in (first, rest[0])
    } | {"is", "are"}
    for text in texts:
        words = words_of(text)
        heads = [i for i, w in enumerate(words) if w in nouns | people]
        for i, word in enumerate(words):
            after = [j for j in heads if j > i]
            if word in {"the", "a", "an", "this", "these", "my", "two"}:
                yield text, "article to noun", i, after[0]
            elif word in tables["ADJECTIVES"] and after:
                yield text, "adjective to noun", i, after[0]
            elif word in verbs:
                yield text, "verb to subject", i, heads[0]


def of_captions(texts: list[str]) -> Iterator[Dependency]:
    """Articles and their nouns, by rules: see `ENDS`."""
    for text in texts:
        spans = [m.span() for m in re.finditer(r"[\w'-]+", text)]
        words = words_of(text)
        for i, word in enumerate(words):
            if word not in ("a", "an", "the"):
                continue
            noun = i
            for j in range(i + 1, len(words)):
                between = text[spans[j - 1][1] : spans[j][0]]
                verb = words[j].endswith("ing") or (
                    words[j].endswith("s")
                    and not words[j].endswith("ss")
                    and word != "the"
                )
                if words[j] in ENDS or between.strip() or (verb and j > i + 1):
                    break
                noun = j
            if noun > i:
                yield text, "article to noun", i, noun


def looks(translator: Translator, text: str) -> tuple[list, np.ndarray]:
    """The word of each piece, and every head's weights (heads, n, n)."""
    found = translator.attention(text, target=".")
    words, at, places = words_of(text), 0, []
    spans = [m.span() for m in re.finditer(r"[\w'-]+", text)]
    for piece in found.source[:-1]:
        start = at + piece.startswith("▁")
        at += len(piece)
        inside = [k for k, (a, b) in enumerate(spans) if a <= start < b]
        places.append(inside[0] if inside else -1)
    places.append(-1)  # eos
    assert len(words) == len(spans)
    layers = translator.model.config.N
    path = "encoder.layers.{}.self_attention"
    maps = [found.maps[path.format(i)] for i in range(layers)]
    return places, torch.cat(maps).numpy()


def agreement(
    translator: Translator, dependencies: list[Dependency]
) -> dict[str, dict]:
    """By kind: the best head and the best offset, on the other half."""
    asked: dict[str, list] = {}
    seen: dict[str, tuple] = {}
    order = {
        text: i
        for i, text in enumerate(
            dict.fromkeys(text for text, *_ in dependencies)
        )
    }
    for text, kind, of, to in dependencies:
        if text not in seen:
            seen[text] = looks(translator, text)
        places, maps = seen[text]
        if of not in places or to not in places:
            continue
        query = max(i for i, word in enumerate(places) if word == of)
        keys = [i for i, word in enumerate(places) if word == to]
        heads = np.isin(maps[:, query].argmax(-1), keys)
        offsets = [query + k in keys for k in OFFSETS]
        far = abs(to - of) > 1
        asked.setdefault(kind, []).append(
            (order[text], heads, np.array(offsets), far)
        )
    h = translator.model.config.h
    return {kind: judged(found, h) for kind, found in asked.items()}


def judged(found: list, h: int) -> dict:
    """Chosen on even sentences; shares and their interval on odd ones."""
    sentence = np.array([one[0] for one in found])
    heads = np.stack([one[1] for one in found])
    offsets = np.stack([one[2] for one in found])
    far = np.array([one[3] for one in found])
    half = sentence % 2 == 1
    head = int(heads[~half].mean(0).argmax())
    offset = int(offsets[~half].mean(0).argmax())
    ours, fixed = heads[half, head], offsets[half, offset]
    gap = ours.astype(float) - fixed
    chance = np.random.default_rng(0)
    numbers, inverse = np.unique(sentence[half], return_inverse=True)
    drawn = chance.integers(len(numbers), size=(2000, len(numbers)))
    sums = np.bincount(inverse, gap)
    sizes = np.bincount(inverse)
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {
        "pairs": int(half.sum()),
        "sentences": len(numbers),
        "head": f"{head // h + 1}.{head % h + 1}",
        "agrees": round(float(ours.mean()), 4),
        "offset": OFFSETS[offset],
        "offset_agrees": round(float(fixed.mean()), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "words_between": int((half & far).sum()),
        "agrees_between": round(float(heads[half & far, head].mean()), 4)
        if (half & far).any()
        else None,
        "offset_agrees_between": round(
            float(offsets[half & far, offset].mean()), 4
        )
        if (half & far).any()
        else None,
    }


def pronouns(translator: Translator, sources: list[str]) -> dict:
    """For each pronoun the head chosen, and how it does with both."""

    def weights(text, pronoun, fits, other):
        places, maps = looks(translator, text)
        words = words_of(text)
        at = []
        for word in (pronoun, fits, other):
            pieces = [
                i for i, k in enumerate(places) if k >= 0 and words[k] == word
            ]
            if len(pieces) != 1:
                return None
            at += pieces
        return maps[:, at[0], at[1:]], at[1] < at[0]

    asked: dict[str, list] = {pronoun: [] for pronoun in PERSONS}
    for source in sources:
        words = source.lower().split()
        for pronoun, other in ("her", "his"), ("his", "her"):
            fits = [x for x in words if x in PERSONS[pronoun]]
            not_fits = [x for x in words if x in PERSONS[other]]
            if pronoun not in words or other in words:
                continue
            if len(fits) != 1 or len(not_fits) != 1:
                continue
            swap = {fits[0]: not_fits[0], not_fits[0]: fits[0]}
            swapped = re.sub(
                r"\w+",
                lambda word, swap=swap: swap.get(word[0].lower(), word[0]),
                source,
            )
            both = [
                weights(text, pronoun, *fits, *not_fits)
                for text in (source, swapped)
            ]
            if all(both) and both[0][1]:
                asked[pronoun].append([of for of, _ in both])
    found = {key: np.array(each) for key, each in asked.items()}
    # sentence, version, head, person
    twice = {
        key: (each[..., 0] > each[..., 1]).all(1)
        for key, each in found.items()
    }
    h, report = translator.model.config.h, {}
    for key in PERSONS:
        best = int(twice[key][::2].mean(0).argmax())
        report[key] = {
            "head": f"{best // h + 1}.{best % h + 1}",
            "right_both_ways": {
                other: round(float(twice[other][1::2, best].mean()), 4)
                for other in PERSONS
            },
            "sentences": {other: len(twice[other][1::2]) for other in PERSONS},
            "most_weight": round(
                float(found[key][1::2, 0, best].mean(0).max()), 4
            ),
        }
    by_pronoun = [each.mean(0) for each in twice.values()]
    report["best_with_both"] = round(float(np.minimum(*by_pronoun).max()), 4)
    return report


class Counterparts:
    """Which source piece is a target piece's, by the Dice coefficient.

    Of two pieces: twice the number of pairs with both, divided by the
    pairs with the one plus the pairs with the other.
    """

    def __init__(self, pairs: list[tuple[list[int], list[int]]]):
        self.together: Counter = Counter()
        self.sources: Counter = Counter()
        self.targets: Counter = Counter()
        for source, target in pairs:
            self.sources.update(set(source))
            self.targets.update(set(target))
            self.together.update((s, t) for s in set(source) for t in target)

    def place(self, source: list[int], piece: int) -> int:
        """Where in a source a target piece's counterpart is, or -1."""
        dice = [
            2
            * self.together[of, piece]
            / (self.sources[of] + self.targets[piece] + 1e-9)
            for of in source
        ]
        best = int(np.argmax(dice))
        return best if dice[best] >= 0.25 else -1


def is_mark(piece: str) -> bool:
    """Whether a piece is punctuation."""
    bare = piece.strip("▁ ")
    return "<" not in bare and not any(map(str.isalnum, bare))


def tasks(
    translator: Translator, test: ParallelCorpus, counterparts: Counterparts
) -> dict[str, dict]:
    """By kind and "layer.head": the mean weight on each target."""
    sums: dict[tuple, list[float]] = {}
    evenly = []
    h = translator.model.config.h
    for source, target in test:
        found = translator.attention(source, target)
        ids, labels = (translator.encode([x])[0] for x in (source, target))
        at = torch.tensor([counterparts.place(ids, piece) for piece in labels])
        known = (at >= 0).nonzero()[:, 0]
        marks = torch.tensor([is_mark(x) for x in found.source])
        evenly.append(1 / len(found.source))
        for kind in ("encoder", "cross"):
            for i in range(translator.model.config.N * h):
                weights = found.maps[KINDS[kind].format(i // h)][i % h]
                told = {"<eos>": weights[:, -1].mean()}
                if marks.any():
                    told["punctuation"] = weights[:, marks].sum(1).mean()
                if kind == "encoder":
                    told["previous"] = weights.diagonal(-1).mean()
                    told["itself"] = weights.diagonal(0).mean()
                    told["next"] = weights.diagonal(1).mean()
                elif len(known):
                    told["counterpart"] = weights[known, at[known]].mean()
                head = f"{1 + i // h}.{1 + i % h}"
                for what, weight in told.items():
                    sums.setdefault((kind, head, what), []).append(
                        float(weight)
                    )
    report: dict = {"sentences": len(test), "evenly": float(np.mean(evenly))}
    for (kind, head, what), weights in sums.items():
        row = report.setdefault(kind, {}).setdefault(head, {})
        row[what] = round(float(np.mean(weights)), 4)
    return report


@contextmanager
def without(translator: Translator, path: str, head: int) -> Iterator[None]:
    """The model with one head, counted from 1, silenced."""
    weight = translator.model.get_submodule(path).w_o.weight
    d_v = weight.size(1) // translator.model.config.h
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:, (head - 1) * d_v : head * d_v] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def prices(translator: Translator, held_out: ParallelCorpus) -> dict:
    """What each head is worth, in nats per piece and in BLEU points."""
    model = translator.model
    pairs = encode_pairs(held_out[:60], translator.tokenizer)
    batches = TokenBatches(pairs, 2048, shuffle=False)
    some = held_out[:200]

    def greedy_bleu() -> float:
        said = translator.translate(some.sources, beam_size=1)
        return bleu(said, some.targets).value

    loss, score = validation_loss(model, batches), greedy_bleu()
    report: dict = {"sentences": {"nats": 60, "bleu": len(some)}}
    for kind, path in KINDS.items():
        for layer in range(model.config.N):
            for head in range(1, model.config.h + 1):
                with without(translator, path.format(layer), head):
                    lost = validation_loss(model, batches) - loss
                    points = score - greedy_bleu()
                row = report.setdefault(kind, {})
                row[f"{layer + 1}.{head}"] = {
                    "nats": round(lost, 4),
                    "bleu": round(points, 2),
                }
    with ExitStack() as gone:
        last = KINDS["cross"].format(model.config.N - 1)
        for head in range(1, model.config.h + 1):
            gone.enter_context(without(translator, last, head))
        together = validation_loss(model, batches) - loss
    assert validation_loss(model, batches) == loss  # all heads are back
    report["last_cross_together"] = round(together, 4)
    return report


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument(
        "--show", type=int, default=0, help="print pairs, to check by hand"
    )
    return made


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    captions = load_corpus("multi30k", "en", "de", "test").sources
    dependencies = list(of_captions(list(captions)))
    if given.show:
        drawn = random.Random(0).sample(dependencies, given.show)
        for text, _, of, to in drawn:
            known = words_of(text)
            print(f"{known[of]} -> {known[to]:12} {text}")
        return
    report: dict = {"command": shlex.join(["python", *sys.argv])}
    spanish, german = (
        Translator.from_pretrained(ROOT / "pretrained" / name, "cpu")
        for name in ("little-spanish", "multi30k-en-de")
    )
    texts = load_corpus("little_spanish", split="test").sources
    report["little-spanish"] = agreement(
        spanish, list(of_little_spanish(list(texts)))
    )
    report["multi30k-en-de"] = agreement(german, dependencies)
    train = load_corpus("multi30k", "en", "de", "train")
    report["pronouns"] = pronouns(german, list(train.sources))
    together = Counterparts(encode_pairs(train[:ALIGNED], german.tokenizer))
    test = load_corpus("multi30k", "en", "de", "test")
    report["tasks"] = tasks(german, test[:200], together)
    held_out = load_corpus("multi30k", "en", "de", "validation")
    report["prices"] = prices(german, held_out)
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(given.out / "heads.json", text)
    print(text)


if __name__ == "__main__":
    main()
