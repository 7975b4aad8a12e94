"""The rivals of table 2: the Transformer's rules, with other layers."""

from functools import partial

import pytest
import torch
from translators import (
    copies,
    hides_what_comes_later,
    ignores_padding,
)

from transformer_lib.batching import TokenBatches
from transformer_lib.beams import beam_search
from transformer_lib.checkpoints import checkpoint_files
from transformer_lib.decoding import DecoderCache, greedy_decode
from transformer_lib.embeddings import EOS
from transformer_lib.model import TransformerConfig
from transformer_lib.rivals import (
    AdditiveAttention,
    ConvolutionalTranslator,
    RecurrentTranslator,
)
from transformer_lib.schedule import TrainingConfig
from transformer_lib.training import train

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 3], [9, 4, 3, 0, 0, 0]])
TARGET = torch.tensor([[2, 10, 11, 12, 5], [2, 9, 0, 0, 0]])
RIVALS = {
    "recurrent": RecurrentTranslator,
    "convolutional": ConvolutionalTranslator,
    "learned": ConvolutionalTranslator,
    "wide": partial(ConvolutionalTranslator, k=4),
}
every = pytest.mark.parametrize("kind", RIVALS)
both = pytest.mark.parametrize("kind", list(RIVALS)[:2])


def small(kind: str, seed: int = 0, **changes):
    torch.manual_seed(seed)
    sizes = dict(N=2, d_model=16, d_ff=12, h=4, dropout=0.0)
    if kind == "learned":
        sizes |= dict(positions="learned", max_length=40)
    config = TransformerConfig(14, **(sizes | changes))
    return RIVALS[kind](config)


@every
def test_later_target_never_changes_earlier_logits(kind):
    hides_what_comes_later(small(kind).double().eval())


@every
def test_padding_never_changes_result_nor_gradient(kind):
    ignores_padding(small(kind).double(), SOURCE, TARGET)


@every
def test_every_source_piece_reaches_the_logits(kind):
    """The first and the last piece too, from both ends."""
    model = small(kind).double().eval()
    before = model(SOURCE, TARGET)
    for place in range(5):
        changed = SOURCE.clone()
        changed[0, place] = 13
        after = model(changed, TARGET)
        assert not torch.equal(after[0, 0], before[0, 0])
        assert torch.equal(after[1], before[1])


@every
def test_gradients_reach_all_parameters(kind):
    model = small(kind, tie="none")
    model(SOURCE, TARGET)[TARGET != 0].logsumexp(-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


@every
def test_with_the_cache_step_by_step_equals_teacher_forcing(kind):
    """Rows change places and leave meanwhile, as in a search."""
    model = small(kind).double().eval()
    memory = model.encode(SOURCE)
    ids = torch.randint(4, 14, (2, 9))
    wanted = model.decode(ids, memory, SOURCE)
    cache = DecoderCache(model, memory)
    rows, source = torch.arange(2), SOURCE
    for t in range(9):
        new = ids[rows, t : t + 1]
        found = model.decode(new, None, source, cache)
        torch.testing.assert_close(found[:, 0], wanted[rows, t])
        chosen = {2: [1, 0], 4: [1, 0, 1], 6: [2]}.get(t)
        if chosen:
            chosen = torch.tensor(chosen)
            rows, source = rows[chosen], source[chosen]
            cache.select(chosen)


@every
@pytest.mark.parametrize("seed", range(3))
def test_searches_say_what_teacher_forcing_says(kind, seed):
    """Greedy is the naive loop and a beam of one; sums are right."""
    model = small(kind, seed).double().eval()
    with torch.no_grad():
        model.output_weight.mul_(3)  # clear choices
    found = greedy_decode(model, SOURCE, 6)
    assert beam_search(model, SOURCE, 1, 0.0, 6).ids == found.ids
    wide = beam_search(model, SOURCE, 3, 0.0, 6)
    for row, source in enumerate(SOURCE):
        limit = int((source > EOS).sum()) + 6
        ids = [2]
        while len(ids) <= limit and ids[-1] != EOS:
            logits = model(source[None], torch.tensor([ids]))[0, -1]
            logits[[0, 2]] = -torch.inf
            ids.append(logits.argmax().item())
        assert found.ids[row][0] == ids[1:]
        for said, total in zip(
            wide.ids[row], wide.log_probabilities[row], strict=True
        ):
            ids = torch.tensor([[2, *said]])
            logs = model(source[None], ids[:, :-1]).log_softmax(-1)
            logs = logs.gather(2, ids[:, 1:, None])
            assert abs(logs.sum().item() - total) < 1e-4


TRAINING = TrainingConfig(
    warmup_steps=100,
    max_steps=200,
    learning_rate_scale=0.5,
    label_smoothing=0.0,
    device="cpu",
)


@both
def test_learns_to_copy(kind):
    """Guessing one of ten symbols costs two nats a piece and more."""
    model = small(kind, N=1, d_model=32, d_ff=48)
    batches = TokenBatches(copies(600, 6, 14), 256)
    new = TokenBatches(copies(100, 6, 14, seed=1), 256)
    history = train(model, batches, TRAINING, new)
    assert history.lines[-1]["validation_loss"] < 0.9
    for source, _ in copies(3, 6, 14):  # some of those it has seen
        found = greedy_decode(model, torch.tensor([source]))
        assert found.ids[0][0][-1] == EOS


@both
def test_a_training_goes_on_as_if_not_stopped(kind, tmp_path):
    batches = TokenBatches(copies(60, 6, 14), 64)
    ends = []
    for stops in ([8], [3, 8]):
        model = small(kind, dropout=0.2)
        for number, stop in enumerate(stops):
            if number:  # another process: other weights at first
                model = small(kind, seed=9, dropout=0.2)
            c = TrainingConfig(max_steps=stop, device="cpu")
            folder = tmp_path / str(len(stops))
            train(model, batches, c, folder=folder)
        assert checkpoint_files(folder)
        ends.append(model.state_dict())
    torch.testing.assert_close(*ends, atol=0, rtol=0)


def test_additive_attention_is_its_equation():
    attend = AdditiveAttention(6, 8).double()
    x = torch.randn(2, 3, 6).double()
    memory = torch.randn(2, 5, 8).double()
    mask = torch.ones(2, 1, 1, 5).bool()
    mask[1, ..., 3:] = False
    found = attend(x, memory, mask)
    w_q, b, w_k, v = attend.parameters()
    for row, length in ((0, 5), (1, 3)):
        for at in range(3):
            q = w_q @ x[row, at] + b
            scores = [
                (v[0] * (q + w_k @ k).tanh()).sum()
                for k in memory[row, :length]
            ]
            weights = torch.stack(scores).softmax(0)
            wanted = weights @ memory[row, :length]
            torch.testing.assert_close(found[row, at], wanted)


def test_gated_branch_begins_with_the_variance_of_its_input():
    torch.manual_seed(0)
    model = ConvolutionalTranslator(
        TransformerConfig(9, N=1, d_model=256, dropout=0.0)
    )
    gated = model.encoder.layers[0].gated
    x = torch.randn(4, 102, 256)
    assert gated(x).shape == (4, 100, 256)
    # GLU's gate averages a half: its variance is about one
    assert 0.8 < gated(x).var() < 1.6


def test_reach_of_convolutions():
    """Layer for layer a window of 3: behind, or to either side."""
    model = small("convolutional", N=2).double().eval()
    decoded, encoded = set(), set()
    source, target = torch.full((2, 1, 9), 5)
    memory, hidden = model.encode(SOURCE[:1]), model.encode(source)
    before = model.decode(target, memory, None)
    for place in range(9):
        ids = target.clone()
        ids[0, place] = 11
        if not model.encode(ids)[0, 4].equal(hidden[0, 4]):
            encoded.add(place)
        after = model.decode(ids, memory, None)
        if not torch.equal(after[0, -1], before[0, -1]):
            decoded.add(place)
    assert decoded == {4, 5, 6, 7, 8}
    assert encoded == {2, 3, 4, 5, 6}


def test_recurrent_translator_reads_in_order_without_positions():
    model = small("recurrent").eval()
    assert model.config.positions == "none"
    turned = SOURCE.clone()
    turned[0, :2] = SOURCE[0, :2].flip(0)
    a, b = model(SOURCE, TARGET), model(turned, TARGET)
    assert not torch.allclose(a[0], b[0])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: small("recurrent", d_ff=0), "d_ff=0"),
        (lambda: small("recurrent", dropout=1.0), "dropout=1.0"),
        (
            lambda: ConvolutionalTranslator(TransformerConfig(9), 0),
            "k=0",
        ),
        (lambda: small("convolutional")(SOURCE[0], TARGET), "None"),
        (
            lambda: small("learned", max_length=3)(SOURCE, TARGET),
            "max_length",
        ),
        (lambda: small("recurrent")(SOURCE + 50, TARGET), "14"),
    ],
)
def test_bad_sizes_are_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()
