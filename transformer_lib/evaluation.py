# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""BLEU, chrF and reports on a test set, section 6.1.

Chapter: book/translating/evaluation
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.beams import _translate
from transformer_lib.corpora import ParallelCorpus
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer

_Texts = Sequence[str]


@dataclass(frozen=True)
class _Score:
    """A score from 0 to 100, and how it was computed.

    `interval`, where it was asked for, is the mean score of redrawn
    test sets, give or take half the width that holds 95% of them.

    Chapter: evaluation-scores
    """

    value: float
    signature: str
    interval: tuple[float, float] | None = None


def _score(
    metric: Any, hypotheses: _Texts, references: _Texts, samples: int = 0
) -> _Score:
    """A test set's score by one of sacreBLEU's metrics.

    Chapter: evaluation-scores
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("put a single sentence in a list to score it")
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} "
            "references: give one for each, and at least one"
        )
    result = metric.corpus_score(hypotheses, [references], max(samples, 1))
    interval = None
    if samples > 1:  # sacreBLEU's bootstrap, explained below
        mean, half = min(result._mean, 100.0), result._ci
        interval = max(mean - half, 0.0), min(mean + half, 100.0)
    value = min(result.score, 100.0)  # it may be 100.00000000000004
    return _Score(value, str(metric.get_signature()), interval)


def bleu(
    hypotheses: _Texts,
    references: _Texts,
    language: str = "",
    tokenize: str | None = None,
    samples: int = 0,
) -> _Score:
    """BLEU of a test set by sacreBLEU, one reference a sentence.

    Both sides are plain, detokenized text in `language`, such as "de"
    or "zh-CN", which decides how sacreBLEU cuts it into words: 13a for
    most languages, or what `tokenize` names. With `samples`, usually
    1000, sacreBLEU's bootstrap gives the score an interval.

    Raises:
        TypeError: if either is one string instead of a list.
        ValueError: if both are empty or their lengths differ.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import BLEU

    code = language.replace("_", "-").split("-")[0].lower()
    # Without spaces between words each character counts as one.
    chosen = dict.fromkeys("ja ko th lo km my bo dz".split(), "char")
    cut = tokenize or (chosen | {"zh": "zh"}).get(code, "13a")
    # 0, perhaps because no sentence is four words long, as "Yes."
    for short in (False, True):
        metric = BLEU(tokenize=cut, force=True, effective_order=short)
        score = _score(metric, hypotheses, references, samples)
        if score.value:
            break
    return score


def chrf(hypotheses: _Texts, references: _Texts) -> _Score:
    """chrF2 of a test set by sacreBLEU: like BLEU, but in characters.

    Raises:
        TypeError, ValueError: as `bleu`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), hypotheses, references)


def published_bleu(
    hypotheses: _Texts, references: _Texts, language: str
) -> _Score:
    """BLEU on lowercased, Moses-tokenized text, as papers print it.

    The form of Multi30k's own files, in `language`, such as "de".
    Higher than `bleu` on the same sentences, and not to be compared
    with it.

    Chapter: evaluation-published
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalize = MosesPunctNormalizer(language).normalize
    cut = MosesTokenizer(language).tokenize

    def published_form(texts: _Texts) -> list[str]:
        return [cut(normalize(x.lower()), return_str=True) for x in texts]

    score = bleu(
        published_form(hypotheses), published_form(references), tokenize="none"
    )
    return _Score(score.value, f"{score.signature}|form:lc.norm.tok")


def evaluate(
    model: Transformer,
    tokenizer: Tokenizer,
    corpus: ParallelCorpus,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> dict[str, Any]:
    """Translate a ParallelCorpus and report how good the result is.

    Returns:
        A dict that JSON can hold: what was run, nats per token (no
        smoothing) and perplexity (None if infinite), BLEU, chrF, the
        share of sentences exactly right, the seconds that translating
        took, `translations`; for Multi30k also `published_bleu`.

    Raises:
        ValueError: as `decode_all`.

    Chapter: evaluation-report
    """
    batches = TokenBatches.in_order(encode_pairs(corpus, tokenizer))
    nats = validation_loss(model, batches)
    began = time.perf_counter()
    translations = _translate(
        model, tokenizer, corpus.sources, beam_size, length_penalty
    )
    seconds = time.perf_counter() - began
    score = bleu(translations, corpus.targets, corpus.target, samples=1000)
    characters = chrf(translations, corpus.targets)
    exact = sum(map(str.__eq__, translations, corpus.targets))
    report = {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "split": corpus.split,
        "sentences": len(corpus),
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "nats_per_token": nats,
        "perplexity": perplexity(nats) if nats < 700 else None,
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
        published = published_bleu(translations, corpus.targets, corpus.target)
        report["bleu_published"] = published.value
    return report
