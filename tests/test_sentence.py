"""What the first sentence shows, held on the shipped model."""

from pathlib import Path

import pytest
import torch

from transformer_lib.decoding import greedy_decode
from transformer_lib.embeddings import BOS, EOS
from transformer_lib.translator import Translator

FOLDER = Path(__file__).parent.parent / "runs/models/little-spanish"
PAIRS = {
    "I like trees": "Me gustan los árboles",
    "I like the tree": "Me gusta el árbol",
    "I do not like trees": "No me gustan los árboles",
}


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained(FOLDER, device="cpu")


def encoded(translator, text):
    return torch.tensor([[*translator.tokenizer.encode(text), EOS]])


@torch.no_grad()
def written(model, source_ids):
    """Ids from bos on, one at a time, and the chance of each."""
    memory = model.encode(source_ids)
    ids, chances = [BOS], []
    while ids[-1] != EOS and len(ids) < 20:
        states = model.decode(torch.tensor([ids]), memory, source_ids)
        best = model.project(states[:, -1]).softmax(-1)[0].max(0)
        ids.append(int(best.indices))
        chances.append(best.values)
    return ids, torch.stack(chances)


@pytest.mark.parametrize("english, spanish", PAIRS.items())
def test_the_sentences_of_the_page(english, spanish, translator):
    assert translator.translate(english, beam_size=1) == spanish
    # With a cache, piece by piece, as from all that is written so far.
    source_ids = encoded(translator, english)
    ids, chances = written(translator.model, source_ids)
    found = greedy_decode(translator.model, source_ids)
    assert found.ids[0][0] == ids[1:]
    [[total]] = found.log_probabilities
    assert total == pytest.approx(chances.log().sum().item(), abs=1e-3)


@pytest.mark.parametrize("english", PAIRS)
def test_one_run_says_what_writing_step_by_step_says(english, translator):
    """Section 3.1: the mask and the shift by one position."""
    source_ids = encoded(translator, english)
    ids, chances = written(translator.model, source_ids)
    with torch.no_grad():
        logits = translator.model(source_ids, torch.tensor([ids[:-1]]))[0]
    best = logits.softmax(-1).max(-1)
    assert best.indices.tolist() == ids[1:]
    assert torch.allclose(best.values, chances, atol=1e-5)


def test_the_memory_has_a_vector_for_each_piece(translator):
    for english in PAIRS:
        source_ids = encoded(translator, english)
        memory = translator.model.encode(source_ids)
        width = translator.model.config.d_model
        assert memory.shape == (1, source_ids.size(1), width)
