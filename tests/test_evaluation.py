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
    HeldOut,
    bleu,
    chrf,
    evaluate,
    published_bleu,
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


def ngrams(words, n):
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def by_hand(system, references):
    """Papineni's formula on words split at spaces."""
    logs, c = 0.0, sum(len(one.split()) for one in system)
    for n in range(1, 5):
        matches = total = 0
        for pair in zip(system, references, strict=True):
            ours, theirs = (Counter(ngrams(one.split(), n)) for one in pair)
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


def test_interval():
    many = bleu(SYSTEM * 25, REFERENCES * 25, samples=200)
    low, high = many.interval
    assert low < many.value < high and "bs:200" in many.signature
    few = bleu(SYSTEM, REFERENCES, samples=200).interval
    assert few[1] - few[0] > high - low, "fewer sentences, less sure"
    assert bleu(SYSTEM, REFERENCES, samples=1).interval is None
    assert bleu(SYSTEM, REFERENCES, samples=2).interval


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


def test_published_form_is_that_of_the_published_files(monkeypatch):
    """As long, to the character, as Multi30k's own tokenized files."""
    glued, other = ["It isn't a dog's bed."], ["It isn't a dog's basket."]
    score = published_bleu(glued, other, "en")
    assert score.value > bleu(glued, other).value + 0.5
    assert "tok:none" in score.signature and "|form:lc" in score.signature
    forms = []

    def spy(hypotheses, references, tokenize):
        forms.extend([hypotheses, references])
        return score

    monkeypatch.setattr(evaluation, "bleu", spy)
    text = ["„Ein Boot“ namens X-Ray,  1,5 m lang."]
    published_bleu(text, text, "de")
    form = ["&quot; ein boot &quot; namens x-ray , 1,5 m lang ."]
    assert forms == [form, form]
    try:
        corpus = load_corpus("multi30k", "de", "en", "test")
    except OSError as error:
        pytest.skip(f"Multi30k is not here: {error}")
    for sentences, language, length in (
        (corpus.sources, "de", 70_777),
        (corpus.targets, "en", 63_307),
    ):
        published_bleu(sentences, sentences, language)
        assert sum(len(line) + 1 for line in forms[-1]) == length


def test_a_way_to_cut_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match="'moses': sacreBLEU knows .*13a"):
        bleu(["a"], ["a"], tokenize="moses")


@pytest.mark.parametrize("score", [bleu, chrf])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(ValueError, match="2 hypotheses and 1 ref"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 hypotheses"):
        score([], [])
    with pytest.raises(TypeError, match="one text, 'a b c': give a list"):
        score("a b c", ["a b c"])
    with pytest.raises(TypeError, match="one text, None: give a list"):
        score(["a b c"], None)
    for wrong in (["a b"], None, b"a b"):  # sacreBLEU's own form is a list
        with pytest.raises(TypeError, match="is not a text: give a str"):
            score(["a b c", "a b"], ["a b c", wrong])
    one_by_one = (text for text in ["a b c d"])
    assert score(one_by_one, ["a b c d"]).value == pytest.approx(100)


@pytest.mark.parametrize(
    "tokens, sentences",
    [
        ("zh", ["我喜欢树。", "女孩们喜欢这些白花。", "是。"]),
        ("zh", ["一只狗在跑。"]),
        ("char", ["私は木が好きです。", "はい。"]),
        ("13a", ["나는 나무를 좋아한다.", "네."]),
        ("char", ["ฉันชอบต้นไม้", "ใช่"]),
        ("13a", ["Ich mag Bäume.", "Die Mädchen mögen Blumen."]),
        ("13a", ["a b c d 我你她们"]),  # half a text with spaces
    ],
)
def test_exact_translations_score_100(tokens, sentences):
    """Cut by their script, whatever the code of their language is."""
    score = bleu(sentences, sentences)
    assert score.value == pytest.approx(100)
    assert f"tok:{tokens}" in score.signature
    wrong = sentences[::-1] if len(sentences) > 1 else ["No."]
    assert bleu(wrong, sentences).value < 80
    assert "tok:char" in bleu(wrong, sentences, "char").signature


TOKENIZER = BPETokenizer.train(SYSTEM + REFERENCES, 300)


def a_model():
    config = TransformerConfig(
        len(TOKENIZER), N=1, d_model=16, d_ff=16, h=2, dropout=0.5
    )
    return Transformer(config)


def a_report(sources, targets, name="cats"):
    pairs = tuple(zip(sources, targets, strict=True))
    corpus = ParallelCorpus(pairs, name, "en", "en", "test")
    return evaluate(a_model(), TOKENIZER, corpus)


def let_it_say(texts, monkeypatch):
    """What is found, whatever the model; how it was asked."""
    asked = []

    def found(self, model, beam_size, length_penalty):
        asked.append((beam_size, length_penalty))
        return texts

    monkeypatch.setattr(HeldOut, "translate", found)
    return asked


def test_report(monkeypatch):
    # In a second batch too, and some long ones.
    sources = [*SYSTEM, " ".join(SYSTEM), " ".join(SYSTEM)] * 25
    targets = [*REFERENCES, " ".join(REFERENCES), " ".join(SYSTEM)] * 25
    pairs = tuple(zip(sources, targets, strict=True))
    corpus = ParallelCorpus(pairs, "cats", "en", "en", "test")
    model = a_model().train()
    said = [REFERENCES[0], SYSTEM[1], REFERENCES[2], SYSTEM[3]]
    said = [*said, targets[4], "I do ."] * 25
    asked = let_it_say(said, monkeypatch)
    clock = iter([5.0, 8.0])
    monkeypatch.setattr(evaluation.time, "perf_counter", lambda: next(clock))
    report = evaluate(model, TOKENIZER, corpus, 3, 1.5)
    assert asked == [(3, 1.5)]
    assert model.training, "the mode is as before"
    assert report["translations"] == said and report["exact"] == 0.5
    score = bleu(said, targets, samples=1000)
    assert report["bleu"] == score.value
    assert report["interval"] == list(score.interval)
    assert report["signature"] == score.signature
    characters = chrf(said, targets)
    named = {"corpus": "cats", "languages": ["en", "en"], "split": "test"}
    search = {"sentences": 150, "beam_size": 3, "length_penalty": 1.5}
    assert (named | search | {"seconds": 3.0}).items() <= report.items()
    assert report["chrf"] == characters.value
    assert report["chrf_signature"] == characters.signature
    assert json.loads(json.dumps(report)) == report

    nats, tokens, model = 0.0, 0, model.eval()
    for pair in pairs:
        row = [[*TOKENIZER.encode(text), EOS] for text in pair]
        batch = collate([row])
        logs = model(batch.source_ids, batch.target_ids).log_softmax(-1)
        nats -= logs.gather(-1, batch.labels[..., None]).sum().item()
        tokens += len(row[1])
    assert tokens > 4096, "more than a batch"
    assert report["perplexity"] == pytest.approx(
        math.exp(nats / tokens), rel=1e-4
    ), "per token, its eos counted"
    assert report["nats_per_token"] == pytest.approx(nats / tokens)


def test_a_perfect_translation_is_right_whatever_its_spaces():
    """And the reference's: both are compared in the one form."""
    said = "The  red\u00a0cat sle\u00adeps\u202f."

    class Raw:
        encode = TOKENIZER.encode

        def __len__(self):
            return len(TOKENIZER)

        def decode(self, ids):
            return said

    corpus = ParallelCorpus([(said, said)] * 2)
    report = evaluate(a_model(), Raw(), corpus)
    assert report["exact"] == 1.0 and report["bleu"] == 100
    assert report["chrf"] == 100


def test_a_test_set_is_translated_as_a_users_sentences():
    """White space alone, and white space around."""
    sources = ["   ", f" {SYSTEM[1]}\t", SYSTEM[1]]
    report = a_report(sources, REFERENCES[:3])
    blank, *same = report["translations"]
    assert blank == "" and same[0] == same[1]
    assert report["left_out"] == 0


def test_pairs_that_are_too_long_are_left_out_and_counted():
    page = "cat " * 600
    report = a_report([SYSTEM[0], page, SYSTEM[2]], [page, *REFERENCES[:2]])
    assert report["left_out"] == 2 and report["sentences"] == 1
    assert len(report["translations"]) == 1
    with pytest.raises(ValueError, match="test: there are no pairs, or all"):
        a_report([page], ["a"])
    with pytest.raises(TypeError, match="give a list of tuples"):
        HeldOut("a cat", None, None)


def test_half_a_character_in_a_reference_is_measured():
    """As JSON that was cut off has it."""
    held_out = HeldOut([("a cat", "a \ud800 cat")], TOKENIZER, a_model())
    assert held_out.references == ["a \ufffd cat"]


def test_another_models_tokenizer_is_refused():
    """Its ids mean other words here, and any score would be nonsense."""
    corpus = ParallelCorpus([("a cat", "a cat")])
    for size in 280, len(TOKENIZER) + 9:
        other = BPETokenizer.train(SYSTEM + REFERENCES, size)
        with pytest.raises(ValueError, match="vocab_size=.*not a pair"):
            evaluate(a_model(), other, corpus)
    held_out = HeldOut(corpus, TOKENIZER, a_model())
    with pytest.raises(ValueError, match="made with another tokenizer"):
        evaluate(a_model(), other, held_out)


def test_the_published_form_is_for_multi30k_alone(monkeypatch):
    let_it_say(SYSTEM, monkeypatch)
    report = a_report(SYSTEM, REFERENCES, "multi30k")
    score = published_bleu(SYSTEM, REFERENCES, "en")
    assert report["bleu_published"] == score.value
    assert "bleu_published" not in a_report(SYSTEM, REFERENCES)
