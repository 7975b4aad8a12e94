"""What the first sentence shows, held on the shipped model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from translators import decode_in_parts

from transformer_lib.batching import collate
from transformer_lib.decoding import DecoderCache
from transformer_lib.embeddings import BOS, EOS, PAD
from transformer_lib.model import Transformer
from transformer_lib.positions import sinusoids
from transformer_lib.translator import Translator

FOLDER = Path(__file__).parent.parent / "pretrained/little-spanish"
PAIRS = {
    "I like trees": "Me gustan los árboles",
    "I like the tree": "Me gusta el árbol",
    "I do not like trees": "No me gustan los árboles",
}


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained(FOLDER, device="cpu")


@pytest.fixture(scope="module")
def batch(translator):
    """The sentences of the page, and all of them three times over."""
    pairs = [*PAIRS.items()]
    pairs.append((" ".join([*PAIRS] * 3), " ".join([*PAIRS.values()] * 3)))
    encode = translator.tokenizer.encode
    return collate([([*encode(a), EOS], [*encode(b), EOS]) for a, b in pairs])


def alone(ids):
    """One row of a batch as a batch of its own, without padding."""
    return ids[ids != PAD][None]


def embedded(model, ids):
    table = sinusoids(ids.size(1), model.config.d_model)
    return model.output_weight[ids] * model.config.d_model**0.5 + table


def encoded_by_hand(model, source_ids):
    """Layer by layer, for one sentence without padding."""
    x = embedded(model, source_ids)
    for layer in model.encoder.layers:
        first, second = layer.residuals
        x = first.norm(x + layer.self_attention(x, x))
        x = second.norm(x + layer.feed_forward(x))
    return x


def decoded_by_hand(model, target_ids, memory):
    x = embedded(model, target_ids)
    before = torch.ones(x.size(1), x.size(1)).tril().bool()
    for layer in model.decoder.layers:
        first, second, third = layer.residuals
        x = first.norm(x + layer.self_attention(x, x, before))
        x = second.norm(x + layer.cross_attention(x, memory))
        x = third.norm(x + layer.feed_forward(x))
    return x


@torch.no_grad()
def decodes_as_by_hand(model, batch):
    """All at once, one by one and two by two; rows that end leave."""
    source_ids = batch.source_ids
    memory, lengths = model.encode(source_ids), (batch.labels != PAD).sum(1)
    wanted = [
        decoded_by_hand(model, alone(target)[:, :length], one[None, :size])[0]
        for target, length, one, size in zip(
            batch.target_ids,
            lengths,
            memory,
            (source_ids != PAD).sum(1),
            strict=True,
        )
    ]
    states = model.decode(batch.target_ids, memory, source_ids)
    for row, length in enumerate(lengths):
        assert torch.allclose(states[row, :length], wanted[row], atol=1e-4)
    for step in (1, 2):
        cache = DecoderCache(model, memory)
        rows = torch.arange(len(memory))
        for t in range(0, batch.labels.size(1), step):
            new = batch.target_ids[rows, t : t + step]
            states = model.decode(new, None, source_ids[rows], cache)
            for row, state in zip(rows, states, strict=True):
                same = wanted[row][t : t + step]
                assert torch.allclose(state[: len(same)], same, atol=1e-4)
            going = lengths[rows] > t + step
            cache.select(going.nonzero()[:, 0])
            rows = rows[going]


def test_the_sentences_of_the_page(translator, batch):
    assert translator.translate([*PAIRS], beam_size=1) == [*PAIRS.values()]
    for english, spanish in PAIRS.items():
        assert translator.translate(english, beam_size=1) == spanish
    decodes_as_by_hand(translator.model, batch)


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_one_run_says_what_writing_step_by_step_says(
    training, translator, batch
):
    """Section 3.1: the mask and the shift by one position."""
    config = replace(translator.model.config, dropout=0.0)
    model = Transformer(config).train(training)
    model.load_state_dict(translator.model.state_dict())
    at_once = model(batch.source_ids, batch.target_ids).softmax(-1)
    for row, labels in enumerate(batch.labels):
        source_ids = alone(batch.source_ids[row])
        memory = model.encode(source_ids)
        ids = [BOS, *alone(labels)[0].tolist()]
        for t in range(1, len(ids)):
            before = torch.tensor([ids[:t]])
            states = model.decode(before, memory, source_ids)
            chances = model.project(states[0, -1]).softmax(-1)
            assert torch.allclose(at_once[row, t - 1], chances, atol=1e-5)
    decodes_as_by_hand(model, batch)
    # With learnt positions too, which the shipped model has not.
    other = Transformer(replace(config, positions="learned")).train(training)
    states = other.hidden(batch.source_ids, batch.target_ids)
    memory = other.encode(batch.source_ids)
    parts = decode_in_parts(other, batch.target_ids, memory, batch.source_ids)
    real = batch.labels != PAD
    assert torch.allclose(parts[real], states[real], atol=1e-4)


@torch.no_grad()
def test_the_memory_has_a_vector_for_each_piece(translator, batch):
    model = translator.model
    memory = model.encode(batch.source_ids)
    assert memory.shape == (*batch.source_ids.shape, model.config.d_model)
    for source, vectors in zip(batch.source_ids, memory, strict=True):
        wanted = encoded_by_hand(model, alone(source))[0]
        assert torch.allclose(vectors[: len(wanted)], wanted, atol=1e-4)
