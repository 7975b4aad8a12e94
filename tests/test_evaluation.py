"""BLEU by hand and by sacreBLEU, intervals, the published form."""

import json
import math
from collections import Counter

import pytest
import torch

from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.evaluation import (
    Score,
    bleu,
    bootstrap_interval,
    bootstrap_scores,
    chrf,
    evaluate,
    published_bleu,
    published_form,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer

SYSTEM = [
    "The red cat sleeps on the old sofa .",
    "Two dogs are running in the snow .",
    "A man reads the newspaper in the train .",
    "I do not like the rain at all .",
]
REFERENCES = [
    "The red cat is sleeping on the old sofa .",
    "Two dogs run through the snow .",
    "A man is reading the newspaper on the train .",
    "I do not like rain at all .",
]


def by_hand(system, references):
    """Papineni's formula on words split at spaces."""
    matches, totals, lengths = [0] * 4, [0] * 4, [0, 0]
    for ours, theirs in zip(system, references, strict=True):
        ours, theirs = ours.split(), theirs.split()
        lengths[0] += len(ours)
        lengths[1] += len(theirs)
        for n in range(1, 5):
            count, allowed = (
                Counter(
                    zip(*(words[i:] for i in range(n)), strict=False)
                )
                for words in (ours, theirs)
            )
            matches[n - 1] += (count & allowed).total()
            totals[n - 1] += count.total()
    mean = (
        sum(
            math.log(m / t)
            for m, t in zip(matches, totals, strict=True)
        )
        / 4
    )
    brevity = min(0.0, 1 - lengths[1] / lengths[0])
    return 100 * math.exp(mean + brevity)


def test_bleu_is_the_formula():
    score = bleu(SYSTEM, REFERENCES)
    assert score.value == pytest.approx(by_hand(SYSTEM, REFERENCES))
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_signatures_say_how():
    score = bleu(SYSTEM, REFERENCES, lowercase=True)
    assert "case:lc" in score.signature
    assert "tok:13a" in bleu(SYSTEM, REFERENCES).signature
    assert "version:" in chrf(SYSTEM, REFERENCES).signature
    assert str(Score(31.25, "how")) == "31.2 (how)"
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_case_and_tokens_change_the_score():
    shouted = [sentence.upper() for sentence in REFERENCES]
    assert bleu(shouted, REFERENCES).value < 20
    assert bleu(shouted, REFERENCES, lowercase=True).value > 99.9
    glued = ["A dog's bone-dry bed, isn't it?"] * 2
    other = ["A dog's bone-dry basket, isn't it?"] * 2
    assert published_bleu(glued, other, "en").value != pytest.approx(
        bleu(glued, other).value, abs=0.5
    )


def test_bootstrap_on_all_sentences_is_bleu():
    """With one sentence there is only one test set to draw."""
    scores = bootstrap_scores(SYSTEM[:1], REFERENCES[:1], samples=3)
    expected = bleu(SYSTEM[:1], REFERENCES[:1]).value
    assert scores == pytest.approx([expected] * 3)


def test_bootstrap_interval():
    system, references = SYSTEM * 25, REFERENCES * 25
    low, high = bootstrap_interval(system, references)
    assert low < bleu(system, references).value < high
    again = bootstrap_interval(system, references, seed=0)
    assert (low, high) == again, "the same seed, the same interval"
    assert (low, high) != bootstrap_interval(
        system, references, seed=1
    )
    wide = bootstrap_interval(system, references, level=0.99)
    assert wide[0] <= low and high <= wide[1]
    few = bootstrap_interval(SYSTEM, REFERENCES)
    assert few[1] - few[0] > high - low, "fewer sentences, less sure"


def test_published_form():
    text = ["„Ein Boot“ namens X-Ray,  1,5 m lang."]
    assert published_form(text, "de") == [
        "&quot; ein boot &quot; namens x-ray , 1,5 m lang ."
    ]


def test_published_form_is_that_of_the_published_files():
    """As long, to the character, as Multi30k's own tokenized files."""
    try:
        corpus = load_corpus(
            "multi30k", "de", "en", "test_2016_flickr"
        )
    except OSError as error:
        pytest.skip(f"Multi30k is not here: {error}")
    for sentences, language, length in (
        (corpus.sources, "de", 70_777),
        (corpus.targets, "en", 63_307),
    ):
        lines = published_form(sentences, language)
        assert sum(map(len, lines)) + len(lines) == length


@pytest.mark.parametrize("score", [bleu, chrf, bootstrap_interval])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(
        ValueError, match="2 hypotheses and 1 references"
    ):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 hypotheses"):
        score([], [])
    with pytest.raises(TypeError, match="in a list"):
        score("a b c", ["a b c"])


def test_level_is_a_share():
    with pytest.raises(ValueError, match="level=95"):
        bootstrap_interval(SYSTEM, REFERENCES, level=95)


def test_report():
    pairs = tuple(zip(SYSTEM, REFERENCES, strict=True))
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    tokenizer = BPETokenizer.train(SYSTEM + REFERENCES, 300)
    config = TransformerConfig(
        len(tokenizer), N=1, d_model=16, d_ff=16, h=2
    )
    model = Transformer(config).train()
    report = evaluate(
        model, tokenizer, corpus, beam_size=2, max_extra=5
    )
    assert model.training, "the mode is as before"
    assert report["sentences"] == len(report["translations"]) == 4
    assert report["perplexity"] == pytest.approx(
        math.exp(report["nats_per_token"])
    )
    assert report["nats_per_token"] == pytest.approx(
        math.log(len(tokenizer)), abs=1.5
    ), "an untrained model guesses"
    assert (
        report["bleu"]
        == bleu(report["translations"], REFERENCES).value
    )
    assert report["exact"] == 0
    assert "tok:13a" in report["bleu_signature"]
    assert json.loads(json.dumps(report)) is not None
    torch.manual_seed(1)
    again = evaluate(
        model, tokenizer, corpus, beam_size=2, max_extra=5
    )
    assert again["translations"] == report["translations"]


def test_exact_counts_equal_sentences(monkeypatch):
    import transformer_lib.evaluation as module
    from transformer_lib.decoding import Hypotheses

    pairs = tuple(zip(SYSTEM, REFERENCES, strict=True))
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    tokenizer = BPETokenizer.train(SYSTEM + REFERENCES, 300)
    config = TransformerConfig(
        len(tokenizer), N=1, d_model=16, d_ff=16, h=2
    )
    said = [REFERENCES[0], SYSTEM[1], REFERENCES[2], SYSTEM[3]]
    ids = [[tokenizer.encode(sentence)] for sentence in said]
    monkeypatch.setattr(
        module, "decode_all", lambda *_: Hypotheses(ids)
    )
    report = evaluate(Transformer(config), tokenizer, corpus)
    assert report["exact"] == 0.5
    assert report["translations"] == said
