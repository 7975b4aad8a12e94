# Collected from book/back/checks_sentence.md by tools/tangle.py.
# Do not edit: change the chapter, then run `make tangle`.

"""Self-checks of the exercises on one sentence and background."""

import torch

from transformer_lib.exercises import exercise
from transformer_lib.model import Transformer, TransformerConfig

__all__ = [
    "background_dilations",
    "background_layers_needed",
    "background_words_that_fit",
    "sentence_go_on",
    "sentence_greedy",
    "sentence_shapes",
]


@exercise("sentence.shapes")
def sentence_shapes(answer):
    """The shapes of memory and logits.

    Chapter: checks-sentence
    """
    found = answer()
    assert found["memory"] == (8, 12, 128), (
        "the memory has a vector of d_model for each source piece, "
        f"not {found['memory']}"
    )
    assert found["logits"] == (8, 15, 750), (
        "the logits have a score for each piece of the vocabulary at "
        f"each target position, not {found['logits']}"
    )


def _going_on(start: list[int]):
    """Small models, a source, and what they write after a start."""
    source = torch.tensor([[5, 6, 7, 3]])
    sizes = dict(N=1, d_model=16, d_ff=16, h=2, dropout=0.0)
    for seed in (18, 3, 21):  # some end by themselves, some never
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(12, **sizes)).eval()
        ids = [2, *start]
        while ids[-1] != 3 and len(ids) <= 50:
            logits = model(source, torch.tensor([ids]))
            ids.append(int(logits[0, -1].argmax()))
        yield model, source, ids[1:]


@exercise("sentence.greedy")
def sentence_greedy(answer):
    """Greedy decoding of one sentence.

    Chapter: checks-sentence
    """
    for model, source, right in _going_on([]):
        found = list(map(int, answer(model, source)))
        assert found[:1] != [2], "leave the start symbol out"
        assert len(found) <= 50, "it does not give up after 50 pieces"
        assert found == right, (
            f"wanted {right[:5]}..., got {found[:5]}...: take the "
            "newest position's likeliest piece; stop after eos (3)"
        )


@exercise("sentence.go_on")
def sentence_go_on(answer):
    """Greedy decoding after a beginning that somebody else chose.

    Chapter: checks-sentence
    """
    start = [7, 9]
    for model, source, right in _going_on(start):
        found = list(map(int, answer(model, source, start)))
        assert found[:2] == start, (
            f"it begins with {found[:2]}, not with the given {start}"
        )
        assert found == right, (
            f"after {start} wanted {right[2:6]}..., got "
            f"{found[2:6]}...: let the model read bos, the given "
            "ids and its own; 50 in all, those given included"
        )
    assert start == [7, 9], "it changed the list it was given"


@exercise("background.layers_needed")
def background_layers_needed(answer):
    """Layers of a plain convolution that reach a distance.

    Chapter: checks-background
    """
    cases = (7, 3, 7), (8, 5, 4), (9, 5, 5), (1, 9, 1)
    for distance, k, right in cases:
        got = answer(distance, k)
        assert got == right, (
            f"a signal moves {k // 2} words a layer if k is {k}, so "
            f"{distance} words take {right} layers, not {got}"
        )


@exercise("background.dilations")
def background_dilations(answer):
    """The fewest dilations that reach every word up to a distance.

    Chapter: checks-background
    """
    cases = (1, 1), (4, 2), (13, 3), (14, 4), (40, 4)
    for distance, fewest in cases:
        spread, reached = list(answer(distance)), {0}
        for dilation in spread:
            moves = (-dilation, 0, dilation)
            reached = {at + move for at in reached for move in moves}
        skipped = sorted(set(range(distance + 1)) - reached)
        assert not skipped, (
            f"{spread} never reaches the words {skipped[:5]} away"
        )
        assert len(spread) <= fewest, (
            f"{len(spread)} layers for {distance} words: {fewest} "
            "suffice"
        )


@exercise("background.words_that_fit")
def background_words_that_fit(answer):
    """How many words can be stored in so many bits.

    Chapter: checks-background
    """
    cases = (24, 8, 8), (25, 8, 8), (1, 2, 1)
    for bits, vocab_size, right in cases:
        got = answer(bits, vocab_size)
        assert got == right, (
            f"one of {vocab_size} words takes log2({vocab_size}) "
            f"bits: {bits} bits hold {right} whole words, not {got}"
        )
