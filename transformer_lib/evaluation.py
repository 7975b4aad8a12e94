# Collected from book/translating/evaluation.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""BLEU, chrF and reports on a test set, section 6.1."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.beams import decode_all
from transformer_lib.model import Transformer
from transformer_lib.training import validation_loss

__all__ = [
    "Score",
    "bleu",
    "bootstrap_interval",
    "bootstrap_scores",
    "check_sentences",
    "chrf",
    "evaluate",
    "published_bleu",
    "published_form",
]


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100, and how it was computed.

    Chapter: evaluation-scores
    """

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.signature})"


def check_sentences(
    hypotheses: Sequence[str], references: Sequence[str]
) -> None:
    """Refuse what no corpus score can be computed from.

    Raises:
        TypeError: if either is one string instead of a list.
        ValueError: if both are empty or their lengths differ.

    Chapter: evaluation-scores
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError(
            "scores are for lists of sentences; "
            "put a single one in a list"
        )
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} "
            "references: give one reference a sentence, and at "
            "least one"
        )


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Score:
    """BLEU of a test set by sacreBLEU, one reference a sentence.

    Both sides are plain, detokenized text; `tokenize` names the
    tokenization that sacreBLEU then applies to both.

    Raises:
        TypeError, ValueError: as `check_sentences`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import BLEU

    check_sentences(hypotheses, references)
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    score = metric.corpus_score(hypotheses, [references])
    return Score(score.score, str(metric.get_signature()))


def chrf(
    hypotheses: Sequence[str], references: Sequence[str]
) -> Score:
    """chrF2 of a test set by sacreBLEU: like BLEU, but in characters.

    Raises:
        TypeError, ValueError: as `check_sentences`.

    Chapter: evaluation-scores
    """
    from sacrebleu.metrics import CHRF

    check_sentences(hypotheses, references)
    metric = CHRF()
    score = metric.corpus_score(hypotheses, [references])
    return Score(score.score, str(metric.get_signature()))


def published_form(
    sentences: Sequence[str], language: str
) -> list[str]:
    """Lowercase, normalize punctuation and tokenize as Moses does.

    The form in which Multi30k's own tokenized files stand, and many
    published figures were computed. `language` is "en", "de", ...

    Chapter: evaluation-published
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalize = MosesPunctNormalizer(language).normalize
    tokenize = MosesTokenizer(language).tokenize
    return [
        tokenize(normalize(sentence.lower()), return_str=True)
        for sentence in sentences
    ]


def published_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
) -> Score:
    """BLEU on lowercased, Moses-tokenized text, as papers print it.

    Higher than `bleu` on the same sentences, and not to be compared
    with it.

    Raises:
        TypeError, ValueError: as `check_sentences`.

    Chapter: evaluation-published
    """
    check_sentences(hypotheses, references)
    score = bleu(
        published_form(hypotheses, language),
        published_form(references, language),
        tokenize="none",
    )
    return Score(score.value, f"{score.signature}|form:lc.norm.tok")


def bootstrap_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    seed: int = 0,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> list[float]:
    """BLEU of test sets drawn from this one with repetition.

    BLEU is made of counts, which add up over sentences: each is
    counted once, and a drawn test set is a sum. The same seed and
    number of sentences draw the same test sets, so two systems can be
    compared draw by draw.

    Raises:
        TypeError, ValueError: as `check_sentences`.

    Chapter: evaluation-bootstrap
    """
    from sacrebleu.metrics import BLEU

    check_sentences(hypotheses, references)
    metric = BLEU(
        lowercase=lowercase,
        tokenize=tokenize,
        effective_order=True,
        force=True,
    )
    rows = []
    for pair in zip(hypotheses, references, strict=True):
        one = metric.sentence_score(pair[0], [pair[1]])
        rows.append(
            [*one.counts, *one.totals, one.sys_len, one.ref_len]
        )
    counts = torch.tensor(rows, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for _ in range(samples):
        drawn = torch.randint(
            len(rows), (len(rows),), generator=generator
        )
        *counted, length, reference_length = (
            counts[drawn].sum(0).tolist()
        )
        score = BLEU.compute_bleu(
            counted[:4],
            counted[4:],
            int(length),
            int(reference_length),
            smooth_method="exp",
        )
        scores.append(score.score)
    return scores


def bootstrap_interval(
    hypotheses: Sequence[str],
    references: Sequence[str],
    level: float = 0.95,
    **options: Any,
) -> tuple[float, float]:
    """The range that holds `level` of the BLEU of redrawn test sets.

    `options` are those of `bootstrap_scores`.

    Raises:
        TypeError, ValueError: as `check_sentences`, or if `level` is
            not between 0 and 1.

    Chapter: evaluation-bootstrap
    """
    if not 0 < level < 1:
        raise ValueError(f"{level=} is a share: 0 < level < 1")
    scores = torch.tensor(
        bootstrap_scores(hypotheses, references, **options)
    )
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail])
    low, high = scores.quantile(ends).tolist()
    return low, high


def evaluate(
    model: Transformer,
    tokenizer: Any,
    corpus: Any,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Translate a ParallelCorpus and report how good the result is.

    Returns:
        A dict that JSON can hold: what was run, perplexity and nats
        per piece (no smoothing), BLEU with its interval and
        signature, chrF, the share of sentences exactly right, seconds
        for decoding alone and `translations`, in the order of the
        corpus.

    Raises:
        ValueError: as `encode_pairs` and `decode_all`.

    Chapter: evaluation-report
    """
    pairs = encode_pairs(corpus, tokenizer)
    nats = validation_loss(
        model,
        TokenBatches(pairs, tokens_per_batch=4096, shuffle=False),
    )
    began = time.perf_counter()
    sources = [source for source, _ in pairs]
    search = beam_size, length_penalty, max_extra, batch_size
    found = decode_all(model, sources, *search)
    seconds = time.perf_counter() - began
    translations = [tokenizer.decode(ids[0]) for ids in found.ids]
    references = [target for _, target in corpus]
    right = sum(map(str.__eq__, translations, references))
    scores = {
        "bleu": bleu(translations, references),
        "bleu_lowercase": bleu(
            translations, references, lowercase=True
        ),
        "chrf": chrf(translations, references),
    }
    return {
        "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "split": corpus.split,
        "sentences": len(corpus),
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "nats_per_token": nats,
        "perplexity": math.exp(nats),
        **{name: score.value for name, score in scores.items()},
        "bleu_interval": bootstrap_interval(translations, references),
        **{f"{n}_signature": s.signature for n, s in scores.items()},
        "exact": right / len(references),
        "seconds": seconds,
        "translations": translations,
    }
