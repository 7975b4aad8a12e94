"""The library's front door, and what it does with odd visitors."""

import pytest
import torch

from transformer_lib.checkpoints import save_model
from transformer_lib.decoding import greedy_decode
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.tokenization import BPETokenizer
from transformer_lib.translator import Translator, bundled_models

TEXTS = ["I like trees.", "The cats sleep.", "Me gustan los árboles."]


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    tokenizer = BPETokenizer.train(TEXTS, 300)
    config = TransformerConfig(
        len(tokenizer), N=2, d_model=16, d_ff=32, h=2
    )
    return Translator(Transformer(config), tokenizer, ("en", "es"))


def test_a_string_or_a_list(translator):
    one = translator.translate(TEXTS[0], max_extra=5)
    assert isinstance(one, str)
    several = translator.translate(TEXTS, max_extra=5)
    assert several[0] == one and len(several) == 3
    assert translator.translate([], max_extra=5) == []
    small = translator.translate(TEXTS, max_extra=5, batch_size=1)
    assert small == several


def test_empty_sentences_stay_empty(translator):
    assert translator.translate("") == ""
    mixed = translator.translate(["", TEXTS[1], "  \n"], max_extra=5)
    assert mixed[0] == mixed[2] == ""
    assert mixed[1] == translator.translate(TEXTS[1], max_extra=5)


def test_outer_space_does_not_matter(translator):
    found = translator.translate(
        [TEXTS[0], f" {TEXTS[0]}\n"], max_extra=5
    )
    assert found[0] == found[1]


def test_long_input_is_named(translator):
    page = "The cats sleep. " * 300
    pieces = len(translator.tokenizer.encode(page.strip()))
    with pytest.raises(
        ValueError, match=f"sentence 2 has {pieces} pi"
    ):
        translator.translate([TEXTS[0], page])


def test_not_a_string(translator):
    with pytest.raises(TypeError, match="sentence 2 is int"):
        translator.translate([TEXTS[0], 7])


def test_beam_is_ranked(translator):
    ranked = translator.beam(TEXTS[0], beam_size=3, max_extra=5)
    scores = [one.score for one in ranked]
    ended = [one.pieces[-1] == "<eos>" for one in ranked]
    assert 1 <= len(ranked) <= 3
    assert sorted(
        zip(ended, scores, strict=True), reverse=True
    ) == list(zip(ended, scores, strict=True))
    assert ranked[0].text == translator.translate(
        TEXTS[0], beam_size=3, max_extra=5
    )


def test_attention_axes_fit_the_maps(translator):
    seen = translator.attention(TEXTS[0], TEXTS[2])
    assert seen.source[-1] == seen.predicted[-1] == "<eos>"
    assert seen.target[0] == "<bos>"
    assert seen.target[1:] == seen.predicted[:-1]
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
        torch.testing.assert_close(
            seen.maps[path].sum(-1), torch.ones(shape[:-1])
        )


def test_attention_of_the_models_own_translation(translator):
    seen = translator.attention(TEXTS[0])
    said = greedy_decode(
        translator.model, torch.tensor(translator.encode(TEXTS[:1]))
    )
    assert seen.predicted == translator.pieces(said.ids[0][0])


def test_from_a_folder(translator, tmp_path):
    save_model(
        tmp_path,
        translator.model,
        translator.tokenizer,
        languages=("en", "es"),
    )
    loaded = Translator.from_pretrained(tmp_path, device="cpu")
    assert loaded.languages == ("en", "es")
    assert loaded.translate(
        TEXTS, max_extra=5
    ) == translator.translate(TEXTS, max_extra=5)


def test_unknown_name_lists_the_names(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "transformer_lib.translator.bundled_models",
        lambda: {"little-spanish": tmp_path, "another": tmp_path},
    )
    with pytest.raises(
        FileNotFoundError, match="another, little-spanish"
    ):
        Translator.from_pretrained("litle-spanish")


def test_a_folder_without_tokenizer(translator, tmp_path):
    save_model(tmp_path, translator.model)
    with pytest.raises(FileNotFoundError, match="no tokenizer"):
        Translator.from_pretrained(tmp_path)


def test_making_one_leaves_the_model_in_training(translator):
    model = translator.model.train()
    made = Translator(model, translator.tokenizer)
    made.translate(TEXTS[0], max_extra=5)
    made.attention(TEXTS[0], TEXTS[2])
    assert model.training


@pytest.mark.skipif(
    "little-spanish" not in bundled_models(),
    reason="runs/little-spanish is not recorded yet",
)
def test_bundled_model_translates():
    translator = Translator.from_pretrained("little-spanish", "cpu")
    assert translator.languages == ("en", "es")
    said = translator.translate("I like trees")
    assert said == "Me gustan los árboles"
