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
from transformer_lib.beams import translate_texts
from transformer_lib.corpora import ParallelCorpus
from transformer_lib.loss import perplexity, validation_loss
from transformer_lib.model import Transformer
from transformer_lib.tokenization import Tokenizer

_Texts = Sequence[str]


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
    metric: Any, hypotheses: _Texts, references: _Texts, samples: int = 0
) -> Score:
    """What one of sacreBLEU's metrics says of a test set.

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
        low, high = result._mean - result._ci, result._mean + result._ci
        interval = _in_range(low), _in_range(high)
    value = _in_range(result.score)
    return Score(value, str(metric.get_signature()), interval)


def _in_range(score: float) -> float:
    """A score from 0 to 100: rounding and the bootstrap may leave it.

    Chapter: evaluation-scores
    """
    return min(max(score, 0.0), 100.0)


def bleu(
    hypotheses: _Texts,
    references: _Texts,
    lowercase: bool = False,
    tokenize: str = "13a",
    samples: int = 0,
) -> Score:
    """BLEU of a test set by sacreBLEU, one reference a sentence.

    Both sides are plain, detokenized text; `tokenize` names the
    tokenization that sacreBLEU then applies to both. With `samples`,
    usually 1000, its bootstrap gives the score an interval.

    Raises:
        TypeError: if either is one string instead of a list.
        ValueError: if both are empty or their lengths differ, or for
            a tokenization that sacreBLEU does not have.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"{tokenize=}: give one of {[*BLEU.TOKENIZERS]}")
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    return _score(metric, hypotheses, references, samples)


def chrf(hypotheses: _Texts, references: _Texts) -> Score:
    """chrF2 of a test set by sacreBLEU: like BLEU, but in characters.

    Raises:
        TypeError, ValueError: as `bleu`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), hypotheses, references)


def _published_form(sentences: _Texts, language: str) -> list[str]:
    """Lowercase, normalize punctuation and tokenize as Moses does.

    Chapter: evaluation-published
    """
    if isinstance(sentences, str):
        raise TypeError("put a single sentence in a list to score it")
    from sacremoses import MosesPunctNormalizer, MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes

    known = sorted({*NonbreakingPrefixes().available_langs.values()})
    if language not in known:  # it would be taken for English
        raise ValueError(f"{language=}: give one of {known}")
    normalize = MosesPunctNormalizer(language).normalize
    tokenize = MosesTokenizer(language).tokenize
    return [
        tokenize(normalize(sentence.lower()), return_str=True)
        for sentence in sentences
    ]


def published_bleu(
    hypotheses: _Texts, references: _Texts, language: str
) -> Score:
    """BLEU on lowercased, Moses-tokenized text, as papers print it.

    The form of Multi30k's own tokenized files. Higher than `bleu` on
    the same sentences, and not to be compared with it. `language` is
    "en", "de", ...

    Raises:
        TypeError: as `bleu`.
        ValueError: as `bleu`, or for a language that Moses's prefixes
            do not have.

    Chapter: evaluation-published
    """
    ours = _published_form(hypotheses, language)
    theirs = _published_form(references, language)
    score = bleu(ours, theirs, tokenize="none")
    return Score(score.value, f"{score.signature}|form:lc.norm.tok")


def evaluate(
    model: Transformer,
    tokenizer: Tokenizer,
    corpus: ParallelCorpus,
    beam_size: int = 4,
    length_penalty: float = 0.6,
) -> dict[str, Any]:
    """Translate a ParallelCorpus and report how good the result is.

    Returns:
        A dict that JSON can hold: what was run, perplexity and nats
        per piece (no smoothing), BLEU with its signature and
        interval, chrF, the share of sentences exactly right, seconds
        for translating alone and `translations`, in the order of the
        corpus; for Multi30k BLEU in the published form too.

    Raises:
        ValueError: as `translate_texts`.
        FloatingPointError: if the model's weights are not finite.

    Chapter: evaluation-report
    """
    pairs = encode_pairs(corpus, tokenizer)
    batches = TokenBatches.in_order(pairs)
    nats = validation_loss(model, batches)  # first: it refuses more
    began = time.perf_counter()
    translations = translate_texts(
        model, tokenizer, corpus.sources, beam_size, length_penalty
    )
    seconds = time.perf_counter() - began
    score = bleu(translations, corpus.targets, samples=1000)
    characters = chrf(translations, corpus.targets)
    both = zip(translations, corpus.targets, strict=True)
    exact = sum(translation == target for translation, target in both)
    report = {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "split": corpus.split,
        "sentences": len(corpus),
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
    if corpus.name == "multi30k":  # as papers print it
        published = published_bleu(translations, corpus.targets, corpus.target)
        report["bleu_published"] = published.value
    return report
