# Collected from the book by tools/tangle.py. Do not edit: change the
# chapter, then run `make tangle`.

"""BLEU, chrF and reports on a test set, section 6.1.

Chapter: book/translating/evaluation
"""

import json
import time
import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer_lib.batching import TokenBatches, encode_pairs, leave_out_long
from transformer_lib.beams import longest_source, translate_all
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


# How sacreBLEU is to cut languages without spaces between words: by the
# codes of ISO 639, of two letters and of three, and two that people use.
_CHINESE = "zh zho chi cmn yue cn".split()
_OTHERS = """
ja jpn jp ko kor th tha lo lao km khm my mya bur shn bo bod tib dz dzo
""".split()
_CUT = dict.fromkeys(_CHINESE, "zh") | dict.fromkeys(_OTHERS, "char")

# Their scripts, as the names of their characters begin.
_SCRIPTS = """
CJK HIRAGANA KATAKANA HANGUL THAI LAO KHMER MYANMAR TIBETAN
""".split()


def _first_part(language: str) -> str:
    """The language alone, of a code such as zh-CN or zho_Hans.

    Chapter: evaluation-scores
    """
    return language.replace("_", "-").split("-")[0].lower()


def _lacks_spaces(texts: _Texts) -> bool:
    """Whether most letters are of a script without spaces.

    Chapter: evaluation-scores
    """
    letters = without = 0
    for sign, times in Counter("".join(texts)).items():
        if sign.isalpha():
            letters += times
            if unicodedata.name(sign, "").split(" ")[0] in _SCRIPTS:
                without += times
    return 2 * without > letters


def bleu(
    hypotheses: _Texts,
    references: _Texts,
    language: str = "",
    tokenize: str | None = None,
    samples: int = 0,
) -> Score:
    """BLEU of a test set by sacreBLEU, one reference a sentence.

    Both sides are plain, detokenized text in `language`, such as "de",
    "zh-CN" or "zho_Hans", which decides how sacreBLEU cuts it into
    words: 13a for most languages, or what `tokenize` names. With
    `samples`, usually 1000, sacreBLEU's bootstrap gives the score an
    interval. A test set without a sentence of four words is scored by
    the shorter n-grams it has.

    Warns:
        UserWarning: if the references are in a script without spaces,
            and `language` is none that is known for it.

    Raises:
        TypeError: if either is one string instead of a list.
        ValueError: if both are empty or their lengths differ.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import BLEU

    cut = tokenize or _CUT.get(_first_part(language), "13a")
    if tokenize is None and cut == "13a" and _lacks_spaces(references):
        warnings.warn(
            f"{language=}: the references have no spaces between words, "
            "but are scored as if they had; give the code of their "
            'language, such as "zh", or tokenize="char"',
            stacklevel=2,
        )
    metric = BLEU(tokenize=cut, force=True)
    score = _score(metric, hypotheses, references, samples)
    if score.value == 0:  # perhaps all are as short as "Yes."
        metric = BLEU(tokenize=cut, force=True, effective_order=True)
        score = _score(metric, hypotheses, references, samples)
    return score


def chrf(hypotheses: _Texts, references: _Texts) -> Score:
    """chrF2 of a test set by sacreBLEU: like BLEU, but in characters.

    Raises:
        TypeError, ValueError: as `bleu`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), hypotheses, references)


def published_bleu(
    hypotheses: _Texts, references: _Texts, language: str
) -> Score:
    """BLEU on lowercased, Moses-tokenized text, as papers print it.

    The form of Multi30k's own files, in `language`, such as "de": Moses
    knows languages by two letters.
    Higher than `bleu` on the same sentences, and not to be compared
    with it.

    Warns:
        UserWarning: if Moses has no rules for the language.

    Chapter: evaluation-published
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes

    code = _first_part(language)
    if code not in NonbreakingPrefixes().available_langs:
        warnings.warn(
            f"{language=}: Moses has no rules for it, and cuts as if it "
            "were English; it knows codes of two letters, such as de",
            stacklevel=2,
        )
    normalize = MosesPunctNormalizer(code).normalize
    cut = MosesTokenizer(code).tokenize

    def published_form(texts: _Texts) -> list[str]:
        return [cut(normalize(x.lower()), return_str=True) for x in texts]

    score = bleu(
        published_form(hypotheses), published_form(references), tokenize="none"
    )
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
        A dict that JSON can hold: what was run, how many pairs were
        left out because a side has more than `longest_source` tokens,
        nats per token (no smoothing) and perplexity, BLEU, chrF, the
        share of sentences exactly right, the seconds that translating
        took, `translations`; for Multi30k also `bleu_published`.

    Raises:
        TypeError: if `corpus` is none.
        ValueError: as `beam_search`, or if all pairs are too long.

    Chapter: evaluation-report
    """
    most = longest_source(model) + 1  # and eos
    corpus, too_long = leave_out_long(corpus, tokenizer, most)
    batches = TokenBatches.in_order(encode_pairs(corpus, tokenizer))
    nats = validation_loss(model, batches)
    began = time.perf_counter()
    found = translate_all(
        model, tokenizer, corpus.sources, beam_size, length_penalty
    )
    translations = [best.text for best, *_ in found]
    seconds = time.perf_counter() - began
    score = bleu(translations, corpus.targets, corpus.target, samples=1000)
    characters = chrf(translations, corpus.targets)
    both = zip(translations, corpus.targets, strict=True)
    exact = sum(translation == target for translation, target in both)
    report = {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "split": corpus.split,
        "sentences": len(corpus),
        "left_out": len(too_long),
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
        published = published_bleu(translations, corpus.targets, corpus.target)
        report["bleu_published"] = published.value
    return report
