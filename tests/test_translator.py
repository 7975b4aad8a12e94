"""The library's front door, and what it does with odd visitors."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from transformer_lib.batching import TokenBatches, encode_pairs
from transformer_lib.beams import decode_all
from transformer_lib.checkpoints import save_model
from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS
from transformer_lib.loss import validation_loss
from transformer_lib.model import (
    Transformer,
    TransformerConfig,
)
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import (
    Translator,
    _rules_of,
    bundled_models,
    find_model,
    split_sentences,
)

TEXTS = ["I like trees.", "The cats sleep.", "Me gustan los árboles."]


@pytest.fixture
def translator():
    tokenizer = BPETokenizer.train(TEXTS, 300)
    config = TransformerConfig(len(tokenizer), N=2, d_model=16, d_ff=32, h=2)
    model = Transformer(config).eval()
    return Translator(model, tokenizer, ("en", "es"))


def test_a_string_or_a_list(translator):
    one = translator.translate(TEXTS[0])
    assert isinstance(one, str)
    several = translator.translate([TEXTS[2], "", f" {TEXTS[0]}\n", " \n"])
    assert several[1:] == ["", one, ""], "order, blanks, outer space"
    assert translator.translate([]) == []
    ids = translator.encode(iter([f" {TEXTS[0]}\n"]))
    assert ids == [[*translator.tokenizer.encode(TEXTS[0]), EOS]]
    for call, wrong in (
        (translator.encode, TEXTS[0]),
        (translator.by_sentence, TEXTS[0]),
        (translator.by_sentence, TEXTS[:1]),  # no text is split
        (translator.translate, {"text": TEXTS[0]}),  # not its names
    ):
        with pytest.raises(TypeError, match="one text, .*'I.*: give a list"):
            call(wrong)


def test_what_is_no_tokenizer_is_told_at_once(translator):
    """Such as the package's own, which `BPETokenizer` wraps."""
    inside = translator.tokenizer.tokenizer
    for wrong in inside, None, "tokenizer.json", translator.model:
        with pytest.raises(TypeError, match="lacks one of len, encode and"):
            Translator(translator.model, wrong)
    with pytest.raises(TypeError, match="tokenizers.Tokenizer.*wrap it"):
        encode_pairs([("I like", "Me gustan")], inside)


def test_a_translation_is_one_line(translator, monkeypatch):
    """Whatever breaks a line for Python; special tokens are not text."""

    def decode(ids):
        assert EOS not in ids  # which a tokenizer need not know
        return "one\ntwo\r\nthree\u2028four <eos>"

    monkeypatch.setattr(translator.tokenizer, "decode", decode)
    found = translator.translate(["a", ""])
    assert found == ["one two three four <eos>"] * 2


def test_attention_axes_fit_the_maps(translator):
    translator.model.train()
    seen = translator.attention(TEXTS[0], TEXTS[2])
    assert translator.model.training
    assert seen.source[-1] == seen.predicted[-1] == "<eos>"
    assert seen.target == ["<bos>", *seen.predicted[:-1]]
    assert "".join(seen.predicted[:-1]).replace("▁", " ") == TEXTS[2]
    source, target = len(seen.source), len(seen.target)
    shapes = {
        "encoder.layers.0.self_attention": (2, source, source),
        "decoder.layers.1.self_attention": (2, target, target),
        "decoder.layers.1.cross_attention": (2, target, source),
    }
    assert len(seen.maps) == 6
    for path, shape in shapes.items():
        assert seen.maps[path].shape == shape


def test_attention_of_the_models_own_translation(translator):
    seen = translator.attention(TEXTS[0])
    ids = torch.tensor(translator.encode(TEXTS[:1]))
    [[said]] = greedy_decode(translator.model, ids)
    assert seen.predicted == translator.tokenizer.pieces(said.ids)
    assert seen.target[0] == translator.tokenizer.pieces([BOS])[0]


def test_a_folder_that_names_no_languages(translator, tmp_path):
    save_model(tmp_path, translator.model, translator.tokenizer)
    loaded = Translator.from_pretrained(tmp_path)
    unnamed = Translator(translator.model, translator.tokenizer)
    assert loaded.languages == unnamed.languages == ("", "")


def test_what_is_missing_is_named(translator):
    with pytest.raises(FileNotFoundError, match="little-spanish"):
        Translator.from_pretrained("litle-spanish")
    other = BPETokenizer.train(TEXTS, 280)
    with pytest.raises(ValueError, match=r"\)=280, .*vocab_size=296"):
        Translator(translator.model, other)


def test_one_text_of_languages_is_refused(translator):
    model, tokenizer = translator.model, translator.tokenizer
    for wrong in "de-en", ["de"], {"de", "en"}:
        with pytest.raises(TypeError, match="languages=.*: give two"):
            Translator(model, tokenizer, wrong)


def test_a_model_is_found_by_its_folder_or_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/mine") == find_model(tmp_path / "mine")
    assert find_model("little-spanish") == bundled_models()["little-spanish"]
    for path in Path("little-spanish"), tmp_path:  # a Path is a folder
        with pytest.raises(FileNotFoundError, match="is no folder with a con"):
            find_model(path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "little-spanish").mkdir()  # of weights alone, say
    with pytest.warns(UserWarning, match="is the bundled model here"):
        assert find_model("little-spanish").is_absolute()
    (tmp_path / "little-spanish").rmdir()
    (tmp_path / "mine").rename("little-spanish")
    with pytest.warns(UserWarning, match="is the folder ./little-spanish"):
        assert not find_model("little-spanish").is_absolute()


def test_a_compiled_model_is_looked_into(translator):
    """Its maps are those of the model that was compiled."""
    wanted = translator.attention(TEXTS[0], TEXTS[2]).maps
    compiled = torch.compile(translator.model, backend="eager")
    other = Translator(compiled, translator.tokenizer)
    assert other.translate(TEXTS) == translator.translate(TEXTS)
    found = other.attention(TEXTS[0], TEXTS[2]).maps
    assert found.keys() == wanted.keys() and wanted
    torch.testing.assert_close(found, wanted)


def test_a_quantized_model_translates(translator):
    quantize = torch.ao.quantization.quantize_dynamic
    with warnings.catch_warnings(action="ignore"):
        model = quantize(translator.model, {nn.Linear})
    other = Translator(model, translator.tokenizer)
    assert other.device.type == "cpu" and len(other.translate(TEXTS)) == 3
    batches = TokenBatches.in_order([([5, 6, 3], [7, 8, 3])])
    losses = [validation_loss(x, batches) for x in (model, translator.model)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_saved_and_loaded_it_translates_the_same(translator, tmp_path):
    translator.save(tmp_path / "mine")
    loaded = Translator.from_pretrained(tmp_path / "mine")
    assert loaded.device.type == "cpu"  # also where there is a GPU
    elsewhere = Translator.from_pretrained(tmp_path / "mine", "meta")
    assert elsewhere.device.type == "meta"
    assert loaded.languages == ("en", "es")
    assert loaded.translate(TEXTS) == translator.translate(TEXTS)
    translator.save(tmp_path / "half", half=True)
    sizes = [
        (tmp_path / name / "model.safetensors").stat().st_size
        for name in ("mine", "half")
    ]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_wheel_does_not_look_beside_itself(tmp_path, monkeypatch):
    """site-packages/runs is somebody else's."""
    package = tmp_path / "site-packages" / "transformer_lib"
    ours = package / "pretrained" / "ours"
    theirs = tmp_path / "site-packages" / "pretrained" / "theirs"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").touch()
    home = sys.modules[bundled_models.__module__]
    monkeypatch.setattr(home, "files", lambda name: package)
    assert bundled_models() == {"ours": ours}


def test_n_best_gives_texts_with_their_scores(translator):
    ids = translator.encode(TEXTS)
    wanted = decode_all(translator.model, ids, 3, 0.2)
    found = translator.translate(TEXTS, 3, 0.2, n_best=2)
    assert [len(ranked) for ranked in found] == [2, 2, 2]
    for ranked, hypotheses in zip(found, wanted, strict=True):
        for translation, hypothesis in zip(ranked, hypotheses, strict=False):
            assert translation[1:] == hypothesis[1:]
    texts = translator.translate(TEXTS, 3, 0.2)
    assert texts == [ranked[0].text for ranked in found]
    alone = translator.translate(TEXTS[0], 3, 0.2, n_best=2)
    assert [one.text for one in alone] == [one.text for one in found[0]]
    assert len(translator.translate(TEXTS[0], n_best=4)) == 4
    for n_best in (0, 5):
        with pytest.raises(ValueError, match=f"n_best={n_best}: a beam of 4"):
            translator.translate(TEXTS, n_best=n_best)


def test_a_text_is_split_where_its_language_ends_a_sentence(monkeypatch):
    said = "Ich mag z.B. Bäume. Und du? Nein!"
    assert split_sentences(said, "de") == [
        "Ich mag z.B. Bäume.",
        "Und du?",
        "Nein!",
    ]
    assert split_sentences(said, "no such") == split_sentences(said)
    assert split_sentences("") == split_sentences(" \n\n ") == []
    assert split_sentences("Nein!\n\n \n\n", "de") == ["Nein!"]
    for whole in (
        ["He left.", '"Why not?"', "she asked."],
        ["Me voy.", "¿Y tú?", "¡Hola!", "Ven."],
        ["So it was.", "(„Nein“, said he.)", "It rained..."],
    ):
        assert split_sentences(" ".join(whole)) == whole
        assert split_sentences("\n".join(whole)) == whole
    _rules_of.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match="pip install spacy"):
        split_sentences(said, "de")


def test_what_cannot_be_split_is_named(translator):
    """A paragraph is its sentences in a check of the chapter."""
    with pytest.raises(TypeError, match="None is not a text"):
        translator.translate([None], split=True)
    with pytest.raises(ValueError, match="not with split"):
        translator.translate(TEXTS, split=True, n_best=1)


def test_it_moves_and_says_where_it_is(translator):
    assert translator.device == torch.device("cpu")
    assert translator.to("cpu") is translator
    assert translator.to("meta").device.type == "meta"
