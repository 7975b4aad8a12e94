# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""BLEU, chrF and reports on a test set, section 6.1.

Chapter: book/translating/evaluation
"""

import json
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from transformer_lib.batching import TokenBatches, check_pair, encode_pairs
from transformer_lib.beams import as_texts, decode_all, longest_source
from transformer_lib.corpora import ParallelCorpus
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer, checked_texts, normalize


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100, and how it was computed.

    `interval`, where it was asked for, is the mean score of redrawn
    test sets, give or take half the width that holds 95% of them.

    Chapter: evaluation-scores
    """

    value: float
    signature: str
    interval: tuple[float, float] | None = None


def _score(
    metric: Any, texts: Iterable[str], references: list[str], samples: int
) -> Score:
    """A test set's score by one of sacreBLEU's metrics.

    Chapter: evaluation-scores
    """
    hypotheses = [*checked_texts(texts)]
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} "
            "references: give one for each, and at least one"
        )
    result = metric.corpus_score(hypotheses, [references], max(samples, 1))
    signature = str(metric.get_signature())
    interval = None
    if samples > 1:  # sacreBLEU's bootstrap, explained below
        text = result.format(width=12, signature=signature, is_json=True)
        described = json.loads(text)  # has neither if the mean is 0
        mean = min(described.get("confidence_mean", 0.0), 100.0)
        half = described.get("confidence_var", 0.0)
        interval = max(mean - half, 0.0), min(mean + half, 100.0)
    value = min(result.score, 100.0)  # it may be 100.00000000000004
    return Score(value, signature, interval)


# Scripts without spaces between words, as their characters' names begin.
_NO_SPACES = """
CJK HIRAGANA KATAKANA THAI LAO KHMER MYANMAR TIBETAN
""".split()


def _how_to_cut(references: list[str]) -> str:
    """sacreBLEU's name for how to cut a text, by its script.

    Chapter: evaluation-scores
    """
    letters = filter(str.isalpha, "".join(references))
    scripts = Counter(unicodedata.name(x, "").split(" ")[0] for x in letters)
    without = sum(scripts[script] for script in _NO_SPACES)
    if 2 * without <= scripts.total():
        return "13a"
    return "zh" if scripts["CJK"] > 0.9 * without else "char"


def bleu(
    hypotheses: Iterable[str],
    references: Iterable[str],
    tokenize: str | None = None,
    samples: int = 0,
) -> Score:
    """BLEU of a test set by sacreBLEU, one reference a sentence.

    Both sides are plain, detokenized text. sacreBLEU cuts it into words
    by the rules 13a or, where most of the references' letters are of a
    script without spaces between words, into characters; or as
    `tokenize` says. With `samples`, usually 1000, its bootstrap gives
    the score an interval.

    Raises:
        TypeError: if either is one string instead of a list, or holds
            what is none, such as a list of references.
        ValueError: if both are empty or their lengths differ, or for a
            `tokenize` that sacreBLEU doesn't know.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import BLEU

    if tokenize not in {None, *BLEU.TOKENIZERS}:
        known = ", ".join(BLEU.TOKENIZERS)
        raise ValueError(f"{tokenize=}: sacreBLEU knows {known}")
    references = [*checked_texts(references)]
    metric = BLEU(tokenize=tokenize or _how_to_cut(references), force=True)
    return _score(metric, hypotheses, references, samples)


def chrf(hypotheses: Iterable[str], references: Iterable[str]) -> Score:
    """chrF2 of a test set by sacreBLEU: like BLEU, but in characters.

    Raises:
        TypeError, ValueError: as `bleu`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import CHRF

    references = [*checked_texts(references)]
    return _score(CHRF(), hypotheses, references, samples=0)


def published_bleu(
    hypotheses: Iterable[str], references: Iterable[str], language: str
) -> Score:
    """BLEU on lowercased, Moses-tokenized text, as papers print it.

    The form of Multi30k's own files. `language` is Moses' name for it,
    two letters such as "de"; Moses cuts one that it doesn't know as if
    it were English. Higher than `bleu` on the same sentences, and not
    to be compared with it.

    Chapter: evaluation-published
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    same_marks = MosesPunctNormalizer(language).normalize
    cut = MosesTokenizer(language).tokenize

    def published_form(texts: Iterable[str]) -> list[str]:
        lowercased = [text.lower() for text in checked_texts(texts)]
        return [cut(same_marks(text), return_str=True) for text in lowercased]

    score = bleu(
        published_form(hypotheses), published_form(references), tokenize="none"
    )
    return Score(score.value, f"{score.signature}|form:lc.norm.tok")


class HeldOut:
    """A corpus to measure on, tokenized once.

    `corpus` has the pairs that fit, `left_out` says how many don't,
    with a side of more than `longest_source` tokens; `references` are
    the targets in the one form that a model can write, and `batches`
    measure its loss.

    Raises:
        TypeError: for a corpus that is no list of pairs.
        ValueError: if it has no pairs, or all are too long; or if the
            tokenizer is another model's.

    Chapter: evaluation-report
    """

    def __init__(
        self, corpus: ParallelCorpus, tokenizer: Tokenizer, model: Transformer
    ):
        if not isinstance(corpus, ParallelCorpus):
            corpus = ParallelCorpus(corpus)
        check_pair(tokenizer, model)
        self.tokenizer, self.longest = tokenizer, longest_source(model)
        encoded = encode_pairs(corpus, tokenizer)
        most = self.longest + 1  # and eos
        fits = [max(map(len, pair)) <= most for pair in encoded]
        self.corpus = replace(corpus, pairs=list(compress(corpus, fits)))
        self.left_out = fits.count(False)
        if not self.corpus:
            raise ValueError(
                f"{corpus.name}, {corpus.split}: there are no pairs, or all "
                f"are over {self.longest} tokens"
            )
        self.references = [normalize(text) for text in self.corpus.targets]
        pairs = list(compress(encoded, fits))
        self.sources = [source for source, _ in pairs]
        self.batches = TokenBatches.in_order(pairs)

    def translate(
        self,
        model: Transformer,
        beam_size: int = 4,
        length_penalty: float = 0.6,
    ) -> list[str]:
        """The best translation of each source, as references are written."""
        found = decode_all(model, self.sources, beam_size, length_penalty)
        texts = as_texts(self.tokenizer, found)
        return [normalize(best.text) for best, *_ in texts]


def evaluate(
    model: Transformer,
    tokenizer: Tokenizer,
    corpus: ParallelCorpus | HeldOut,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> dict[str, Any]:
    """Translate a corpus and report how good the result is.

    The loss is that of `validation_loss`; `encode`, `decode` and
    `project` translate.

    Returns:
        A dict that JSON can hold: what was run, how many pairs were
        left out because a side has more than `longest_source` tokens,
        nats per token (no smoothing) and perplexity, BLEU, chrF, the
        share of sentences exactly right, the seconds that translating
        took, `translations`; for Multi30k also `bleu_published`.

    Raises:
        ValueError: as `beam_search`; if all pairs are too long; for a
            tokenizer that is another model's, or another `HeldOut`'s.

    Chapter: evaluation-report
    """
    held_out = corpus
    if not isinstance(corpus, HeldOut):
        held_out = HeldOut(corpus, tokenizer, model)
    elif corpus.tokenizer is not tokenizer:
        raise ValueError("this HeldOut was made with another tokenizer")
    corpus, references = held_out.corpus, held_out.references
    nats = validation_loss(model, held_out.batches)
    began = time.perf_counter()
    translations = held_out.translate(model, beam_size, length_penalty)
    seconds = time.perf_counter() - began
    score = bleu(translations, references, samples=1000)
    characters = chrf(translations, references)
    both = zip(translations, references, strict=True)
    exact = sum(translation == reference for translation, reference in both)
    report = {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "split": corpus.split,
        "sentences": len(corpus),
        "left_out": held_out.left_out,
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "nats_per_token": nats,
        "perplexity": perplexity(nats),
        "bleu": score.value,
        "signature": score.signature,
        "interval": list(score.interval),
        "chrf": characters.value,
        "chrf_signature": characters.signature,
        "exact": exact / len(corpus),
        "seconds": seconds,
        "translations": translations,
    }
    if corpus.name == "multi30k":  # as papers give it
        published = published_bleu(translations, references, corpus.target)
        report["bleu_published"] = published.value
    return report
