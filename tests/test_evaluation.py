"""BLEU by hand and by sacreBLEU, intervals, the published form."""

import json
import math
import re
from collections import Counter

import pytest

from transformer_lib import evaluation
from transformer_lib.batching import collate
from transformer_lib.corpora import ParallelCorpus, load_corpus
from transformer_lib.embeddings import EOS
from transformer_lib.evaluation import (
    bleu,
    chrf,
    evaluate,
    published_bleu,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import Translator

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
    logs, c = 0.0, sum(len(one.split()) for one in system)
    for n in range(1, 5):
        matches = total = 0
        for pair in zip(system, references, strict=True):
            ours, theirs = (
                Counter(
                    zip(
                        *(one.split()[i:] for i in range(n)),
                        strict=False,
                    )
                )
                for one in pair
            )
            matches += (ours & theirs).total()
            total += ours.total()
        logs += math.log(matches / total) / 4
    r = sum(len(one.split()) for one in references)
    return 100 * math.exp(logs + min(0.0, 1 - r / c))


def test_bleu_is_the_formula():
    score = bleu(SYSTEM, REFERENCES)
    assert score.value == pytest.approx(by_hand(SYSTEM, REFERENCES))
    # Both sides are as long as each other there; here ours is shorter.
    one = SYSTEM[:1], REFERENCES[:1]
    assert bleu(*one).value == pytest.approx(by_hand(*one))
    assert bleu(*one[::-1]).value == pytest.approx(by_hand(*one[::-1]))
    # Of text as it is written, its signs are words; more sentences.
    ours = [*SYSTEM * 5, "Is it a well-known song , my dear friend ?"]
    theirs = [*REFERENCES * 5, "Is it A well-known song , my friend ?"]
    glued = [
        [re.sub(" ([.,?])", r"\1", text) for text in side]
        for side in (ours, theirs)
    ]
    for samples in (0, 50):
        value = bleu(*glued, samples=samples).value
        assert value == pytest.approx(by_hand(ours, theirs))
    assert "case:mixed" in score.signature
    assert "tok:13a" in score.signature and score.interval is None
    assert "smooth:exp" in score.signature
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_case_and_tokens_change_the_score():
    shouted = [sentence.upper() for sentence in REFERENCES]
    assert bleu(shouted, REFERENCES).value < 20
    lower = bleu(shouted, REFERENCES, lowercase=True)
    assert lower.value > 99.9 and "case:lc" in lower.signature
    glued = ["A dog's bone-dry bed, isn't it?"] * 2
    other = ["A dog's bone-dry basket, isn't it?"] * 2
    published = published_bleu(glued, other, "en")
    assert abs(published.value - bleu(glued, other).value) > 0.5
    assert published.signature.endswith("|form:lc.norm.tok")


def test_interval():
    many = bleu(SYSTEM * 25, REFERENCES * 25, samples=200)
    low, high = many.interval
    assert low < many.value < high and "bs:200" in many.signature
    few = bleu(SYSTEM, REFERENCES, samples=200).interval
    assert few[1] - few[0] > high - low, "fewer sentences, less sure"


def test_scores_stay_between_0_and_100():
    """sacreBLEU's may be 100.00000000000004, and intervals wider."""
    one = "the cat sat on the mat today"
    low, high = bleu(
        [one, *["xyz"] * 15], [one, *["a b c d"] * 15], samples=1000
    ).interval
    assert 0 <= low < high <= 100
    same = [one, "a dog runs in the green park"]
    score = bleu(same, same, samples=100)
    assert score.value == 100 and score.interval == (100, 100)


def test_published_form_is_that_of_the_published_files():
    """As long, to the character, as Multi30k's own tokenized files."""
    text = ["„Ein Boot“ namens X-Ray,  1,5 m lang."]
    assert evaluation._published_form(text, "de") == [
        "&quot; ein boot &quot; namens x-ray , 1,5 m lang ."
    ]
    try:
        corpus = load_corpus("multi30k", "de", "en", "test")
    except OSError as error:
        pytest.skip(f"Multi30k is not here: {error}")
    for sentences, language, length in (
        (corpus.sources, "de", 70_777),
        (corpus.targets, "en", 63_307),
    ):
        lines = evaluation._published_form(sentences, language)
        assert sum(map(len, lines)) + len(lines) == length


@pytest.mark.parametrize("score", [bleu, chrf])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(ValueError, match="2 hypotheses and 1 ref"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 hypotheses"):
        score([], [])
    with pytest.raises(TypeError, match="in a list"):
        score("a b c", ["a b c"])


@pytest.mark.parametrize(
    "language, tokens, sentences",
    [
        ("zh", ("zh",), ["我喜欢树。", "女孩们喜欢这些白花。", "是。"]),
        ("zh-CN", ("zh",), ["我喜欢树。", "女孩们喜欢这些白花。"]),
        ("ja", ("char", "ja-mecab"), ["私は木が好きです。", "はい。"]),
        ("ko", ("char", "ko-mecab"), ["나는 나무를 좋아한다.", "네."]),
        ("th", ("char",), ["ฉันชอบต้นไม้", "ใช่"]),
        ("de", ("13a",), ["Ich mag Bäume.", "Die Mädchen mögen Blumen."]),
        ("de", ("13a",), ["Ja.", "Nein."]),
        ("", ("13a",), ["Yes."]),
    ],
)
@pytest.mark.parametrize("samples", [0, 20])
def test_exact_translations_score_100(language, tokens, sentences, samples):
    score = bleu(sentences, sentences, language, samples=samples)
    assert score.value == pytest.approx(100)
    assert any(f"tok:{token}" in score.signature for token in tokens)
    short = max(len(sentence.split()) for sentence in sentences) == 1
    eff = "yes" if short and tokens == ("13a",) else "no"
    assert f"eff:{eff}" in score.signature
    wrong = sentences[::-1] if len(sentences) > 1 else ["No."]
    assert bleu(wrong, sentences, language).value < 80


def test_a_perplexity_without_bound_is_no_number_for_json(monkeypatch):
    tokenizer = BPETokenizer.train(SYSTEM, 300)
    model = Transformer(TransformerConfig.tiny(len(tokenizer), N=1))
    monkeypatch.setattr(evaluation, "validation_loss", lambda *_: 800.0)
    report = evaluate(model, tokenizer, ParallelCorpus((("a", "b"),)))
    assert report["perplexity"] is None
    json.dumps(report, allow_nan=False)


def test_report(monkeypatch):
    # In a second batch too, and some long ones.
    sources = [*SYSTEM, " ".join(SYSTEM), " ".join(SYSTEM)] * 25
    targets = [*REFERENCES, " ".join(REFERENCES), " ".join(SYSTEM)] * 25
    pairs = tuple(zip(sources, targets, strict=True))
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    tokenizer = BPETokenizer.train(SYSTEM + REFERENCES, 300)
    config = TransformerConfig(
        len(tokenizer), N=1, d_model=16, d_ff=16, h=2, dropout=0.5
    )
    model = Transformer(config).train()
    said = [REFERENCES[0], SYSTEM[1], REFERENCES[2], SYSTEM[3]]
    said = [*said, targets[4], "I do ."] * 25
    ids = [[*tokenizer.encode(sentence), EOS] for sentence in said]
    monkeypatch.setattr("transformer_lib.beams.decode_all", lambda *_: ids)
    clock = iter([5.0, 8.0])
    monkeypatch.setattr(evaluation.time, "perf_counter", lambda: next(clock))
    report = evaluate(model, tokenizer, corpus)
    assert model.training, "the mode is as before"
    assert report["translations"] == said and report["exact"] == 0.5
    score = bleu(said, targets, "en", samples=1000)
    assert report["bleu"] == score.value
    assert report["interval"] == list(score.interval)
    assert report["signature"] == score.signature
    characters = chrf(said, targets)
    named = {"corpus": "cats", "languages": ["en", "en"], "split": "test"}
    search = {"sentences": 150, "beam_size": 4, "length_penalty": 0.6}
    assert (named | search | {"seconds": 3.0}).items() <= report.items()
    assert report["chrf"] == characters.value
    assert report["chrf_signature"] == characters.signature
    assert json.loads(json.dumps(report)) == report

    rows = [
        ([*tokenizer.encode(a), EOS], [*tokenizer.encode(b), EOS])
        for a, b in pairs
    ]
    nats, model = 0.0, model.eval()
    for row in rows:
        batch = collate([row])
        logs = model(batch.source_ids, batch.target_ids).log_softmax(-1)
        nats -= logs.gather(-1, batch.labels[..., None]).sum().item()
    pieces = sum(len(target) for _, target in rows)
    assert pieces > 4096, "more than a batch"
    assert report["perplexity"] == pytest.approx(
        math.exp(nats / pieces), rel=1e-4
    ), "per piece, its eos counted"
    assert report["nats_per_token"] == pytest.approx(nats / pieces)


def test_a_test_set_is_translated_as_a_users_sentences():
    """White space alone, white space around, and a page."""
    tokenizer = BPETokenizer.train(SYSTEM + REFERENCES, 300)
    config = TransformerConfig(len(tokenizer), N=1, d_model=16, d_ff=16, h=2)
    translator = Translator(Transformer(config), tokenizer)
    sources = ["   ", f" {SYSTEM[1]}\t", SYSTEM[1]]
    pairs = tuple(zip(sources, REFERENCES[:3], strict=True))
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    report = evaluate(translator.model, tokenizer, corpus)
    assert report["translations"] == translator.translate(sources)
    assert report["translations"][0] == ""
    assert report["translations"][1] == report["translations"][2]

    pairs += (("cat " * 300, "a page"),)
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    with pytest.raises(ValueError, match="sentence 4 has .* split it"):
        evaluate(translator.model, tokenizer, corpus)


def test_a_translation_of_two_lines_is_reported_as_one(monkeypatch):
    tokenizer = BPETokenizer.train(SYSTEM, 300)
    ids = [*tokenizer.encode("one\ntwo"), EOS]
    monkeypatch.setattr("transformer_lib.beams.decode_all", lambda *_: [ids])
    model = Transformer(TransformerConfig.tiny(len(tokenizer), N=1))
    report = evaluate(model, tokenizer, ParallelCorpus((("a", "b"),)))
    assert report["translations"] == ["one two"]


def test_the_published_form_is_for_multi30k_alone(monkeypatch):
    tokenizer = BPETokenizer.train(SYSTEM + REFERENCES, 300)
    config = TransformerConfig(len(tokenizer), N=1, d_model=16, d_ff=16, h=2)
    ids = [[*tokenizer.encode(sentence), EOS] for sentence in SYSTEM]
    monkeypatch.setattr("transformer_lib.beams.decode_all", lambda *_: ids)
    pairs = tuple(zip(SYSTEM, REFERENCES, strict=True))
    for name in "multi30k", "cats":
        corpus = ParallelCorpus(pairs, name, "de", "en", "test")
        report = evaluate(Transformer(config), tokenizer, corpus)
        assert ("bleu_published" in report) == (name == "multi30k")
        if name == "multi30k":
            published = published_bleu(SYSTEM, REFERENCES, "en").value
            assert report["bleu_published"] == published


def test_one_sample_gives_no_interval():
    assert bleu(SYSTEM, REFERENCES, samples=1).interval is None
    few = bleu(SYSTEM, REFERENCES, samples=2)
    assert few.interval and "bs:2|" in few.signature
    assert "bs:" not in bleu(SYSTEM, REFERENCES).signature
