"""What holds for every translator of the book, whatever its parts.

Ours with its options, models with a part of one's own, other layers in
attention's place, the rows of table 3 and the rungs of the ladder.
"""

from functools import partial

import own_models
import pytest
import torch
import variations
from translators import log_probabilities, naive

from transformer_book.other_layers import (
    ConvolutionInPlace,
    RecurrenceInPlace,
    convolutional_translator,
    recurrent_translator,
    swapped,
)
from transformer_lib.beams import beam_search
from transformer_lib.decoding import DecoderCache, greedy_decode
from transformer_lib.embeddings import EOS
from transformer_lib.model import Transformer, TransformerConfig

SIZES = dict(N=2, d_model=16, d_ff=12, h=4, dropout=0.0)
LEARNED = dict(positions="learned", max_length=40)
SOURCE = torch.tensor([[5, 6, 7, 8, 9, EOS], [9, 4, EOS, 0, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12, 5], [2, 9, 0, 0, 0]])


def sized(make, **changes):
    return make(TransformerConfig(14, **(SIZES | changes)))


MODELS = {
    "ours": partial(sized, Transformer),
    "pre-norm": partial(sized, Transformer, norm="pre"),
    "learned positions": partial(sized, Transformer, **LEARNED),
    "no positions": partial(sized, Transformer, positions="none"),
    "narrow values": partial(sized, Transformer, d_k=5, d_v=3),
    "recurrent": partial(sized, recurrent_translator),
    "convolutional": partial(sized, convolutional_translator),
    "learned windows": partial(sized, convolutional_translator, **LEARNED),
    "wide windows": partial(sized, partial(convolutional_translator, k=4)),
}
for kind in ConvolutionInPlace, RecurrenceInPlace:
    for stack in "encoder", "decoder":
        make = partial(swapped, stack=stack, kind=kind)
        MODELS[f"{kind.__name__}, {stack}"] = partial(sized, make)
for make in own_models.KINDS:
    MODELS[make.__name__] = partial(sized, make)
for row, changes in variations.ROWS.items():
    if callable(changes):  # the others are of other sizes
        MODELS[f"row {row}"] = lambda row=row: variations.build(row, 14)[0]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """In double precision, with clear choices, not in training."""
    torch.manual_seed(0)
    model = MODELS[request.param]().double().eval()
    with torch.no_grad():
        model.output_weight.mul_(3)
    return model


def test_a_later_target_never_changes_earlier_logits(model):
    ids, source = torch.randint(4, 14, (2, 3, 9))
    for t in range(1, 9):
        changed = ids.clone()
        changed[:, t:] = torch.randint(0, 14, (3, 9 - t))
        a, b = model(source, ids), model(source, changed)
        assert torch.equal(a[:, :t], b[:, :t])
        assert not torch.equal(a[:, t], b[:, t])


def test_padding_never_changes_result_nor_gradient(model):
    """Longer padding, and a batch against its sentences one by one."""
    pad = torch.nn.functional.pad
    rows = [
        (s[s != 0][None], t[t != 0][None])
        for s, t in zip(SOURCE, TARGET, strict=True)
    ]
    results = []
    for batches in (
        [(SOURCE, TARGET)],
        [(pad(SOURCE, (0, 7)), pad(TARGET, (0, 5)))],
        rows,
    ):
        model.zero_grad()
        found = torch.cat([model(s, t)[t != 0] for s, t in batches])
        found.logsumexp(-1).sum().backward()
        grads = [p.grad.clone() for p in model.parameters()]
        results.append([found.detach(), *grads])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-12, rtol=1e-9)


def test_every_token_of_a_source_reaches_its_logits_alone(model):
    """The first and the last token too."""
    before = model(SOURCE, TARGET)
    for place in range(5):
        changed = SOURCE.clone()
        changed[0, place] = 13
        after = model(changed, TARGET)
        assert not torch.equal(after[0, 0], before[0, 0])
        assert torch.equal(after[1], before[1])


def test_gradients_reach_all_weights(model):
    model.zero_grad()
    model(SOURCE, TARGET)[TARGET != 0].logsumexp(-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.any(), name


@torch.no_grad()
def test_with_a_cache_it_computes_what_it_does_without(model):
    """One token or several at a time; rows change places and leave."""
    memory = model.encode(SOURCE)
    ids = torch.randint(4, 14, (2, 12))
    wanted = model.decode(ids, memory, SOURCE)
    cache = DecoderCache(model, memory)
    rows, end = torch.arange(2), 0
    for size, chosen in (
        (1, [0, 1]),
        (1, [1, 0]),
        (4, [1, 0, 1]),
        (1, [2]),
        (5, [0]),
    ):
        begin, end = end, end + size
        new = ids[rows, begin:end]
        found = model.decode(new, None, SOURCE[rows], cache)
        torch.testing.assert_close(found, wanted[rows, begin:end])
        rows = rows[chosen]
        cache.select(torch.tensor(chosen))
    assert end == 12


def test_searches_say_what_teacher_forcing_says(model):
    """Greedy is the naive loop and a beam of one; sums are right."""
    found = greedy_decode(model, SOURCE, 6)
    assert beam_search(model, SOURCE, 1, 0.0, 6) == found
    wide = beam_search(model, SOURCE, 3, 0.0, 6)
    for row, source in enumerate(SOURCE):
        limit = int((source > EOS).sum()) + 6
        assert found[row][0].ids == naive(model, source, limit)
        ids = [hypothesis.ids for hypothesis in wide[row]]
        totals = log_probabilities(model, source, ids)
        told = [hypothesis.log_probability for hypothesis in wide[row]]
        assert told == pytest.approx(totals, abs=1e-4)
